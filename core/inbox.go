package core

import (
	"sync"
	"sync/atomic"
)

// inbox is the bounded way into a loop for goroutines that are not loops: many producers, one
// consumer. Producers append to one slice under a short lock; the consumer swaps it against the empty
// one it drained before, so its side takes the lock once per batch.
type inbox struct {
	// length mirrors len(filling), so that the loop looks without the lock. Written under mu.
	length atomic.Int64
	_      pad

	mu      sync.Mutex
	filling []Task // Invariant: len(filling) <= depth
	depth   int
	// first..last are posters that found the inbox full, in order of arrival. There is one entry per
	// blocked goroutine. Invariant: while there is one, len(filling) == depth.
	first, last *poster
	closed      bool
	idle        sync.Pool // of *poster
}

// poster is a goroutine that waits for room. Its task is moved for it: it need not fight for the lock.
type poster struct {
	task Task
	next *poster
	done chan error // capacity 1
}

func newInbox(depth int) *inbox {
	b := &inbox{depth: depth, filling: make([]Task, 0, depth)}
	b.idle.New = func() any { return &poster{done: make(chan error, 1)} }
	return b
}

// put appends t. When the inbox is full it waits for the loop to drain it (block) or returns false. Tasks enter
// in the order of the calls, waiting or not.
func (b *inbox) put(t Task, block bool) (ok bool, err error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, ErrClosed
	}
	if len(b.filling) < b.depth {
		b.filling = append(b.filling, t)
		b.length.Store(int64(len(b.filling)))
		b.mu.Unlock()
		return true, nil
	}
	if !block {
		b.mu.Unlock()
		return false, nil
	}
	p := b.idle.Get().(*poster)
	p.task = t
	if b.last == nil {
		b.first = p
	} else {
		b.last.next = p
	}
	b.last = p
	b.mu.Unlock()
	err = <-p.done
	b.idle.Put(p)
	return err == nil, err
}

// swap returns everything posted so far and keeps empty, which has been drained, for what comes next,
// beginning with the tasks of those who wait.
func (b *inbox) swap(empty []Task) []Task {
	b.mu.Lock()
	full := b.filling
	b.filling = empty[:0]
	woken := b.first
	for b.first != nil && len(b.filling) < b.depth {
		b.filling = append(b.filling, b.first.task)
		b.first = b.first.next
	}
	stay := b.first
	if stay == nil {
		b.last = nil
	}
	b.length.Store(int64(len(b.filling)))
	b.mu.Unlock()
	release(woken, stay, nil)
	return full
}

// close refuses further posts and sends those who wait away with ErrClosed. What was accepted stays.
func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	woken := b.first
	b.first, b.last = nil, nil
	b.mu.Unlock()
	release(woken, nil, ErrClosed)
}

// release wakes the posters from first up to, not including, end. They are linked to nothing else any more.
func release(first, end *poster, err error) {
	for p := first; p != end; {
		next := p.next
		p.task, p.next = nil, nil
		p.done <- err
		p = next
	}
}
