package admin

import (
	"fmt"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio"
	"felix/netio/wire"
)

func TestSubscriptions(t *testing.T) {
	f := newFixture(t)
	const all = "/v1/tenants/t1/namespaces/n1/subscriptions"
	var asked netio.SubscriptionQuery
	var page []netio.SubscriptionInfo
	var more bool
	var failed error
	f.subscriptions = func(q netio.SubscriptionQuery) ([]netio.SubscriptionInfo, bool, error) {
		asked = q
		return page, more, failed
	}
	f.refused("GET", all, "", 404, "not_found", "t1")
	f.scope()
	f.refused("GET", streams+"/none/subscriptions", "", 404, "not_found", "none")
	f.do("POST", streams, `{"stream":"s"}`)
	f.want("GET", all, "", 200, `{"items":[]}`)
	want := func(q netio.SubscriptionQuery) {
		t.Helper()
		q.TenantID, q.Namespace = "t1", "n1"
		if asked != q {
			t.Errorf("asked for %+v, want %+v", asked, q)
		}
	}
	want(netio.SubscriptionQuery{Limit: 1000})

	cursor := wire.SubscriptionCursor{Scope: wire.Scope{TenantID: "t1", Namespace: "n1", Stream: "s"}, Shard: 2, SubscriberID: 7}
	page = []netio.SubscriptionInfo{{
		SubscriptionCursor: cursor, SubscriptionID: 1, Connection: 3, Peer: "127.0.0.1:4000", Policy: fanout.CatchUp, State: "catching_up",
		Depth: 5, Capacity: 512, Dropped: 6, Position: 10, Tail: 30, LagRecords: 20, LagBytes: 400, Age: 1500 * time.Millisecond,
	}}
	more = true
	f.want("GET", streams+"/s/subscriptions?limit=1&dropping=true", "", 200,
		`{"items":[{"stream":"s","shard":2,"subscriber_id":7,"subscription_id":1,"connection":3,"peer":"127.0.0.1:4000","state":"catching_up","policy":"catch_up",`+
			`"depth":5,"capacity":512,"dropped":6,"position":10,"tail":30,"lag_records":20,"lag_bytes":400,"age_ms":1500}],"next_cursor":"s/2/7"}`)
	want(netio.SubscriptionQuery{SubscriptionFilter: wire.SubscriptionFilter{Stream: "s", Dropping: true}, Limit: 1})
	f.do("GET", all+"?cursor=s/2/7", "")
	want(netio.SubscriptionQuery{Limit: 1000, After: cursor, HasAfter: true})

	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "cursor=s", "cursor=s/x/1", "cursor=s/1/-1", "cursor=s/4294967296/1", "dropping=maybe"} {
		f.refused("GET", all+"?"+bad, "", 400, "invalid_request", "give")
	}
	failed = fmt.Errorf("%w", core.ErrClosed)
	f.refused("GET", all, "", 503, "busy")
	f.refused("POST", all, "", 405, "method_not_allowed")
}
