package replicate

import (
	"context"
	"runtime"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

func TestAppendGivesOffsetsWithoutGaps(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	next := wire.Offset(0)
	for _, n := range []int{1, 3, 0, 200, 0, 1} {
		a := b.append(s, &Append{Records: records(next, n), Count: uint32(n)})
		check(t, "outcome", a.Outcome, Appended)
		check(t, "base", a.Base, next)
		next += wire.Offset(n)
	}
	b.on(s, func(*core.Loop) {
		st := s.Stats()
		check(t, "appended", st.Appended, next)
		check(t, "committed", st.Committed, next)
		check(t, "delivered", st.Delivered, next)
		start, end := s.Bounds()
		check(t, "start", start, 0)
		check(t, "end", end, next)
	})
}

func TestAppendTimeIsThatOfThePass(t *testing.T) {
	now, asked := int64(1000), 0
	b := newBroker(t, options{host: HostConfig{NowMicros: func() int64 { asked++; return now }}})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	b.on(s, func(l *core.Loop) {
		for range 100 {
			s.Append(l, &Append{Records: records(0, 1), Count: 1, Done: make(completion, 1)})
		}
		check(t, "clock readings", asked, 1)
	})
	b.on(s, func(*core.Loop) {
		frames := s.ReadFrames(nil, 0, 10, 1<<20)
		check(t, "append time", frames[0].AppendMicros, 1000)
		fanout.ReleaseAll(frames)
	})
}

// Whatever runs last in a pass, after Host.Work: what it appends is delivered without anybody else waking the loop.
func TestAppendAfterWorkIsDelivered(t *testing.T) {
	group, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	l := group.Loop(0)
	host := NewHost(l, HostConfig{Slabs: fanout.NewSlabs(fanout.SlabsConfig{})})
	l.AddAgent(host)
	late := &lateAgent{}
	l.AddAgent(late) // after the host
	group.Start()
	b := &broker{t: t, group: group, hosts: []*Host{host}, catalog: NewCatalog(CatalogConfig{Hosts: []*Host{host}})}
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	sub := &fanout.Subscription{}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	if err := l.PostOffCore(core.Func(func(*core.Loop) { late.shard = s })); err != nil {
		t.Fatal(err)
	}
	if err := sub.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	drain(sub)
}

type lateAgent struct{ shard *Shard }

func (a *lateAgent) Work(l *core.Loop) int {
	if s := a.shard; s != nil {
		a.shard = nil
		s.Append(l, &Append{Records: records(0, 1), Count: 1, Done: make(completion, 1)})
	}
	return 0
}

func subscribe(t testing.TB, l *core.Loop, s *Shard, sub *fanout.Subscription, kind wire.StartKind) {
	if _, _, err := s.Topic().Subscribe(l, sub, wire.StartPosition{Kind: kind}); err != nil {
		t.Error(err)
		return
	}
	s.Topic().Start(l, sub)
}

// drain takes and releases what is queued and returns the number of records.
func drain(sub *fanout.Subscription) (records int) {
	frames := sub.Take(nil, 1<<30)
	for _, f := range frames {
		records += int(f.Count)
	}
	fanout.ReleaseAll(frames)
	return records
}

func TestHeldAppendsGoOnInOrder(t *testing.T) {
	b := newBroker(t, options{host: HostConfig{MaxHeld: 50}})
	s := b.stream(StreamConfig{Name: "s", OnSlow: fanout.Block}).Shards[0]
	sub := &fanout.Subscription{Capacity: 4, Policy: fanout.Block}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	for i := range 5 { // one frame each; the fifth does not fit
		check(t, "outcome", b.append(s, &Append{Records: records(wire.Offset(i), 1), Count: 1}).Outcome, Appended)
	}
	done := make(completion, 100)
	b.on(s, func(l *core.Loop) {
		for i := range 51 {
			s.Append(l, &Append{Records: records(wire.Offset(5+i), 1), Count: 1, Done: done})
		}
		check(t, "held", s.Stats().Held, 50)
	})
	check(t, "outcome of the one too many", (<-done).Outcome, Overloaded)
	check(t, "answers while held", len(done), 0)
	if n := drain(sub); n != 4 || !sub.WantsFeed() {
		t.Fatalf("%d records", n)
	}
	b.on(s, func(l *core.Loop) { s.Topic().Feed(l, sub) })
	for i := range 50 {
		a := <-done
		check(t, "outcome", a.Outcome, Appended)
		check(t, "base", a.Base, wire.Offset(5+i))
	}
	// All 50 were appended in one pass: one frame.
	b.on(s, func(*core.Loop) { check(t, "held", s.Stats().Held, 0) })
	check(t, "records", drain(sub), 51)
}

func TestHeldAppendsGoOnAfterMaxBlock(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s", OnSlow: fanout.Block}).Shards[0]
	sub := &fanout.Subscription{Capacity: 1, Policy: fanout.Block}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	for i := range 2 {
		b.append(s, &Append{Records: records(wire.Offset(i), 1), Count: 1})
	}
	a := b.append(s, &Append{Records: records(2, 1), Count: 1})
	check(t, "outcome", a.Outcome, Pending)
	b.advance(5*time.Second - 1)
	b.on(s, func(*core.Loop) {})
	check(t, "outcome just before", a.Outcome, Pending)
	b.advance(1)
	b.on(s, func(*core.Loop) {})
	b.on(s, func(*core.Loop) { check(t, "outcome", a.Outcome, Appended) })
	st := sub.Stats()
	check(t, "dropped", st.Dropped, 2)
	check(t, "records", drain(sub), 1)
	check(t, "expired", b.hosts[0].Counters().StallsExpired.Load(), 1)
}

// An unsubscribed or deleted reader holds nobody back.
func TestHeldAppendsGoOnWhenTheReaderLeaves(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s", OnSlow: fanout.Block}).Shards[0]
	sub := &fanout.Subscription{Capacity: 1, Policy: fanout.Block}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	for i := range 2 {
		b.append(s, &Append{Records: records(wire.Offset(i), 1), Count: 1})
	}
	a := b.append(s, &Append{Records: records(2, 1), Count: 1})
	check(t, "outcome", a.Outcome, Pending)
	b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, sub) })
	b.on(s, func(*core.Loop) {})
	check(t, "outcome", a.Outcome, Appended)
}

func TestDeletedStream(t *testing.T) {
	for _, cores := range []int{1, 2, 4} {
		b := newBroker(t, options{cores: cores})
		stream := b.stream(StreamConfig{Name: "s", Shards: 8, OnSlow: fanout.Block})
		var subs []*fanout.Subscription
		held := make(completion, 8)
		for _, s := range stream.Shards {
			sub := &fanout.Subscription{Capacity: 1, Policy: fanout.Block}
			subs = append(subs, sub)
			b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
			b.append(s, &Append{Records: records(0, 1), Count: 1, Idempotent: true, ProducerID: 7})
			b.append(s, &Append{Records: records(1, 1), Count: 1})
			b.on(s, func(l *core.Loop) { s.Append(l, &Append{Records: records(2, 1), Count: 1, Done: held}) })
		}
		check(t, "answers while held", len(held), 0)
		if err := b.catalog.DeleteStream(context.Background(), "t", "n", "s"); err != nil {
			t.Fatal(err)
		}
		check(t, "answers", len(held), 8)
		for range 8 {
			check(t, "outcome", (<-held).Outcome, StreamGone)
		}
		check(t, "gone", stream.Gone(), true)
		for i, s := range stream.Shards {
			if reason, ended := subs[i].End(); reason != fanout.Deleted || ended {
				t.Fatalf("%v %v with a frame queued", reason, ended)
			}
			check(t, "records queued before", drain(subs[i]), 1)
			if _, ended := subs[i].End(); !ended {
				t.Fatal("not ended")
			}
			check(t, "outcome", b.append(s, &Append{Records: records(0, 1), Count: 1}).Outcome, StreamGone)
			b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, subs[i]) })
			check(t, "producers", s.Stats().Producers, 0)
		}
		check(t, "bytes held", b.slabs.Held(), 0)
		for _, h := range b.hosts {
			check(t, "producers of the core", h.producers.n, 0)
		}
	}
}

// What was acknowledged in the pass that deletes the stream is still delivered.
func TestDeletedStreamDeliversWhatItAppended(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	sub := &fanout.Subscription{}
	b.on(s, func(l *core.Loop) {
		subscribe(t, l, s, sub, wire.StartLatest)
		s.Append(l, &Append{Records: records(0, 3), Count: 3, Done: make(completion, 1)})
		s.close(l)
	})
	check(t, "records", drain(sub), 3)
	if reason, ended := sub.End(); reason != fanout.Deleted || !ended {
		t.Fatal(reason, ended)
	}
}

// However much is appended in one pass, the ring stays within its bounds and one slab.
func TestMemoryIsBoundedWithinAPass(t *testing.T) {
	const bound = 1 << 20
	b := newBroker(t, options{host: HostConfig{Limits: fanout.Limits{RingBytes: bound}}})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	b.on(s, func(l *core.Loop) {
		for range 1000 {
			s.Append(l, &Append{Records: wire.AppendRecord(nil, make([]byte, 20_000)), Count: 1, Done: make(completion, 1)})
			if held := b.slabs.Held(); held > bound+320<<10 {
				t.Errorf("%d bytes held", held)
				return
			}
		}
	})
}

func TestRetentionByAge(t *testing.T) {
	b := newBroker(t, options{})
	stream := b.stream(StreamConfig{Name: "s", Retention: Retention{MaxAge: 10 * time.Second}})
	s := stream.Shards[0]
	kept := func() (n wire.Offset) {
		b.on(s, func(*core.Loop) {})
		b.on(s, func(*core.Loop) { n = s.committed - s.ring.Start() })
		return n
	}
	for i := range 20 {
		b.append(s, &Append{Records: records(wire.Offset(i), 1), Count: 1})
		b.advance(time.Second)
	}
	check(t, "kept", kept(), 10)
	for range 12 {
		b.advance(time.Second)
		b.on(s, func(*core.Loop) {})
	}
	check(t, "kept at the end", kept(), 0)
	check(t, "bytes held", b.slabs.Held(), 0)
	check(t, "shards to look at", len(b.hosts[0].aging), 0)

	// Patched while it holds records: from then on it is looked at.
	other := b.stream(StreamConfig{Name: "other"})
	s = other.Shards[0]
	b.append(s, &Append{Records: records(0, 1), Count: 1})
	b.advance(time.Hour)
	check(t, "kept without a bound", kept(), 1)
	if _, err := b.catalog.PatchStream(t.Context(), "t", "n", "other", Patch{Retention: &Retention{MaxAge: 2 * time.Hour}}); err != nil {
		t.Fatal(err)
	}
	check(t, "kept", kept(), 1)
	b.advance(2 * time.Hour)
	check(t, "kept", kept(), 0)
}

func TestRetentionBySize(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s", Retention: Retention{MaxSizeBytes: 5000}}).Shards[0]
	for range 50 {
		b.append(s, &Append{Records: wire.AppendRecord(nil, make([]byte, 972)), Count: 1})
	}
	b.on(s, func(*core.Loop) { check(t, "kept", s.committed-s.ring.Start(), 5) })
}

// 1,000 streams that were created and never used.
func TestIdleStreamsAreSmall(t *testing.T) {
	b := newBroker(t, options{})
	b.stream(StreamConfig{Name: "first"})
	const streams = 1000
	names := make([]string, streams)
	for i := range names {
		names[i] = "stream-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, name := range names {
		b.stream(StreamConfig{Name: name})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / streams
	t.Logf("%d bytes per idle stream", per)
	if per > 4096 && !raceEnabled {
		t.Fatalf("%d bytes per idle stream", per)
	}
	check(t, "streams", b.catalog.Counts().Streams, streams+1)
}
