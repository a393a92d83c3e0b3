package core

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The heap against a sorted list, over random arming, moving and disarming.
func TestTimerHeap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var h timers
	all := make([]*Timer, 200)
	for i := range all {
		all[i] = new(Timer)
	}
	for range 20_000 {
		tm := all[rnd.IntN(len(all))]
		switch rnd.IntN(3) {
		case 0:
			h.disarm(tm)
		default:
			h.arm(tm, time.Duration(rnd.IntN(50)), nil)
		}
		if len(h.heap) > 0 {
			first := slices.MinFunc(h.heap, func(a, b *Timer) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
			if h.heap[0] != first {
				t.Fatal("the earliest timer is not on top")
			}
		}
		for i, tm := range h.heap {
			if tm.place != i+1 {
				t.Fatalf("timer at %d believes it is at %d", i, tm.place-1)
			}
		}
	}
	armed := 0
	for _, tm := range all {
		if tm.Armed() {
			armed++
		}
	}
	if armed != len(h.heap) || armed == 0 {
		t.Errorf("%d armed, %d in the heap", armed, len(h.heap))
	}
	var last *Timer
	for len(h.heap) > 0 {
		tm := h.heap[0]
		if last != nil && h.before(tm, last) {
			t.Fatal("timers leave out of order")
		}
		last = tm
		h.disarm(tm)
	}
}

// Timers fire at their deadline in time that only the test moves, in every mode, whoever armed them.
func TestTimersFireOnTime(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Cores: 1, Now: clock()}
				m.change(&cfg)
				if cfg.Spin > 0 {
					t.Skip("fake time does not pass for a loop that spins")
				}
				g := newGroup(t, cfg)
				g.Start()
				defer g.Close()
				l := g.Loop(0)
				type firing struct {
					name int
					at   time.Duration
				}
				fired := make(chan firing, 10)
				var ts [5]Timer
				do(t, l, func(l *Loop) {
					arm := func(i int, d time.Duration) {
						l.Arm(&ts[i], d, func(l *Loop) { fired <- firing{i, l.Now()} })
					}
					arm(0, 30*time.Millisecond)
					arm(1, 10*time.Millisecond)
					arm(2, 20*time.Millisecond)
					arm(3, 15*time.Millisecond)
					arm(4, 5*time.Millisecond)
					arm(4, 40*time.Millisecond) // moved
					l.Disarm(&ts[3])
				})
				for _, want := range []firing{{1, 10}, {2, 20}, {0, 30}, {4, 40}} {
					got := <-fired
					if got.name != want.name || got.at != want.at*time.Millisecond {
						t.Errorf("timer %d fired at %v, want %d at %v", got.name, got.at, want.name, want.at*time.Millisecond)
					}
				}
				<-time.After(time.Second)
				if len(fired) != 0 {
					t.Error("a disarmed timer fired")
				}
			})
		})
	}
}

// A deadline earlier than the one the loop sleeps for moves the alarm, also when a poster's goroutine ran the pass.
func TestEarlierDeadline(t *testing.T) {
	for _, m := range modes[:3] {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Cores: 1, Now: clock()}
				m.change(&cfg)
				g := newGroup(t, cfg)
				g.Start()
				defer g.Close()
				l := g.Loop(0)
				fired := make(chan time.Duration, 4)
				note := func(l *Loop) { fired <- l.Now() }
				var late, early Timer
				do(t, l, func(l *Loop) { l.Arm(&late, time.Hour, note) })
				synctest.Wait()
				do(t, l, func(l *Loop) { l.Arm(&early, time.Second, note) })
				if at := <-fired; at != time.Second {
					t.Errorf("fired at %v, want 1s", at)
				}
				if at := <-fired; at != time.Hour {
					t.Errorf("fired at %v, want 1h", at)
				}
			})
		})
	}
}

// The clock is the given one alone: a timer is due when that clock says so, whatever real time does.
func TestTimerByInjectedClock(t *testing.T) {
	var now atomic.Int64
	g := startGroup(t, Config{Cores: 1, Now: func() time.Duration { return time.Duration(now.Load()) }})
	l := g.Loop(0)
	fired := make(chan time.Duration, 1)
	var tm Timer
	do(t, l, func(l *Loop) { l.Arm(&tm, time.Millisecond, func(l *Loop) { fired <- l.Now() }) })
	// In real time the alarm goes off several times meanwhile.
	passes := l.StatsOffCore().Passes
	until(t, func() bool { return l.StatsOffCore().Passes >= passes+3 }, "passes after alarms")
	if len(fired) != 0 {
		t.Fatal("fired before its time")
	}
	now.Store(int64(time.Millisecond))
	l.WakeOffCore()
	select {
	case at := <-fired:
		if at != time.Millisecond {
			t.Errorf("fired at %v", at)
		}
	case <-time.After(patience):
		t.Fatal("did not fire")
	}
}

// What a pass arms fires in a later pass, so a timer that arms itself with 0 lets other work in between.
func TestTimerNeverInItsOwnPass(t *testing.T) {
	g := startGroup(t, Config{Cores: 1})
	l := g.Loop(0)
	var tm Timer
	done := make(chan struct{})
	rounds, lastPass := 0, uint64(0)
	var again func(l *Loop)
	again = func(l *Loop) {
		if l.passCount == lastPass {
			t.Error("fired in the pass that armed it")
		}
		lastPass = l.passCount
		if rounds++; rounds == 100 {
			close(done)
			return
		}
		l.Arm(&tm, 0, again)
	}
	post(t, l, func(l *Loop) { lastPass = l.passCount; l.Arm(&tm, -5, again) })
	wait(t, done, "a hundred firings")
	if tm.Armed() {
		t.Error("still armed after it fired")
	}
}
