package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"unicode/utf8"
)

// Events is the body of an event frame: records of one shard, in order, for every subscriber with the same negotiated layout. All slices
// are views.
type Events struct {
	// Flags are those of the frame and say which of the fields below count.
	Flags          Flags
	SubscriptionID uint64 // with FlagEventBatch, which is read and never written
	Base           Offset // with FlagEventOffsets: event i is at Base + i
	Skipped        uint64 // with FlagEventSkipped: so many offsets below Base hold no event
	Publisher      []byte // with FlagEventPublisher: who published all of them, UTF-8

	// Count events stand in Records, each as `u32 len, payload`, with FlagEventTimestamps as `u64 microseconds, u32 len, payload`.
	// Invariant after Parse: Records holds exactly Count whole events and has no spare capacity.
	Count   uint32
	Records []byte
}

// EventRecord is one record of an event frame.
type EventRecord struct {
	Offset          Offset // number in the frame when the frame carries no offsets
	TimestampMicros uint64 // append time in microseconds since 1970; 0 without FlagEventTimestamps
	Payload         []byte // view of Records
}

const (
	// EventsHeadBytes is the size of header, base offset and count in front of the records of a frame with EventsHeadFlags.
	EventsHeadBytes = HeaderBytes + 8 + 4
	// EventsHeadPlainBytes is the size of header and count in front of the records of a frame with EventsHeadPlainFlags.
	EventsHeadPlainBytes = HeaderBytes + 4
	// EventsHeadFlags is the standard layout: shared, with offsets.
	EventsHeadFlags = FlagEventBatchShared | FlagEventOffsets
	// EventsHeadPlainFlags is the layout for peers without offsets.
	EventsHeadPlainFlags = FlagEventBatchShared
	// MaxPublisherBytes bounds the publisher of an event frame.
	MaxPublisherBytes = math.MaxUint8

	timestampBytes = 8
)

// PutEventsHead fills the first EventsHeadBytes bytes of b, which the caller reserved in front of recordBytes bytes of stored records, so
// that head and records together are one event frame. It panics if b is shorter.
func PutEventsHead(b []byte, base Offset, count uint32, recordBytes int) {
	_ = b[EventsHeadBytes-1]
	PutHeader(b, Header{Flags: EventsHeadFlags, Length: frameLength(EventsHeadBytes + recordBytes)})
	binary.BigEndian.PutUint64(b[HeaderBytes:], uint64(base))
	binary.BigEndian.PutUint32(b[HeaderBytes+8:], count)
}

// PutEventsHeadPlain does the same for EventsHeadPlainBytes bytes and peers without offsets.
func PutEventsHeadPlain(b []byte, count uint32, recordBytes int) {
	_ = b[EventsHeadPlainBytes-1]
	PutHeader(b, Header{Flags: EventsHeadPlainFlags, Length: frameLength(EventsHeadPlainBytes + recordBytes)})
	binary.BigEndian.PutUint32(b[HeaderBytes:], count)
}

// FrameBytes returns the size of the frame that AppendEvents writes, header included.
func (e *Events) FrameBytes() int {
	flags := e.writtenFlags()
	n := HeaderBytes + 4 + len(e.Records)
	if flags&FlagEventOffsets != 0 {
		n += 8
	}
	if flags&FlagEventSkipped != 0 {
		n += 8
	}
	if flags&FlagEventPublisher != 0 {
		n += 1 + len(e.Publisher)
	}
	return n
}

// writtenFlags leaves out FlagEventSkipped when nothing was skipped: it is written only when there is something to say.
func (e *Events) writtenFlags() Flags {
	if e.Skipped == 0 {
		return e.Flags &^ FlagEventSkipped
	}
	return e.Flags
}

// AppendEvents appends the frame for e, header included, to dst; it allocates only when dst has less than e.FrameBytes() to spare. Flags
// are the negotiated layout and must hold FlagEventBatchShared; FlagEventSkipped is left out when Skipped is 0. Count must be the number
// of events in Records. Flags that cannot be written and a publisher above MaxPublisherBytes panic.
func AppendEvents(dst []byte, e *Events) []byte {
	flags := e.writtenFlags()
	if flags.Kind() != FrameEvents || flags.Has(FlagEventBatch) {
		panic(fmt.Sprintf("BUG: wire: AppendEvents with flags %#04x (%s)", uint16(flags), flags))
	}
	dst = AppendHeader(dst, Header{Flags: flags, Length: frameLength(e.FrameBytes())})
	if flags&FlagEventOffsets != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Base))
	}
	if flags&FlagEventSkipped != 0 {
		dst = binary.BigEndian.AppendUint64(dst, e.Skipped)
	}
	if flags&FlagEventPublisher != 0 {
		if len(e.Publisher) > MaxPublisherBytes {
			panic(fmt.Sprintf("BUG: wire: publisher of %d bytes, at most %d fit", len(e.Publisher), MaxPublisherBytes))
		}
		dst = append(dst, byte(len(e.Publisher)))
		dst = append(dst, e.Publisher...)
	}
	dst = binary.BigEndian.AppendUint32(dst, e.Count)
	return append(dst, e.Records...)
}

// AppendTimedRecord appends one record of a frame with FlagEventTimestamps to dst.
func AppendTimedRecord(dst []byte, micros uint64, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, micros)
	return AppendRecord(dst, payload)
}

// Parse reads the body of a frame with these flags and checks all of it in one pass, without allocating. Bytes after the last event are
// ignored and not part of Records. On an error, which wraps ErrMalformed, e is only good to be parsed into again.
func (e *Events) Parse(flags Flags, body []byte) error {
	*e = Events{Flags: flags}
	if flags.Kind() != FrameEvents {
		return kindError(flags, FrameEvents)
	}
	r := reader{b: body}
	if flags&FlagEventBatch != 0 {
		e.SubscriptionID = r.uint64("subscription_id")
	}
	if flags&FlagEventOffsets != 0 {
		e.Base = Offset(r.uint64("base_offset"))
	}
	if flags&FlagEventSkipped != 0 {
		e.Skipped = r.uint64("skipped_before")
	}
	if flags&FlagEventPublisher != 0 {
		e.Publisher = r.bytes8("publisher")
	}
	e.Count = r.uint32("count")
	if r.bad != "" {
		return r.err()
	}
	if !utf8.Valid(e.Publisher) {
		return fmt.Errorf("%w: publisher %q is not UTF-8", ErrMalformed, cut(e.Publisher))
	}
	if uint64(e.Base) > math.MaxUint64-uint64(e.Count) {
		return fmt.Errorf("%w: %d events from offset %d go beyond the last offset", ErrMalformed, e.Count, e.Base)
	}
	n, err := checkRecords(r.b, e.Count, e.extraBytes())
	if err != nil {
		return err
	}
	e.Records = r.b[:n:n]
	return nil
}

func (e *Events) extraBytes() uint64 {
	if e.Flags&FlagEventTimestamps != 0 {
		return timestampBytes
	}
	return 0
}

// All ranges over the events of a parsed frame, with and without times. Payloads are views.
func (e *Events) All() iter.Seq[EventRecord] {
	return func(yield func(EventRecord) bool) {
		records, timed := e.Records, e.Flags&FlagEventTimestamps != 0
		for offset := e.Base; len(records) > 0; offset++ {
			event := EventRecord{Offset: offset}
			if timed && len(records) >= timestampBytes {
				event.TimestampMicros = binary.BigEndian.Uint64(records)
				records = records[timestampBytes:]
			}
			event.Payload, records = NextRecord(records)
			if event.Payload == nil || !yield(event) {
				return
			}
		}
	}
}
