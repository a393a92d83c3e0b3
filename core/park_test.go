package core

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An agent that did something is visited again at once; WakeOffCore makes a pass at any time.
func TestAgentsAndWake(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		g := newGroup(t, cfg)
		l := g.Loop(ID(cfg.Cores - 1))
		var todo atomic.Int64
		collected := make(chan int, 100)
		l.AddAgent(&passAgent{func(*Loop) int {
			if todo.Load() == 0 {
				return 0
			}
			collected <- int(todo.Add(-1))
			return 1
		}})
		g.Start()
		defer g.Close()
		for range 20 {
			todo.Store(5)
			l.WakeOffCore()
			for want := 4; want >= 0; want-- {
				select {
				case got := <-collected:
					if got != want {
						t.Fatalf("collected %d, want %d", got, want)
					}
				case <-time.After(patience):
					t.Fatal("the agent was not visited")
				}
			}
			idle(t, l)
		}
	})
}

// An idle group makes no passes, in an hour of time.
func TestIdleMakesNoPasses(t *testing.T) {
	for _, m := range modes[:3] {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Cores: 4, Now: clock()}
				m.change(&cfg)
				g := newGroup(t, cfg)
				g.Start()
				defer g.Close()
				for _, l := range g.Loops() {
					do(t, l, func(l *Loop) { l.Send((l.id+1)%4, Func(func(*Loop) {})) })
				}
				synctest.Wait()
				var before []uint64
				for _, l := range g.Loops() {
					s := l.StatsOffCore()
					if s.Busy || s.Inbox != 0 || s.Rings != 0 {
						t.Errorf("not idle: %+v", s)
					}
					before = append(before, s.Passes)
				}
				<-time.After(time.Hour)
				synctest.Wait()
				for i, l := range g.Loops() {
					if s := l.StatsOffCore(); s.Passes != before[i] {
						t.Errorf("core %d: %d passes while idle", i, s.Passes-before[i])
					}
				}
			})
		})
	}
}

// The baton: a poster that finds the loop idle runs it on its own goroutine.
func TestBatonRunsOnPoster(t *testing.T) {
	g := startGroup(t, Config{Cores: 2, Baton: true, CheckOwner: true})
	l := g.Loop(0)
	idle(t, l)
	idle(t, g.Loop(1))
	me, ran, sibling := goroutineID(), uint64(0), make(chan uint64, 1)
	if err := l.PostOffCore(Func(func(l *Loop) {
		ran = goroutineID()
		l.AssertOwner()
		l.Send(1, Func(func(l *Loop) { l.AssertOwner(); sibling <- goroutineID() }))
	})); err != nil {
		t.Fatal(err)
	}
	if ran != me {
		t.Errorf("ran on goroutine %d, posted by %d", ran, me)
	}
	// The sibling it found work for runs on a goroutine of its own.
	select {
	case id := <-sibling:
		if id == me {
			t.Error("the sibling ran on the poster, too")
		}
	case <-time.After(patience):
		t.Fatal("the sibling did not run")
	}
	if s := l.StatsOffCore(); s.Batons != 1 || s.Busy {
		t.Errorf("stats %+v", s)
	}
}

// A poster that meets endless work hands over after a bounded number of passes.
func TestBatonIsBounded(t *testing.T) {
	g := startGroup(t, Config{Cores: 1, Baton: true})
	l := g.Loop(0)
	idle(t, l)
	var enough atomic.Bool
	var again Func
	again = func(l *Loop) {
		if !enough.Load() {
			l.Send(0, again)
		}
	}
	returned := make(chan struct{})
	go func() { post(t, l, again); close(returned) }()
	wait(t, returned, "the poster's return")
	before := l.StatsOffCore()
	if before.Batons != 1 || before.Wakes < 1 || !before.Busy {
		t.Errorf("stats %+v", before)
	}
	until(t, func() bool { return l.StatsOffCore().Passes > before.Passes+100 }, "passes of the loop's goroutine")
	enough.Store(true)
	idle(t, l)
}

// Posters that keep a baton loop busy do not keep its timers from firing.
func TestBatonDoesNotStarveTimers(t *testing.T) {
	g := startGroup(t, Config{Cores: 1, Baton: true})
	l := g.Loop(0)
	fired := make(chan struct{})
	var tm Timer
	do(t, l, func(l *Loop) { l.Arm(&tm, time.Millisecond, func(*Loop) { close(fired) }) })
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				post(t, l, func(*Loop) {})
			}
		}()
	}
	wait(t, fired, "the timer")
	stop.Store(true)
	wg.Wait()
}
