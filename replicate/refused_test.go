package replicate

import (
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// holdBack returns a shard with two records and a subscription that holds appends back.
func holdBack(t *testing.T, b *broker) (*Shard, *fanout.Subscription) {
	t.Helper()
	s := b.stream(StreamConfig{Name: "s", OnSlow: fanout.Block}).Shards[0]
	sub := &fanout.Subscription{Capacity: 1, Policy: fanout.Block}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	for i := range 2 {
		b.append(s, &Append{Records: records(wire.Offset(i), 1), Count: 1})
	}
	return s, sub
}

// Held appends are refused at their deadline, those without one are not, and batches behind one of the same producer go with it.
func TestHeldAppendsHaveADeadline(t *testing.T) {
	b := newBroker(t, options{})
	s, sub := holdBack(t, b)
	done := make(completion, 20)
	held := func(number, producer, sequence uint64, deadline time.Duration) {
		a := &Append{Records: records(wire.Offset(number), 1), Count: 1, Done: done, Deadline: deadline}
		a.Idempotent, a.ProducerID, a.Sequence = producer != 0, producer, sequence
		b.on(s, func(l *core.Loop) { s.Append(l, a) })
	}
	now := time.Duration(b.clock.Load())
	held(2, 0, 0, 0)
	held(3, 7, 0, now+time.Second)
	held(4, 8, 0, now+2*time.Second)
	held(5, 7, 1, now+2*time.Second)
	b.advance(time.Second - 1)
	b.on(s, func(*core.Loop) {})
	check(t, "answers before the deadline", len(done), 0)
	b.advance(1)
	for _, want := range []uint64{0, 1} {
		a := <-done
		check(t, "producer", a.ProducerID, 7)
		check(t, "sequence", a.Sequence, want)
		check(t, "outcome", a.Outcome, Overloaded)
	}
	held(6, 7, 2, now+2*time.Second) // behind a refused one; judged when its turn comes
	b.on(s, func(*core.Loop) { check(t, "held", s.Stats().Held, 3) })
	drain(sub)
	b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
	for range 3 {
		a := <-done
		switch {
		case a.ProducerID == 7:
			check(t, "the one behind", a.Outcome, Overloaded)
		default:
			check(t, "others", a.Outcome, Appended)
		}
	}
	drain(sub)
	b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
	for sequence := range uint64(3) {
		drain(sub)
		b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
		check(t, "sent again", b.idem(s, 7, sequence, "x").Outcome, Appended)
	}
	check(t, "an end to forbearance", b.idem(s, 7, 9, "x").Outcome, SequenceGap)
	b.on(s, func(*core.Loop) { check(t, "remembered", len(s.refused), 0) })
}

// A refused batch is remembered until it or a later one is appended, and the number of those remembered is bounded.
func TestRefusedBatches(t *testing.T) {
	var r RefusedBatches[uint64, Outcome]
	before := func(producer, sequence uint64, otherwise Outcome, now time.Duration) Outcome {
		if o, ok := r.Before(producer, sequence, now); ok {
			return o
		}
		return otherwise
	}
	r.Note(1, 5, DiskFull, 0)
	r.Note(1, 6, Overloaded, 0)
	check(t, "behind", before(1, 6, SequenceGap, 0), DiskFull)
	check(t, "itself", before(1, 5, SequenceGap, 0), SequenceGap)
	check(t, "another producer", before(2, 6, UnknownProducer, 0), UnknownProducer)
	r.Note(1, 4, Overloaded, 0)
	check(t, "the lowest counts", before(1, 5, SequenceGap, 0), Overloaded)
	r.Passed(1, 3)
	check(t, "an earlier one again", len(r), 1)
	r.Passed(1, 4)
	check(t, "behind the next one", before(1, 6, SequenceGap, 0), Overloaded)
	check(t, "the next one", before(1, 5, SequenceGap, 0), SequenceGap)
	r.Passed(1, 5)
	r.Passed(1, 6)
	check(t, "all appended", len(r), 0)
	r.Note(1, 7, Overloaded, time.Second)
	check(t, "until then", before(1, 8, SequenceGap, time.Second+RefusedFor-1), Overloaded)
	check(t, "not for ever", before(1, 8, SequenceGap, time.Second+RefusedFor), SequenceGap)
	for id := range uint64(MaxRefusedBatches + 1) {
		r.Note(id, 0, Overloaded, 0)
	}
	check(t, "bound", len(r), MaxRefusedBatches)
	check(t, "the oldest is forgotten", before(0, 1, UnknownProducer, 0), UnknownProducer)
	check(t, "the newest is not", before(MaxRefusedBatches, 1, UnknownProducer, 0), Overloaded)
}
