package core

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Every problem of a Config is named at once, with its value.
func TestConfigProblems(t *testing.T) {
	_, err := NewGroup(Config{
		Cores: 65, Spin: time.Second, InboxDepth: -1, RingDepth: MaxDepth + 1, Pinned: true, Baton: true,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Cores is 65", "Spin is 1s", "InboxDepth is -1", "RingDepth is 1048577", "Baton", "Now is nil"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	for cores, depth := range map[int]int{1: 1024, 8: 1024, 16: 512, 64: 128} {
		g := newGroup(t, Config{Cores: cores})
		if g.cfg.InboxDepth != DefaultInboxDepth || g.cfg.RingDepth != depth {
			t.Errorf("%d cores: inbox %d, ring %d, want ring %d", cores, g.cfg.InboxDepth, g.cfg.RingDepth, depth)
		}
		if len(g.Loops()) != cores || g.Loop(ID(cores-1)).ID() != ID(cores-1) || g.Loop(0).Group() != g {
			t.Errorf("%d cores: loops are not what was asked for", cores)
		}
	}
}

// Pinned cores take the CPUs in turn, with one warning when they share; a CPU out of reach is refused.
func TestPinning(t *testing.T) {
	var log bytes.Buffer
	pins := make(chan int, 5)
	cfg := Config{
		Cores: 5, Pinned: true, Now: clock(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		allowed: func() ([]int, error) { return []int{2, 3, 6}, nil },
		pin:     func(cpu int) error { pins <- cpu; return nil },
	}
	startGroup(t, cfg)
	got := map[int]int{}
	for range 5 {
		got[<-pins]++
	}
	if got[2] != 2 || got[3] != 2 || got[6] != 1 {
		t.Errorf("cores per CPU: %v", got)
	}
	if n := strings.Count(log.String(), "share"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}

	cfg.CPUs = []int{6, 7}
	if _, err := NewGroup(cfg); err == nil || !strings.Contains(err.Error(), "CPU 7") || !strings.Contains(err.Error(), "[2 3 6]") {
		t.Errorf("CPU 7: %v", err)
	}
	cfg.allowed = func() ([]int, error) { return nil, errors.New("no mask") }
	if _, err := NewGroup(cfg); err == nil || !strings.Contains(err.Error(), "no mask") {
		t.Errorf("no mask: %v", err)
	}
	cfg.allowed = func() ([]int, error) { return nil, nil }
	if _, err := NewGroup(cfg); err == nil {
		t.Error("no CPUs: accepted")
	}
}

// A pin that fails once the group runs is told, and the core works without it.
func TestPinFails(t *testing.T) {
	logged := make(chan string, 1)
	cfg := Config{
		Cores: 1, Pinned: true, Logger: slog.New(slog.NewTextHandler(lineWriter(logged), nil)),
		allowed: func() ([]int, error) { return []int{0}, nil },
		pin:     func(int) error { return errors.New("not permitted") },
	}
	g := startGroup(t, cfg)
	do(t, g.Loop(0), func(*Loop) {})
	if line := <-logged; !strings.Contains(line, "not permitted") || !strings.Contains(line, "cpu=0") {
		t.Errorf("logged %q", line)
	}
}

// lineWriter sends each write to a channel.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) { w <- string(p); return len(p), nil }

func TestStartTwice(t *testing.T) {
	g := startGroup(t, Config{Cores: 1})
	mustPanic(t, g.Start)
	mustPanic(t, func() { g.Loop(0).AddAgent(&passAgent{}) })
}

// Close runs all that was accepted and what follows from it over many hops, then refuses.
func TestCloseDrains(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		cfg.RingDepth, cfg.InboxDepth = 4, 64
		g := newGroup(t, cfg)
		g.Start()
		var accepted, hops atomic.Int64
		const trip = 50
		var hop func(left int) Func
		hop = func(left int) Func {
			return func(l *Loop) {
				hops.Add(1)
				if left > 1 {
					l.Send((l.id+1)%ID(cfg.Cores), hop(left-1))
				}
			}
		}
		var wg sync.WaitGroup
		for _, l := range g.Loops() {
			for range 3 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						err := l.PostOffCore(hop(trip))
						if err != nil {
							if !errors.Is(err, ErrClosed) {
								t.Error(err)
							}
							return
						}
						accepted.Add(1)
					}
				}()
			}
		}
		until(t, func() bool { return accepted.Load() > 100 }, "posts")
		g.Close()
		after := hops.Load()
		wg.Wait()
		if want := accepted.Load() * trip; after != want || hops.Load() != want {
			t.Errorf("%d hops at the end of Close, %d later, want %d", after, hops.Load(), want)
		}
		l := g.Loop(0)
		if err := l.PostOffCore(hop(1)); !errors.Is(err, ErrClosed) {
			t.Errorf("post after Close: %v", err)
		}
		if l.TryPostOffCore(hop(1)) {
			t.Error("TryPostOffCore after Close")
		}
		l.WakeOffCore() // harmless
		g.Close()       // also
	})
}

// A post that waits for room when the group closes is not taken, and says so.
func TestCloseFreesWaitingPosters(t *testing.T) {
	g := newGroup(t, Config{Cores: 1, InboxDepth: 1})
	g.Start()
	l := g.Loop(0)
	entered, release := make(chan struct{}), make(chan struct{})
	post(t, l, func(*Loop) { close(entered); <-release })
	wait(t, entered, "the busy core")
	ran := false
	post(t, l, func(*Loop) { ran = true })
	failed := make(chan error, 1)
	go func() { failed <- l.PostOffCore(Func(func(*Loop) { t.Error("a refused task ran") })) }()
	until(t, waitingAre(l.inbox, 1), "a waiting poster")
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	select {
	case err := <-failed:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("waiting post: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the waiting post hangs")
	}
	select {
	case <-closed:
		t.Error("Close did not wait for a task that runs")
	default:
	}
	close(release)
	wait(t, closed, "Close")
	if !ran {
		t.Error("an accepted task did not run")
	}
}

func TestCloseWithoutStart(t *testing.T) {
	g := newGroup(t, Config{Cores: 2})
	ran := false
	post(t, g.Loop(1), func(l *Loop) { l.Send(0, Func(func(*Loop) { ran = true })) })
	g.Close()
	if !ran {
		t.Error("what was posted before did not run")
	}
	mustPanic(t, g.Start)
}

// A timer that arms itself for ever does not hold Close, and an armed one does not fire after it.
func TestCloseLeavesTimers(t *testing.T) {
	g := newGroup(t, Config{Cores: 1})
	g.Start()
	var busy, far Timer
	var again func(l *Loop)
	again = func(l *Loop) { l.Arm(&busy, 0, again) }
	do(t, g.Loop(0), func(l *Loop) {
		again(l)
		l.Arm(&far, time.Hour, func(*Loop) { t.Error("fired") })
	})
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	wait(t, closed, "Close")
}
