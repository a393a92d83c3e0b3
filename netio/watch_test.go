package netio

import (
	"strings"
	"testing"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// onLoop runs f on the loop of a core.
func (f *fixture) onLoop(id core.ID, run func(*core.Loop)) {
	f.t.Helper()
	done := make(chan struct{})
	if err := f.group.Loop(id).PostOffCore(core.Func(func(l *core.Loop) { run(l); close(done) })); err != nil {
		f.t.Fatal(err)
	}
	<-done
}

// A subscription that has something to take, or a log to read, and does not move is found once, and told until it moves.
func TestStalledSubscriber(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1})
	stream := f.createStream("orders", 1, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	waitFor(t, "the connection", func() bool { return len(f.server.connections()) == 1 })
	// A subscription whose writer has gone to sleep for ever.
	sub := &subscription{conn: f.server.connections()[0], shard: stream.Shards[0]}
	sub.phase.Store(writerWaiting)
	f.onLoop(0, func(l *core.Loop) {
		if _, _, err := sub.shard.Topic().Subscribe(l, &sub.Subscription, wire.StartPosition{}); err != nil {
			t.Error(err)
		}
		sub.shard.Topic().Start(l, &sub.Subscription)
	})
	f.server.subscribers.add(sub)
	defer func() {
		f.server.subscribers.remove(sub)
		sub.unregister()
	}()
	look := func(want int, isNew bool) {
		t.Helper()
		stalled := f.server.LookAtSubscribers()
		if len(stalled) != want || want > 0 && stalled[0].New != isNew {
			t.Fatalf("%d stalled: %+v", len(stalled), stalled)
		}
		if want > 0 && !strings.Contains(stalled[0].String(), "t1/default/orders shard 0") {
			t.Errorf("%s", stalled[0])
		}
	}
	look(0, false)
	look(0, false) // nothing to do
	k.publish(batch(1, "orders", "", "a"))
	k.ack()
	waitFor(t, "the record to be queued", func() bool { return sub.Stats().Depth > 0 })
	look(0, false) // the first that sees it
	look(1, true)
	look(1, false)
	fanout.ReleaseAll(sub.Take(nil, 1<<20))
	look(0, false)
	look(0, false)
	k.publish(batch(2, "orders", "", "b"))
	k.ack()
	waitFor(t, "the record to be queued", func() bool { return sub.Stats().Depth > 0 })
	look(0, false)
	look(1, true)
	if n := f.server.Stats().SubscriberStalls; n != 2 {
		t.Errorf("%d stalls counted", n)
	}
}

// A client that does not read blocks its subscription, which is no stall.
func TestPeerThatDoesNotReadIsNoStall(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1})
	f.createStream("orders", 1, fanout.DropNew)
	p := f.connect()
	e := p.subscribed(subscribeTo("orders", 0, wire.StartPosition{}))
	k := p.authed()
	payload := string(make([]byte, 64<<10))
	for i := range 64 { // more than the windows of the peer
		k.publish(batch(uint64(i), "orders", "", payload))
		k.ack()
	}
	state := func() string {
		for state, n := range f.server.SubscriptionStates() {
			if n > 0 {
				return state
			}
		}
		return ""
	}
	if got := state(); got != "live" {
		t.Fatalf("state %s before a look", got)
	}
	// Between looks this close the writer may just not have had the processor, and then counts as blocked, or as stalled. It is blocked for
	// good when it has moved no further.
	var page []SubscriptionInfo
	for at, same := wire.Offset(0), 0; same < 100; {
		waitFor(t, "the writer to be blocked", func() bool {
			f.server.LookAtSubscribers()
			return state() == statePeerBlocked
		})
		var err error
		page, _, err = f.server.Subscriptions(t.Context(), SubscriptionQuery{})
		if err != nil || len(page) != 1 || page[0].Tail != 64 || page[0].LagRecords != uint64(64-page[0].Position) {
			t.Fatalf("%+v, %v", page, err)
		}
		if same++; page[0].Position != at {
			at, same = page[0].Position, 0
		}
	}
	if stalled := f.server.LookAtSubscribers(); len(stalled) > 0 || page[0].State != statePeerBlocked {
		t.Fatalf("stalled: %+v; %+v", stalled, page)
	}
	if lag := page[0].LagRecords * uint64(len(payload)+4); page[0].LagBytes < lag || page[0].LagBytes > lag+lag/8 {
		t.Errorf("a lag of %d bytes, about %d are queued", page[0].LagBytes, lag)
	}
	if lag, err := f.server.MaxLag(t.Context()); lag != page[0].LagRecords || err != nil {
		t.Errorf("greatest lag %d, %v, want %d", lag, err, page[0].LagRecords)
	}
	for next := wire.Offset(0); next < 64; {
		ev := e.next()
		next = ev.Base + wire.Offset(ev.Count)
	}
	waitFor(t, "the subscription to be live", func() bool { return state() == "live" })
}
