package netio

import (
	"context"
	"sync"
	"sync/atomic"
)

// A budget is a number of bytes that may be out at a time. Readers reserve before they read and release when the last
// use is over. Taking and giving back are one atomic each while there is room; beyond it takers wait in order.
type budget struct {
	limit   int64
	held    atomic.Int64
	waiting atomic.Int32 // length of queue; lets release skip the lock; never counts one whose granted is closed

	mu    sync.Mutex
	queue []*budgetWaiter // guarded by mu; oldest first
}

type budgetWaiter struct {
	bytes   int64
	granted chan struct{} // closed when the bytes have been added to held
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// try reserves n bytes if that keeps the budget and nobody waits. A request larger than the whole budget counts as the
// whole budget, so that the largest frame can pass when it is alone.
func (b *budget) try(n int64) bool {
	if b.waiting.Load() > 0 {
		return false
	}
	return b.add(n)
}

func (b *budget) add(n int64) bool {
	for {
		held := b.held.Load()
		if held+n > b.limit && held > 0 {
			return false
		}
		if b.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// reserve waits for n bytes, in order of arrival. It ends early with the context's error and then holds nothing.
func (b *budget) reserve(ctx context.Context, n int64) error {
	if b.try(n) {
		return nil
	}
	w := &budgetWaiter{bytes: n, granted: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, w)
	b.waiting.Store(int32(len(b.queue)))
	b.grant() // room may have come back between try and here
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.waiting.Store(int32(len(b.queue)))
			b.grant() // the one behind may fit where w did not
			return ctx.Err()
		}
	}
	b.held.Add(-w.bytes) // granted at the same moment
	b.grant()
	return ctx.Err()
}

// release gives n bytes back and admits waiters that fit now.
func (b *budget) release(n int64) {
	b.held.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.grant()
		b.mu.Unlock()
	}
}

// grant admits waiters from the front as long as they fit. The caller holds mu.
func (b *budget) grant() {
	for len(b.queue) > 0 && b.add(b.queue[0].bytes) {
		w := b.queue[0]
		b.queue[0] = nil
		b.queue = b.queue[1:]
		b.waiting.Store(int32(len(b.queue))) // first: whoever goes on can try again at once
		close(w.granted)
	}
	b.waiting.Store(int32(len(b.queue)))
}
