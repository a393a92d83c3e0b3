package netio

import (
	"strings"
	"testing"

	"felix/netio/wire"
	"felix/replicate"
)

// A name that can be none is refused with invalid_request and a message that says what is wrong with it, whatever asks for it and in
// whichever place it stands; the connection goes on.
func TestBadNames(t *testing.T) {
	f := start(t, fixtureOptions{auto: true})
	p := f.connect()
	k := p.authed()
	id := uint64(0)
	for _, name := range []string{"", ".", "..", "a/b", "\x00", "a\x00b", "ä", "注文", "-a", "a b", strings.Repeat("a", replicate.MaxNameBytes+1), strings.Repeat("a", 300), "\xff"} {
		for place := range 2 {
			b := batch(0, "orders", "", "x")
			scope := wire.Scope{TenantID: "t1", Namespace: "default", Stream: "orders"}
			if place == 0 {
				b.Stream, scope.Stream = []byte(name), name
			} else {
				b.Namespace, scope.Namespace = []byte(name), name
			}
			id++
			b.RequestID = id
			k.publish(b)
			if a := k.ack(); !a.Failed || a.RequestID != id || a.Code != wire.CodeInvalidRequest || !strings.Contains(a.Message, "name") && !strings.Contains(a.Message, "UTF-8") || len(a.Message) > 400 {
				t.Errorf("publish to %q in place %d: %+v", name, place, a)
			}
			p.wantError(&wire.Subscribe{Scope: scope}, wire.CodeInvalidRequest, wire.RetryFatal, "name")
			if m, ok := p.request(&wire.StreamShards{Scope: scope, RequestID: 1}).(*wire.StreamShardsView); !ok || m.Shards != 0 {
				t.Errorf("shards of %q in place %d: %+v", name, place, m)
			}
		}
	}
	k.publish(batch(id+1, "orders", "", "x"))
	if a := k.ack(); a.Failed {
		t.Fatalf("%+v", a)
	}
}
