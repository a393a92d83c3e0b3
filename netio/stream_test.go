package netio

import (
	"bytes"
	"strings"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
)

// TestEndedStreamsGiveTheirCreditBack opens more streams than may be open at a time. Each ends while its reader waits at a
// frame boundary.
func TestEndedStreamsGiveTheirCreditBack(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.Streams = 41 }})
	f.createStream("updates", 1, fanout.DropNew)
	p := f.connect()
	for i := range 100 {
		k := p.authed()
		k.publish(batch(1, "updates", "", "x"))
		if a := k.ack(); a.Failed {
			t.Fatalf("stream %d: %+v", i, a)
		}
		k.s.Close() // behind the answer, so the FIN comes by itself
		k.mustEnd()
	}
}

func TestUnauthenticatedStreamsWait(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.PreauthStreams = 2 }})
	p := f.connect()
	served := p.authed()
	var silent []*talk
	for range 5 {
		k := p.open()
		k.raw([]byte("F"))
		silent = append(silent, k)
	}
	last := p.open()
	last.send(auth())
	waitFor(t, "two streams to be read", func() bool { return f.server.Stats().Streams >= 3 })
	served.send(&wire.Topology{})
	served.message()
	if n := f.server.Stats().Streams; n != 3 {
		t.Errorf("%d streams are read, want the authenticated one and two", n)
	}
	for _, k := range silent {
		k.s.Close()
	}
	if m, ok := last.message().(*wire.AuthOK); !ok {
		t.Errorf("the last stream was answered with %#v", m)
	}
}

// TestLongNamesAreNotRepeated sends names that no stream can have: a peer that does not read its answers must not be able to make
// the broker hold what it sent.
func TestLongNamesAreNotRepeated(t *testing.T) {
	f := start(t, fixtureOptions{})
	p := f.connect()
	long := bytes.Repeat([]byte("ä"), 30_000)
	k := p.authed()
	b := batch(1, "", "", "x")
	b.Stream = long
	k.publish(b)
	if a := k.ack(); !a.Failed || a.Code != wire.CodeNotFound || len(a.Message) > 1024 {
		t.Errorf("%s answered with %d bytes", a.Code, len(a.Message))
	}
	b = batch(2, "updates", "", "x")
	b.Tenant = long
	k.publish(b)
	if a := k.ack(); !a.Failed || a.Code != wire.CodeForbidden || len(a.Message) > 1024 {
		t.Errorf("%s answered with %d bytes", a.Code, len(a.Message))
	}
	k.raw(jsonFrame(`{"type":"` + string(long) + `"}`))
	if e := k.wantError(wire.CodeInvalidRequest); len(e.Message) > 1024 {
		t.Errorf("%d bytes about an unknown type", len(e.Message))
	}

	k = p.open()
	a := auth()
	a.TenantID = strings.Repeat("t", 129)
	k.send(a)
	k.wantError(wire.CodeInvalidRequest)
	k.mustEnd()

	st := &stream{tenant: "t1"}
	for _, scope := range []wire.Scope{{TenantID: "t1", Namespace: "default", Stream: string(long)}, {TenantID: "t1", Namespace: string(long)}, {TenantID: "t2"}} {
		st.tellWidth(&wire.PublishWidth{Scope: scope, Shards: 1})
	}
	if len(st.widths) > 0 {
		t.Errorf("%d widths remembered", len(st.widths))
	}
}

func jsonFrame(body string) []byte {
	return append(wire.AppendHeader(nil, wire.Header{Length: uint32(len(body))}), body...)
}

// TestPublishStreamHearsOnlyAnswers sends what a publish stream may not be answered for.
func TestPublishStreamHearsOnlyAnswers(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 4, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	k.raw(jsonFrame(`{"type":"publish_width","tenant_id":"t1","namespace":"default","stream":"updates","shards":4,"routing":"a newer one"}`))
	k.publish(batch(1, "updates", "k", "x"))
	if a := k.ack(); a.Failed || a.RequestID != 1 {
		t.Errorf("ack %+v", a)
	}
	// An acked publish without a whole request id: the answer that is owed cannot be given.
	for _, flags := range []wire.Flags{0x0009, 0x8009} {
		k := p.authed()
		k.raw(append(wire.AppendHeader(nil, wire.Header{Flags: flags, Length: 2}), 0, 0))
		k.mustEnd()
	}
	p.alive()
}
