package replicate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// Idempotent publishers and subscribers on a disk whose power goes at a random operation: what was acknowledged is there after, what a
// subscriber saw is, and publishers that go on where they were leave every record exactly once.
func TestPowerCuts(t *testing.T) {
	cuts := uint64(30)
	if testing.Short() {
		cuts = 6
	}
	for seed := range cuts {
		rng := rand.New(rand.NewPCG(seed, 11))
		mode := []wal.Mode{wal.OnCommit, wal.OnCommit, wal.Periodic}[seed%3]
		disk := faultfs.New(256 << 20)
		d := durable{dir: "d", journal: &memoryJournal{}, wal: wal.Options{FS: disk, SegmentBytes: 256 << 10, MaxGroupBytes: 16 << 10}}
		o := options{cores: 1 + int(seed%2), unowned: true, host: HostConfig{Limits: fanout.Limits{RingRecords: 200, LeastRecords: 1}}}
		b := openBroker(t, o, d)
		const shards, perShard = 4, 2
		stream := b.stream(StreamConfig{Name: "s", Durable: true, Shards: shards, FsyncMode: mode})

		var acked [shards * perShard]atomic.Uint64 // batches
		var seen [shards]atomic.Uint64             // offset
		var cut atomic.Pointer[faultfs.Disk]
		var ackedAtCut [shards * perShard]uint64
		var seenAtCut [shards]uint64
		var left atomic.Int64
		left.Store(int64(100 + rng.IntN(600)))
		disk.OnOp(func(faultfs.Op) {
			if left.Add(-1) != 0 {
				return
			}
			for i := range acked {
				ackedAtCut[i] = acked[i].Load()
			}
			for i := range seen {
				seenAtCut[i] = seen[i].Load()
			}
			survival := []faultfs.Survival{faultfs.DropAll, faultfs.KeepAll, faultfs.Torn512, faultfs.Torn4K, faultfs.Shuffled}[seed%5]
			cut.Store(disk.Crash(survival, rand.New(rand.NewPCG(seed, 12))))
		})
		content := func(publisher int, sequence uint64) *Append {
			n := 1 + int(sequence%5)
			a := &Append{Count: uint32(n), Idempotent: true, ProducerID: uint64(publisher) + 1, Sequence: sequence}
			for i := range n {
				payload := binary.BigEndian.AppendUint64(nil, uint64(publisher)<<32|sequence)
				payload = append(payload, byte(i))
				a.Records = wire.AppendRecord(a.Records, append(payload, make([]byte, int(sequence*37)%900)...))
			}
			return a
		}
		// publish sends batches from a sequence on until there has been a cut, or up to another one, up to 4 in flight.
		publish := func(b *broker, s *Shard, publisher int, from uint64, to uint64) {
			done := make(completion, 4)
			next, open := from, 0
			for next < to && cut.Load() == nil || open > 0 {
				for open < 4 && next < to && cut.Load() == nil {
					a := content(publisher, next)
					a.Done = done
					next++
					open++
					if err := s.host.loop.PostOffCore(core.Func(func(l *core.Loop) { s.Append(l, a) })); err != nil {
						t.Error(err)
						return
					}
				}
				a := b.wait(done)
				open--
				if a.Outcome != Appended && a.Outcome != Duplicate {
					t.Errorf("seed %d: publisher %d: batch %d: %v", seed, publisher, a.Sequence, a.Outcome)
				}
				acked[publisher].Store(a.Sequence + 1)
			}
		}
		var work, readers sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i, s := range stream.Shards {
			for k := range perShard {
				work.Go(func() { publish(b, s, i*perShard+k, 0, 1<<40) })
			}
			readers.Go(func() {
				sub := &fanout.Subscription{Policy: fanout.CatchUp}
				b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartEarliest) })
				for sub.Wait(ctx) == nil {
					for _, f := range sub.Take(nil, 64<<10) {
						seen[i].Store(uint64(f.End()))
						f.Release()
					}
					if sub.WantsFeed() {
						b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
					}
				}
				b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, sub) })
			})
		}
		work.Wait()
		stop()
		readers.Wait()
		if err := b.close(); err != nil {
			t.Fatal(err)
		}

		d.wal.FS = cut.Load()
		cut.Store(nil)
		b = openBroker(t, o, d)
		stream = b.stream(StreamConfig{Name: "s", Durable: true, Shards: shards, FsyncMode: mode})
		check(t, "notices", fmt.Sprint(b.catalog.Notices()), "[]")
		if mode != wal.OnCommit {
			// Weaker modes promise less than this: only that what is there is a beginning of what was.
			clear(ackedAtCut[:])
			clear(seenAtCut[:])
		}
		for i, s := range stream.Shards {
			var end wire.Offset
			b.on(s, func(*core.Loop) { end = s.Stats().Committed })
			if uint64(end) < seenAtCut[i] {
				t.Errorf("seed %d: shard %d ends at %d, a subscriber saw up to %d", seed, i, end, seenAtCut[i])
			}
			for k := range perShard {
				p := i*perShard + k
				// What the broker remembers is what there is; the producer goes on from the last answer it may have had.
				have := uint64(0)
				b.on(s, func(*core.Loop) {
					if known := s.producers.byID[uint64(p)+1]; known != nil {
						have = known.expected
					}
				})
				if have < ackedAtCut[p] {
					t.Errorf("seed %d: publisher %d has %d batches, %d were acknowledged", seed, p, have, ackedAtCut[p])
				}
				from := have - min(have, 5)
				publish(b, s, p, from, have+20)
			}
			next := map[int]uint64{} // batch<<8 | record
			for at := wire.Offset(0); ; {
				page, to, err := s.ReadOffCore(at, 0, 0, 0)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if len(page) == 0 {
					break
				}
				for _, r := range page {
					id := binary.BigEndian.Uint64(r.Payload)
					p, sequence, part := int(id>>32), id&(1<<32-1), uint64(r.Payload[8])
					if next[p] != sequence<<8|part {
						t.Fatalf("seed %d: shard %d offset %d: batch %d record %d of publisher %d, expected %d %d", seed, i, r.Offset, sequence, part, p, next[p]>>8, next[p]&255)
					}
					if next[p]++; part+1 == 1+sequence%5 {
						next[p] = (sequence + 1) << 8
					}
				}
				at = to
			}
			for p, n := range next {
				if n>>8 != acked[p].Load() || n&255 != 0 {
					t.Errorf("seed %d: publisher %d: %d batches are there, %d were acknowledged", seed, p, n>>8, acked[p].Load())
				}
			}
		}
		b.close()
		checkNoSlabs(t, b)
	}
}

// Lanes are dealt to other numbers of cores; every shard stays in its lane and is found there.
func TestOtherNumbersOfCores(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	var lanes []uint64
	base := wire.Offset(0)
	for round, cores := range []int{1, 4, 2, 1, 4} {
		d.lanes = 4 / cores
		b := openBroker(t, options{cores: cores}, d)
		s := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 8})
		used := map[core.ID]bool{}
		for i, shard := range s.Shards {
			if round == 0 {
				lanes = append(lanes, shard.log.lane.id)
			}
			check(t, "lane", shard.log.lane.id, lanes[i])
			check(t, "owner", int(shard.Owner()), int(lanes[i])/d.lanes)
			used[shard.Owner()] = true
			a := b.publish(shard, &Append{Records: records(base, 10), Count: 10, Idempotent: true, ProducerID: 1, Sequence: uint64(round)})
			check(t, "outcome", a.Outcome, Appended)
			check(t, "base", a.Base, base)
			checkReads(t, shard, 0, base+10)
		}
		check(t, "cores used", len(used), cores)
		base += 10
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	}
}
