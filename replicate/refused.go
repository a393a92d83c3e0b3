package replicate

import (
	"slices"
	"time"

	"felix/core"
)

const (
	// MaxRefusedBatches bounds what is remembered of batches that were refused for now: clients have at most 64 batches of a producer on
	// their way. Then the oldest goes, and what its producer has on the way behind it is answered with sequence_gap.
	MaxRefusedBatches = 64
	// RefusedFor is how long a refused batch is remembered: for longer than what was sent behind it is on its way. A client that goes on
	// elsewhere and comes back is not met with it for ever.
	RefusedFor = 5 * time.Second
)

// RefusedBatches are where the order of idempotent producers was broken by the broker itself, oldest first: it refused batches that were in
// order, and those behind them, and they have not come again. sequence_gap would end the producer. K says what has a sequence, W why
// a batch was refused. The zero value is empty; its owner is the only one that uses it.
type RefusedBatches[K comparable, W any] []refusedBatch[K, W]

type refusedBatch[K comparable, W any] struct {
	key            K
	sequence, last uint64 // the batches from sequence to last were refused
	why            W
	until          time.Duration // on the clock of the loops; then it is forgotten
}

func (r RefusedBatches[K, W]) find(key K) int {
	return slices.IndexFunc(r, func(b refusedBatch[K, W]) bool { return b.key == key })
}

// Before returns why the batch is to be refused: because one before it was. ok is false when there is none.
func (r *RefusedBatches[K, W]) Before(key K, sequence uint64, now time.Duration) (why W, ok bool) {
	*r = slices.DeleteFunc(*r, func(b refusedBatch[K, W]) bool { return b.until <= now })
	i := r.find(key)
	if i < 0 || (*r)[i].sequence >= sequence {
		return why, false
	}
	b := &(*r)[i]
	b.last = max(b.last, sequence)
	return b.why, true
}

// Note takes up a batch that was refused.
func (r *RefusedBatches[K, W]) Note(key K, sequence uint64, why W, now time.Duration) {
	if i := r.find(key); i >= 0 {
		b := &(*r)[i]
		if sequence <= b.sequence {
			b.sequence, b.why, b.until = sequence, why, now+RefusedFor
		}
		b.last = max(b.last, sequence)
		return
	}
	if len(*r) == MaxRefusedBatches {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, refusedBatch[K, W]{key, sequence, sequence, why, now + RefusedFor})
}

// Passed notes that a batch was let through after all: the next one may be.
func (r *RefusedBatches[K, W]) Passed(key K, sequence uint64) {
	if len(*r) == 0 {
		return
	}
	if i := r.find(key); i >= 0 && (*r)[i].sequence <= sequence {
		b := &(*r)[i]
		if b.sequence = sequence + 1; b.sequence > b.last {
			*r = slices.Delete(*r, i, i+1)
		}
	}
}

// outOfOrder is the outcome of a batch that is not the next one: that of a refused batch before it, or otherwise.
func (s *Shard) outOfOrder(a *Append, otherwise Outcome, now time.Duration) Outcome {
	if o, ok := s.refused.Before(a.ProducerID, a.Sequence, now); ok {
		return o
	}
	return otherwise
}

// refuseForNow answers an append that may be tried again.
func (s *Shard) refuseForNow(l *core.Loop, a *Append, o Outcome) {
	if a.Idempotent {
		o = s.outOfOrder(a, o, l.Now()) // one message for all that one refusal takes along
		s.refused.Note(a.ProducerID, a.Sequence, o, l.Now())
	}
	a.finish(l, o)
}

// watchDeadline sees to it that a, which s holds, is refused at its deadline.
func (h *Host) watchDeadline(l *core.Loop, s *Shard, a *Append) {
	if a.Deadline == 0 {
		return
	}
	if !s.timed {
		s.timed = true
		h.timed = append(h.timed, s)
	}
	if !h.deadline.Armed() {
		l.Arm(&h.deadline, a.Deadline-l.Now(), h.expireHeldFn)
	}
}

// expiryInterval is the least time between two looks at what is held, each of which walks all of it.
const expiryInterval = 10 * time.Millisecond

// expireHeld refuses held appends whose deadline is over.
func (h *Host) expireHeld(l *core.Loop) {
	timed, next := h.timed, time.Duration(0)
	h.timed = nil
	for _, s := range timed {
		s.timed = false
		earliest := s.expireHeld(l)
		if earliest == 0 {
			continue
		}
		if next == 0 || earliest < next {
			next = earliest
		}
		if !s.timed {
			s.timed = true
			h.timed = append(h.timed, s)
		}
	}
	if next != 0 {
		l.Arm(&h.deadline, max(next-l.Now(), expiryInterval), h.expireHeldFn)
	}
}

// expireHeld refuses what s has held for too long, in order, and returns the earliest deadline that is left; 0 when there is none.
func (s *Shard) expireHeld(l *core.Loop) (earliest time.Duration) {
	var over appendQueue
	for held := s.take(); held.n > 0; {
		a := held.pop()
		if a.Deadline != 0 && a.Deadline <= l.Now() {
			if a.Idempotent {
				s.refused.Note(a.ProducerID, a.Sequence, Overloaded, l.Now()) // before those behind it are looked at
			}
			over.push(a)
			continue
		}
		if a.Idempotent && s.outOfOrder(a, Pending, l.Now()) != Pending {
			over.push(a)
			continue
		}
		if a.Deadline != 0 && (earliest == 0 || a.Deadline < earliest) {
			earliest = a.Deadline
		}
		s.held.push(a)
	}
	for over.n > 0 {
		s.refuseForNow(l, over.pop(), Overloaded) // may append again: behind what is held
	}
	return earliest
}

// take empties the queue of what is held.
func (s *Shard) take() appendQueue {
	held := s.held
	s.held = appendQueue{}
	return held
}
