package fanout

import (
	"runtime"
	"sync"
	"testing"

	"felix/netio/wire"
)

func TestQueueOrderAndGrowth(t *testing.T) {
	var q queue
	q.init()
	frames := make([]Frame, 1000)
	for i := range frames {
		frames[i].Base = 10
		frames[i].Count = uint32(i)
	}
	next, taken := 0, 0
	// A sliding window whose size goes up and down, so that growth copies from every place in the slots.
	for round := range 40 {
		for range 25 {
			q.push(&frames[next])
			next++
		}
		for range []int{10, 30, 25}[round%3] {
			f := q.pop()
			if f == nil {
				break
			}
			check(t, "frame", int(f.Count), taken)
			taken++
		}
		check(t, "depth", q.depth(), next-taken)
	}
	for f := q.pop(); f != nil; f = q.pop() {
		check(t, "frame", int(f.Count), taken)
		taken++
	}
	check(t, "taken", taken, next)
}

// The loop pushes and drops the oldest while the writer takes: each frame ends up with exactly one of them, in order, and
// nobody looks into a frame it does not own.
func TestQueueTakersNeverShareAFrame(t *testing.T) {
	const total, capacity = 100_000, 20
	p := NewSlabs(SlabsConfig{PoolBytes: 1 << 20})
	var q queue
	q.init()
	done := make(chan struct{})
	var wg sync.WaitGroup
	taken, last := 0, -1
	wg.Go(func() {
		for {
			f := q.pop()
			if f == nil {
				select {
				case <-done:
					if q.depth() == 0 {
						return
					}
				default:
					runtime.Gosched()
				}
				continue
			}
			if int(f.Base) <= last {
				t.Errorf("frame %d after %d", f.Base, last)
			}
			last = int(f.Base)
			taken++
			f.Release()
		}
	})
	dropped, lastDropped := 0, -1
	for i := range total {
		s := p.get(0, 0) // a slab each: a frame used after its release shows as a race
		f := s.begin(0, 0)
		f.Base = wire.Offset(i)
		for q.depth() >= capacity {
			if f := q.pop(); f != nil {
				if int(f.Base) <= lastDropped {
					t.Errorf("dropped %d after %d", f.Base, lastDropped)
				}
				lastDropped = int(f.Base)
				dropped++
				f.Release()
			}
		}
		q.push(f)
	}
	close(done)
	wg.Wait()
	check(t, "taken + dropped", taken+dropped, total)
	check(t, "held", p.Held(), 0)
	if taken == 0 {
		t.Error("the writer got nothing")
	}
}
