package netio

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// Tests named after faults that brokers of this kind have had.

// Herd wake-up: k slots that come back admit k publishes and touch no other, in the pass that frees them.
func TestSeedHerdWakeUp(t *testing.T) {
	for _, k := range []int{1, 3, 50} {
		f := start(t, fixtureOptions{cores: 2, change: func(c *Config) { c.Limits.QueueWait = time.Minute }})
		stream := f.createStream("updates", 2, fanout.DropNew)
		key := ""
		for i := 0; key == ""; i++ { // of a shard on core 1: what core 0 admits ends in a later pass
			if text := fmt.Sprint(i); stream.ShardFor([]byte(text), true).Owner() == 1 {
				key = text
			}
		}
		slots, n := f.server.ingress[0].slots, f.server.limits.Slots
		free := f.fill()
		const peers, each = 5, 40
		var talks []*talk
		d := f.dialer()
		for range peers {
			conn, err := d.dialTo(netip.AddrPortFrom(f.server.Addr().Addr(), f.server.Ports()[0]), "felix/1")
			if err != nil {
				t.Fatal(err)
			}
			talk := (&peer{f, conn}).authed()
			for i := range uint64(each) {
				talk.publish(batch(i+1, "updates", key, "x"))
			}
			talks = append(talks, talk)
		}
		f.waiting(peers * each)
		f.on(0, func(l *core.Loop) {
			before := slots.Stats()
			slots.Release(l, k)
			after := slots.Stats()
			if after.Admitted-before.Admitted != uint64(k) || before.Waiting-after.Waiting != k || after.InUse != n {
				t.Errorf("%d slots freed: %+v, then %+v", k, before, after)
			}
		})
		for _, talk := range talks { // each that ends lets one in
			for i := range uint64(each) {
				if a := talk.ack(); a.Failed || a.RequestID != i+1 {
					t.Fatalf("ack %+v, want %d", a, i+1)
				}
			}
		}
		if s := f.server.Stats(); s.WaitersAdmitted != peers*each || s.WaitersAdmitted != s.SlotsFreedWhileWaiting {
			t.Errorf("%d admissions for %d freed slots", s.WaitersAdmitted, s.SlotsFreedWhileWaiting)
		}
		f.on(0, func(l *core.Loop) {
			for range k {
				slots.Acquire(l, &core.Waiter{}) // free gives back as many as fill took
			}
		})
		free()
	}
}

// Stalled control stream: a stream that waits with all it may hold holds up no other stream of its connection.
func TestSeedStalledControlStream(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1})
	f.createStream("updates", 2, fanout.DropNew)
	free := f.fill()
	p := f.connect()
	k := p.authed()
	const n = 3000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var all []byte
		for range n {
			all = wire.AppendPublish(all, plain("updates", "", "0123456789"))
		}
		k.raw(all)
	}()
	window := int64(f.server.limits.UnackedWindow)
	waitFor(t, "the stream to hold all it may", func() bool { return f.server.Stats().SlotsWaiting == window })
	p.alive()
	sub := p.authed()
	sub.send(subscribeTo("updates", 0, wire.StartPosition{}))
	if _, ok := sub.message().(*wire.Subscribed); !ok {
		t.Fatal("not subscribed")
	}
	e := p.acceptEvents()
	other := p.authed() // a full queue on one stream is not one on another: this one waits for itself
	other.publish(plain("updates", "", "other"))
	waitFor(t, "the other stream's", func() bool { return f.server.Stats().SlotsWaiting == window+1 })
	if s := f.server.Stats(); s.SlotsWaiting != window+1 || s.PublishRecords != 0 {
		t.Errorf("stats %+v", s)
	}
	free()
	<-sent
	for next := wire.Offset(0); next < n+1; {
		ev := e.next()
		if ev.Base != next {
			t.Fatalf("frame at %d, want %d", ev.Base, next)
		}
		next += wire.Offset(ev.Count)
	}
}

// Unbounded finish on shutdown: neither Drain nor Close waits for ever for publishes that nothing ends.
func TestSeedUnboundedFinishOnShutdown(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1, change: func(c *Config) {
		c.Limits.QueueWait, c.Limits.AckWait = time.Hour, 50*time.Millisecond
	}})
	f.createStream("updates", 1, fanout.DropNew)
	free := f.fill()
	k := f.connect().authed()
	k.publish(plain("updates", "", "x"))
	k.publish(batch(1, "updates", "", "x"))
	f.waiting(2)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.server.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	if err := f.server.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if s := f.server.Stats(); s.StreamsAbandoned != 1 {
		t.Errorf("stats %+v", s)
	}
	free() // what ends after all finds nobody, and all books balance
	if s := f.server.Stats(); s.PublishRecords != 2 || s.SlotsWaiting != 0 || s.SlotsInUse != 0 || s.IngressBytes != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A publish to a stream that was deleted and made again goes to the new one, and none that was for the old one does.
func TestSeedDeletedAndRecreatedStream(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1})
	f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	for i := range uint64(3) {
		k.publish(batch(i+1, "updates", "", "old"))
		if a := k.ack(); a.Failed || a.Offset != wire.Offset(i) {
			t.Fatalf("ack %+v", a)
		}
	}
	k.publish(idempotent(4, 7, 0))
	if m, ok := k.message().(*wire.PublishOK); !ok || m.Offset != 3 {
		t.Fatalf("%+v", m)
	}
	free := f.fill()
	k.publish(batch(5, "updates", "", "for the old one"))
	f.waiting(1)
	if err := f.catalog.DeleteStream(t.Context(), "t1", "default", "updates"); err != nil {
		t.Fatal(err)
	}
	f.createStream("updates", 1, fanout.DropNew)
	k.publish(batch(6, "updates", "", "for the new one"))
	f.waiting(2)
	free()
	if a := k.ack(); a.RequestID != 5 || !a.Failed || a.Code != wire.CodeNotFound {
		t.Fatalf("ack %+v", a)
	}
	if a := k.ack(); a.RequestID != 6 || a.Failed || a.Offset != 0 {
		t.Fatalf("ack %+v, want offset 0 of the new stream", a)
	}
	k.publish(idempotent(7, 7, 1)) // the producer's first batch was the old stream's
	if m, ok := k.message().(*wire.PublishRefused); !ok || m.Reason.Kind != wire.RefusalUnknownProducer {
		t.Fatalf("%+v", m)
	}
}
