package core

import (
	"sync"
	"testing"
	"time"
)

// Tasks of one poster run in its order, on the loop they were posted to, none lost.
func TestPostOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		cfg.InboxDepth = 16
		cfg.CheckOwner = true
		g := startGroup(t, cfg)
		const posters, each = 8, 200
		next := make([][posters]int, cfg.Cores) // owned by the loops
		var wg sync.WaitGroup
		for p := range posters {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range each {
					for _, l := range g.Loops() {
						post(t, l, func(on *Loop) {
							on.AssertOwner()
							if on != l || next[l.id][p] != i {
								t.Errorf("poster %d on core %d: got %d, want %d", p, on.id, i, next[l.id][p])
							}
							next[l.id][p]++
						})
					}
				}
			}()
		}
		wg.Wait()
		for _, l := range g.Loops() {
			do(t, l, func(*Loop) {
				for p, n := range next[l.id] {
					if n != each {
						t.Errorf("core %d, poster %d: %d of %d", l.id, p, n, each)
					}
				}
			})
		}
	})
}

// tick is a task that says when it ran.
type tick struct{ ran chan struct{} }

func (k *tick) Run(*Loop) { k.ran <- struct{}{} }

// relay goes to core 1 and back before it says so.
type relay struct {
	back bool
	ran  chan struct{}
}

func (r *relay) Run(l *Loop) {
	switch {
	case l.id == 1:
		r.back = true
		l.Send(0, r)
	case !r.back:
		l.Send(1, r)
	default:
		r.back = false
		r.ran <- struct{}{}
	}
}

// rearm moves one timer and disarms another.
type rearm struct {
	a, b Timer
	ran  chan struct{}
	f    func(l *Loop)
}

func (r *rearm) Run(l *Loop) {
	l.Arm(&r.a, time.Hour, r.f)
	l.Arm(&r.b, time.Minute, r.f)
	l.Disarm(&r.b)
	r.ran <- struct{}{}
}

func TestLoopAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			cfg := Config{Cores: 2}
			m.change(&cfg)
			g := startGroup(t, cfg)
			l := g.Loop(0)
			ran := make(chan struct{}, 1)
			for name, task := range map[string]Task{
				"post":          &tick{ran},
				"send and back": &relay{ran: ran},
				"arm":           &rearm{ran: ran, f: func(*Loop) {}},
			} {
				if n := testing.AllocsPerRun(500, func() {
					if err := l.PostOffCore(task); err != nil {
						t.Error(err)
					}
					<-ran
				}); n != 0 {
					t.Errorf("%s: %v allocations", name, n)
				}
			}
		})
	}
}
