package replicate

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// counter is a Completer that counts.
type counter struct{ n, refused int }

func (c *counter) OnAppended(_ *core.Loop, a *Append) {
	c.n++
	if a.Outcome != Appended {
		c.refused++
	}
}

// idleBroker has one core whose loop never runs: the caller owns it and calls Host.Work as a pass would.
func idleBroker(t testing.TB, cfg HostConfig) (*Host, *Catalog) {
	t.Helper()
	group, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	cfg.Slabs = fanout.NewSlabs(fanout.SlabsConfig{})
	h := NewHost(group.Loop(0), cfg)
	group.Loop(0).AddAgent(h)
	return h, NewCatalog(CatalogConfig{Hosts: []*Host{h}, AutoCreate: true})
}

func recordsOf(count, size int) []byte {
	var b []byte
	for range count {
		b = wire.AppendRecord(b, make([]byte, size))
	}
	return b
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	h, c := idleBroker(t, HostConfig{Limits: fanout.Limits{RingBytes: 2 << 20}})
	s, err := c.Ensure(t.Context(), "default", "default", "updates")
	if err != nil {
		t.Fatal(err)
	}
	shard, done := s.Shards[0], &counter{}
	a := &Append{Records: recordsOf(1, 256), Count: 1, Done: done}
	idem := &Append{Records: recordsOf(1, 256), Count: 1, Done: done, Idempotent: true, ProducerID: 1}
	pass := func() {
		for range 8 {
			shard.Append(h.loop, a)
			shard.Append(h.loop, idem)
			idem.Sequence++
		}
		h.Work(h.loop)
	}
	for range 2000 { // beyond the ring's bounds
		pass()
	}
	budget := func(what string, f func()) {
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	budget("append", pass)
	sub := &fanout.Subscription{}
	subscribe(t, h.loop, shard, sub, wire.StartLatest)
	var frames []*fanout.Frame
	deliver := func() {
		pass()
		frames = sub.Take(frames[:0], 1<<20)
		fanout.ReleaseAll(frames)
	}
	deliver()
	budget("append and deliver", deliver)
	tenant, namespace, name := []byte("default"), []byte("default"), []byte("updates")
	budget("resolve", func() {
		if c.Resolve(tenant, namespace, name) != s {
			t.Fatal("not found")
		}
	})
	budget("resolve an unknown name", func() {
		if c.Resolve(tenant, namespace, namespace) != nil {
			t.Fatal("found")
		}
	})
	check(t, "refused", done.refused, 0)
}

// Appends of 256 B records to 48 shards in turn, 64 appends per pass of the loop, no subscriber.
func BenchmarkAppend(b *testing.B) {
	for _, idempotent := range []bool{false, true} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("batch=%d/idempotent=%v", n, idempotent), func(b *testing.B) {
				h, c := idleBroker(b, HostConfig{})
				c.cfg.DevShards = 48
				s, err := c.Ensure(b.Context(), "default", "default", "updates")
				if err != nil {
					b.Fatal(err)
				}
				appends := make([]Append, 64)
				done := &counter{}
				for i := range appends {
					appends[i] = Append{Shard: s.Shards[i%48], Records: recordsOf(n, 256), Count: uint32(n), Done: done,
						Idempotent: idempotent, ProducerID: uint64(i)}
				}
				b.SetBytes(int64(n) * 256)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					a := &appends[i%64]
					a.Shard.Append(h.loop, a)
					a.Sequence++
					if i%64 == 63 {
						h.Work(h.loop)
					}
				}
				check(b, "refused", done.refused, 0)
			})
		}
	}
}

// Batches of one 256 B record to one shard, 16 per pass, offered to n subscriptions whose queues the same goroutine empties.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		b.Run(fmt.Sprintf("subs=%d", n), func(b *testing.B) {
			h, c := idleBroker(b, HostConfig{})
			s, err := c.Ensure(b.Context(), "default", "default", "updates")
			if err != nil {
				b.Fatal(err)
			}
			shard, done := s.Shards[0], &counter{}
			subs := make([]fanout.Subscription, n)
			for i := range subs {
				subscribe(b, h.loop, shard, &subs[i], wire.StartLatest)
			}
			a := &Append{Records: recordsOf(1, 256), Count: 1, Done: done}
			var frames []*fanout.Frame
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				shard.Append(h.loop, a)
				if i%16 == 15 {
					h.Work(h.loop)
					for k := range subs {
						frames = subs[k].Take(frames[:0], 1<<20)
						fanout.ReleaseAll(frames)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/delivered-record")
		})
	}
}

// What a session does per run of publishes.
func BenchmarkResolve(b *testing.B) {
	for _, streams := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			_, c := idleBroker(b, HostConfig{})
			c.cfg.MaxAutoStreams = streams
			for i := range streams {
				if _, err := c.Ensure(b.Context(), "default", "default", fmt.Sprint("stream-", i)); err != nil {
					b.Fatal(err)
				}
			}
			tenant, namespace, name := []byte("default"), []byte("default"), []byte("stream-0")
			b.ReportAllocs()
			for b.Loop() {
				runtime.KeepAlive(c.Resolve(tenant, namespace, name))
			}
		})
	}
}
