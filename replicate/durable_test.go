package replicate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

func TestDurableRecordsSurvive(t *testing.T) {
	for _, cores := range []int{1, 2, 4} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("cores=%d/kill=%v", cores, kill), func(t *testing.T) {
				d := durable{dir: t.TempDir(), lanes: 2, journal: &memoryJournal{}}
				b := openBroker(t, options{cores: cores}, d)
				stream := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 6})
				check(t, "on_slow", stream.Config.OnSlow, fanout.CatchUp)
				fill := func(s *Shard, base wire.Offset, producer uint64, first uint64) {
					for i := range 40 {
						n := 1 + i%7
						a := b.publish(s, &Append{Records: records(base, n), Count: uint32(n), Idempotent: i%2 == 0, ProducerID: producer, Sequence: first + uint64(i/2)})
						check(t, "outcome", a.Outcome, Appended)
						check(t, "base", a.Base, base)
						base += wire.Offset(n)
					}
				}
				const each = 155
				for i, s := range stream.Shards {
					fill(s, 0, uint64(100+i), 0)
				}
				gone := b.stream(StreamConfig{Name: "gone", Durable: true})
				fill(gone.Shards[0], 0, 1, 0)
				if err := b.catalog.DeleteStream(context.Background(), "t", "n", "gone"); err != nil {
					t.Fatal(err)
				}
				owners := make([]uint64, 6)
				for i, s := range stream.Shards {
					owners[i] = s.log.lane.id
				}
				if kill {
					// The deletion has to be in its lane, or on record: both are tried by chance.
					d.dir = copyDir(t, d.dir)
				}
				if err := b.close(); err != nil {
					t.Fatal(err)
				}

				b = openBroker(t, options{cores: cores}, d)
				check(t, "orphans", len(b.catalog.Orphans()), 0)
				check(t, "notices", fmt.Sprint(b.catalog.Notices()), "[]")
				again := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 6})
				check(t, "id", again.ID, stream.ID)
				check(t, "generation", again.Generation, stream.Generation)
				if b.catalog.Resolve([]byte("t"), []byte("n"), []byte("gone")) != nil {
					t.Fatal("the deleted stream is back")
				}
				for i, s := range again.Shards {
					check(t, "lane", s.log.lane.id, owners[i])
					b.on(s, func(*core.Loop) {
						start, end := s.Bounds()
						check(t, "start", start, 0)
						check(t, "end", end, each)
						check(t, "producers", s.Stats().Producers, 1)
						check(t, "producers were read from batches", s.log.tableDirty, kill) // a close writes the table
					})
					checkReads(t, s, 0, each)
					// Batch 19 of the producer was the 38th, of 4 records; before it are 146.
					a := b.publish(s, &Append{Records: records(146, 4), Count: 4, Idempotent: true, ProducerID: uint64(100 + i), Sequence: 19})
					check(t, "outcome of the last batch again", a.Outcome, Duplicate)
					check(t, "base", a.Base, 146)
					a = b.publish(s, &Append{Records: records(0, 1), Count: 1, Idempotent: true, ProducerID: uint64(100 + i), Sequence: 0})
					check(t, "outcome of the first batch again", a.Outcome, Duplicate)
					a = b.publish(s, &Append{Records: records(0, 1), Count: 1, Idempotent: true, ProducerID: uint64(100 + i), Sequence: 21})
					check(t, "outcome of a gap", a.Outcome, SequenceGap)
					fill(s, each, uint64(100+i), 20)
					sub := &reader{shard: s}
					sub.Policy = fanout.CatchUp
					if !sub.join(t, func() wire.StartPosition { return wire.StartPosition{Kind: wire.StartEarliest} }) {
						return
					}
					got := wire.Offset(0)
					for got < 2*each {
						for _, f := range takeWait(t, b, sub) {
							check(t, "frame", f.Base, got)
							got = f.End()
							f.Release()
						}
					}
					sub.next = got
					sub.leave(b)
				}
				// Of the same name: starts at 0, under another id.
				fresh := b.stream(StreamConfig{Name: "gone", Durable: true})
				if fresh.ID <= stream.ID || fresh.ID == gone.ID {
					t.Fatalf("id %d after %d and %d", fresh.ID, stream.ID, gone.ID)
				}
				a := b.publish(fresh.Shards[0], &Append{Records: records(0, 1), Count: 1})
				check(t, "base", a.Base, 0)
				if err := b.close(); err != nil {
					t.Fatal(err)
				}
				checkNoSlabs(t, b)
			})
		}
	}
}

func TestTooLargeBatch(t *testing.T) {
	b := openBroker(t, options{}, durable{dir: t.TempDir(), wal: wal.Options{MaxBatchBytes: 1000}})
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	a := &Append{Records: wire.AppendRecord(nil, make([]byte, 1000)), Count: 1, Idempotent: true, ProducerID: 1}
	check(t, "outcome", b.publish(s, a).Outcome, TooLarge)
	a.Records = a.Records[:0]
	a.Records = wire.AppendRecord(a.Records, make([]byte, 10))
	check(t, "outcome", b.publish(s, a).Outcome, Appended)
	check(t, "base", a.Base, 0)
}

func TestDuplicateWaitsForItsFirst(t *testing.T) {
	d := durable{dir: t.TempDir()}
	gate := stuck(&d.wal)
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	sub := &fanout.Subscription{Policy: fanout.CatchUp}
	done := make(completion, 10)
	b.on(s, func(l *core.Loop) {
		subscribe(t, l, s, sub, wire.StartLatest)
		for range 3 {
			s.Append(l, &Append{Records: records(0, 2), Count: 2, Idempotent: true, ProducerID: 1, Done: done})
		}
		s.Append(l, &Append{Records: records(2, 1), Count: 1, Done: done})
		s.Append(l, &Append{Done: done}) // empty: answered with the tail, in its turn
	})
	b.on(s, func(*core.Loop) {
		check(t, "answers", len(done), 0)
		check(t, "pending", s.Stats().Pending, 5)
		_, end := s.Bounds()
		check(t, "end before it is durable", end, 0)
		check(t, "depth before it is durable", sub.Stats().Depth, 0)
	})
	close(gate)
	for i, want := range []Outcome{Appended, Duplicate, Duplicate, Appended, Appended} {
		a := b.wait(done)
		check(t, fmt.Sprint("outcome of ", i), a.Outcome, want)
		check(t, "base", a.Base, []wire.Offset{0, 0, 0, 2, 3}[i])
	}
	check(t, "base of an empty batch", b.publish(s, &Append{}).Base, 3)
	b.eventually(s, "all delivered", func(*core.Loop) bool { return sub.Stats().Next == 3 })
	check(t, "records", drain(sub), 3)
}

func TestFsyncModeOfAStream(t *testing.T) {
	b := openBroker(t, options{}, durable{dir: t.TempDir(), wal: wal.Options{MarkAfter: time.Hour, SyncInterval: time.Hour}})
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	base := wire.Offset(0)
	syncs := func() uint64 {
		before := s.log.lane.lane.StatsOffCore().Syncs
		for range 10 {
			a := b.publish(s, &Append{Records: records(base, 1), Count: 1})
			check(t, "outcome", a.Outcome, Appended)
			base++
		}
		return s.log.lane.lane.StatsOffCore().Syncs - before
	}
	check(t, "syncs of 10 publishes on_commit", syncs(), 10)
	for _, mode := range []wal.Mode{wal.None, wal.Periodic} {
		if _, err := b.catalog.PatchStream(t.Context(), "t", "n", "s", Patch{FsyncMode: &mode}); err != nil {
			t.Fatal(err)
		}
		check(t, "syncs of 10 publishes "+mode.String(), syncs(), 0)
	}
}
