package fanout

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"felix/core"
)

// Limits bounds the rings and topics of a core. Zero fields have the defaults named.
type Limits struct {
	// FrameRecords and FrameBytes bound what is merged into one frame in a pass of the loop: 64 records and 64 KiB, at
	// most 65,536 and 1 MiB. A batch that is larger by itself is a frame of its own.
	FrameRecords, FrameBytes int
	// RingRecords and RingBytes bound what a shard keeps: 65,536 records and 64 MiB of slabs. At the bound the oldest go;
	// a single batch beyond it stays until the next one.
	RingRecords int
	RingBytes   int64
	// LeastRecords is what a shard keeps while the budget is short and RingRecords would allow less: 1,024.
	LeastRecords int
	// BudgetBytes bounds Slabs.Held over all cores, as far as rings can: beyond it the oldest slabs go, down to LeastRecords
	// per shard, and below that while the rings alone exceed it. 512 MiB.
	BudgetBytes int64
	// Subscriptions bounds those of one shard: 65,536. Beyond it Subscribe fails with ErrTooMany.
	Subscriptions int
	// MaxBlock bounds how long one stall of a subscription with the policy Block holds back appends: 5 s.
	MaxBlock time.Duration
}

// WithDefaults returns l with its zero fields filled in.
func (l Limits) WithDefaults() Limits {
	set(&l.FrameRecords, 64)
	set(&l.FrameBytes, 64<<10)
	set(&l.RingRecords, 65536)
	set(&l.RingBytes, 64<<20)
	set(&l.LeastRecords, 1024)
	set(&l.BudgetBytes, 512<<20)
	set(&l.Subscriptions, 65536)
	set(&l.MaxBlock, 5*time.Second)
	return l
}

// Validate reports every field that is out of its bounds.
func (l Limits) Validate() error {
	l = l.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("fanout: "+format, args...)) }
	if l.FrameRecords < 1 || l.FrameRecords > 65536 {
		bad("FrameRecords is %d: use 1 to 65,536", l.FrameRecords)
	}
	if l.FrameBytes < 1 || l.FrameBytes > maxSlabBytes {
		bad("FrameBytes is %d: use 1 to %d", l.FrameBytes, maxSlabBytes)
	}
	if l.RingRecords < 1 {
		bad("RingRecords is %d: use 1 or more", l.RingRecords)
	}
	if l.RingBytes < 1 {
		bad("RingBytes is %d: use 1 or more", l.RingBytes)
	}
	if l.LeastRecords < 1 {
		bad("LeastRecords is %d: use 1 or more", l.LeastRecords)
	}
	if l.BudgetBytes < 1 {
		bad("BudgetBytes is %d: use 1 or more", l.BudgetBytes)
	}
	if l.Subscriptions < 1 {
		bad("Subscriptions is %d: use 1 or more", l.Subscriptions)
	}
	if l.MaxBlock < 0 {
		bad("MaxBlock is %v: use 0 (5 s) or more", l.MaxBlock)
	}
	return errors.Join(errs...)
}

func set[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Counters are written by one core's loop and may be read from any goroutine.
type Counters struct {
	FramesSealed    atomic.Uint64 // frames made from appended batches
	Encodes         atomic.Uint64 // frames encoded: FramesSealed, and those made for a start in the middle of a frame
	FramesDelivered atomic.Uint64 // queued, once per subscription
	EventsDelivered atomic.Uint64 // records of these
	FramesDropped   atomic.Uint64 // skipped, or dropped from a queue
	EventsDropped   atomic.Uint64 // records of these, and those overtaken by the ring
	Stalls          atomic.Uint64 // times a subscription began to hold back appends
	StallsExpired   atomic.Uint64 // times it did so for MaxBlock
	Lagged          atomic.Uint64 // subscriptions that ended in place of a drop (Subscription.EndOnDrop)
}

// A Local is what the rings and topics of one core share: limits, counters and the order in which slabs go when memory is short. It is
// owned by the core's loop.
type Local struct {
	Counters Counters

	loop   *core.Loop
	slabs  *Slabs
	limits Limits

	// Every slab in a ring of this core is in one of the lists, oldest first. spared holds those whose ring had nothing to
	// spare when their turn came. They go, before the younger ones of their ring, when one of these has its turn.
	aged, spared ageList

	// oldest is when the first slab of aged was begun, in microseconds since 1970; noSlab when there is none. Other cores read it.
	oldest atomic.Int64

	scratch []*Frame // what a Topic reads from a log at a time
	burst   burst
}

const noSlab = math.MaxInt64

// NewLocal makes the Local of one core. slabs is shared by all cores. It panics when limits are not valid.
func NewLocal(loop *core.Loop, slabs *Slabs, limits Limits) *Local {
	if err := limits.Validate(); err != nil {
		panic("BUG: " + err.Error())
	}
	c := &Local{loop: loop, slabs: slabs, limits: limits.WithDefaults()}
	c.oldest.Store(noSlab)
	slabs.join(c)
	return c
}

// Slabs returns where the slabs come from.
func (c *Local) Slabs() *Slabs { return c.slabs }

// Limits returns the limits, defaults filled in.
func (c *Local) Limits() Limits { return c.limits }

// OverBudget reports whether Trim has something to do.
func (c *Local) OverBudget() bool { return c.slabs.held.Load() > c.limits.BudgetBytes }

// Trim releases the oldest slabs of this core's rings while the budget is exceeded. When another core has an older one, that core is
// woken to do it instead; up to a sixteenth above the budget this one then keeps its own.
func (c *Local) Trim() {
	budget := c.limits.BudgetBytes
	for {
		over := c.slabs.held.Load() - budget
		if over <= 0 {
			return
		}
		if peer := c.slabs.oldest(); peer != nil && peer != c && over <= budget/16 {
			peer.loop.WakeOffCore()
			return
		}
		if !c.evictSpare() {
			break
		}
	}
	// The least a shard keeps gives way only where that brings memory back: when rings alone exceed the budget.
	for c.slabs.rings.Load() > budget {
		if !c.evictAny() {
			return
		}
	}
}

// evictSpare drops the oldest slab of which the ring keeps LeastRecords without it.
func (c *Local) evictSpare() bool {
	for s := c.aged.first; s != nil; s = c.aged.first {
		// The oldest slab of the ring goes first; it may be in spared.
		if s.ring.canSpare() {
			s.ring.dropOldest()
			return true
		}
		c.moveToSpared(s)
	}
	return false
}

// evictAny drops the oldest slab that has been offered whole.
func (c *Local) evictAny() bool {
	for _, list := range []*ageList{&c.spared, &c.aged} {
		for s := list.first; s != nil; s = s.next {
			if s.ring.canDrop() {
				s.ring.dropOldest()
				return true
			}
		}
	}
	return false
}

func (c *Local) moveToSpared(s *slab) {
	c.aged.remove(s)
	c.spared.pushBack(s)
	c.noteOldest()
}

func (c *Local) noteOldest() {
	at := int64(noSlab)
	if s := c.aged.first; s != nil {
		at = s.born
	}
	if at != c.oldest.Load() {
		c.oldest.Store(at)
	}
}

// An ageList is a doubly linked list of slabs through their prev and next.
type ageList struct{ first, last *slab }

func (a *ageList) pushBack(s *slab) {
	s.list, s.prev, s.next = a, a.last, nil
	if a.last == nil {
		a.first = s
	} else {
		a.last.next = s
	}
	a.last = s
}

func (a *ageList) remove(s *slab) {
	if s.prev == nil {
		a.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		a.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.list, s.prev, s.next = nil, nil, nil
}
