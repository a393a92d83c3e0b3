package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"felix"

	"felix/perf/load"
)

// A host is a data directory and the ports of the brokers that run on it, one after the other.
type host struct {
	felixd string
	dir    string   // data and everything else that the broker writes
	args   []string // besides those of start
	ready  felix.Ready
}

// A broker is a felixd process. Its methods belong to one goroutine.
type broker struct {
	cmd    *exec.Cmd
	stderr tail
	ready  chan struct{} // closed when clients can connect
	ended  chan struct{} // closed when the process is gone
	err    error         // of the process; set before ended is closed
}

// launch starts felixd and does not wait for it. From the second start on it takes the ports of the first.
func (h *host) launch(ctx context.Context, args ...string) (*broker, error) {
	listen := "127.0.0.1:0"
	if h.ready.Listen != "" {
		listen = h.ready.Listen
		if len(h.ready.Ports) > 0 {
			var ports []string
			for _, p := range h.ready.Ports {
				ports = append(ports, strconv.Itoa(int(p)))
			}
			args = append([]string{"--listener-ports", strings.Join(ports, ",")}, args...)
		}
	}
	args = append([]string{
		"--listen", listen, "--admin", "off", "--data", filepath.Join(h.dir, "data"), "--ready-file", h.readyFile(),
	}, args...)
	b := &broker{ready: make(chan struct{}), ended: make(chan struct{})}
	b.cmd = exec.CommandContext(ctx, h.felixd, append(args, h.args...)...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FELIX_") {
			b.cmd.Env = append(b.cmd.Env, entry)
		}
	}
	// The note for the felix command goes where no person's tools look.
	b.cmd.Env = append(b.cmd.Env, "HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir)
	b.cmd.Stderr = &b.stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(b.ended)
		banner := bufio.NewReader(stdout)
		if _, err := banner.ReadString('\n'); err == nil {
			close(b.ready) // it is printed once clients can connect
		}
		_, _ = io.Copy(io.Discard, banner)
		b.err = b.cmd.Wait()
	}()
	return b, nil
}

func (h *host) readyFile() string { return filepath.Join(h.dir, "ready.json") }

// startTries bounds how often a start is repeated because somebody else has taken a port between two brokers.
const startTries = 20

// start starts felixd and returns when clients can connect, and how long that took.
func (h *host) start(ctx context.Context, args ...string) (*broker, time.Duration, error) {
	for try := 1; ; try++ {
		begun := time.Now()
		b, err := h.launch(ctx, args...)
		if err != nil {
			return nil, 0, err
		}
		select {
		case <-b.ready:
			took := time.Since(begun)
			content, err := os.ReadFile(h.readyFile())
			if err == nil {
				err = json.Unmarshal(content, &h.ready)
			}
			if err != nil {
				return nil, 0, errors.Join(fmt.Errorf("the ready file of a running broker: %w", err), b.kill())
			}
			return b, took, nil
		case <-b.ended:
			text := b.stderr.String()
			if strings.Contains(text, "in use") && h.ready.Listen != "" && try < startTries && ctx.Err() == nil {
				continue
			}
			return nil, 0, fmt.Errorf("felixd ended with %v before it was ready:\n%s", b.err, text)
		}
	}
}

// kill ends the broker with SIGKILL. That it had ended by itself is an error.
func (b *broker) kill() error {
	select {
	case <-b.ended:
		return fmt.Errorf("felixd ended by itself with %v:\n%s", b.err, b.stderr.String())
	default:
	}
	err := b.cmd.Process.Kill()
	<-b.ended
	status, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("felixd ended with %v (%w) when it was to be killed:\n%s", b.err, err, b.stderr.String())
	}
	return nil
}

// dump ends a broker that hangs, with SIGQUIT: its goroutines are then in what it printed.
func (b *broker) dump() error {
	_ = b.cmd.Process.Signal(syscall.SIGQUIT) // if it is gone already, err says why
	<-b.ended
	return fmt.Errorf("felixd ended with %v and said:\n%s", b.err, b.stderr.String())
}

// stop drains the broker with SIGTERM and waits for its end with code 0.
func (b *broker) stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-b.ended
	if b.err != nil {
		return fmt.Errorf("felixd drained and ended with %w:\n%s", b.err, b.stderr.String())
	}
	return nil
}

// tail keeps the end of what a process printed, for failures.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailBytes bounds what tail keeps; older text goes first.
const tailBytes = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// Build builds felixd into dir with the go tool and returns its path.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	felixd := filepath.Join(dir, "felixd")
	return felixd, load.Build(ctx, "", felixd, "felix/cmd/felixd", flags...)
}
