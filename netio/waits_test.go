package netio

import (
	"strings"
	"testing"
	"time"

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
	k.publish(batch(sent+1, "updates", "", "after"))
	if a := k.ack(); a.Failed || a.Offset != wire.Offset(sent) {
		t.Fatalf("ack %+v, want offset %d", a, sent)
	}
}
