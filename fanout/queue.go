package fanout

import "sync/atomic"

// initialQueue is the number of slots a queue starts with: 128 bytes for a subscriber that never falls behind a wake-up.
const initialQueue = 16

// A queue holds the frames of one subscription between the loop and its writer. The loop alone pushes. Frames are
// taken by whoever moves head over them: the writer, or the loop when it drops the oldest or ends the subscription.
//
//	          head               tail
//	slots   .  |  f  f  f  f  f  |  .  .     slot of index i is i mod the number of slots
//
// Invariants: head <= tail <= head+capacity; slots[head, tail) hold frames of which the queue owns one reference each; a
// slot is written only while its index is outside [head, tail). A taker reads slot h and then moves head from h to h+1 in
// one compare-and-swap. Since head never goes back, success means that nobody took h in between, so the slot was not
// reused and the frame with its reference now belongs to the taker. Before that the frame may not be looked into.
type queue struct {
	tail  atomic.Uint64         // next index to fill; written by the loop
	slots atomic.Pointer[slots] // replaced by the loop when it grows; the old slots stay as they are
	_     [56]byte
	head  atomic.Uint64 // next index to take
}

type slots struct {
	mask   uint64 // the number of slots is a power of two
	frames []atomic.Pointer[Frame]
}

func newSlots(n int) *slots {
	return &slots{mask: uint64(n - 1), frames: make([]atomic.Pointer[Frame], n)}
}

func (q *queue) init() { q.slots.Store(newSlots(initialQueue)) }

// depth returns the number of frames queued. Off the loop it may be one step old.
func (q *queue) depth() int {
	head := q.head.Load() // first, so that the difference is never negative
	return int(q.tail.Load() - head)
}

// push appends f and its reference. The caller is the loop and has checked the bound.
func (q *queue) push(f *Frame) {
	tail, s := q.tail.Load(), q.slots.Load()
	if head := q.head.Load(); tail-head > s.mask {
		s = q.grow(s, head, tail)
	}
	s.frames[tail&s.mask].Store(f)
	q.tail.Store(tail + 1)
}

// grow doubles the slots. A taker that still reads the old ones finds there what it looks for: it has loaded a tail from before.
func (q *queue) grow(old *slots, head, tail uint64) *slots {
	s := newSlots(2 * len(old.frames))
	for i := head; i != tail; i++ {
		s.frames[i&s.mask].Store(old.frames[i&old.mask].Load())
	}
	q.slots.Store(s)
	return s
}

// pop takes the oldest frame, nil when there is none. It may be called from any goroutine.
func (q *queue) pop() *Frame {
	for {
		head := q.head.Load()
		if head == q.tail.Load() {
			return nil
		}
		// After tail: slots that hold every index below a tail are visible with it.
		s := q.slots.Load()
		f := s.frames[head&s.mask].Load()
		if q.head.CompareAndSwap(head, head+1) {
			return f
		}
	}
}
