package fanout

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"unsafe"
)

func TestSubscriptionIsSmallWhileIdle(t *testing.T) {
	const slotBytes, signalBytes = initialQueue * 8, 96
	if size := unsafe.Sizeof(Subscription{}) + slotBytes + signalBytes; size > 8<<10 {
		t.Fatalf("%d bytes", size)
	}
}

func TestTakeStopsAtTheBytes(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{}, latest)
	for range 10 {
		g.Append(batchOf(1, 972), 1, 0) // frames of 1,000 bytes
		g.flush()
	}
	for _, c := range []struct{ maxBytes, frames int }{{0, 0}, {1, 1}, {1000, 1}, {1001, 2}, {2500, 3}, {1 << 20, 3}, {1 << 20, 0}} {
		frames := s.Take(nil, c.maxBytes)
		check(t, "frames", len(frames), c.frames)
		ReleaseAll(frames)
	}
	check(t, "position", s.Stats().Position, 10)
	check(t, "taken", s.Stats().Taken, 10)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestWaitReturnsWithTheContext(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{}, latest)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- s.Wait(ctx) }()
	cancel(nil)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g.publish(1, 1)
	if err := s.Wait(t.Context()); err != nil { // something is queued
		t.Fatal(err)
	}
	g.take(s, 1)
	go func() { done <- s.Wait(t.Context()) }()
	g.topic.Close(g.l)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if reason, ended := s.End(); reason != Deleted || !ended {
		t.Fatalf("%v %v", reason, ended)
	}
	g.close()
}

func TestWakeHookRunsOncePerPark(t *testing.T) {
	g := newTestLog(t, Limits{})
	woken := 0
	s := &Subscription{Wake: func() { woken++ }}
	g.subscribe(s, latest)
	g.publish(2, 1)
	check(t, "calls without a park", woken, 0)
	check(t, "park with frames queued", s.Park(), false)
	g.take(s, 2)
	check(t, "park", s.Park(), true)
	g.add(1)
	g.Seal() // three frames in one burst
	g.add(1)
	g.Seal()
	g.add(1)
	g.flush()
	check(t, "calls", woken, 1)
	g.publish(3, 1)
	check(t, "calls", woken, 1)
	g.take(s, 6)
	check(t, "park", s.Park(), true)
	g.topic.Close(g.l)
	check(t, "calls", woken, 2)
	check(t, "park when ended", s.Park(), false)
	g.close()
}

// The writer takes, parks and is woken as fast as it can, in every interleaving that the scheduler gives.
func TestWakeUpsAreNeverLost(t *testing.T) {
	for _, policy := range []Policy{DropNew, DropOld, Block, CatchUp} {
		t.Run(policy.String(), func(t *testing.T) {
			g := newTestLog(t, Limits{RingRecords: 1 << 20})
			s := g.subscribe(&Subscription{Policy: policy, Capacity: 8}, latest)
			var wg sync.WaitGroup
			feed := make(chan struct{}, 1)
			var sum uint64
			wg.Go(func() {
				defer close(feed)
				for {
					frames := s.Take(nil, 1<<20)
					for _, f := range frames {
						sum += uint64(f.Count)
						f.Release()
					}
					if s.WantsFeed() {
						feed <- struct{}{}
					}
					if len(frames) > 0 {
						continue
					}
					if _, ended := s.End(); ended {
						return
					}
					if err := s.Wait(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
			const total = 20_000
			for i := range total {
				g.Append(batchOf(1, 8), 1, 0)
				g.flush()
				for policy == Block && g.topic.Holding() {
					<-feed
					g.topic.Feed(g.l, s)
				}
				select {
				case <-feed:
					g.topic.Feed(g.l, s)
				default:
				}
				if i%7 == 0 {
					runtime.Gosched()
				}
			}
			for !s.isLive() { // a lost feed hangs here
				<-feed
				g.topic.Feed(g.l, s)
			}
			g.topic.Close(g.l)
			for range feed {
			}
			wg.Wait()
			st := s.Stats()
			check(t, "taken", st.Taken, sum)
			check(t, "taken + dropped", st.Taken+st.Dropped, total)
			if policy == Block || policy == CatchUp {
				check(t, "dropped", st.Dropped, 0)
			}
			g.close()
		})
	}
}

// The writer empties the queue and looks whether it should ask for more just before the loop notes that the queue is full: the
// loop then finds the room itself.
func TestFeedIsNotLostBetweenTheLooks(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 4, Policy: CatchUp}, latest)
	g.publish(4, 1)
	check(t, "asked while full", s.WantsFeed(), false)
	check(t, "stopped while full", s.stop(100), false)
	g.take(s, 1)
	check(t, "asked with a quarter free", s.WantsFeed(), false)
	g.take(s, 1) // asks, and is fed: nothing to do
	check(t, "asked twice", s.WantsFeed(), false)
	check(t, "stopped with room for the frame", s.stop(100), true)
	check(t, "asked after that", s.WantsFeed(), false)
	check(t, "stopped with a frame that needs the whole queue", s.stop(DefaultQueueBytes), false)
	g.take(s, 2)
	check(t, "asked when empty", s.WantsFeed(), false) // take has
	check(t, "stopped when empty", s.stop(DefaultQueueBytes), true)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestNames(t *testing.T) {
	for p := DropNew; p <= CatchUp; p++ {
		got, ok := ParsePolicy(p.String())
		check(t, "policy", got, p)
		check(t, "ok", ok, true)
	}
	if _, ok := ParsePolicy("drop"); ok {
		t.Error("parsed an unknown policy")
	}
	for _, s := range []interface{ String() string }{Policy(9), Joining, Ended, State(9), NotEnded, Unsubscribed, EndReason(9)} {
		if s.String() == "" {
			t.Errorf("%#v has no name", s)
		}
	}
}
