package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// Each target: no panic, allocation bounded by the input, and what parses appends back to the same bytes.

func FuzzParseHeader(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.frame)
	}
	f.Add([]byte{})
	f.Add([]byte("FLX1\x00\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if !errors.Is(err, ErrShortHeader) && !errors.Is(err, ErrBadMagic) && !errors.Is(err, ErrBadVersion) {
				t.Fatalf("untyped error %v", err)
			}
		} else {
			checkBytes(t, AppendHeader(nil, h), b[:HeaderBytes])
		}
		_, body, rest, ok, err := SplitFrame(b, 1<<16)
		if ok && (err != nil || HeaderBytes+len(body)+len(rest) != len(b)) || err != nil && ok {
			t.Fatalf("SplitFrame: ok %v, %d + %d of %d bytes, %v", ok, len(body), len(rest), len(b), err)
		}
		if !ok && len(rest) != len(b) {
			t.Fatalf("SplitFrame took %d bytes without a frame", len(b)-len(rest))
		}
	})
}

// addBodies seeds a target with the frames of one kind, each with its cuts in the middle.
func addBodies(f *testing.F, kind FrameKind) {
	for _, v := range loadVectors(f) {
		if v.header.Flags.Kind() == kind {
			f.Add(uint16(v.header.Flags), v.body)
			f.Add(uint16(v.header.Flags), v.body[:len(v.body)/2])
		}
	}
}

func FuzzParsePublish(f *testing.F) {
	addBodies(f, FramePublish)
	f.Fuzz(func(t *testing.T, flags uint16, body []byte) {
		var p Publish
		var err error
		checkAllocated(t, "Publish.Parse", len(body), func() { err = p.Parse(Flags(flags), body) })
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		checkRewritten(t, flags, body, AppendPublish(nil, &p))
		n := uint32(0)
		for range AllRecords(p.Records) {
			n++
		}
		if n != p.Count {
			t.Fatalf("%d records, count %d", n, p.Count)
		}
		if id, ok := PublishRequestID(body); p.Acked() && (!ok || id != p.RequestID) {
			t.Fatalf("PublishRequestID %d, %v, want %d", id, ok, p.RequestID)
		}
	})
}

func FuzzParseAck(f *testing.F) {
	addBodies(f, FrameAck)
	f.Fuzz(func(t *testing.T, flags uint16, body []byte) {
		var a Ack
		var err error
		checkAllocated(t, "Ack.Parse", len(body), func() { err = a.Parse(Flags(flags), body) })
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if a.HasCode {
			// The one byte that is not kept: an unknown class reads as fatal.
			body = bytes.Clone(body)
			body[ackPlainBytes+len(a.Message)+2] = byte(a.Retry)
		}
		checkRewritten(t, flags, body, AppendAck(nil, &a))
	})
}

func FuzzParseEvents(f *testing.F) {
	addBodies(f, FrameEvents)
	f.Fuzz(func(t *testing.T, flags uint16, body []byte) {
		var e Events
		var err error
		checkAllocated(t, "Events.Parse", len(body), func() { err = e.Parse(Flags(flags), body) })
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		n := uint32(0)
		for event := range e.All() {
			if event.Offset != e.Base+Offset(n) {
				t.Fatalf("event %d of base %d has offset %d", n, e.Base, event.Offset)
			}
			n++
		}
		if n != e.Count {
			t.Fatalf("%d events, count %d", n, e.Count)
		}
		if e.Flags.Has(FlagEventBatch) {
			// Read, never written: the body after the id is that of the shared layout.
			e.Flags, flags, body = e.Flags^FlagEventBatch^FlagEventBatchShared, flags^uint16(FlagEventBatch|FlagEventBatchShared), body[8:]
		}
		if e.Flags.Has(FlagEventSkipped) && e.Skipped == 0 {
			// Written only when it says something.
			flags &^= uint16(FlagEventSkipped)
			body = append(bytes.Clone(body[:8]), body[16:]...)
		}
		checkRewritten(t, flags, body, AppendEvents(nil, &e))
	})
}

// checkRewritten: frame is the front of body with its header; what follows in body was ignored.
func checkRewritten(t *testing.T, flags uint16, body, frame []byte) {
	t.Helper()
	h, written, rest, ok, err := SplitFrame(frame, 1<<32-1)
	if !ok || err != nil || len(rest) != 0 || h.Flags != Flags(flags) {
		t.Fatalf("header %+v, flags %#04x, ok %v, %d bytes more, %v", h, flags, ok, len(rest), err)
	}
	if !bytes.HasPrefix(body, written) {
		t.Fatalf("parsed  %x\nwritten %x", body, written)
	}
}

func FuzzCheckRecords(f *testing.F) {
	f.Add(uint32(3), recordsOf("hello", "", "x"))
	f.Add(uint32(1<<31), []byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, count uint32, b []byte) {
		size, err := CheckRecords(b, count)
		if err != nil {
			return
		}
		var again []byte
		n := uint32(0)
		for p := range AllRecords(b[:size]) {
			again = AppendRecord(again, p)
			n++
		}
		if n != count || !bytes.Equal(again, b[:size]) {
			t.Fatalf("%d records of %d: %x, want %x", n, count, again, b[:size])
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	for _, v := range loadVectors(f) {
		if v.header.Flags == 0 {
			f.Add(v.body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var m Message
		var err error
		checkAllocated(t, "ParseMessage", len(body), func() { m, err = ParseMessage(body) })
		if err != nil {
			var e *MessageError
			if !errors.As(err, &e) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		// The standard reader is more lenient in every way: what passes here passes there. Numbers stay text: they may be beyond float64.
		var plain map[string]json.RawMessage
		var name string
		err = json.Unmarshal(body, &plain)
		if err == nil {
			err = json.Unmarshal(plain["type"], &name)
		}
		if err != nil || name != m.MessageType() {
			t.Fatalf("%q is no JSON object of type %q: %v", body, m.MessageType(), err)
		}
		frame := AppendMessage(nil, m)
		again, err := ParseMessage(frame[HeaderBytes:])
		if err != nil {
			t.Fatalf("%q was written as %q: %v", body, frame[HeaderBytes:], err)
		}
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("%q\nread  %+v\nagain %+v", body, m, again)
		}
		checkBytes(t, AppendMessage(nil, again), frame)
	})
}
