package netio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
)

func TestAuthOK(t *testing.T) {
	f := start(t, fixtureOptions{cores: 2})
	p := f.connect()
	for _, tt := range []struct {
		name     string
		auth     *wire.Auth
		flags    wire.Flags
		features wire.Features
		ok       bool // plain ok instead of auth_ok
	}{
		{"published client 0.6.2", auth(), 0x177F, 0xF_E42EEA21, false},
		{"without the second word", &wire.Auth{TenantID: "t1", ClientFlags: 0x1FFF, HasClientFlags: true, ClientFeatures: 0x7B77FFFF, HasClientFeatures: true}, 0x177F, 0x642EEA21, false},
		{"only flags", &wire.Auth{TenantID: "t1", ClientFlags: 0x003F, HasClientFlags: true}, 0x003F, 0, false},
		{"nothing offered", &wire.Auth{TenantID: "t1"}, 0, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := p.open()
			k.send(tt.auth)
			m := k.message()
			if tt.ok {
				if _, isOK := m.(*wire.OK); !isOK {
					t.Fatalf("answer %#v, want ok", m)
				}
				return
			}
			got, isOK := m.(*wire.AuthOK)
			if !isOK || got.ServerFlags != tt.flags || got.ServerFeatures != tt.features {
				t.Fatalf("answer %#v, want flags %#x and features %#x", m, tt.flags, tt.features)
			}
			if offered := tt.auth.ClientFeatures.Has(wire.FeaturePublishPipeline); got.HasPublishWindow != offered || offered && got.PublishWindow != 256 {
				t.Errorf("publish_window %d (%v)", got.PublishWindow, got.HasPublishWindow)
			}
			if fmt.Sprint(got.ListenerPorts) != fmt.Sprint(f.server.Ports()) || len(got.ListenerPorts) != 2 {
				t.Errorf("listener_ports %v, own ports %v", got.ListenerPorts, f.server.Ports())
			}
		})
	}
}

// wantError reads an error with a code.
func (k *talk) wantError(code wire.Code) *wire.Error {
	k.t.Helper()
	e, ok := k.message().(*wire.Error)
	if !ok || e.Code != code || e.Retry != code.DefaultRetry() {
		k.t.Fatalf("answer %#v, want error %s", e, code)
	}
	return e
}

// alive shows that the connection and another stream did not notice.
func (p *peer) alive() {
	p.f.t.Helper()
	k := p.authed()
	k.send(&wire.Topology{})
	if _, ok := k.message().(*wire.TopologyView); !ok {
		p.f.t.Fatal("no topology_view")
	}
}

func TestBadInput(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 4, fanout.DropNew)
	withFlags := func(flags uint16, body string) []byte {
		return append(wire.AppendHeader(nil, wire.Header{Flags: wire.Flags(flags), Length: uint32(len(body))}), body...)
	}
	p := f.connect()
	for _, tt := range []struct {
		name string
		do   func(k *talk) // on a stream that has not authenticated
		ends bool
	}{
		{"request before auth", func(k *talk) {
			k.send(&wire.Topology{})
			k.wantPlainError("begins with auth")
		}, true},
		{"publish before auth", func(k *talk) {
			k.publish(batch(1, "updates", "", "x"))
			k.wantPlainError("begins with auth")
		}, true},
		{"second auth", func(k *talk) {
			k.login()
			k.send(auth())
			k.wantError(wire.CodeInvalidRequest)
		}, true},
		{"refused token", func(k *talk) {
			a := auth()
			a.Token = "bad"
			k.send(a)
			k.wantError(wire.CodeUnauthenticated)
		}, true},
		{"token for another tenant", func(k *talk) {
			a := auth()
			a.Token = "other"
			k.send(a)
			k.wantError(wire.CodeForbidden)
		}, true},
		{"bad magic", func(k *talk) {
			k.login()
			k.raw([]byte("GET / HTTP/1.1\r\n\r\n"))
		}, true},
		{"bad magic at once", func(k *talk) { k.raw([]byte("GET / HTTP/1.1\r\n\r\n")) }, true},
		{"bad version", func(k *talk) {
			k.login()
			b := withFlags(0, "{}")
			binary.BigEndian.PutUint16(b[4:], 2)
			k.raw(b)
		}, true},
		{"frame too large before auth", func(k *talk) {
			k.raw(wire.AppendHeader(nil, wire.Header{Length: 64<<10 + 1}))
		}, true},
		{"frame too large", func(k *talk) {
			k.login()
			k.raw(wire.AppendHeader(nil, wire.Header{Length: 16<<20 + 1}))
			k.wantError(wire.CodeInvalidRequest)
		}, true},
		{"unknown flag", func(k *talk) {
			k.login()
			k.raw(withFlags(0x8000, "whatever"))
			k.wantError(wire.CodeInvalidRequest)
		}, false},
		{"unknown flag on an acked publish", func(k *talk) {
			k.login()
			k.raw(withFlags(0x8009, "\x00\x00\x00\x00\x00\x00\x00\x07rest"))
			if a := k.ack(); a.RequestID != 7 || !a.Failed || a.Code != wire.CodeInvalidRequest || a.Retry != wire.RetryFatal {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"broken acked publish", func(k *talk) {
			k.login()
			k.raw(withFlags(0x0009, "\x00\x00\x00\x00\x00\x00\x00\x08\x02\xff\xff"))
			if a := k.ack(); a.RequestID != 8 || !a.Failed || a.Code != wire.CodeInvalidRequest {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"count beyond the body", func(k *talk) {
			k.login()
			b := batch(9, "updates", "", "x")
			b.Count = 1 << 30
			k.publish(b)
			if a := k.ack(); a.RequestID != 9 || !a.Failed || a.Code != wire.CodeInvalidRequest {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"broken unacked publish is not answered", func(k *talk) {
			k.login()
			k.raw(withFlags(0x0001, "\xff"))
			k.publish(batch(1, "updates", "", "x"))
			if a := k.ack(); a.RequestID != 1 || a.Failed {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"unknown stream", func(k *talk) {
			k.login()
			k.publish(batch(3, "nowhere", "", "x"))
			a := k.ack()
			if !a.Failed || a.Code != wire.CodeNotFound || a.Retry != wire.RetryAfter || !strings.Contains(a.Message, "stream not found") {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"another tenant", func(k *talk) {
			k.login()
			b := batch(3, "updates", "", "x")
			b.Tenant = []byte("t2")
			k.publish(b)
			if a := k.ack(); !a.Failed || a.Code != wire.CodeForbidden {
				t.Errorf("ack %+v", a)
			}
		}, false},
		{"shard out of range", func(k *talk) {
			k.login()
			k.send(subscribeTo("updates", 4, wire.StartPosition{}))
			k.wantError(wire.CodeInvalidRequest)
		}, false},
		{"explicit shard out of range", func(k *talk) {
			k.login()
			k.send(&wire.PublishBatch{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}, Count: 1, Records: wire.AppendRecord(nil, nil),
				Shard: 9, HasShard: true, RequestID: 4, HasRequestID: true, Ack: wire.AckPerBatch})
			if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != 4 || e.Code != wire.CodeInvalidRequest {
				t.Errorf("answer %+v", e)
			}
		}, false},
		{"ack without request_id", func(k *talk) {
			k.login()
			k.raw(withFlags(0, `{"type":"publish","tenant_id":"t1","namespace":"default","stream":"updates","payload":"","ack":"per_message"}`))
			k.wantError(wire.CodeInvalidRequest)
		}, false},
		{"not JSON", func(k *talk) {
			k.login()
			k.raw(withFlags(0, "{nope"))
			k.wantError(wire.CodeInvalidRequest)
		}, false},
		{"unknown type", func(k *talk) {
			k.login()
			k.raw(withFlags(0, `{"type":"group_poll","request_id":5}`))
			if u, ok := k.message().(*wire.Unsupported); !ok || u.RequestType != "group_poll" || u.RequestID != 5 {
				t.Errorf("answer %#v", u)
			}
		}, false},
		{"extension", func(k *talk) {
			k.login()
			k.raw(withFlags(0, `{"type":"extension","name":"vendor","request_id":6}`))
			if u, ok := k.message().(*wire.Unsupported); !ok || u.RequestType != "extension" || u.Extension != "vendor" || u.RequestID != 6 {
				t.Errorf("answer %#v", u)
			}
		}, false},
		{"cache requests", func(k *talk) {
			k.login()
			for _, m := range []string{"cache_put", "cache_get"} {
				k.raw(withFlags(0, fmt.Sprintf(`{"type":%q,"request_id":5}`, m)))
				k.wantError(wire.CodeInvalidRequest)
			}
		}, false},
		{"a message only brokers send", func(k *talk) {
			k.login()
			k.send(&wire.OK{})
			k.wantError(wire.CodeInvalidRequest)
		}, false},
		{"start offset in the future", func(k *talk) {
			k.login()
			k.send(subscribeTo("updates", 3, wire.StartPosition{Kind: wire.StartOffset, Offset: 77}))
			e, ok := k.message().(*wire.SubscribeCursorError)
			if !ok || e.Reason != wire.CursorInFuture || e.Requested != 77 || e.Available != 0 {
				t.Errorf("answer %+v", e)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := p.open()
			k.t = t
			tt.do(k)
			if tt.ends {
				k.mustEnd()
			} else {
				k.send(&wire.StreamShards{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}, RequestID: 99})
				if v, ok := k.message().(*wire.StreamShardsView); !ok || v.Shards != 4 || v.RequestID != 99 {
					t.Errorf("the stream did not go on: %#v", v)
				}
				k.s.Close()
				k.mustEnd()
			}
			p.alive()
		})
	}
}

func (k *talk) login() {
	k.t.Helper()
	k.send(auth())
	if m, ok := k.message().(*wire.AuthOK); !ok {
		k.t.Fatalf("answer %#v, want auth_ok", m)
	}
}

// wantPlainError reads an error for a client whose offer is not known.
func (k *talk) wantPlainError(part string) {
	k.t.Helper()
	e, ok := k.message().(*wire.Error)
	if !ok || e.HasCode || !strings.Contains(e.Message, part) {
		k.t.Fatalf("answer %#v, want an error without code that says %q", e, part)
	}
}

func TestUnidirectionalStream(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.Block)
	p := f.connect()
	u, err := p.conn.OpenUniStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := wire.AppendMessage(nil, &wire.Auth{TenantID: "t1"})
	for range 3 {
		plain := batch(0, "updates", "", "x")
		plain.Flags = wire.FlagPublishBatch
		b = wire.AppendPublish(b, plain)
	}
	if _, err := u.Write(b); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "three records", func() bool { return f.server.Stats().PublishRecords == 3 })
	// A request that would need an answer closes it.
	if _, err := u.Write(wire.AppendMessage(nil, &wire.Topology{})); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stream to be refused", func() bool {
		_, err := u.Write([]byte("more"))
		var reset *quic.StreamError
		return errors.As(err, &reset)
	})
	p.alive()
}

func TestALPN(t *testing.T) {
	f := start(t, fixtureOptions{})
	strict := start(t, fixtureOptions{change: func(c *Config) { c.RequireALPN = true }})
	for _, tt := range []struct {
		f      *fixture
		protos []string
		ok     bool
	}{
		{f, nil, true}, {f, []string{"felix/1"}, true}, {f, []string{"h3", "felix/1"}, true}, {f, []string{"h3"}, false},
		{strict, nil, false}, {strict, []string{"felix/1"}, true},
	} {
		conn, err := tt.f.dialer().dial(tt.protos...)
		if (err == nil) != tt.ok {
			t.Errorf("ALPN %v: %v, want ok %v", tt.protos, err, tt.ok)
		}
		if err == nil {
			conn.CloseWithError(0, "")
		}
	}
}

func TestConnectionsOfOneSourcePortSpread(t *testing.T) {
	// One source port per kind, as published plain clients open their 20 connections: one client on 2 cores, four on 4, so that a
	// core is left out by chance once in a million runs.
	for cores, clients := range map[int]int{2: 1, 4: 4} {
		f := start(t, fixtureOptions{cores: cores})
		for kind, n := range map[string]int{"publish": 4 * clients, "cache": 8 * clients, "event": 8 * clients} {
			d := f.dialer()
			for range n {
				conn, err := d.dial()
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				defer conn.CloseWithError(0, "")
			}
		}
		want := uint64(20 * clients)
		waitFor(t, "every connection", func() bool { return f.server.Stats().ConnectionsAccepted == want })
		s := f.server.Stats()
		for core, n := range s.ConnectionsPerCore {
			if n == 0 {
				t.Errorf("%d cores: core %d has none of %d connections: %v", cores, core, want, s.ConnectionsPerCore)
			}
		}
	}
}

func TestOwnPortsReachTheOwner(t *testing.T) {
	f := start(t, fixtureOptions{cores: 2})
	f.createStream("updates", 8, fanout.DropNew)
	k := f.connect().authed()
	k.send(&wire.ShardOwners{TenantID: "t1", Namespace: "default", Name: "updates", Kind: wire.ShardKindStream, RequestID: 1})
	view, ok := k.message().(*wire.ShardOwnersView)
	if !ok || len(view.Owners) != 8 {
		t.Fatalf("shard_owners_view: %#v", view)
	}
	k.send(&wire.Topology{})
	topology, ok := k.message().(*wire.TopologyView)
	if !ok || len(topology.Brokers) != 2 {
		t.Fatalf("topology_view: %#v", topology)
	}
	nodes := map[string]string{}
	for _, b := range topology.Brokers {
		nodes[b.NodeID] = b.Addr
	}
	seen := map[string]bool{}
	for i, o := range view.Owners {
		if o.Shard != uint32(i) || o.Generation != 1 || o.Addr == "" || nodes[o.NodeID] != o.Addr {
			t.Errorf("owner %+v, brokers %+v", o, topology.Brokers)
		}
		seen[o.NodeID] = true
	}
	if len(seen) != 2 {
		t.Errorf("8 shards have %d owners, want 2", len(seen))
	}
}

func TestCapsRefuseInTheHandshake(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) {
		c.Limits.Connections, c.Limits.ConnectionsPerIP = 3, 2
	}})
	d := f.dialer()
	for range 2 {
		conn, err := d.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
	}
	_, err := d.dial()
	var refused *quic.TransportError
	if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
		t.Fatalf("third connection of one address: %v, want CONNECTION_REFUSED", err)
	}
	// The hello takes two packets. The second may be looked at when the first has been refused, and counts meanwhile.
	waitFor(t, "the refusal to leave no place taken", func() bool { s := f.server.Stats(); return s.RefusedPerIP > 0 && s.Connections == 2 })
}

func TestAuthTimeout(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.AuthTimeout = 50 * time.Millisecond }})
	conn, err := f.dialer().dial("felix/1")
	if err == nil { // the time may be over while the client is still dialling
		<-conn.Context().Done()
		err = context.Cause(conn.Context())
	}
	var closed *quic.ApplicationError
	if !errors.As(err, &closed) || closed.ErrorCode != closeAuthTimeout || closed.ErrorMessage != "authentication timeout" {
		t.Fatalf("closed with %v", err)
	}
	waitFor(t, "the connection to leave", func() bool { return f.server.Stats().Connections == 0 })
	if s := f.server.Stats(); s.AuthTimeouts != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestUnansweredPublishesStopTheReader(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.PublishWindow = 4 }})
	f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	// The peer reads no answer until all are sent: the broker stops at its window and goes on as answers leave.
	const n = 3000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range uint64(n) {
			k.publish(batch(i+1, "updates", "", "0123456789"))
		}
	}()
	for i := range uint64(n) {
		if a := k.ack(); a.RequestID != i+1 || a.Failed || a.Offset != wire.Offset(i) {
			t.Fatalf("ack %+v, want request %d", a, i+1)
		}
	}
	<-sent
}

func TestLargeFrames(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.Block)
	p := f.connect()
	k := p.authed()
	sizes := []int{0, 1, 63 << 10, 64 << 10, 300 << 10, 5 << 20, 16<<20 - 64}
	go func() {
		for i, size := range sizes {
			k.publish(batch(uint64(i+1), "updates", "", strings.Repeat("x", size)))
		}
	}()
	for i := range sizes {
		if a := k.ack(); a.Failed || a.RequestID != uint64(i+1) {
			t.Fatalf("%d bytes: %+v", sizes[i], a)
		}
	}
	sub := p.authed()
	sub.send(subscribeTo("updates", 0, wire.StartPosition{Kind: wire.StartEarliest}))
	sub.message()
	e := p.acceptEvents()
	for i := 0; i < len(sizes); {
		ev := e.next()
		for r := range ev.All() {
			if len(r.Payload) != sizes[i] {
				t.Fatalf("record %d has %d bytes, want %d", i, len(r.Payload), sizes[i])
			}
			i++
		}
	}
}

// A frame that has begun holds memory that others wait for: its stream ends when the rest does not come.
func TestFrameThatDoesNotGoOn(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.FrameTimeout = 50 * time.Millisecond }})
	f.createStream("updates", 1, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	k.publish(batch(1, "updates", "", "whole"))
	begun := append(wire.AppendHeader(nil, wire.Header{Flags: wire.FlagPublishBatch, Length: 70 << 10}), make([]byte, 5<<10)...)
	k.s.Write(begun) // fails when the broker has given up before all is sent
	if a := k.ack(); a.Failed || a.RequestID != 1 {
		t.Fatalf("ack %+v", a)
	}
	k.mustEnd()
	waitFor(t, "its memory", func() bool { s := f.server.Stats(); return s.SlowFrames == 1 && s.IngressBytes == 0 })
	p.alive()
}

func TestPartialFrames(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	var b []byte
	for i := range uint64(20) {
		b = wire.AppendPublish(b, batch(i+1, "updates", "", "payload"))
	}
	for i := range b { // a write per byte: frames arrive in any piece
		k.raw(b[i : i+1])
	}
	for i := range uint64(20) {
		if a := k.ack(); a.RequestID != i+1 || a.Failed {
			t.Fatalf("ack %+v", a)
		}
	}
	// A half-closed stream in the middle of a frame ends without an answer for it.
	k.raw(b[:len(b)/40])
	k.s.Close()
	k.mustEnd()
	waitFor(t, "the broken frame to be counted", func() bool { return f.server.Stats().MalformedFrames == 1 })
}

func TestVanishedPeerLeavesNothing(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 2, fanout.DropNew)
	for range 20 {
		p := f.connect()
		k := p.authed()
		k.send(subscribeTo("updates", 0, wire.StartPosition{}))
		k.message()
		for i := range uint64(50) {
			k.publish(batch(i+1, "updates", "k", "payload"))
		}
		p.conn.CloseWithError(0, "")
	}
	waitFor(t, "the books to balance", func() bool {
		s := f.server.Stats()
		return s.Connections == 0 && s.Streams == 0 && s.Subscriptions == 0 && s.IngressBytes == 0 && s.SlotsInUse == 0
	})
}

func TestStreamDeletedEndsSubscription(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.Block)
	p := f.connect()
	k := p.authed()
	k.send(subscribeTo("updates", 0, wire.StartPosition{}))
	k.message()
	e := p.acceptEvents()
	k.publish(batch(1, "updates", "", "last"))
	k.ack()
	if err := f.catalog.DeleteStream(t.Context(), "t1", "default", "updates"); err != nil {
		t.Fatal(err)
	}
	if ev := e.next(); ev.Count != 1 {
		t.Fatalf("event %+v", ev)
	}
	_, body, err := readFrame(e.s)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := wire.ParseMessage(body); err != nil || m.MessageType() != wire.TypeStreamDeleted {
		t.Fatalf("last frame %s", body)
	}
	if _, _, err := readFrame(e.s); !errors.Is(err, io.EOF) {
		t.Fatalf("after stream_deleted: %v", err)
	}
	k.publish(batch(2, "updates", "", "late"))
	if a := k.ack(); !a.Failed || a.Code != wire.CodeNotFound {
		t.Fatalf("publish to a deleted stream: %+v", a)
	}
}

// A batch refused at the door takes those behind it with it, so that none is answered with sequence_gap.
func TestIdempotentBatchRefusedAtTheDoor(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 4, fanout.DropNew)
	k := f.connect().authed()
	scope := wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}
	publish := func(id, sequence uint64) {
		b := batch(id, "updates", "k", "x")
		b.Flags |= wire.FlagPublishIdempotent
		b.ProducerID, b.Sequence = 7, sequence
		k.publish(b)
	}
	refused := func(id uint64) {
		t.Helper()
		if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != id || e.Code != wire.CodeStaleWidth {
			t.Fatalf("request %d: %+v", id, e)
		}
	}
	appended := func(id uint64, at wire.Offset) {
		t.Helper()
		if m, ok := k.message().(*wire.PublishOK); !ok || m.RequestID != id || m.Offset != at {
			t.Fatalf("request %d: %+v, want offset %d", id, m, at)
		}
	}
	publish(1, 0)
	appended(1, 0)
	k.send(&wire.PublishWidth{Scope: scope, Shards: 8})
	publish(2, 1)
	k.send(&wire.PublishWidth{Scope: scope, Shards: 4})
	publish(3, 2)
	publish(4, 3)
	for id := range uint64(3) {
		refused(id + 2)
	}
	for id := range uint64(3) { // sent again, in order
		publish(5+id, 1+id)
		appended(5+id, wire.Offset(1+id))
	}
}

// What the catalog could not do is not the client's mistake, and the client may try again.
func TestRefusalsOfTheCatalog(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code wire.Code
		want wire.Retry
	}{
		{fmt.Errorf("%w: name", replicate.ErrInvalid), wire.CodeInvalidRequest, wire.RetryFatal},
		{fmt.Errorf("%w: name", replicate.ErrNotFound), wire.CodeNotFound, wire.RetryAfter},
		{&replicate.LimitError{What: "streams"}, wire.CodeLimitExceeded, wire.RetryFatal},
		{fmt.Errorf("%w: disk", replicate.ErrJournal), wire.CodeStorage, wire.RetryRetry},
		{context.Canceled, wire.CodeInternal, wire.RetryRetry},
	} {
		if r := refusalFor(tt.err, nil, nil, nil); r.code != tt.code || r.class() != tt.want {
			t.Errorf("%v: %s, %s", tt.err, r.code, r.class())
		}
	}
}

func TestWidth(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 4, fanout.DropNew)
	k := f.connect().authed()
	scope := wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}
	publish := func(id uint64) wire.Ack {
		k.publish(batch(id, "updates", "k", "x"))
		return k.ack()
	}
	if a := publish(1); a.Failed {
		t.Fatalf("without a width: %+v", a)
	}
	k.send(&wire.PublishWidth{Scope: scope, Shards: 8})
	if a := publish(2); !a.Failed || a.Code != wire.CodeStaleWidth || a.Retry != wire.RetryRetry {
		t.Fatalf("stale width: %+v", a)
	}
	k.publish(batch(3, "updates", "", "unkeyed"))
	if a := k.ack(); a.Failed {
		t.Fatalf("unkeyed batches have no width: %+v", a)
	}
	k.send(&wire.PublishWidth{Scope: scope, Shards: 4, Routing: wire.RoutingJumpHash})
	if a := publish(4); !a.Failed || a.Code != wire.CodeStaleWidth {
		t.Fatalf("stale routing: %+v", a)
	}
	k.send(&wire.PublishWidth{Scope: scope, Shards: 4})
	if a := publish(5); a.Failed {
		t.Fatalf("right width: %+v", a)
	}
}
