package netio

import (
	"fmt"
	"time"

	"felix/core"
	"felix/netio/wire"
	"felix/replicate"
)

// The lists of an ingress that a run can be in. Runs join at the end with the present time, so the first of a list is the one whose
// time is over next, and one timer does for each list.
const (
	listWaits  = iota // waits: until every publish has its answer
	listQueued        // queued: until no acked publish waits for a slot
)

// A waitList is runs of a core's sessions, oldest first. It is owned by the core's loop.
type waitList struct {
	first, last *run
	by          int // which of a run's links it uses
	timer       core.Timer
	onTimer     func(*core.Loop) // made once
}

// A runLink is the place of a run in a list.
type runLink struct {
	prev, next *run
	since      time.Duration // when it joined
	listed     bool
}

func (w *waitList) push(l *core.Loop, r *run) {
	r.links[w.by] = runLink{prev: w.last, since: l.Now(), listed: true}
	if w.last == nil {
		w.first = r
	} else {
		w.last.links[w.by].next = r
	}
	w.last = r
}

func (w *waitList) remove(r *run) {
	link := r.links[w.by]
	if link.prev == nil {
		w.first = link.next
	} else {
		link.prev.links[w.by].next = link.next
	}
	if link.next == nil {
		w.last = link.prev
	} else {
		link.next.links[w.by].prev = link.prev
	}
	r.links[w.by] = runLink{}
}

// overdue returns the first run when it has been in the list for limit.
func (w *waitList) overdue(l *core.Loop, limit time.Duration) *run {
	if r := w.first; r != nil && r.links[w.by].since+limit <= l.Now() {
		return r
	}
	return nil
}

// arm has onTimer called when the first run has been in the list for limit. An armed timer is for a run as old or older.
func (w *waitList) arm(l *core.Loop, limit time.Duration) {
	if w.first != nil && !w.timer.Armed() {
		l.Arm(&w.timer, w.first.links[w.by].since+limit-l.Now(), w.onTimer)
	}
}

// await has r looked at when publishes of it have waited for Limits.QueueWait for a slot, or for Limits.AckWait in all.
func (in *ingress) await(l *core.Loop, r *run) {
	in.waits.push(l, r)
	in.waits.arm(l, in.server.limits.AckWait)
	if r.waiting > 0 {
		in.queued.push(l, r)
		in.queued.arm(l, in.server.limits.QueueWait)
	}
}

// giveUp answers publishes that have waited for too long with unacknowledged. The shard keeps them: what it has taken may still
// be written, so a refusal would be a lie, and their slots and bytes come back when it is done with them.
func (in *ingress) giveUp(l *core.Loop) {
	for r := in.waits.overdue(l, in.server.limits.AckWait); r != nil; r = in.waits.overdue(l, in.server.limits.AckWait) {
		in.waits.remove(r)
		waiting := false
		for i := range r.pubs {
			p := &r.pubs[i]
			switch {
			case !p.acked || p.answered:
			case !p.slot:
				waiting = true // for a slot: nothing was taken
			default:
				p.failed = unacknowledged(in.server.limits.AckWait)
				p.answered, p.late = true, true
				in.count(p)
				in.stale = true
			}
		}
		if waiting {
			in.waits.push(l, r)
		}
		in.settle(r.stream)
	}
	in.waits.arm(l, in.server.limits.AckWait)
}

func unacknowledged(waited time.Duration) *refusal {
	return &refusal{
		code:    wire.CodeUnacknowledged,
		message: fmt.Sprintf("the shard has not answered for %s; the records may still be written", waited),
	}
}

// refuseQueued refuses acked publishes that have waited for a slot for too long. They leave the queue as if they had never come: the
// slot that one would have had next goes to another.
func (in *ingress) refuseQueued(l *core.Loop) {
	limit := in.server.limits.QueueWait
	for r := in.queued.overdue(l, limit); r != nil; r = in.queued.overdue(l, limit) {
		r.open++ // so that r is not recycled under the loop
		for i := range r.pubs {
			if p := &r.pubs[i]; p.acked && p.Waiter.Queued() {
				in.refuse(l, p, queueFull(limit))
			}
		}
		if r.waiting != 0 || r.links[listQueued].listed {
			panic(fmt.Sprintf("BUG: netio: %d publishes of a run wait that are not in the queue", r.waiting))
		}
		r.finished()
	}
	in.queued.arm(l, limit)
}

func queueFull(waited time.Duration) *refusal {
	return &refusal{
		code:    wire.CodeOverloaded,
		message: fmt.Sprintf("publish queue full: no place in the broker's ingress for %s; nothing was kept, try again", waited),
		reason:  wire.ReasonPublishQueueFull,
	}
}

// refuse ends the wait of p for a slot. An idempotent batch takes those behind it along that its stream has sent for the same shard,
// and those that come until it is there again: the shard would answer them with sequence_gap, which ends the producer.
func (in *ingress) refuse(l *core.Loop, p *publish, why *refusal) {
	in.slots.Cancel(&p.Waiter)
	p.waitsNoMore()
	p.failed = why
	p.run.stream.account.counts.queueRefused.Add(1)
	if p.Idempotent {
		p.run.stream.answers.refuse(l, p)
		// Those with a slot already are of other shards: a tenant's publishes get theirs in order.
		for q := p.after; q != nil; q = q.after {
			if q.Idempotent && q.ProducerID == p.ProducerID && q.Shard == p.Shard && q.Waiter.Queued() {
				in.slots.Cancel(&q.Waiter)
				q.waitsNoMore()
				q.failed, q.answered = why, true
				p.run.stream.answers.refuse(l, q)
				in.count(q)
			}
		}
	}
	in.finish(l, p) // answers all of them, when their turn is
}

// A producerShard is what has a sequence: a producer, in one shard.
type producerShard struct {
	producer uint64
	shard    *replicate.Shard
}

// refuse notes that p was refused on the session's loop.
func (a *answers) refuse(l *core.Loop, p *publish) {
	a.refused.Note(producerShard{p.ProducerID, p.Shard}, p.Sequence, p.failed, l.Now())
}

// keepSequence returns why p has to be refused: because a batch before it was. The batches themselves, come again in order, are let
// through.
func (a *answers) keepSequence(l *core.Loop, p *publish) *refusal {
	key := producerShard{p.ProducerID, p.Shard}
	if why, ok := a.refused.Before(key, p.Sequence, l.Now()); ok {
		return why
	}
	a.refused.Passed(key, p.Sequence)
	return nil
}
