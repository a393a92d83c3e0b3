package replicate

import (
	"fmt"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

// idleDurable is idleBroker with one lane. pass is a pass of the loop; it first waits for the lane to have something to say when
// the caller asks for it.
func idleDurable(t testing.TB, cfg HostConfig, mode wal.Mode, shards uint32) (h *Host, s *Stream, pass func(wait bool)) {
	t.Helper()
	group, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	cfg.Slabs = fanout.NewSlabs(fanout.SlabsConfig{})
	l := group.Loop(0)
	h = NewHost(l, cfg)
	notified := make(chan struct{}, 1)
	lane, recovered, err := wal.Open(t.TempDir(), wal.Options{Now: time.Now, SegmentBytes: 256 << 20, Notify: func() {
		select {
		case notified <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.AddLane(0, lane, recovered)
	t.Cleanup(func() {
		if err := h.CloseLanes(l); err != nil {
			t.Error(err)
		}
		h.readers.wait()
	})
	c := NewCatalog(CatalogConfig{Hosts: []*Host{h}, AutoCreate: true, DevDurable: true, DefaultFsync: mode, DevShards: shards})
	if err := c.Restore(nil); err != nil {
		t.Fatal(err)
	}
	if s, err = c.Ensure(t.Context(), "default", "default", "updates"); err != nil {
		t.Fatal(err)
	}
	lanes := h.Lanes()
	return h, s, func(wait bool) {
		if wait {
			<-notified
		}
		lanes.Work(l)
		h.Work(l)
	}
}

func TestDurableAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	h, s, pass := idleDurable(t, HostConfig{Limits: fanout.Limits{RingBytes: 2 << 20}}, wal.None, 1)
	shard, done := s.Shards[0], &counter{}
	a := make([]Append, 16)
	for i := range a {
		a[i] = Append{Records: recordsOf(1, 256), Count: 1, Done: done, Idempotent: i%2 == 1, ProducerID: 1}
	}
	sequence := uint64(0)
	sub := &fanout.Subscription{}
	subscribe(t, h.loop, shard, sub, wire.StartLatest)
	var frames []*fanout.Frame
	round := func() {
		want := done.n + len(a)
		for i := range a {
			if a[i].Idempotent {
				a[i].Sequence = sequence
				sequence++
			}
			shard.Append(h.loop, &a[i])
		}
		pass(false)
		for done.n < want {
			pass(true)
		}
		frames = sub.Take(frames[:0], 1<<20)
		fanout.ReleaseAll(frames)
	}
	for range 2000 { // beyond the ring's bounds
		round()
	}
	// Per round of 16 appends, their way through the lane and to a subscriber. What is left is the lane's index, one entry in 256 KiB.
	if n := testing.AllocsPerRun(2000, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
	check(t, "refused", done.refused, 0)
}

// Appends of 256 B records to 48 shards in turn, 64 in flight, through to their completion; beside BenchmarkAppend.
func BenchmarkDurableAppend(b *testing.B) {
	for _, mode := range []wal.Mode{wal.OnCommit, wal.Periodic, wal.None} {
		for _, idempotent := range []bool{false, true} {
			for _, n := range []int{1, 64} {
				b.Run(fmt.Sprintf("mode=%v/batch=%d/idempotent=%v", mode, n, idempotent), func(b *testing.B) {
					h, s, pass := idleDurable(b, HostConfig{}, mode, 48)
					appends := make([]Append, 64)
					done := &counter{}
					for i := range appends {
						appends[i] = Append{Shard: s.Shards[i%48], Records: recordsOf(n, 256), Count: uint32(n), Done: done,
							Idempotent: idempotent, ProducerID: uint64(i) + 1}
					}
					b.SetBytes(int64(n) * 256)
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						a := &appends[i%64]
						a.Shard.Append(h.loop, a)
						a.Sequence++
						i++
						if i%64 == 0 {
							pass(false)
							for done.n < i {
								pass(true)
							}
						}
					}
					pass(false)
					for done.n < i {
						pass(true)
					}
					check(b, "refused", done.refused, 0)
				})
			}
		}
	}
}

// One subscription reads a log of 256 B records in batches of 64 that the ring has let go of; its reads come from the page cache.
func BenchmarkCatchUp(b *testing.B) {
	group, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		b.Fatal(err)
	}
	l := group.Loop(0)
	h := NewHost(l, HostConfig{Slabs: fanout.NewSlabs(fanout.SlabsConfig{}), Limits: fanout.Limits{RingBytes: 1 << 20}})
	lane, recovered, err := wal.Open(b.TempDir(), wal.Options{Now: time.Now, Notify: l.WakeOffCore})
	if err != nil {
		b.Fatal(err)
	}
	h.AddLane(0, lane, recovered)
	c := NewCatalog(CatalogConfig{Hosts: []*Host{h}, AutoCreate: true, DevDurable: true, DefaultFsync: wal.None})
	s, err := c.Ensure(b.Context(), "default", "default", "updates")
	if err != nil {
		b.Fatal(err)
	}
	l.AddAgent(h.Lanes())
	l.AddAgent(h)
	group.Start()
	br := &broker{t: b, group: group, hosts: []*Host{h}, catalog: c}
	defer br.close()
	const batches = 8192 // 128 MiB
	shard, done := s.Shards[0], make(completion, batches)
	for range batches / 64 {
		br.on(shard, func(l *core.Loop) {
			for range 64 {
				shard.Append(l, &Append{Records: recordsOf(64, 256), Count: 64, Done: done})
			}
		})
		for range 64 {
			<-done
		}
	}
	b.SetBytes(batches * 64 * 256)
	b.ReportAllocs()
	for b.Loop() {
		sub := &fanout.Subscription{Policy: fanout.CatchUp}
		br.on(shard, func(l *core.Loop) { subscribe(b, l, shard, sub, wire.StartEarliest) })
		for records := 0; records < batches*64; {
			if err := sub.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			records += drain(sub)
			if sub.WantsFeed() {
				_ = l.PostOffCore(core.Func(func(l *core.Loop) { shard.Topic().Feed(l, sub) }))
			}
		}
		br.on(shard, func(l *core.Loop) { shard.Topic().Unsubscribe(l, sub) })
	}
}
