package core

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix/affinity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that end at once unless something is broken.
const patience = 30 * time.Second

// clock returns a monotonic clock from the real one, or from the bubble's inside synctest.
func clock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// mode is one way to run a group.
type mode struct {
	name   string
	change func(*Config)
}

var modes = []mode{
	{"unpinned", func(*Config) {}},
	{"pinned", func(c *Config) { c.Pinned = true }},
	{"baton", func(c *Config) { c.Baton = true }},
	{"spin", func(c *Config) { c.Spin = 5 * time.Microsecond }},
}

// eachMode runs f for every mode and for 1, 2 and 4 cores.
func eachMode(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, m := range modes {
		for _, cores := range []int{1, 2, 4} {
			t.Run(m.name+"/"+string(rune('0'+cores)), func(t *testing.T) {
				if _, err := affinity.Allowed(); err != nil && m.name == "pinned" {
					t.Skipf("this system does not pin: %v", err)
				}
				cfg := Config{Cores: cores, Now: clock()}
				m.change(&cfg)
				f(t, cfg)
			})
		}
	}
}

func newGroup(t testing.TB, cfg Config) *Group {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = clock()
	}
	g, err := NewGroup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// startGroup returns a running group that is closed at the end of the test.
func startGroup(t testing.TB, cfg Config) *Group {
	t.Helper()
	g := newGroup(t, cfg)
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func post(t testing.TB, l *Loop, f Func) {
	t.Helper()
	if err := l.PostOffCore(f); err != nil {
		t.Errorf("post to core %d: %v", l.ID(), err)
	}
}

// do runs f on l and waits for it.
func do(t testing.TB, l *Loop, f Func) {
	t.Helper()
	done := make(chan struct{})
	post(t, l, func(l *Loop) { f(l); close(done) })
	wait(t, done, "a task")
}

func wait(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %v", what, patience)
	}
}

// idle waits until l is parked.
func idle(t testing.TB, l *Loop) {
	t.Helper()
	until(t, func() bool { return !l.StatsOffCore().Busy }, "idle loop")
}

// until polls cond, yielding in between.
func until(t testing.TB, cond func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		<-time.After(50 * time.Microsecond)
	}
}

// mustPanic runs f and returns what it panicked with.
func mustPanic(t testing.TB, f func()) (v any) {
	t.Helper()
	defer func() {
		if v = recover(); v == nil {
			t.Error("no panic")
		}
	}()
	f()
	return nil
}
