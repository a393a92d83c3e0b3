package netio

import (
	"strings"
	"sync"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// A publish that its shard holds back for too long is answered as unacknowledged, and written all the same.
func TestUnacknowledged(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.AckWait = 100 * time.Millisecond }})
	f.createStream("updates", 1, fanout.Block)
	p := f.connect()
	sub := p.authed()
	m := subscribeTo("updates", 0, wire.StartPosition{})
	m.QueueCapacity, m.HasQueueCapacity = 1, true
	sub.send(m)
	sub.message()
	e := p.acceptEvents() // and not read
	k := p.authed()
	payload := strings.Repeat("x", 64<<10)
	sent, late := uint64(0), false
	for !late {
		sent++
		if sent > 1000 {
			t.Fatal("the subscriber held nothing back")
		}
		k.publish(batch(sent, "updates", "", payload))
		a := k.ack()
		if a.RequestID != sent {
			t.Fatalf("ack %+v, want request %d", a, sent)
		}
		if a.Failed {
			if a.Code != wire.CodeUnacknowledged || a.Retry != wire.RetryOutcomeUnknown {
				t.Fatalf("ack %+v", a)
			}
			late = true
		}
	}
	for next := wire.Offset(0); next < wire.Offset(sent); {
		ev := e.next()
		if ev.Base != next {
			t.Fatalf("frame at %d, want %d", ev.Base, next)
		}
		next += wire.Offset(ev.Count)
	}
	waitFor(t, "the books to balance", func() bool {
		s := f.server.Stats()
		return s.SlotsInUse == 0 && s.IngressBytes == 0 && s.PublishRefused == 1
	})
	for next := sent; ; next++ { // one may be late again where the machine is
		k.publish(batch(next+1, "updates", "", "after"))
		a := k.ack()
		if !a.Failed && a.Offset == wire.Offset(next) {
			break
		}
		if !a.Failed || a.Code != wire.CodeUnacknowledged {
			t.Fatalf("ack %+v, want offset %d", a, next)
		}
	}
}

// fill takes every slot of core 0 away. The function returned gives them back.
func (f *fixture) fill() (free func()) { return f.fillCore(0) }

func (f *fixture) fillCore(id int) (free func()) {
	f.t.Helper()
	slots, loop := f.server.ingress[id].slots, core.ID(id)
	n := f.server.limits.Slots
	f.on(loop, func(l *core.Loop) {
		for range n {
			if !slots.Acquire(l, &core.Waiter{}) {
				f.t.Error("a slot was taken already")
			}
		}
	})
	free = sync.OnceFunc(func() { f.on(loop, func(l *core.Loop) { slots.Release(l, n) }) })
	f.t.Cleanup(free) // before the broker closes, which would wait for those who wait
	return free
}

// on runs a function on the loop of a core and waits for it.
func (f *fixture) on(id core.ID, run func(*core.Loop)) {
	f.t.Helper()
	done := make(chan struct{})
	if err := f.group.Loop(id).PostOffCore(core.Func(func(l *core.Loop) { run(l); close(done) })); err != nil {
		f.t.Fatal(err)
	}
	<-done
}

func (f *fixture) waiting(n int64) {
	f.t.Helper()
	waitFor(f.t, "publishes to wait for a slot", func() bool { return f.server.Stats().SlotsWaiting == n })
}

func idempotent(id, producer, sequence uint64) *wire.Publish {
	b := batch(id, "updates", "", "x")
	b.Flags |= wire.FlagPublishIdempotent
	b.ProducerID, b.Sequence = producer, sequence
	return b
}

// Acked publishes wait for a slot for QueueWait and are then refused with nothing kept. Those without ack go on waiting.
func TestQueueWait(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1, change: func(c *Config) { c.Limits.Slots, c.Limits.QueueWait = 2, 50*time.Millisecond }})
	f.createStream("updates", 1, fanout.DropNew)
	free := f.fill()
	k := f.connect().authed()
	plain := batch(0, "updates", "", "without ack")
	plain.Flags = wire.FlagPublishBatch
	k.publish(batch(1, "updates", "", "x"))
	k.publish(plain)
	k.publish(batch(2, "updates", "", "x"))
	for id := range uint64(2) {
		a := k.ack()
		if a.RequestID != id+1 || !a.Failed || a.Code != wire.CodeOverloaded || a.Retry != wire.RetryAfter || a.Reason != wire.ReasonPublishQueueFull || !strings.Contains(a.Message, "queue full") {
			t.Fatalf("ack %+v", a)
		}
	}
	f.waiting(1)
	free()
	k.publish(batch(3, "updates", "", "after"))
	if a := k.ack(); a.Failed || a.RequestID != 3 || a.Offset != 1 {
		t.Fatalf("ack %+v, want offset 1: behind the one without ack", a)
	}
	s := f.server.Stats()
	if s.PublishRefused != 2 || s.PublishRecords != 2 || s.SlotsInUse != 0 || s.SlotsWaiting != 0 || s.WaitersAdmitted != s.SlotsFreedWhileWaiting {
		t.Errorf("stats %+v", s)
	}
	// The timer serves later waits as well.
	free = f.fill()
	k.publish(batch(4, "updates", "", "x"))
	if a := k.ack(); !a.Failed || a.Reason != wire.ReasonPublishQueueFull {
		t.Fatalf("ack %+v", a)
	}
	free()
}

// A queue that moves is told from one that does not.
func TestQueueStalled(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1})
	f.createStream("updates", 1, fanout.DropNew)
	free := f.fill()
	before := f.server.Queues()[0]
	k := f.connect().authed()
	k.publish(batch(1, "updates", "", "x"))
	f.waiting(1)
	first := f.server.Queues()[0]
	if first.Waiting != 1 || first.InUse != 512 || first.StalledSince(before) || !f.server.Queues()[0].StalledSince(first) {
		t.Errorf("%+v, then %+v", before, first)
	}
	free()
	k.ack()
	if now := f.server.Queues()[0]; now.StalledSince(first) || now.Waiting != 0 || now.InUse != 0 {
		t.Errorf("%+v", now)
	}
}

// A batch of an idempotent producer that is refused for want of a slot takes those behind it along, and those that come until it
// is there again. None is answered with sequence_gap.
func TestQueueWaitKeepsSequences(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1, change: func(c *Config) { c.Limits.Slots, c.Limits.QueueWait = 1, time.Second }})
	f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	refused := func(id uint64) {
		t.Helper()
		if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != id || e.Code != wire.CodeOverloaded || e.Retry != wire.RetryAfter || e.Reason != wire.ReasonPublishQueueFull {
			t.Fatalf("request %d: %+v", id, e)
		}
	}
	appended := func(id uint64, at wire.Offset) {
		t.Helper()
		if m, ok := k.message().(*wire.PublishOK); !ok || m.RequestID != id || m.Offset != at {
			t.Fatalf("request %d: %+v, want offset %d", id, m, at)
		}
	}
	free := f.fill()
	k.publish(idempotent(1, 7, 0))
	waitFor(t, "the first to wait, or to have waited", func() bool { s := f.server.Stats(); return s.SlotsWaiting == 1 || s.PublishRefused == 1 })
	k.publish(idempotent(2, 7, 1))
	k.publish(idempotent(3, 8, 0)) // another producer: it waits for itself
	k.publish(idempotent(4, 7, 2))
	for id := range uint64(4) {
		refused(id + 1)
	}
	free()
	k.publish(idempotent(5, 7, 3))
	refused(5)
	k.publish(idempotent(6, 8, 0))
	appended(6, 0)
	k.publish(idempotent(7, 7, 0))
	appended(7, 1)
	k.publish(idempotent(20, 7, 2)) // on its way before 1 was refused
	refused(20)
	for i := uint64(1); i < 4; i++ {
		k.publish(idempotent(7+i, 7, i))
		appended(7+i, wire.Offset(1+i))
	}
	if s := f.server.Stats(); s.SlotsInUse != 0 || s.SlotsWaiting != 0 || s.PublishRecords != 5 {
		t.Errorf("stats %+v", s)
	}
}

// What a subscriber holds back is refused after QueueWait, too, and so is what is on its way from another core behind it.
func TestQueueWaitAtTheShard(t *testing.T) {
	f := start(t, fixtureOptions{cores: 2, change: func(c *Config) { c.Limits.QueueWait = 50 * time.Millisecond }})
	f.createStream("updates", 2, fanout.Block) // one of the shards is not the session's
	p := f.connect()
	for shard := range uint32(2) {
		sub := p.authed()
		m := subscribeTo("updates", shard, wire.StartPosition{})
		m.QueueCapacity, m.HasQueueCapacity = 1, true
		sub.send(m)
		sub.message()
		e := p.acceptEvents() // and not read until a batch was refused
		k := p.authed()
		payload := strings.Repeat("x", 64<<10)
		key := ""
		for i := 0; key == "" || wireShard(f, key) != shard; i++ {
			key = strings.Repeat("k", i+1)
		}
		publish := func(sequence uint64) {
			b := batch(sequence, "updates", key, payload)
			b.Flags |= wire.FlagPublishIdempotent
			b.ProducerID, b.Sequence = 7, sequence
			k.publish(b)
		}
		const inFlight = 20
		sent, next, first := uint64(0), uint64(0), uint64(0)
		for ; sent < inFlight; sent++ {
			publish(sent)
		}
		answers := 0
		for held := true; held; answers++ { // the broker holds what flow control leaves it with
			switch m := k.message().(type) {
			case *wire.PublishOK:
				if next++; sent > 5000 {
					t.Fatal("the subscriber held nothing back")
				}
				publish(sent)
				sent++
			case *wire.PublishError:
				if m.Code != wire.CodeOverloaded || m.Reason != wire.ReasonPublishQueueFull || m.RequestID != next {
					t.Fatalf("%+v, want a refusal of %d", m, next)
				}
				first, held = next, false
			default:
				t.Fatalf("%#v", m)
			}
		}
		for id := first + 1; id < sent; id++ {
			if m, ok := k.message().(*wire.PublishError); !ok || m.RequestID != id || m.Code != wire.CodeOverloaded {
				t.Fatalf("request %d: %#v", id, m)
			}
		}
		read := make(chan wire.Offset, 1)
		go func() {
			at := wire.Offset(0)
			for at < wire.Offset(sent) {
				h, body, err := readFrame(e.s)
				var ev wire.Events
				if err != nil || ev.Parse(h.Flags, body) != nil || ev.Base != at {
					break
				}
				at += wire.Offset(ev.Count)
			}
			read <- at
		}()
		for id := first; id < sent; { // one at a time: each is the first until it is taken
			publish(id)
			switch m := k.message().(type) {
			case *wire.PublishOK:
				if m.Offset != wire.Offset(id) {
					t.Fatalf("%+v, want offset %d", m, id)
				}
				id++
			case *wire.PublishError:
				if m.Code != wire.CodeOverloaded {
					t.Fatalf("%+v", m)
				}
			default:
				t.Fatalf("%#v", m)
			}
		}
		if at := <-read; at != wire.Offset(sent) {
			t.Fatalf("the subscriber has [0, %d) of %d", at, sent)
		}
	}
}

// wireShard is the shard of a key in the stream updates.
func wireShard(f *fixture, key string) uint32 {
	return f.catalog.Resolve([]byte("t1"), []byte("default"), []byte("updates")).ShardFor([]byte(key), true).Index()
}
