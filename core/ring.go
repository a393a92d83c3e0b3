package core

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// pad keeps two fields written by different cores on different cache lines. 64 bytes is the line of
// amd64 and most arm64; the neighbour-line prefetch of some CPUs is not worth twice the space here.
type pad [64]byte

// Ring is a bounded queue between one producing and one consuming goroutine.
//
// Only the producer calls Push and only the consumer calls Drain. Each index has a single writer, so
// neither side takes a lock. Both roles may move to another goroutine if something orders the move
// (a loop's ownership does). Invariant: head <= tail <= head+len(slots).
type Ring[T any] struct {
	slots []T // length is a power of two; written by the producer, cleared by the consumer
	mask  uint64
	_     pad

	tail     atomic.Uint64 // next slot to fill; written by the producer
	headSeen uint64        // producer's last view of head; saves a cache miss per Push
	_        pad

	head     atomic.Uint64 // next slot to drain; written by the consumer
	tailSeen uint64        // consumer's last view of tail
	_        pad
}

// NewRing returns a ring with room for at least depth items; depth is rounded up to a power of two.
func NewRing[T any](depth int) *Ring[T] {
	if depth < 1 || depth > 1<<30 {
		panic(fmt.Sprintf("BUG: core: ring of depth %d", depth))
	}
	n := uint64(1) << bits.Len64(uint64(depth-1))
	return &Ring[T]{slots: make([]T, n), mask: n - 1}
}

// Push copies items into the ring, in order, and returns how many fitted (from the front of items).
// It never blocks; the consumer sees the whole batch at once.
func (r *Ring[T]) Push(items []T) int {
	tail := r.tail.Load()
	room := uint64(len(r.slots)) - (tail - r.headSeen)
	if room < uint64(len(items)) {
		r.headSeen = r.head.Load()
		room = uint64(len(r.slots)) - (tail - r.headSeen)
	}
	n := min(room, uint64(len(items)))
	if n == 0 {
		return 0
	}
	at := tail & r.mask
	if n == 1 { // copy of slices costs more than the rest of a lone Push
		r.slots[at] = items[0]
	} else {
		k := copy(r.slots[at:], items[:n])
		copy(r.slots, items[k:n])
	}
	r.tail.Store(tail + n)
	return int(n)
}

// Drain moves up to len(dst) items from the ring to dst, in order, and returns how many. It never
// blocks. The slots are cleared, so the ring keeps nothing alive that has left it.
func (r *Ring[T]) Drain(dst []T) int {
	head := r.head.Load()
	if r.tailSeen-head < uint64(len(dst)) {
		r.tailSeen = r.tail.Load()
	}
	n := min(r.tailSeen-head, uint64(len(dst)))
	if n == 0 {
		return 0
	}
	at := head & r.mask
	if n == 1 {
		var none T
		dst[0], r.slots[at] = r.slots[at], none
	} else {
		first := r.slots[at:min(at+n, uint64(len(r.slots)))]
		k := copy(dst, first)
		clear(first)
		second := r.slots[:n-uint64(k)]
		copy(dst[k:], second)
		clear(second)
	}
	r.head.Store(head + n)
	return int(n)
}

// Len returns the number of items in the ring. Called by neither producer nor consumer it is a
// moment's estimate, never outside [0, Cap].
func (r *Ring[T]) Len() int {
	head := r.head.Load() // first: tail only grows, so the difference cannot be negative
	return int(min(r.tail.Load()-head, uint64(len(r.slots))))
}

// Cap returns the number of items that fit.
func (r *Ring[T]) Cap() int { return len(r.slots) }
