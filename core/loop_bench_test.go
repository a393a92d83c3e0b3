package core

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// benchModes adds spinning pinned loops to the modes of the tests.
var benchModes = append(modes[:3:3], mode{"pinned-spin", func(c *Config) {
	c.Pinned, c.Spin = true, 50*time.Microsecond
}})

// BenchmarkWake is the way of one task to a parked loop and of its answer back to the poster, one at a time.
// wakes/op near 1 says that the loop was parked each time (in baton mode nobody is woken).
func BenchmarkWake(b *testing.B) {
	for _, m := range benchModes {
		b.Run(m.name, func(b *testing.B) {
			cfg := Config{Cores: 1}
			m.change(&cfg)
			l := startGroup(b, cfg).Loop(0)
			ping := &tick{make(chan struct{}, 1)}
			b.ReportAllocs()
			before := l.StatsOffCore().Wakes
			for b.Loop() {
				if err := l.PostOffCore(ping); err != nil {
					b.Fatal(err)
				}
				<-ping.ran
			}
			b.ReportMetric(float64(l.StatsOffCore().Wakes-before)/float64(b.N), "wakes/op")
		})
	}
}

// trip is a task that is answered on the loop it was posted to, by way of core 1 when it must hop.
type trip struct {
	hop, back bool
	done      chan *trip // has room for every trip of its poster
}

func (p *trip) Run(l *Loop) {
	switch {
	case !p.hop:
		p.done <- p
	case l.id == 1:
		p.back = true
		l.Send(0, p)
	case p.back:
		p.back = false
		p.done <- p
	default:
		l.Send(1, p)
	}
}

// BenchmarkHop compares posting to the owner core directly with posting to the session's core, which passes
// the task on over the ring and gets the answer back over the other: alone, and with 16 posters that keep 64
// each in flight.
func BenchmarkHop(b *testing.B) {
	for _, m := range benchModes {
		for _, load := range []struct{ posters, flight int }{{1, 1}, {16, 64}} {
			for _, hop := range []bool{false, true} {
				way := map[bool]string{false: "direct", true: "hop"}[hop]
				b.Run(fmt.Sprintf("%s/%dx%d/%s", m.name, load.posters, load.flight, way), func(b *testing.B) {
					cfg := Config{Cores: 2}
					m.change(&cfg)
					g := startGroup(b, cfg)
					target := g.Loop(1)
					if hop {
						target = g.Loop(0)
					}
					b.ReportAllocs()
					var wg sync.WaitGroup
					for i := range load.posters {
						share := b.N / load.posters
						if i < b.N%load.posters {
							share++
						}
						done := make(chan *trip, load.flight)
						for range load.flight {
							done <- &trip{hop: hop, done: done}
						}
						wg.Add(1)
						go func() {
							defer wg.Done()
							for range share {
								if err := target.PostOffCore(<-done); err != nil {
									b.Error(err)
								}
							}
							for range load.flight {
								<-done
							}
						}()
					}
					wg.Wait()
				})
			}
		}
	}
}

// BenchmarkSlots is one slot taken and freed, free at once and through the queue of waiters of 16 tenants.
func BenchmarkSlots(b *testing.B) {
	for _, queued := range []bool{false, true} {
		b.Run(map[bool]string{false: "free", true: "queued"}[queued], func(b *testing.B) {
			l, s := bareLoop(b), NewSlots(512)
			entrants := make([]*entrant, 1024)
			for i := range entrants {
				entrants[i] = newEntrant(uint64(i%16), 256, i, func(*Loop, *entrant) {})
			}
			if queued {
				for _, e := range entrants[1:] {
					s.Acquire(l, &e.Waiter)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if e := entrants[i]; !e.Queued() {
					s.Acquire(l, &e.Waiter)
				}
				s.Release(l, 1)
				if i++; i == len(entrants) {
					i = 0
				}
			}
		})
	}
}
