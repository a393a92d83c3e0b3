package replicate

import (
	"slices"
	"time"

	"felix/core"
)

// maxRefusedBatches bounds what a shard remembers of batches that it refused for now; then the oldest goes, and what its producer has on
// the way behind it is answered with sequence_gap.
const maxRefusedBatches = 64

// refusedBatches are where the order of idempotent producers was broken by the shard itself, oldest first: it refused batches that were
// in order, and those behind them, and they have not come again. sequence_gap would end the producer. Nil until it is needed, and looked
// at only where a batch is not the next one.
type refusedBatches []refusedBatch

type refusedBatch struct {
	producer, sequence, last uint64 // the batches from sequence to last were refused
	outcome                  Outcome
	until                    time.Duration // on the clock of the loops; then it is forgotten
}

// refusedFor is how long a refused batch is remembered: for longer than what was sent behind it is on its way.
const refusedFor = 5 * time.Second

func (r refusedBatches) find(producer uint64) int {
	return slices.IndexFunc(r, func(b refusedBatch) bool { return b.producer == producer })
}

// before returns the outcome of the refused batch before a, with which a is to be refused, or otherwise when there is none.
func (r *refusedBatches) before(a *Append, otherwise Outcome, now time.Duration) Outcome {
	*r = slices.DeleteFunc(*r, func(b refusedBatch) bool { return b.until <= now })
	i := r.find(a.ProducerID)
	if i < 0 || (*r)[i].sequence >= a.Sequence {
		return otherwise
	}
	b := &(*r)[i]
	b.last = max(b.last, a.Sequence)
	return b.outcome
}

// note takes a up.
func (r *refusedBatches) note(a *Append, o Outcome, now time.Duration) {
	if i := r.find(a.ProducerID); i >= 0 {
		b := &(*r)[i]
		if a.Sequence <= b.sequence {
			b.sequence, b.outcome, b.until = a.Sequence, o, now+refusedFor
		}
		b.last = max(b.last, a.Sequence)
		return
	}
	if len(*r) == maxRefusedBatches {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, refusedBatch{a.ProducerID, a.Sequence, a.Sequence, o, now + refusedFor})
}

// appended notes that a batch has come after all: the next one may.
func (r *refusedBatches) appended(a *Append) {
	if len(*r) == 0 {
		return
	}
	if i := r.find(a.ProducerID); i >= 0 && (*r)[i].sequence <= a.Sequence {
		b := &(*r)[i]
		if b.sequence = a.Sequence + 1; b.sequence > b.last {
			*r = slices.Delete(*r, i, i+1)
		}
	}
}

// refuseForNow answers an append that may be tried again.
func (s *Shard) refuseForNow(l *core.Loop, a *Append, o Outcome) {
	if a.Idempotent {
		o = s.refused.before(a, o, l.Now()) // one message for all that one refusal takes along
		s.refused.note(a, o, l.Now())
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
				s.refused.note(a, Overloaded, l.Now()) // before those behind it are looked at
			}
			over.push(a)
			continue
		}
		if a.Idempotent && s.refused.before(a, Pending, l.Now()) != Pending {
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
