package netio

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
)

// setOnSlow changes the rule of a stream for a full queue, for subscriptions from now on.
func (f *fixture) setOnSlow(name string, policy fanout.Policy) {
	f.t.Helper()
	if _, err := f.catalog.PatchStream(f.t.Context(), "t1", "default", name, replicate.Patch{OnSlow: &policy}); err != nil {
		f.t.Fatal(err)
	}
}

// last reads an event stream to its end and returns the offset behind its last record, how many offsets were left out on the way, and the
// message that ended it, nil for none.
func (e *events) last(next wire.Offset) (end wire.Offset, missed uint64, m wire.Message) {
	e.t.Helper()
	for {
		h, body, err := readFrame(e.s)
		if errors.Is(err, io.EOF) {
			return next, missed, m
		}
		if err != nil {
			e.t.Fatalf("reading an event frame: %v", err)
		}
		if m != nil {
			e.t.Fatalf("a frame behind %s", m.MessageType())
		}
		if h.Flags == 0 {
			if m, err = wire.ParseMessage(body); err != nil {
				e.t.Fatal(err)
			}
			continue
		}
		var ev wire.Events
		if err := ev.Parse(h.Flags, body); err != nil {
			e.t.Fatal(err)
		}
		if ev.Base < next {
			e.t.Fatalf("offset %d behind %d", ev.Base, next)
		}
		missed += uint64(ev.Base - next)
		next = ev.Base + wire.Offset(ev.Count)
	}
}

// A subscriber of a durable stream that drops is told where it lagged, after what was queued, and finds the rest in the log. One that cannot
// read that sees a hole.
func TestSubscriptionLagged(t *testing.T) {
	for _, tt := range []struct {
		policy fanout.Policy
		told   bool
	}{{fanout.DropNew, true}, {fanout.DropOld, true}, {fanout.DropNew, false}} {
		t.Run(fmt.Sprintf("%s, told %v", tt.policy, tt.told), func(t *testing.T) {
			f := start(t, fixtureOptions{log: true})
			f.createDurable("orders", 1)
			f.setOnSlow("orders", tt.policy)
			p := f.connect()
			k := p.open()
			offer := auth()
			if !tt.told {
				offer.ClientFeatures &^= wire.FeatureSubscriptionLagged
			}
			k.send(offer)
			k.message()
			request := subscribeTo("orders", 0, wire.StartPosition{})
			request.QueueCapacity, request.HasQueueCapacity = 4, true
			k.send(request)
			k.message()
			e := p.acceptEvents()

			// More than the peer's windows and the queue hold.
			pub := p.authed()
			payload := string(make([]byte, 64<<10))
			const records = 64
			for i := range records {
				pub.publish(batch(uint64(i), "orders", "", payload))
				if a := pub.ack(); a.Failed {
					t.Fatalf("%+v", a)
				}
			}
			if !tt.told {
				if err := f.catalog.DeleteStream(t.Context(), "t1", "default", "orders"); err != nil {
					t.Fatal(err)
				}
				if end, missed, m := e.last(0); missed == 0 && end == records || m.MessageType() != wire.TypeStreamDeleted {
					t.Fatalf("read up to %d, missed %d, ended by %#v", end, missed, m)
				}
				return
			}
			end, missed, m := e.last(0)
			lagged, ok := m.(*wire.SubscriptionLagged)
			if !ok || lagged.SubscriptionID != e.id || lagged.ResumeFrom != end || missed != 0 || end == 0 || end == records {
				t.Fatalf("read up to %d of %d, missed %d, ended by %#v", end, records, missed, m)
			}
			if s := f.server.Stats(); s.Subscriptions != 0 {
				waitFor(t, "the subscription to go", func() bool { return f.server.Stats().Subscriptions == 0 })
			}

			again := p.authed()
			again.send(subscribeTo("orders", 0, wire.StartPosition{Kind: wire.StartOffset, Offset: lagged.ResumeFrom}))
			again.message()
			e = p.acceptEvents()
			for next := lagged.ResumeFrom; next < records; {
				ev := e.next()
				if ev.Base != next {
					t.Fatalf("offset %d where %d comes next", ev.Base, next)
				}
				next += wire.Offset(ev.Count)
			}
		})
	}
}

// A subscriber of a deleted stream gets stream_deleted: also one that is in the middle of the log, after what it has been promised by then,
// without a hole.
func TestDeletedStreamWhileCatchingUp(t *testing.T) {
	f := start(t, fixtureOptions{log: true, ring: fanout.Limits{RingRecords: 64, LeastRecords: 1, FrameRecords: 8}})
	f.createDurable("orders", 1)
	p := f.connect()
	k := p.authed()
	payload := string(make([]byte, 8<<10))
	const records = 1500
	for i := 0; i < records; i += 10 {
		k.publish(batch(uint64(i), "orders", "", slices.Repeat([]string{payload}, 10)...))
		if a := k.ack(); a.Failed {
			t.Fatalf("%+v", a)
		}
	}
	e := p.subscribed(subscribeTo("orders", 0, wire.StartPosition{Kind: wire.StartEarliest}))
	first := e.next()
	if n := f.server.SubscriptionStates()["catching_up"]; n != 1 {
		t.Fatalf("the subscriber does not read the log: %v", f.server.SubscriptionStates())
	}
	if err := f.catalog.DeleteStream(t.Context(), "t1", "default", "orders"); err != nil {
		t.Fatal(err)
	}
	end, missed, m := e.last(first.Base + wire.Offset(first.Count))
	if deleted, ok := m.(*wire.StreamDeleted); !ok || deleted.SubscriptionID != e.id || missed != 0 || end >= records {
		t.Fatalf("read up to %d, missed %d, ended by %#v", end, missed, m)
	}
	// One that cannot read the message sees a clean end.
	f.createDurable("orders", 1)
	old := p.open()
	offer := auth()
	offer.ClientFeatures &^= wire.FeatureStreamDeleted
	old.send(offer)
	old.message()
	old.send(subscribeTo("orders", 0, wire.StartPosition{}))
	old.message()
	e = p.acceptEvents()
	if err := f.catalog.DeleteStream(t.Context(), "t1", "default", "orders"); err != nil {
		t.Fatal(err)
	}
	if end, _, m := e.last(0); end != 0 || m != nil {
		t.Fatalf("read up to %d, ended by %#v", end, m)
	}
}
