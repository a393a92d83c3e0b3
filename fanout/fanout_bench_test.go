package fanout

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g := newTestLog(t, Limits{RingBytes: 2 << 20})
	records := batchOf(1, 256)
	// More than the ring keeps, so that slabs come from the pool.
	for range 20_000 {
		g.Append(records, 1, 0)
		g.pass()
	}
	budget := func(what string, runs int, f func()) {
		if n := testing.AllocsPerRun(runs, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	budget("append, seal and trim", 20_000, func() {
		g.Append(records, 1, 0)
		g.pass()
	})
	for _, policy := range []Policy{DropNew, DropOld, Block, CatchUp} {
		s := g.subscribe(&Subscription{Capacity: 8, Policy: policy}, latest)
		for range 100 {
			g.Append(records, 1, 0)
			g.pass()
		}
		var dst []*Frame
		take := func() {
			dst = s.Take(dst[:0], 1<<20)
			ReleaseAll(dst)
			if s.WantsFeed() {
				g.topic.Feed(g.l, s)
			}
		}
		for range 100 {
			take()
		}
		budget("offer and take, "+policy.String(), 5000, func() {
			g.Append(records, 1, 0)
			g.pass()
			take()
		})
		budget("offer to a full queue, "+policy.String(), 5000, func() {
			for range 12 {
				g.Append(records, 1, 0)
				g.pass()
			}
			for range 4 {
				take()
			}
		})
		g.topic.Unsubscribe(g.l, s)
	}
}

// pass is flush without allocations of its own.
func (g *testLog) pass() {
	g.Seal()
	for g.offered < g.Sealed() {
		g.frames = g.Ring.ReadFrames(g.frames[:0], g.offered, 64, 1<<30)
		g.topic.OfferAll(g.l, g.frames)
		g.Offered(g.frames[len(g.frames)-1].End())
		ReleaseAll(g.frames)
	}
	if g.Trim(g.micros) {
		g.topic.Guard(g.l)
	}
}

// Batches of 256 B records, one frame each.
func BenchmarkRingAppend(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			g := newTestLog(b, Limits{})
			records := batchOf(n, 256)
			b.SetBytes(int64(256 * n))
			b.ReportAllocs()
			for b.Loop() {
				g.Append(records, uint32(n), 0)
				g.pass()
			}
		})
	}
}

// One frame offered to n subscriptions whose queues are then emptied by the same goroutine: what the loop and the writers do
// without the cost of waking up.
func BenchmarkOffer(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		for _, records := range []int{1, 64} {
			b.Run(fmt.Sprintf("subs=%d/batch=%d", n, records), func(b *testing.B) {
				g := newTestLog(b, Limits{})
				var subs []*Subscription
				for range n {
					subs = append(subs, g.subscribe(&Subscription{}, latest))
				}
				batch := batchOf(records, 256)
				var dst []*Frame
				b.ReportAllocs()
				for b.Loop() {
					g.Append(batch, uint32(records), 0)
					g.pass()
					for _, s := range subs {
						dst = s.Take(dst[:0], 1<<20)
						ReleaseAll(dst)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/delivery")
			})
		}
	}
}

// The same with a goroutine per subscription that parks and is woken, policy Block: everything arrives.
func BenchmarkDeliver(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		b.Run(fmt.Sprintf("subs=%d", n), func(b *testing.B) {
			g := newTestLog(b, Limits{})
			feed := make(chan *Subscription, n)
			var wg sync.WaitGroup
			for range n {
				s := g.subscribe(&Subscription{Policy: Block}, latest)
				wg.Go(func() {
					var dst []*Frame
					for {
						dst = s.Take(dst[:0], 64<<10)
						ReleaseAll(dst)
						if s.WantsFeed() {
							feed <- s
						}
						if len(dst) > 0 {
							continue
						}
						if _, ended := s.End(); ended {
							return
						}
						s.Wait(b.Context())
					}
				})
			}
			records := batchOf(1, 256)
			b.ReportAllocs()
			for b.Loop() {
				for g.topic.Holding() {
					g.topic.Feed(g.l, <-feed)
				}
				g.Append(records, 1, 0)
				g.pass()
				if len(feed) > 0 {
					g.topic.Feed(g.l, <-feed)
				}
				if n > 1 {
					runtime.Gosched()
				}
			}
			g.topic.Close(g.l)
			wg.Wait()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/delivery")
		})
	}
}
