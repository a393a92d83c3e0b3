package fanout

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBurstLinksEveryWriterOnce(t *testing.T) {
	for n := range 60 {
		var b burst
		subs := make([]Subscription, n)
		for i := range subs {
			subs[i].token = make(chan struct{}, 1)
			subs[i].parked.Store(i%7 != 6) // some do not wait
			b.add(&subs[i])
			b.add(&subs[i]) // claimed already
		}
		b.wake()
		given := 0
		for more := true; more; {
			more = false
			for i := range subs {
				if len(subs[i].token) == 1 {
					<-subs[i].token
					subs[i].handOn()
					given++
					more = true
				}
			}
		}
		check(t, "woken", given, n-n/7)
		for i := range subs {
			check(t, "links left", subs[i].wakes, [2]*Subscription{})
			check(t, "parked", subs[i].parked.Load(), false)
		}
		check(t, "claimed", len(b.claimed), 0)
	}
}

// A writer that was claimed and leaves its wait for another reason takes its token and hands the wake-up on.
func TestUnparkHandsOn(t *testing.T) {
	subs := make([]Subscription, wakeRoots+1)
	var b burst
	for i := range subs {
		subs[i].token = make(chan struct{}, 1)
		subs[i].parked.Store(true)
		b.add(&subs[i])
	}
	left := make(chan struct{})
	go func() {
		subs[0].unpark() // waits for the token
		close(left)
	}()
	b.wake()
	<-left
	check(t, "tokens left", len(subs[0].token), 0)
	check(t, "tokens of the last", len(subs[wakeRoots].token), 1)
	subs[0].parked.Store(true)
	subs[0].unpark() // not claimed: does not wait
	check(t, "parked", subs[0].parked.Load(), false)
}

// Many writers that wait, are cancelled, take and wait again while the loop pushes: whoever leaves a wait early hands the wake-up
// on all the same, so that in the end all of them have seen every frame.
func TestWakeUpsOfManyWriters(t *testing.T) {
	const writers, frames = 60, 2000
	g := newTestLog(t, Limits{})
	var wg sync.WaitGroup
	var cancels atomic.Int64
	for i := range writers {
		s := g.subscribe(&Subscription{Capacity: MaxCapacity}, latest)
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		wg.Go(func() {
			for {
				ReleaseAll(s.Take(nil, 1<<20))
				if _, ended := s.End(); ended {
					break
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(3) == 0 {
					cancel()
				}
				if s.Wait(ctx) != nil {
					cancels.Add(1)
				}
				cancel()
			}
			if st := s.Stats(); st.Taken != frames || st.Dropped != 0 {
				t.Errorf("took %d, dropped %d", st.Taken, st.Dropped)
			}
		})
	}
	for range frames {
		g.publish(1, 1)
		runtime.Gosched()
	}
	g.topic.Close(g.l)
	wg.Wait()
	if cancels.Load() == 0 {
		t.Error("no wait was cancelled")
	}
	g.close()
}
