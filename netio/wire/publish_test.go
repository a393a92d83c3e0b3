package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// samplePublish has every part.
func samplePublish() *Publish {
	return &Publish{
		Flags: PublishFlags, RequestID: 8, AckMode: AckPerBatch, ProducerID: 1, Sequence: 3, Key: []byte("k1"),
		Tenant: []byte("t1"), Namespace: []byte("default"), Stream: []byte("updates"), Count: 2, Records: recordsOf("hello", "wörld"),
	}
}

func TestPublishKeepsViews(t *testing.T) {
	p := samplePublish()
	frame := AppendPublish(nil, p)
	body := append(frame[HeaderBytes:], "trailing"...)
	var got Publish
	if err := got.Parse(p.Flags, body); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, got, *p)
	for name, view := range map[string][]byte{"key": got.Key, "tenant": got.Tenant, "stream": got.Stream, "records": got.Records} {
		if cap(view) != len(view) {
			t.Errorf("%s has %d bytes to spare: an append to it would overwrite the frame", name, cap(view)-len(view))
		}
	}
	body[bytes.Index(body, []byte("hello"))] = 'j'
	if payload, _ := NextRecord(got.Records); string(payload) != "jello" {
		t.Errorf("payload is a copy: %q", payload)
	}
}

// Every cut of a body is refused, and every cut that leaves the request id can be answered.
func TestPublishCut(t *testing.T) {
	p := samplePublish()
	for _, flags := range []Flags{0x0001, 0x0009, 0x0041, 0x0049, 0x0109, 0x0149} {
		p.Flags = flags
		body := AppendPublish(nil, p)[HeaderBytes:]
		for n := range len(body) {
			var got Publish
			if err := got.Parse(flags, body[:n:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("flags %#04x, %d bytes of %d: %v", uint16(flags), n, len(body), err)
			}
			if id, ok := PublishRequestID(body[:n]); p.Acked() && (ok != (n >= 8) || ok && id != 8) {
				t.Errorf("PublishRequestID of %d bytes: %d, %v", n, id, ok)
			}
		}
	}
}

func TestPublishErrors(t *testing.T) {
	tests := []struct {
		name   string
		flags  Flags
		change func(body []byte)
		want   string
	}{
		{"ack mode 0", 0x0009, func(b []byte) { b[8] = 0 }, "ack_mode 0"},
		{"ack mode 3", 0x0009, func(b []byte) { b[8] = 3 }, "ack_mode 3"},
		{"tenant is not UTF-8", 0x0001, func(b []byte) { b[2] = 0xFF }, "UTF-8"},
		{"count of 2^32-1", 0x0001, func(b []byte) { copy(b[2+2+2+7+2+7:], "\xff\xff\xff\xff") }, "4294967295 records declared"},
		{"record of 2^32-1", 0x0001, func(b []byte) { copy(b[2+2+2+7+2+7+4:], "\xff\xff\xff\xff") }, "record 0 of 2"},
	}
	for _, tt := range tests {
		p := samplePublish()
		p.Flags = tt.flags
		body := AppendPublish(nil, p)[HeaderBytes:]
		tt.change(body)
		if err := p.Parse(tt.flags, body); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, flags := range []Flags{0, 0x0010, 0x0024, 0x0101, 0x8001, 0x0003} {
		if err := new(Publish).Parse(flags, AppendPublish(nil, samplePublish())[HeaderBytes:]); !errors.Is(err, ErrMalformed) {
			t.Errorf("flags %#04x: %v", uint16(flags), err)
		}
	}
}

func TestPublishEmptyBatch(t *testing.T) {
	p := &Publish{Tenant: []byte("t"), Namespace: []byte("n"), Stream: []byte("s")}
	var got Publish
	if err := got.Parse(FlagPublishBatch, AppendPublish(nil, p)[HeaderBytes:]); err != nil || got.Count != 0 || len(got.Records) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAppendPublishPanics(t *testing.T) {
	for name, change := range map[string]func(*Publish){
		"idempotent without acked": func(p *Publish) { p.Flags = FlagPublishIdempotent },
		"flag of an ack":           func(p *Publish) { p.Flags |= FlagPublishAck },
		"key too long":             func(p *Publish) { p.Key = make([]byte, MaxKeyBytes+1) },
		"stream too long":          func(p *Publish) { p.Stream = make([]byte, MaxNameBytes+1) },
	} {
		p := samplePublish()
		change(p)
		checkPanics(t, name, func() { AppendPublish(nil, p) })
	}
	p := samplePublish()
	p.Key, p.Stream = make([]byte, MaxKeyBytes), make([]byte, MaxNameBytes)
	if err := new(Publish).Parse(p.Flags, AppendPublish(nil, p)[HeaderBytes:]); err != nil {
		t.Errorf("the longest key and stream: %v", err)
	}
}

func checkPanics(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "BUG: wire: ") {
			t.Errorf("%s: recovered %v, want a panic with BUG: wire", name, r)
		}
	}()
	f()
}

func TestAckMode(t *testing.T) {
	for m, name := range map[AckMode]string{AckNone: "none", AckPerMessage: "per_message", AckPerBatch: "per_batch"} {
		if got, ok := ParseAckMode(name); !ok || got != m || m.String() != name {
			t.Errorf("%q: %v, %v, String %q", name, got, ok, m)
		}
	}
	if _, ok := ParseAckMode("all"); ok {
		t.Error(`ParseAckMode("all") is accepted`)
	}
}
