package netio

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/replicate"
	"felix/wal"
)

// createDurable creates a stream that is kept in the log.
func (f *fixture) createDurable(name string, shards uint32) *replicate.Stream {
	f.t.Helper()
	for _, err := range []error{
		second(f.catalog.CreateTenant(f.t.Context(), "t1", "")),
		second(f.catalog.CreateNamespace(f.t.Context(), "t1", "default", "")),
	} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	s, _, err := f.catalog.CreateStream(f.t.Context(), replicate.StreamConfig{Tenant: "t1", Namespace: "default", Name: name, Shards: shards, Durable: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func second[T any](_ T, _ bool, err error) error { return err }

// request asks on a stream of its own and returns the answer.
func (p *peer) request(m wire.Message) wire.Message {
	p.f.t.Helper()
	k := p.authed()
	k.send(m)
	k.s.Close()
	answer := k.message()
	k.mustEnd()
	return answer
}

func (p *peer) wantError(request wire.Message, code wire.Code, retry wire.Retry, words ...string) {
	p.f.t.Helper()
	e, ok := p.request(request).(*wire.Error)
	if !ok || e.Code != code || e.Retry != retry {
		p.f.t.Errorf("%T: %#v, want %s, %s", request, e, code, retry)
		return
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			p.f.t.Errorf("%T: %q lacks %q", request, e.Message, word)
		}
	}
}

func scopeOf(stream string) wire.Scope {
	return wire.Scope{TenantID: "t1", Namespace: "default", Stream: stream}
}

func TestStreamRead(t *testing.T) {
	f := start(t, fixtureOptions{log: true})
	f.createDurable("updates", 2)
	p := f.connect()
	read := func(m wire.StreamRead) *wire.StreamRecords {
		t.Helper()
		m.Scope, m.RequestID = scopeOf("updates"), 7
		answer, ok := p.request(&m).(*wire.StreamRecords)
		if !ok || answer.RequestID != 7 {
			t.Fatalf("%+v: %#v", m, answer)
		}
		return answer
	}
	if a := read(wire.StreamRead{}); len(a.Records) != 0 || a.NextOffset != 0 {
		t.Errorf("an empty shard: %+v", a)
	}
	before := uint64(time.Now().UnixMicro())
	k := p.authed()
	for i := range uint64(5) {
		k.publish(batch(i, "updates", "", fmt.Sprint("a", i), "", fmt.Sprint("c", i)))
		if a := k.ack(); a.Failed || !a.HasOffset || uint64(a.Offset) != 3*i {
			t.Fatalf("%+v", a)
		}
	}
	for _, tt := range []struct {
		request wire.StreamRead
		from    wire.Offset
		n       int
	}{
		{wire.StreamRead{}, 0, 15},
		{wire.StreamRead{From: 4}, 4, 11},
		{wire.StreamRead{From: 4, End: 6, HasEnd: true}, 4, 2},
		{wire.StreamRead{From: 4, End: 100, HasEnd: true}, 4, 11},
		{wire.StreamRead{From: 4, End: 4, HasEnd: true}, 4, 0},
		{wire.StreamRead{From: 4, HasEnd: true}, 4, 0},
		{wire.StreamRead{From: 2, MaxRecords: 3}, 2, 3},
		{wire.StreamRead{From: 3, MaxBytes: 1}, 3, 1},
		{wire.StreamRead{MaxRecords: 1 << 40, MaxBytes: 1 << 40}, 0, 15},
		{wire.StreamRead{From: 15}, 15, 0},
		{wire.StreamRead{Shard: 1}, 0, 0},
	} {
		a := read(tt.request)
		if len(a.Records) != tt.n || a.NextOffset != tt.from+wire.Offset(tt.n) {
			t.Errorf("%+v: %d records, next %d", tt.request, len(a.Records), a.NextOffset)
		}
		for i, r := range a.Records {
			o := tt.from + wire.Offset(i)
			want := []string{fmt.Sprint("a", o/3), "", fmt.Sprint("c", o/3)}[o%3]
			if r.Offset != o || string(r.Payload) != want || r.TimestampMicros < before || r.TimestampMicros > uint64(time.Now().UnixMicro()) {
				t.Errorf("%+v: record %d is %+v, want %q", tt.request, i, r, want)
			}
		}
	}

	cursor, ok := p.request(&wire.StreamRead{Scope: scopeOf("updates"), From: 16}).(*wire.SubscribeCursorError)
	if !ok || cursor.Reason != wire.CursorInFuture || cursor.Requested != 16 || cursor.Available != 15 {
		t.Errorf("in the future: %+v", cursor)
	}
	p.wantError(&wire.StreamRead{Scope: scopeOf("updates"), Shard: 2}, wire.CodeInvalidRequest, wire.RetryFatal, "shard 2 is out of range")
	p.wantError(&wire.StreamRead{Scope: scopeOf("none")}, wire.CodeNotFound, wire.RetryAfter, "stream not found")
	p.wantError(&wire.StreamRead{Scope: wire.Scope{TenantID: "t2", Namespace: "default", Stream: "updates"}}, wire.CodeForbidden, wire.RetryFatal)
	k.send(&wire.StreamRead{Scope: scopeOf("updates")})
	if e := k.wantError(wire.CodeInvalidRequest); !strings.Contains(e.Message, "a stream of its own") {
		t.Errorf("%q", e.Message)
	}
	if held := f.server.pages.held.Load(); held != 0 {
		t.Errorf("%d bytes of pages are held", held)
	}
}

// TestStreamReadFitsTheFrame reads records whose JSON is too much for one frame, and one that is too much for any.
func TestStreamReadFitsTheFrame(t *testing.T) {
	f := start(t, fixtureOptions{log: true, change: func(c *Config) { c.Limits.FrameBytes = 64 << 10; c.Limits.ReadRecords = 100 }})
	f.createDurable("updates", 1)
	p := f.connect()
	k := p.authed()
	sizes := []int{30 << 10, 20 << 10, 10 << 10, 10 << 10, 60 << 10, 1}
	for i, size := range sizes {
		k.publish(batch(uint64(i), "updates", "", strings.Repeat("x", size)))
		if a := k.ack(); a.Failed {
			t.Fatalf("%+v", a)
		}
	}
	from := wire.Offset(0)
	for from < 4 {
		a, ok := p.request(&wire.StreamRead{Scope: scopeOf("updates"), From: from}).(*wire.StreamRecords)
		if !ok || len(a.Records) == 0 || a.NextOffset != from+wire.Offset(len(a.Records)) {
			t.Fatalf("from %d: %+v", from, a)
		}
		for _, r := range a.Records {
			if len(r.Payload) != sizes[r.Offset] {
				t.Errorf("record %d has %d bytes", r.Offset, len(r.Payload))
			}
		}
		from = a.NextOffset
	}
	if from != 4 {
		t.Errorf("read to %d; record 4 fits no frame", from)
	}
	p.wantError(&wire.StreamRead{Scope: scopeOf("updates"), From: 4}, wire.CodeInvalidRequest, wire.RetryFatal, "offset 4", "61440 bytes", "subscribe")
	if a, ok := p.request(&wire.StreamRead{Scope: scopeOf("updates"), From: 5}).(*wire.StreamRecords); !ok || len(a.Records) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestOffsetForTime(t *testing.T) {
	f := start(t, fixtureOptions{log: true})
	f.createDurable("updates", 2)
	p := f.connect()
	ask := func(shard uint32, at uint64) *wire.OffsetValue {
		t.Helper()
		v, ok := p.request(&wire.OffsetForTime{Scope: scopeOf("updates"), Shard: shard, AtMicros: at, RequestID: 9}).(*wire.OffsetValue)
		if !ok || v.RequestID != 9 {
			t.Fatalf("%#v", v)
		}
		return v
	}
	k := p.authed()
	publish := func(payloads ...string) {
		t.Helper()
		k.publish(batch(1, "updates", "", payloads...))
		if a := k.ack(); a.Failed {
			t.Fatalf("%+v", a)
		}
	}
	if v := ask(0, 0); v.HasOffset {
		t.Errorf("an empty shard: %+v", v)
	}
	publish("a", "b")
	between := uint64(time.Now().UnixMicro()) + 1
	waitFor(t, "the clock to move", func() bool { return uint64(time.Now().UnixMicro()) > between })
	if v := ask(0, between); v.HasOffset {
		t.Errorf("after the newest: %+v", v)
	}
	publish("c")
	for at, want := range map[uint64]wire.Offset{0: 0, between - 1e9: 0, between: 2} {
		if v := ask(0, at); !v.HasOffset || v.Offset != want {
			t.Errorf("at %d: %+v, want %d", at, v, want)
		}
	}
	if v := ask(0, 1<<64-1); v.HasOffset {
		t.Errorf("at the end of time: %+v", v)
	}
	if v := ask(1, 0); v.HasOffset {
		t.Errorf("the other shard: %+v", v)
	}
}

// TestReadsInMemory refuses what needs a log.
func TestReadsInMemory(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, 0)
	p := f.connect()
	p.wantError(&wire.StreamRead{Scope: scopeOf("updates")}, wire.CodeInvalidRequest, wire.RetryFatal, "stream_read needs the log", "updates is in memory")
	p.wantError(&wire.OffsetForTime{Scope: scopeOf("updates")}, wire.CodeInvalidRequest, wire.RetryFatal, "offset_for_time needs the log", "updates is in memory")
}

// brokenDisk fails every write and sync once it is told to.
type brokenDisk struct {
	wal.Backend
	broken *atomic.Bool
}

func (d brokenDisk) Write(file wal.File, bufs [][]byte, off int64, sync bool) error {
	if d.broken.Load() {
		return errDisk
	}
	return d.Backend.Write(file, bufs, off, sync)
}

func (d brokenDisk) Sync(file wal.File) error {
	if d.broken.Load() {
		return errDisk
	}
	return d.Backend.Sync(file)
}

// TestDiskFails breaks the disk under a publish: its outcome is not known, later ones are refused, and what was acknowledged can be read.
func TestDiskFails(t *testing.T) {
	broken := new(atomic.Bool)
	f := start(t, fixtureOptions{cores: 1, log: true, disk: func(b wal.Backend) wal.Backend { return brokenDisk{b, broken} }})
	f.createDurable("updates", 1)
	p := f.connect()
	k := p.authed()
	k.publish(batch(1, "updates", "", "kept"))
	if a := k.ack(); a.Failed {
		t.Fatalf("%+v", a)
	}
	broken.Store(true)
	k.publish(batch(2, "updates", "", "lost"))
	if a := k.ack(); !a.Failed || a.Code != wire.CodeStorage || a.Retry != wire.RetryOutcomeUnknown {
		t.Errorf("while it broke: %+v", a)
	}
	k.publish(batch(3, "updates", "", "refused"))
	if a := k.ack(); !a.Failed || a.Code != wire.CodeStorage || a.Retry != wire.RetryRetry {
		t.Errorf("after it broke: %+v", a)
	}
	a, ok := p.request(&wire.StreamRead{Scope: scopeOf("updates")}).(*wire.StreamRecords)
	if !ok || len(a.Records) != 1 || string(a.Records[0].Payload) != "kept" {
		t.Errorf("%#v", a)
	}
}

// TestRefusalsOfTheLog encodes each way in which a log refuses, as a binary ack and as JSON.
func TestRefusalsOfTheLog(t *testing.T) {
	for outcome, want := range map[replicate.Outcome]struct {
		code   wire.Code
		retry  wire.Retry
		millis uint64
		word   string
	}{
		replicate.DiskFull:       {wire.CodeOverloaded, wire.RetryAfter, diskFullRetryMillis, "disk is full"},
		replicate.TooLarge:       {wire.CodeInvalidRequest, wire.RetryFatal, 0, "smaller batches"},
		replicate.StorageFailed:  {wire.CodeStorage, wire.RetryRetry, 0, "nothing was appended"},
		replicate.OutcomeUnknown: {wire.CodeStorage, wire.RetryOutcomeUnknown, 0, "next start"},
	} {
		st := &stream{flags: wire.DefaultClientFlags, features: allFeatures}
		p := &publish{run: &run{stream: st}, requestID: 3, acked: true}
		p.Outcome = outcome
		frame := p.appendAnswer(nil)
		h, body, _, _, err := wire.SplitFrame(frame, wire.MaxFrameBytes)
		var a wire.Ack
		if err == nil {
			err = a.Parse(h.Flags, body)
		}
		if err != nil || !a.Failed || a.Code != want.code || a.Retry != want.retry || a.RetryAfterMillis != want.millis || !strings.Contains(a.Message, want.word) {
			t.Errorf("%v: %+v, %v", outcome, a, err)
		}
		p.json = true
		m, err := wire.ParseMessage(p.appendAnswer(nil)[wire.HeaderBytes:])
		e, ok := m.(*wire.PublishError)
		if err != nil || !ok || e.Code != want.code || e.Retry != want.retry || e.RetryAfterMillis != want.millis || e.Message != a.Message {
			t.Errorf("%v: %+v, %v", outcome, m, err)
		}
		// A client that reads no codes gets the text only.
		st.features, p.json = 0, false
		h, body, _, _, err = wire.SplitFrame(p.appendAnswer(nil), wire.MaxFrameBytes)
		a = wire.Ack{}
		if err == nil {
			err = a.Parse(h.Flags, body)
		}
		if err != nil || !a.Failed || a.HasCode || a.HasDetail || a.Message == "" {
			t.Errorf("%v without codes: %+v, %v", outcome, a, err)
		}
	}
}

func TestFitPage(t *testing.T) {
	page := func(sizes ...int) (p []replicate.Record) {
		for _, size := range sizes {
			p = append(p, replicate.Record{Payload: bytes.Repeat([]byte("x"), size), Offset: 1<<64 - 1 - wire.Offset(len(sizes)), Micros: 1<<63 - 1})
		}
		return p
	}
	for _, tt := range []struct {
		sizes []int
		limit int
		n     int
		ok    bool
	}{
		{nil, 1 << 10, 0, true},
		{[]int{0, 0, 0}, 1 << 10, 3, true},
		{[]int{300, 300, 300}, 1 << 10, 1, true},
		{[]int{900}, 1 << 10, 0, false},
		{[]int{1, 900}, 1 << 10, 1, true},
	} {
		p := page(tt.sizes...)
		n, ok := fitPage(p, tt.limit)
		if n != tt.n || ok != tt.ok {
			t.Errorf("%v in %d: %d, %v", tt.sizes, tt.limit, n, ok)
		}
		m := &wire.StreamRecords{NextOffset: 1<<64 - 1, RequestID: 1<<64 - 1}
		for _, r := range p[:n] {
			m.Records = append(m.Records, wire.StreamRecord{Offset: r.Offset, Payload: r.Payload, TimestampMicros: uint64(r.Micros)})
		}
		if size := len(wire.AppendMessage(nil, m)) - wire.HeaderBytes; size > tt.limit {
			t.Errorf("%v: the frame has %d bytes, %d are allowed", tt.sizes, size, tt.limit)
		}
	}
}
