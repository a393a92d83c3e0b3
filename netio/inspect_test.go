package netio

import (
	"fmt"
	"slices"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
)

// subscribed subscribes on a stream of its own and returns the event stream.
func (p *peer) subscribed(request *wire.Subscribe) *events {
	p.f.t.Helper()
	if m, ok := p.request(request).(*wire.Subscribed); !ok {
		p.f.t.Fatalf("subscribe: %#v", m)
	}
	return p.acceptEvents()
}

func TestSubscriptionsList(t *testing.T) {
	f := start(t, fixtureOptions{cores: 2, log: true})
	f.createStream("memory", 2, fanout.DropOld)
	f.createDurable("durable", 1)
	p, other := f.connect(), f.connect()
	p.subscribed(subscribeTo("memory", 1, wire.StartPosition{}))
	p.subscribed(subscribeTo("memory", 0, wire.StartPosition{}))
	e := p.subscribed(subscribeTo("durable", 0, wire.StartPosition{}))
	small := subscribeTo("memory", 0, wire.StartPosition{})
	small.QueueCapacity, small.HasQueueCapacity = 7, true
	other.subscribed(small)
	k := p.authed()
	k.publish(batch(1, "durable", "", "a", "b", "c"))
	k.ack()
	e.next()

	list := func(m *wire.SubscriptionsList) *wire.SubscriptionsListInfo {
		t.Helper()
		m.RequestID = 9
		answer, ok := other.request(m).(*wire.SubscriptionsListInfo)
		if !ok || answer.RequestID != 9 || answer.NodeID != "" {
			t.Fatalf("%#v", answer)
		}
		return answer
	}
	texts := func(entries []wire.SubscriptionEntry) (list []string) {
		for _, e := range entries {
			list = append(list, fmt.Sprintf("%s/%d %s depth %d/%d dropped %d at %d of %d", e.Stream, e.Shard, e.Policy, e.Depth, e.Capacity, e.Dropped, e.Position, e.Tail))
		}
		return list
	}
	want := []string{
		"durable/0 block depth 0/512 dropped 0 at 3 of 3",
		"memory/0 drop_old depth 0/512 dropped 0 at 0 of 0",
		"memory/0 drop_old depth 0/7 dropped 0 at 0 of 0",
		"memory/1 drop_old depth 0/512 dropped 0 at 0 of 0",
	}
	all := list(&wire.SubscriptionsList{})
	if got := texts(all.Subscriptions); !slices.Equal(got, want) || all.HasNextCursor {
		t.Fatalf("got %q", got)
	}
	first := all.Subscriptions[0]
	if first.SubscriptionID != e.id || first.Peer != p.conn.LocalAddr().String() || first.Connection != all.Subscriptions[1].Connection ||
		first.Connection == all.Subscriptions[2].Connection || first.TenantID != "t1" || first.Namespace != "default" {
		t.Errorf("%+v", all.Subscriptions)
	}

	// Pages of every size bring the same.
	for limit := uint32(1); limit <= 4; limit++ {
		var got []string
		m := &wire.SubscriptionsList{Limit: limit, HasLimit: true}
		for pages := 0; ; pages++ {
			page := list(m)
			if len(page.Subscriptions) > int(limit) || pages > 4 {
				t.Fatalf("limit %d: page %d has %d", limit, pages, len(page.Subscriptions))
			}
			got = append(got, texts(page.Subscriptions)...)
			if m.Cursor, m.HasCursor = page.NextCursor, page.HasNextCursor; !m.HasCursor {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q", limit, got)
		}
	}
	for i, tt := range []struct {
		filter wire.SubscriptionFilter
		want   []string
	}{
		{wire.SubscriptionFilter{Stream: "memory", Shard: 0, HasShard: true}, want[1:3]},
		{wire.SubscriptionFilter{TenantID: "t1", Namespace: "default", Stream: "durable"}, want[:1]},
		{wire.SubscriptionFilter{TenantID: "t2"}, nil},
		{wire.SubscriptionFilter{Namespace: "other"}, nil},
		{wire.SubscriptionFilter{Principal: "user:ann"}, nil},
		{wire.SubscriptionFilter{Dropping: true}, nil},
	} {
		if got := texts(list(&wire.SubscriptionsList{Filter: tt.filter}).Subscriptions); !slices.Equal(got, tt.want) {
			t.Errorf("filter %d: got %q", i, got)
		}
	}
	p.wantError(&wire.SubscriptionsList{Limit: 1001, HasLimit: true}, wire.CodeInvalidRequest, wire.RetryFatal, "1001", "1 to 1000")
	k.send(&wire.SubscriptionsList{})
	k.wantError(wire.CodeInvalidRequest)

	p.conn.CloseWithError(0, "")
	waitFor(t, "the subscriptions to go", func() bool { return len(list(&wire.SubscriptionsList{}).Subscriptions) == 1 })
}

// The first of many in order are found without sorting all.
func TestFirstSubscriptions(t *testing.T) {
	f := start(t, fixtureOptions{})
	stream := f.createStream("s", 1, fanout.DropNew)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 50} {
		for limit := 1; limit <= 6; limit++ {
			var subs []*subscription
			for i := range n {
				subs = append(subs, &subscription{shard: stream.Shards[0], number: uint64((i*37)%n + 1)})
			}
			first, more := firstSubscriptions(subs, limit)
			if len(first) != min(n, limit) || more != (n > limit) {
				t.Fatalf("%d of %d: %d, more %v", limit, n, len(first), more)
			}
			for i, sub := range first {
				if sub.number != uint64(i+1) {
					t.Fatalf("%d of %d: number %d at %d", limit, n, sub.number, i)
				}
			}
		}
	}
}

func TestShardInspect(t *testing.T) {
	f := start(t, fixtureOptions{log: true})
	f.createDurable("orders", 2)
	p := f.connect()
	k := p.authed()
	k.publish(batch(1, "orders", "", "a", "b"))
	k.ack()
	ask := &wire.ShardInspect{TenantID: "t1", Namespace: "default", Name: "orders", Kind: wire.ShardKindStream, RequestID: 3}
	m, ok := p.request(ask).(*wire.ShardInspectInfo)
	want := wire.ShardView{Shards: 2, Role: "leader", Phase: "active", Serving: true, Tail: 2, HasTail: true}
	if !ok || m.RequestID != 3 || fmt.Sprint(m.View) != fmt.Sprint(want) {
		t.Fatalf("%#v", m)
	}
	ask.Shard = 2
	p.wantError(ask, wire.CodeInvalidRequest, wire.RetryFatal, "shard 2", "orders has 2")
	ask.Name = "none"
	p.wantError(ask, wire.CodeNotFound, wire.RetryAfter, "none")
	ask.Name, ask.Kind = "orders", wire.ShardKindCache
	p.wantError(ask, wire.CodeNotFound, wire.RetryAfter)
}
