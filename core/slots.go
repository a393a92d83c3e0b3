package core

import "fmt"

// quantumBytes is what a tenant may be admitted per turn: deficit round robin, DESIGN section 4.
const quantumBytes = 64 << 10

// Admittee is told that its waiter has a slot.
type Admittee interface {
	// OnAdmit runs on the loop, inside the Release that freed the slot. It may call Acquire, Release
	// and Cancel of the same Slots.
	OnAdmit(l *Loop)
}

// Waiter is one publish that waits for a slot: an entry, not a goroutine. It is embedded in the
// publish and owned by the loop from Acquire until OnAdmit or Cancel.
type Waiter struct {
	Tenant   uint64   // whose turn it takes; set before Acquire, not changed while queued
	Bytes    int      // what it costs its tenant's turn; 0 counts as 1. Set before Acquire
	Admittee Admittee // told when the slot is there; set before Acquire

	turn       *turn // queue it stands in; nil when not queued
	prev, next *Waiter
}

// Queued reports whether w waits for a slot.
func (w *Waiter) Queued() bool { return w.turn != nil }

// turn is one tenant's queue, oldest first, linked into the ring of tenants that have waiters.
type turn struct {
	tenant      uint64
	first, last *Waiter
	deficit     int  // bytes the tenant may still be admitted in this visit
	visited     bool // the present visit has been given its quantum
	prev, next  *turn
}

// Slots is a fixed number of ingress places with a fair queue of waiters. It is owned by one loop.
//
// Invariants: inUse <= size; owed <= size-inUse; owed <= waiting. Outside Release owed is 0, and waiters exist
// only while inUse == size.
type Slots struct {
	size, inUse int
	waiting     int
	// owed counts free slots that a waiter is about to get: nonzero only inside Release.
	owed      int
	admitting bool // a Release further up the stack is admitting

	turns   map[uint64]*turn // those in the ring: tenants with waiters, and serving
	current *turn            // whose visit it is; ring of turns
	serving *turn            // whose waiter is being told; stays in the ring until that returns
	spare   *turn            // turns to use again, linked by next

	admitted         uint64
	freedWhileWaited uint64
	freed            uint64
}

// SlotStats is a snapshot of Slots.
type SlotStats struct {
	Size    int // slots in all
	InUse   int // slots taken
	Waiting int // waiters queued
	// Admitted counts waiters that got a slot from the queue; FreedWhileWaiting counts slots freed while
	// a waiter was there to take them. Their ratio must stay at 1.
	Admitted, FreedWhileWaiting uint64
	Freed                       uint64 // slots freed in all
}

// NewSlots returns n free slots, n >= 1.
func NewSlots(n int) *Slots {
	if n < 1 {
		panic(fmt.Sprintf("BUG: core: %d slots", n))
	}
	return &Slots{size: n, turns: make(map[uint64]*turn)}
}

// Acquire takes a slot for w and returns true, or queues w and returns false; then w.Admittee is told
// once it has one. w is queued when its tenant has waiters or no slot is free beyond those that waiters
// are about to get.
func (s *Slots) Acquire(l *Loop, w *Waiter) bool {
	l.AssertOwner()
	if w.turn != nil {
		panic(fmt.Sprintf("BUG: core: waiter of tenant %d acquires while it is queued", w.Tenant))
	}
	q := s.turns[w.Tenant]
	spareSlots := s.size - s.inUse - s.owed
	if spareSlots > 0 && (q == nil || q.first == nil) {
		s.inUse++
		return true
	}
	if w.Admittee == nil || w.Bytes < 0 {
		panic(fmt.Sprintf("BUG: core: waiter of tenant %d with admittee %v and %d bytes", w.Tenant, w.Admittee, w.Bytes))
	}
	if q == nil {
		q = s.joinTurns(w.Tenant)
	}
	w.turn, w.prev, w.next = q, q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	s.waiting++
	if spareSlots > 0 {
		s.owe(1)
	}
	return false
}

// TryAcquire takes a slot for a newcomer of tenant and returns true, where Acquire would not queue it.
func (s *Slots) TryAcquire(l *Loop, tenant uint64) bool {
	l.AssertOwner()
	q := s.turns[tenant]
	if s.size-s.inUse-s.owed <= 0 || q != nil && q.first != nil {
		return false
	}
	s.inUse++
	return true
}

// Release frees k slots and admits exactly as many waiters as there are slots for: the oldest of each
// tenant, tenants in deficit round robin by bytes. Called from inside OnAdmit it only frees; the Release
// that is admitting goes on with what was freed.
func (s *Slots) Release(l *Loop, k int) {
	l.AssertOwner()
	if k < 0 || k > s.inUse {
		panic(fmt.Sprintf("BUG: core: release of %d slots with %d in use", k, s.inUse))
	}
	s.inUse -= k
	s.freed += uint64(k)
	s.owe(min(k, s.waiting-s.owed))
	if s.admitting {
		return
	}
	s.admitting = true
	for s.owed > 0 {
		w := s.take()
		s.owed--
		s.inUse++
		s.admitted++
		w.Admittee.OnAdmit(l)
		// A tenant that queued again from inside OnAdmit never stopped waiting: it keeps its turn.
		if q := s.serving; q.first == nil {
			s.leaveTurns(q)
		}
		s.serving = nil
	}
	s.admitting = false
}

// Cancel removes w from the queue and returns true; false when w is not queued, because it has its
// slot or never waited. A slot that was on its way to w goes to the next waiter.
func (s *Slots) Cancel(w *Waiter) bool {
	if w.turn == nil {
		return false
	}
	s.remove(w)
	if s.owed > s.waiting {
		s.owed--
		s.freedWhileWaited--
	}
	return true
}

// Stats returns the counters.
func (s *Slots) Stats() SlotStats {
	return SlotStats{
		Size: s.size, InUse: s.inUse, Waiting: s.waiting,
		Admitted: s.admitted, FreedWhileWaiting: s.freedWhileWaited, Freed: s.freed,
	}
}

func (s *Slots) owe(k int) {
	s.owed += k
	s.freedWhileWaited += uint64(k)
}

// take removes and returns the waiter whose turn it is. There is one.
func (s *Slots) take() *Waiter {
	for {
		q := s.current
		w := q.first
		if q.next == q {
			// Alone there is nobody to be fair to.
			s.serving = q
			s.remove(w)
			return w
		}
		if !q.visited {
			q.visited = true
			q.deficit += quantumBytes
		}
		if cost := max(w.Bytes, 1); cost <= q.deficit {
			q.deficit -= cost
			s.serving = q
			s.remove(w)
			return w
		}
		q.visited = false
		s.current = q.next
	}
}

// remove unlinks w. A tenant without waiters leaves the ring and loses what is left of its turn, unless it is
// being served.
func (s *Slots) remove(w *Waiter) {
	q := w.turn
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.turn, w.prev, w.next = nil, nil, nil
	s.waiting--
	if q.first == nil && q != s.serving {
		s.leaveTurns(q)
	}
}

// joinTurns gives tenant a queue, last in the present round.
func (s *Slots) joinTurns(tenant uint64) *turn {
	q := s.spare
	if q == nil {
		q = new(turn)
	} else {
		s.spare = q.next
	}
	*q = turn{tenant: tenant}
	if s.current == nil {
		q.prev, q.next = q, q
		s.current = q
	} else {
		if s.current.next == s.current {
			// Whoever was alone carries nothing over: the two start level.
			s.current.deficit, s.current.visited = 0, false
		}
		q.prev, q.next = s.current.prev, s.current
		q.prev.next, q.next.prev = q, q
	}
	s.turns[tenant] = q
	return q
}

func (s *Slots) leaveTurns(q *turn) {
	delete(s.turns, q.tenant)
	if q.next == q {
		s.current = nil
	} else {
		q.prev.next, q.next.prev = q.next, q.prev
		if s.current == q {
			s.current = q.next
		}
	}
	*q = turn{next: s.spare}
	s.spare = q
}
