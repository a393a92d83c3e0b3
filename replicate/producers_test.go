package replicate

import (
	"fmt"
	"testing"

	"felix/core"
	"felix/netio/wire"
)

// idem appends one record of an idempotent producer.
func (b *broker) idem(s *Shard, id, sequence uint64, payload string) *Append {
	b.t.Helper()
	a := payloads(payload)
	a.Idempotent, a.ProducerID, a.Sequence = true, id, sequence
	return b.append(s, a)
}

// The table of WIRE section 13.
func TestIdempotentProducer(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	name := func(i uint64) string { return fmt.Sprintf("payload %d", i) }

	check(t, "unknown, not 0", b.idem(s, 1, 1, "x").Outcome, UnknownProducer)
	for i := range uint64(100) {
		a := b.idem(s, 1, i, name(i))
		check(t, "next", a.Outcome, Appended)
		check(t, "base", a.Base, wire.Offset(i))
	}
	for i := uint64(36); i < 100; i++ { // the last 64
		a := b.idem(s, 1, i, name(i))
		check(t, "remembered, same payloads", a.Outcome, Duplicate)
		check(t, "original offset", a.Base, wire.Offset(i))
		a = b.idem(s, 1, i, "other")
		check(t, "remembered, other payloads", a.Outcome, SequenceReused)
		check(t, "original offset", a.Base, wire.Offset(i))
	}
	check(t, "older than remembered", b.idem(s, 1, 35, name(35)).Outcome, SequenceExpired)
	check(t, "older than remembered", b.idem(s, 1, 0, name(0)).Outcome, SequenceExpired)
	for _, sequence := range []uint64{101, 1 << 63, 1<<64 - 1} {
		a := b.idem(s, 1, sequence, "x")
		check(t, "above", a.Outcome, SequenceGap)
		check(t, "expected", a.Expected, 100)
	}
	b.on(s, func(*core.Loop) { check(t, "appended", s.appended, 100) })

	// An empty batch takes a sequence and no offset.
	empty := &Append{Idempotent: true, ProducerID: 1, Sequence: 100}
	check(t, "empty", b.append(s, empty).Outcome, Appended)
	check(t, "base", empty.Base, 100)
	check(t, "next after empty", b.idem(s, 1, 101, "x").Base, 100)
	check(t, "empty again", b.append(s, &Append{Idempotent: true, ProducerID: 1, Sequence: 100}).Outcome, Duplicate)

	// Sequences count per producer and shard.
	check(t, "another producer", b.idem(s, 2, 0, "x").Outcome, Appended)
	other := b.stream(StreamConfig{Name: "other"}).Shards[0]
	check(t, "another shard", b.idem(other, 1, 0, "x").Outcome, Appended)
	check(t, "batches with their records split otherwise", digest(payloads("ab", "c").Records) == digest(payloads("a", "bc").Records), false)
}

func TestProducersAreBounded(t *testing.T) {
	b := newBroker(t, options{host: HostConfig{ShardProducers: 10, Producers: 15}})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	for id := range uint64(10) {
		b.idem(s, id, 0, "x")
	}
	b.idem(s, 0, 0, "x") // a duplicate is no new batch
	b.idem(s, 1, 1, "y") // now 0 has the oldest newest batch, then 2
	b.idem(s, 10, 0, "x")
	b.idem(s, 11, 0, "x")
	check(t, "0 is forgotten", b.idem(s, 0, 1, "y").Outcome, UnknownProducer)
	check(t, "1 is known", b.idem(s, 1, 2, "y").Outcome, Appended)
	check(t, "2 is forgotten", b.idem(s, 2, 1, "y").Outcome, UnknownProducer)
	check(t, "3 is known", b.idem(s, 3, 0, "x").Outcome, Duplicate)

	other := b.stream(StreamConfig{Name: "other"}).Shards[0]
	for id := range uint64(10) {
		b.idem(other, id, 0, "x")
	}
	b.on(s, func(*core.Loop) {
		check(t, "of the core", b.hosts[0].producers.n, 15)
		check(t, "of the first shard", s.Stats().Producers, 5)
		check(t, "of the second", other.Stats().Producers, 10)
		check(t, "entries", len(s.producers.byID), 5)
	})
	check(t, "3 of the first shard is forgotten", b.idem(s, 3, 1, "x").Outcome, UnknownProducer)
}
