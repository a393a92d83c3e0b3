package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"felix/client"
)

// limited writes a program that is felixd with at most n descriptors. The runtime raises a soft limit, so it is the hard one.
func limited(t *testing.T, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "felixd-limited")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec '%s' \"$@\"\n", n, binary)
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// processorTime is what a process has used so far, in ticks of a hundredth of a second.
func processorTime(t *testing.T, pid int) (ticks int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:])) // behind the name, from the state on
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ticks += n
	}
	return ticks
}

// With few descriptors a broker of many streams starts, serves all of them, starts again, and does not burn a processor when peers take
// every descriptor that is left.
func TestFewDescriptors(t *testing.T) {
	const descriptors, streams, read = 256, 1000, 100
	program, data := limited(t, descriptors), t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	name := func(i int) string { return fmt.Sprintf("s-%d", i) }
	for round := range 2 {
		d := startProgram(t, program, nil, "--data", data)
		c := d.dial(ctx)
		var futures []*client.Future
		for i := range streams {
			p, err := c.Publisher(name(i))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, p.PublishAsync(ctx, fmt.Appendf(nil, "%d of round %d", i, round)))
		}
		for i, f := range futures {
			if ack, err := f.Wait(ctx); err != nil || ack.Offset != client.Offset(round) {
				t.Fatalf("stream %d: offset %d, %v", i, ack.Offset, err)
			}
		}
		for i := range read {
			sub, err := c.Subscribe(ctx, name(i), client.FromEarliest())
			if err != nil {
				t.Fatal(err)
			}
			for of := range round + 1 {
				if m, err := sub.Next(ctx); err != nil || string(m.Data) != fmt.Sprintf("%d of round %d", i, of) {
					t.Fatalf("stream %d: %q, %v", i, m.Data, err)
				}
			}
		}
		if round == 1 {
			peersTakeDescriptors(ctx, t, d, descriptors)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		d.signal(syscall.SIGTERM)
		if code := d.end(); code != 0 {
			t.Fatalf("exit code %d: %s", code, d.stderr.String())
		}
	}
}

// peersTakeDescriptors opens more TCP connections to the admin listener than the broker has descriptors for.
func peersTakeDescriptors(ctx context.Context, t *testing.T, d *daemon, descriptors int) {
	t.Helper()
	for range descriptors + 50 {
		conn, err := net.Dial("tcp", d.Admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	c := d.dial(ctx) // QUIC needs no descriptor of its own
	defer c.Close()
	if _, err := c.Publish(ctx, "s-0", []byte("still here")); err != nil {
		t.Errorf("with every descriptor taken: %v", err)
	}
	before := processorTime(t, d.PID)
	<-time.After(2 * time.Second)
	if used := processorTime(t, d.PID) - before; used > 100 {
		t.Errorf("%d hundredths of a second of processor time in 2 s with nothing to do", used)
	}
	if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID)); err != nil || len(files) > descriptors {
		t.Errorf("%d descriptors, %v", len(files), err)
	}
}

// With too few it says so and ends.
func TestTooFewDescriptors(t *testing.T) {
	for n := 8; n <= 24; n += 4 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		home := t.TempDir()
		ready := filepath.Join(home, "ready.json")
		cmd := exec.CommandContext(ctx, limited(t, n), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(home, "data"), "--ready-file", ready)
		cmd.Env = environment(home)
		var out output
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		tick := time.NewTicker(10 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case err := <-ended:
				waiting = false
				if err == nil || ctx.Err() != nil || !strings.Contains(out.String(), "too many open files") {
					t.Errorf("with %d descriptors: %v: %s", n, err, out.String())
				}
			case <-tick.C:
				if _, err := os.Stat(ready); err == nil { // it can live with so few
					waiting = false
					cmd.Process.Signal(syscall.SIGTERM)
					if err := <-ended; err != nil {
						t.Errorf("with %d descriptors it started and ended with %v: %s", n, err, out.String())
					}
				}
			}
		}
		tick.Stop()
		cancel()
		t.Logf("%d descriptors: %s", n, strings.SplitN(out.String(), "\n", 2)[0])
	}
	http.DefaultClient.CloseIdleConnections()
}
