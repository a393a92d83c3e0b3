package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"go.uber.org/goleak"

	"felix"
	"felix/perf/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server in this process and returns how to reach it.
func start(t *testing.T, args ...string) felix.Ready {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	file := filepath.Join(dir, "ready.json")
	go func() { ended <- run(ctx, append(args, "--data", filepath.Join(dir, "data"), "--ready-file", file)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		content, err := os.ReadFile(file)
		var ready felix.Ready
		if err == nil && json.Unmarshal(content, &ready) == nil {
			return ready
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatal("it ended: ", err)
		case <-tick.C:
		case <-deadline:
			t.Fatal("it is not ready")
		}
	}
}

// TestServers opens connections to both as perf/scale does, and reads their memory.
func TestServers(t *testing.T) {
	for _, args := range [][]string{{"bare"}, {"felix", "--cores", "2"}} {
		t.Run(args[0], func(t *testing.T) {
			ready := start(t, args...)
			if want := map[string]int{"bare": 0, "felix": 2}[args[0]]; len(ready.Ports) != want || ready.PID != os.Getpid() {
				t.Errorf("%+v, want %d ports", ready, want)
			}
			idle, err := load.OpenIdle(t.Context(), load.FelixConfig{Addr: ready.Listen, CAFile: ready.CAFile}, 5)
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			if n := idle.Lost(); n != 0 {
				t.Errorf("%d of 5 connections were lost", n)
			}
			if m, err := load.FootprintOf(t.Context(), ready.Admin, ready.PID); err != nil || m.HeapLive <= 0 || m.RSS <= 0 {
				t.Errorf("%+v %v", m, err)
			}
			target, err := load.NewClientTarget(load.FelixConfig{Addr: ready.Listen, Admin: ready.Admin, CAFile: ready.CAFile})
			if err != nil {
				t.Fatal(err)
			}
			if c, err := target.Counters(t.Context()); err != nil || c[load.CPUSeconds] <= 0 {
				t.Errorf("%v %v", c, err)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"say bare or felix":              {},
		"neither bare nor felix":         {"other", "--data", dir, "--ready-file", dir + "/r"},
		"data and ready-file are needed": {"bare", "--data", dir},
		"flag provided but not defined":  {"bare", "--nothing"},
		"not an ip:port":                 {"bare", "--data", dir, "--ready-file", dir + "/r", "--listen", "x"},
		"listen is":                      {"felix", "--data", dir, "--ready-file", dir + "/r", "--listen", "x"},
		"give a number from 0 to 64":     {"felix", "--data", dir, "--ready-file", dir + "/r", "--cores", "65"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// The windows and bounds that bare has of its own are the defaults of the broker that it is held against.
func TestBareHasTheBrokersWindows(t *testing.T) {
	settled, err := felix.LoadSettings(felix.SettingsInput{})
	if err != nil {
		t.Fatal(err)
	}
	c := quicConfig()
	have := map[string]uint64{
		"initial_stream_window": c.InitialStreamReceiveWindow, "max_stream_window": c.MaxStreamReceiveWindow,
		"initial_conn_window": c.InitialConnectionReceiveWindow, "max_conn_window": c.MaxConnectionReceiveWindow,
	}
	for _, v := range settled.Values {
		bare, ok := have[v.Key]
		if !ok {
			continue
		}
		delete(have, v.Key)
		if n, err := humanize.ParseBytes(v.Text); err != nil || n != bare {
			t.Errorf("%s is %q (%v), and of bare %d", v.Key, v.Text, err, bare)
		}
	}
	for key := range have {
		t.Errorf("no setting is called %s", key)
	}
}
