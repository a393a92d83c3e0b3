package netio

import (
	"context"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
)

// door is a stream and the parts behind it on cores whose loops never run: the caller owns them and calls what a pass would.
type door struct {
	t      testing.TB
	stream *stream
	hosts  []*replicate.Host
	ins    []*ingress
	group  *core.Group
}

func newDoor(t testing.TB, send *quic.Stream) *door {
	t.Helper()
	group, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	slabs := fanout.NewSlabs(fanout.SlabsConfig{})
	host := replicate.NewHost(group.Loop(0), replicate.HostConfig{Slabs: slabs, Limits: fanout.Limits{RingBytes: 1 << 20}})
	group.Loop(0).AddAgent(host)
	s := &Server{limits: Limits{}.withDefaults(), group: group}
	s.catalog = replicate.NewCatalog(replicate.CatalogConfig{Hosts: []*replicate.Host{host}, AutoCreate: true, DevShards: 48})
	s.bytes, s.large, s.huge = newBudget(1<<30), newBudget(1<<30), newBudget(1<<30)
	s.memory = newMemory(MemoryConfig{}, s.limits, s.bytes, newBudget(1))
	if err := s.accounts.init(QuotaConfig{}, group.NowOffCore); err != nil {
		t.Fatal(err)
	}
	s.ingress = []*ingress{newIngress(s, 1)}
	c := &conn{server: s, loop: group.Loop(0), ingress: s.ingress[0], bytes: newBudget(1 << 30)}
	d := &door{t: t, stream: newStream(c, nil, send), hosts: []*replicate.Host{host}, ins: s.ingress, group: group}
	d.stream.tenant, d.stream.tenantID, d.stream.flags = "default", 1, wire.DefaultClientFlags
	d.stream.account = s.accounts.enter("default")
	d.stream.answers.broken = true // there is no peer: answers are encoded and dropped
	if _, err := s.catalog.Ensure(t.Context(), "default", "default", "updates"); err != nil {
		t.Fatal(err)
	}
	return d
}

// pass is one read of a stream and the pass of the loop that takes it over.
func (d *door) pass(frames []byte) {
	c, err := d.stream.conn.server.chunks.borrow(context.Background(), budgets{d.stream.conn.bytes, d.stream.conn.server.huge, d.stream.conn.server.large, d.stream.conn.server.bytes}, len(frames))
	if err != nil {
		d.t.Fatal(err)
	}
	n := copy(c.buf, frames)
	if rest, _, err := d.stream.parse(c, c.buf[:n]); err != nil || len(rest) > 0 {
		d.t.Fatal("the frames were not taken: ", err)
	}
	c.release()
	l, r := d.group.Loop(0), d.stream.run
	d.stream.run = nil
	r.Run(l)
	d.hosts[0].Work(l)
	d.ins[0].Work(l)
}

// publishes are frames of batch records of 256 bytes each, with keys in turn.
func publishes(frames, records int, acked bool) []byte {
	p := wire.Publish{Flags: wire.FlagPublishBatch | wire.FlagPublishKeyed, Tenant: []byte("default"), Namespace: []byte("default"), Stream: []byte("updates"), Count: uint32(records)}
	if acked {
		p.Flags |= wire.FlagPublishAcked
		p.AckMode = wire.AckPerBatch
	}
	for range records {
		p.Records = wire.AppendRecord(p.Records, make([]byte, 256))
	}
	var b []byte
	for i := range frames {
		p.RequestID, p.Key = uint64(i), []byte{'k', byte(i)}
		b = wire.AppendPublish(b, &p)
	}
	return b
}

// TestAllocations holds the way of a publish through the door to nothing per frame and per record: parse, route, run, slot, append,
// answer.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, tt := range map[string]struct {
		frames, records int
		acked           bool
	}{
		"acked": {64, 1, true}, "acked batches": {8, 64, true}, "unacked": {64, 1, false}, "lone": {1, 1, true},
	} {
		d := newDoor(t, &quic.Stream{})
		frames := publishes(tt.frames, tt.records, tt.acked)
		pass := func() { d.pass(frames) }
		for range 2000 { // until rings, pools and buffers have grown
			pass()
		}
		before := d.ins[0].counts.publishRecords
		// Chunks and runs come from pools that a garbage collection empties: a pass may now and then make one anew.
		if n := testing.AllocsPerRun(2000, pass); n > 0.05 {
			t.Errorf("%s: %.2f allocations in a pass of %d frames", name, n, tt.frames)
		}
		if got, want := d.ins[0].counts.publishRecords-before, uint64(2001*tt.frames*tt.records); got != want {
			t.Errorf("%s: %d records were appended, want %d", name, got, want)
		}
	}
}

// BenchmarkDoor is the way of publishes from the bytes of a read to the encoded answers, without QUIC: 32 keyed frames per read.
func BenchmarkDoor(b *testing.B) {
	for _, records := range []int{1, 64} {
		b.Run(map[int]string{1: "batch=1", 64: "batch=64"}[records], func(b *testing.B) {
			const frames = 32
			d := newDoor(b, &quic.Stream{})
			text := publishes(frames, records, true)
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				d.pass(text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames*records), "ns/record")
		})
	}
}
