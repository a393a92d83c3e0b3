package replicate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// checkReads reads the whole shard by pages and compares with what records says.
func checkReads(t testing.TB, s *Shard, from, end wire.Offset) {
	t.Helper()
	for at := from; at < end; {
		page, next, err := s.ReadOffCore(at, 0, 700, 0)
		if err != nil || len(page) == 0 || len(page) > 700 {
			t.Fatalf("read at %d of %d: %d records, %v", at, end, len(page), err)
		}
		for _, r := range page {
			if r.Offset != at || wire.Offset(binary.BigEndian.Uint64(r.Payload)) != at {
				t.Fatalf("record %d is %x at %d", r.Offset, r.Payload, at)
			}
			at++
		}
		check(t, "next", next, at)
	}
	if _, _, err := s.ReadOffCore(end+1, 0, 0, 0); !errors.As(err, new(*fanout.CursorError)) {
		t.Fatalf("read beyond the end: %v", err)
	}
	if page, next, err := s.ReadOffCore(end, 0, 0, 0); len(page) != 0 || next != end || err != nil {
		t.Fatalf("read at the end: %d records, %d, %v", len(page), next, err)
	}
}

// takeWait waits for frames and takes them.
func takeWait(t testing.TB, b *broker, r *reader) []*fanout.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Wait(ctx); err != nil {
		t.Fatalf("nothing to read at %d: %v", r.Stats().Next, err)
	}
	frames := r.Take(nil, 256<<10)
	if r.WantsFeed() {
		b.on(r.shard, func(l *core.Loop) { r.shard.Topic().Feed(l, &r.Subscription) })
	}
	return frames
}

// Joins from history in the log to live under full-rate publish: contiguous, no duplicate, nothing dropped.
func TestDurableJoins(t *testing.T) {
	joins := 2000
	if testing.Short() {
		joins = 200
	}
	for _, cores := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("cores=", cores), func(t *testing.T) {
			// The ring holds less than a join goes back.
			limits := fanout.Limits{RingRecords: 300, LeastRecords: 1, RingBytes: 64 << 10}
			d := durable{dir: t.TempDir(), wal: wal.Options{SegmentBytes: 8 << 20}}
			b := openBroker(t, options{cores: cores, unowned: true, host: HostConfig{Limits: limits}}, d)
			stream := b.stream(StreamConfig{Name: "s", Durable: true, Shards: uint32(cores)})
			var publishers, joiners sync.WaitGroup
			var stop atomic.Bool
			var fromLog atomic.Int64
			for i, s := range stream.Shards {
				p := &publisher{id: uint32(i), shard: s}
				p.run(t, 300, 16, func() int { return 10 }) // ten times what the ring holds
				publishers.Go(func() {
					for !stop.Load() {
						p.run(t, 50, 16, func() int { return 1 + int(p.sent%3) })
					}
				})
			}
			const goroutines = 8
			for i := range goroutines {
				joiners.Go(func() {
					for k := range joins / 3 / goroutines {
						r := &reader{shard: stream.Shards[i%cores]}
						r.Policy, r.Capacity = fanout.CatchUp, 16+48*(k%2)
						if !r.join(t, func() wire.StartPosition {
							_, end := r.shard.Bounds()
							back := min(wire.Offset(k*317%2500), end)
							if end-back < r.shard.ring.Start() {
								fromLog.Add(1)
							}
							return wire.StartPosition{Kind: wire.StartOffset, Offset: end - back}
						}) {
							return
						}
						for r.next < r.tail+20 {
							if !r.read(t, 16<<10) {
								if err := r.Wait(t.Context()); err != nil {
									t.Error(err)
									return
								}
							}
							if reason, ended := r.End(); ended {
								t.Errorf("ended: %v %v", reason, r.Err())
								return
							}
						}
						r.leave(b)
						if st := r.Stats(); r.gaps != 0 || st.Dropped != 0 || r.from != st.From {
							t.Errorf("from %d to %d: gaps of %d, dropped %d", r.from, r.next, r.gaps, st.Dropped)
						}
					}
				})
			}
			joiners.Wait()
			stop.Store(true)
			publishers.Wait()
			if n := int(fromLog.Load()); n < joins/8 {
				t.Errorf("%d joins began below the ring", n)
			}
			b.close()
			checkNoSlabs(t, b)
		})
	}
}

// A live subscription that stalls falls behind the ring, reads the log, and comes back without loss.
func TestStalledSubscriberCatchesUp(t *testing.T) {
	for _, policy := range []fanout.Policy{fanout.CatchUp, fanout.Block} {
		limits := fanout.Limits{RingRecords: 100, LeastRecords: 1, RingBytes: 32 << 10}
		b := openBroker(t, options{host: HostConfig{Limits: limits}}, durable{dir: t.TempDir()})
		s := b.stream(StreamConfig{Name: "s", Durable: true, OnSlow: policy}).Shards[0]
		r := &reader{shard: s}
		r.Policy, r.Capacity = policy, 8
		if !r.join(t, func() wire.StartPosition { return wire.StartPosition{Kind: wire.StartLatest} }) {
			return
		}
		appended := make(chan wire.Offset)
		go func() {
			n := wire.Offset(0)
			for range 400 {
				if a := b.publish(s, &Append{Records: records(n, 5), Count: 5}); a.Outcome != Appended {
					t.Errorf("%v", a.Outcome)
				}
				n += 5
				if policy == fanout.CatchUp && n == 1000 {
					appended <- n // nothing was read so far
				}
			}
			close(appended)
		}()
		if policy == fanout.CatchUp {
			<-appended
			b.on(s, func(*core.Loop) {
				check(t, "holding", s.Topic().Holding(), false)
				if s.ring.Start() <= r.Stats().Next {
					t.Errorf("the ring begins at %d, the subscription stands at %d", s.ring.Start(), r.Stats().Next)
				}
			})
		}
		for got := wire.Offset(0); got < 2000; {
			for _, f := range takeWait(t, b, r) {
				check(t, "frame", f.Base, got)
				got = f.End()
				f.Release()
			}
		}
		<-appended
		b.eventually(s, "live", func(*core.Loop) bool { return r.Stats().State == fanout.Live })
		check(t, "dropped", r.Stats().Dropped, 0)
		r.next = 2000
		r.leave(b)
		b.close()
		checkNoSlabs(t, b)
	}
}

// A subscription that leaves, and a stream that goes, while the log is being read: late answers are released.
func TestLeavingWhileReading(t *testing.T) {
	b := openBroker(t, options{host: HostConfig{Limits: fanout.Limits{RingRecords: 10, LeastRecords: 1, RingBytes: 4096}}}, durable{dir: t.TempDir()})
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	for n := wire.Offset(0); n < 3000; n += 30 {
		b.publish(s, &Append{Records: records(n, 30), Count: 30})
	}
	for i := range 300 {
		sub := &fanout.Subscription{Policy: fanout.CatchUp}
		b.on(s, func(l *core.Loop) {
			subscribe(t, l, s, sub, wire.StartEarliest)
			if i%2 == 0 {
				s.Topic().Unsubscribe(l, sub)
			}
		})
		if i%2 == 1 {
			b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, sub) })
		}
		st := sub.Stats()
		check(t, "books", uint64(st.Next-st.From), st.Taken+st.Dropped+st.Discarded)
	}
	var subs []*fanout.Subscription
	b.on(s, func(l *core.Loop) {
		for range 50 {
			sub := &fanout.Subscription{Policy: fanout.CatchUp}
			subscribe(t, l, s, sub, wire.StartEarliest)
			subs = append(subs, sub)
		}
	})
	if err := b.catalog.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	b.close()
	for _, sub := range subs {
		drain(sub)
		if reason, ended := sub.End(); reason != fanout.Deleted || !ended {
			t.Fatalf("%v %v", reason, ended)
		}
	}
	checkNoSlabs(t, b)
}

func TestLogRetention(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Retention
	}{{"size", Retention{MaxSizeBytes: 1 << 20}}, {"age", Retention{MaxAge: time.Hour}}, {"default", Retention{MaxAge: 10 * time.Hour}}} {
		t.Run(c.name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(time.Unix(1e9, 0).UnixMicro())
			d := durable{dir: t.TempDir(), journal: &memoryJournal{}, wal: wal.Options{SegmentBytes: 1 << 20}}
			var defaults Retention
			if c.name == "default" {
				defaults = Retention{MaxAge: time.Second, MaxSizeBytes: 1 << 20}
			}
			o := options{host: HostConfig{NowMicros: now.Load, LogRetention: defaults, Limits: fanout.Limits{RingRecords: 50, LeastRecords: 1, RingBytes: 4096}}}
			b := openBroker(t, o, d)
			s := b.stream(StreamConfig{Name: "s", Durable: true, Retention: c.r}).Shards[0]
			slow := &fanout.Subscription{Policy: fanout.CatchUp, Capacity: 1}
			b.on(s, func(l *core.Loop) { subscribe(t, l, s, slow, wire.StartEarliest) })
			batch := func(n wire.Offset) {
				payload := binary.BigEndian.AppendUint64(nil, uint64(n))
				payload = append(payload, make([]byte, 32<<10)...)
				check(t, "outcome", b.publish(s, &Append{Records: wire.AppendRecord(nil, payload), Count: 1}).Outcome, Appended)
			}
			for n := range wire.Offset(120) { // 3.8 MiB
				batch(n)
				now.Add(time.Minute.Microseconds())
				b.advance(1) // the time is that of the pass
			}
			start := func() (start wire.Offset) {
				b.on(s, func(*core.Loop) { start, _ = s.Bounds() })
				return start
			}
			b.eventually(s, "the start moved", func(*core.Loop) bool {
				b.advance(agingInterval)
				first, _ := s.Bounds()
				return first > 40
			})
			if at := start(); at > 90 {
				t.Fatalf("start at %d: more than asked for is gone", at)
			}
			first := start()
			if _, _, err := s.ReadOffCore(first-1, 0, 0, 0); err == nil {
				b.eventually(s, "the log starts there, too", func(*core.Loop) bool {
					at, _, _ := s.log.lane.lane.RangeOffCore(s.log.id)
					return at >= first
				})
			}
			// The slow one is told what it missed.
			next, gaps := wire.Offset(0), uint64(0)
			for next < 120 {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				if err := slow.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				cancel()
				for _, f := range slow.Take(nil, 1) {
					gaps += uint64(f.Base - next)
					next = f.End()
					f.Release()
				}
				if slow.WantsFeed() {
					b.on(s, func(l *core.Loop) { s.Topic().Feed(l, slow) })
				}
			}
			check(t, "dropped", slow.Stats().Dropped, gaps)
			if gaps == 0 {
				t.Fatal("no gap")
			}
			b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, slow) })
			b.close()
			b = openBroker(t, o, d)
			s = b.stream(StreamConfig{Name: "s", Durable: true, Retention: c.r}).Shards[0]
			if at := start(); at < first {
				t.Fatalf("start %d after the restart, %d before", at, first)
			}
			if c.name == "age" {
				// Everything goes, also without appends, and offsets go on.
				now.Add((3 * time.Hour).Microseconds())
				b.eventually(s, "all gone", func(*core.Loop) bool {
					b.advance(agingInterval)
					first, _ := s.Bounds()
					return first == 120
				})
				batch(120)
				b.on(s, func(*core.Loop) { check(t, "end", s.Stats().Committed, 121) })
			}
		})
	}
}

func TestDamageEndsTheSubscription(t *testing.T) {
	disk := faultfs.New(64 << 20)
	d := durable{dir: "d", journal: &memoryJournal{}, wal: wal.Options{FS: disk, SegmentBytes: 1 << 20}}
	b := openBroker(t, options{}, d)
	stream := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 2})
	s, other := stream.Shards[0], stream.Shards[1]
	for n := wire.Offset(0); n < 200; n++ {
		b.publish(s, &Append{Records: wire.AppendRecord(nil, append(binary.BigEndian.AppendUint64(nil, uint64(n)), make([]byte, 10<<10)...)), Count: 1})
	}
	b.publish(other, &Append{Records: records(0, 5), Count: 5})
	b.close()
	for _, name := range disk.Names() {
		if content := disk.Get(name); filepath.Ext(name) == ".seg" && len(content) > 300<<10 {
			disk.Flip(name, 200<<10+5000, 3)
			break
		}
	}
	b = openBroker(t, options{}, d)
	stream = b.stream(StreamConfig{Name: "s", Durable: true, Shards: 2})
	s, other = stream.Shards[0], stream.Shards[1]
	r := &reader{shard: s}
	r.Policy = fanout.CatchUp
	r.join(t, func() wire.StartPosition { return wire.StartPosition{Kind: wire.StartEarliest} })
	got := wire.Offset(0)
	for {
		for _, f := range takeWait(t, b, r) {
			check(t, "frame", f.Base, got)
			got = f.End()
			f.Release()
		}
		if reason, ended := r.End(); ended {
			check(t, "reason", reason, fanout.Failed)
			break
		}
	}
	if err := r.Err(); !errors.As(err, new(*wal.DamageError)) {
		t.Fatal(err)
	}
	if got == 0 || got > 60 {
		t.Fatalf("read up to %d", got)
	}
	b.on(s, func(l *core.Loop) { s.Topic().Feed(l, &r.Subscription) }) // does nothing
	r.next = got
	r.leave(b)
	check(t, "reason", fmt.Sprint(r.End()), "failed true")
	check(t, "outcome", b.publish(s, &Append{Records: records(200, 1), Count: 1}).Base, 200)
	checkReads(t, other, 0, 5)
	b.close()
	checkNoSlabs(t, b)
}

func TestOffsetForTime(t *testing.T) {
	var now atomic.Int64
	now.Store(1000)
	b := openBroker(t, options{host: HostConfig{NowMicros: now.Load}}, durable{dir: t.TempDir()})
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	if _, ok, err := s.OffsetForTimeOffCore(0); ok || err != nil {
		t.Fatal(ok, err)
	}
	if page, next, err := s.ReadOffCore(0, 0, 0, 0); len(page) != 0 || next != 0 || err != nil {
		t.Fatal(page, next, err)
	}
	for i := range wire.Offset(10) {
		now.Store(1000 + int64(i)*10)
		b.publish(s, &Append{Records: records(2*i, 2), Count: 2})
		b.advance(1) // the time is that of the pass
	}
	for micros, want := range map[int64]wire.Offset{0: 0, 1000: 0, 1001: 2, 1010: 2, 1085: 18} {
		if o, ok, err := s.OffsetForTimeOffCore(micros); o != want || !ok || err != nil {
			t.Errorf("at %d: %d %v %v, want %d", micros, o, ok, err, want)
		}
	}
	if _, ok, err := s.OffsetForTimeOffCore(2000); ok || err != nil {
		t.Fatal(ok, err)
	}
	page, next, err := s.ReadOffCore(3, 8, 0, 0)
	if err != nil || len(page) != 5 || next != 8 || page[1].Micros != 1020 {
		t.Fatal(page, next, err)
	}
	if page, next, _ := s.ReadOffCore(3, 0, 2, 0); len(page) != 2 || next != 5 {
		t.Fatal(page, next)
	}
	if page, next, _ := s.ReadOffCore(3, 0, 0, 1); len(page) != 1 || next != 4 {
		t.Fatal(page, next)
	}
	memory := b.stream(StreamConfig{Name: "m"}).Shards[0]
	if _, _, err := memory.ReadOffCore(0, 0, 0, 0); !errors.Is(err, ErrInMemory) {
		t.Fatal(err)
	}
	if _, _, err := memory.OffsetForTimeOffCore(0); !errors.Is(err, ErrInMemory) {
		t.Fatal(err)
	}
}

// Subscriptions that stand at the same offset share a read and its frames.
func TestReadersShareReads(t *testing.T) {
	b := openBroker(t, options{host: HostConfig{Limits: fanout.Limits{RingRecords: 10, LeastRecords: 1, RingBytes: 4096}}}, durable{dir: t.TempDir()})
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	for n := wire.Offset(0); n < 300; n += 30 {
		b.publish(s, &Append{Records: records(n, 30), Count: 30})
	}
	subs := make([]*fanout.Subscription, 20)
	b.on(s, func(l *core.Loop) {
		for i := range subs {
			subs[i] = &fanout.Subscription{Policy: fanout.CatchUp, Capacity: 2 + i}
			subscribe(t, l, s, subs[i], wire.StartEarliest)
		}
		check(t, "reads", len(s.log.reads), 1)
	})
	first := make([]*fanout.Frame, len(subs))
	for i, sub := range subs {
		if err := sub.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		first[i] = sub.Take(nil, 1)[0]
		check(t, "frame", first[i], first[0])
	}
	fanout.ReleaseAll(first)
	for _, sub := range subs {
		for got := wire.Offset(0); got < 300; {
			for _, f := range sub.Take(nil, 1<<20) {
				got = f.End()
				f.Release()
			}
			if sub.WantsFeed() {
				b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
			}
			if got < 300 {
				if err := sub.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		st := sub.Stats()
		check(t, "taken", st.Taken, 300)
	}
	b.close()
	checkNoSlabs(t, b)
}
