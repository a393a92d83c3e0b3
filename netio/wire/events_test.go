package wire

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// sampleEvents has every part that is written.
func sampleEvents() *Events {
	e := &Events{Flags: EventFlags &^ FlagEventBatch, Base: 100, Skipped: 2, Publisher: []byte("user:ann"), Count: 2}
	e.Records = AppendTimedRecord(e.Records, 1700000000000001, []byte("hello"))
	e.Records = AppendTimedRecord(e.Records, 1700000000000002, nil)
	return e
}

func TestEventsCut(t *testing.T) {
	plain := &Events{Flags: EventsHeadPlainFlags, Count: 2, Records: recordsOf("hello", "x")}
	for _, e := range []*Events{sampleEvents(), plain} {
		body := AppendEvents(nil, e)[HeaderBytes:]
		for n := range len(body) {
			if err := new(Events).Parse(e.Flags, body[:n:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("flags %v, %d bytes of %d: %v", e.Flags, n, len(body), err)
			}
		}
		var got Events
		if err := got.Parse(e.Flags, append(body, "trailing"...)); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, got, *e)
	}
}

func TestEventsErrors(t *testing.T) {
	e := sampleEvents()
	body := AppendEvents(nil, e)[HeaderBytes:]
	for _, flags := range []Flags{0, FlagPublishBatch, 0x0006, 0x0804, 0x8024, e.Flags | FlagPublishAck} {
		if err := new(Events).Parse(flags, body); !errors.Is(err, ErrMalformed) {
			t.Errorf("flags %#04x: %v", uint16(flags), err)
		}
	}
	last := &Events{Flags: EventsHeadFlags, Base: math.MaxUint64 - 1, Count: 1, Records: recordsOf("x")}
	if err := new(Events).Parse(last.Flags, AppendEvents(nil, last)[HeaderBytes:]); err != nil {
		t.Errorf("the last event: %v", err)
	}
	last.Count, last.Records = 2, recordsOf("x", "y")
	if err := new(Events).Parse(last.Flags, AppendEvents(nil, last)[HeaderBytes:]); !errors.Is(err, ErrMalformed) {
		t.Errorf("an event beyond the last offset: %v", err)
	}
	e.Publisher = []byte("\xff")
	if err := new(Events).Parse(e.Flags, AppendEvents(nil, e)[HeaderBytes:]); !errors.Is(err, ErrMalformed) {
		t.Errorf("publisher that is not UTF-8: %v", err)
	}
	// A count that would fit 4-byte heads but not the 12-byte heads of timed events.
	timed := &Events{Flags: FlagEventBatchShared | FlagEventTimestamps, Count: 2, Records: make([]byte, 16)}
	if err := new(Events).Parse(timed.Flags, AppendEvents(nil, timed)[HeaderBytes:]); !errors.Is(err, ErrMalformed) {
		t.Errorf("timed events: %v", err)
	}
}

func TestAppendEventsSkippedZero(t *testing.T) {
	e := &Events{Flags: EventsHeadFlags | FlagEventSkipped, Base: 1, Count: 1, Records: recordsOf("x")}
	frame := AppendEvents(nil, e)
	h, err := ParseHeader(frame)
	if err != nil || h.Flags != EventsHeadFlags || len(frame) != e.FrameBytes() {
		t.Errorf("header %+v, %v, %d bytes, FrameBytes %d", h, err, len(frame), e.FrameBytes())
	}
}

func TestAppendEventsPanics(t *testing.T) {
	for name, change := range map[string]func(*Events){
		"subscription id layout":  func(e *Events) { e.Flags = FlagEventBatch },
		"no layout":               func(e *Events) { e.Flags = FlagEventOffsets },
		"skipped without offsets": func(e *Events) { e.Flags &^= FlagEventOffsets },
		"publisher too long":      func(e *Events) { e.Publisher = []byte(strings.Repeat("p", MaxPublisherBytes+1)) },
	} {
		e := sampleEvents()
		change(e)
		checkPanics(t, name, func() { AppendEvents(nil, e) })
	}
}

func TestEventsAllStops(t *testing.T) {
	for e := range sampleEvents().All() {
		if e.Offset != 100 || string(e.Payload) != "hello" || e.TimestampMicros != 1700000000000001 {
			t.Errorf("first event %+v", e)
		}
		break
	}
	broken := &Events{Flags: EventsHeadFlags | FlagEventTimestamps, Count: 1, Records: make([]byte, 9)}
	for e := range broken.All() {
		t.Errorf("records that were not checked gave %+v", e)
	}
}
