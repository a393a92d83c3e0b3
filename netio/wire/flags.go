package wire

import (
	"fmt"
	"strings"
)

// Flags select the layout of a frame's payload; 0 is one JSON message. In the handshake the same bits say which layouts a peer can read.
type Flags uint16

// The flags of WIRE.md section 3. A bit is set only towards a peer that offered it.
const (
	FlagPublishBatch      Flags = 0x0001 // publish body
	FlagEventBatch        Flags = 0x0002 // event body that starts with the subscription id; read, never written
	FlagEventBatchShared  Flags = 0x0004 // event body
	FlagPublishAcked      Flags = 0x0008 // with PublishBatch: request id and ack mode, an answer is owed
	FlagPublishAck        Flags = 0x0010 // ack body, broker to client
	FlagEventOffsets      Flags = 0x0020 // with an event body: base offset
	FlagPublishKeyed      Flags = 0x0040 // with PublishBatch: routing key
	FlagAckOwner          Flags = 0x0080 // with PublishAck: the owner of the shard
	FlagPublishIdempotent Flags = 0x0100 // with PublishBatch and PublishAcked: producer id and sequence
	FlagAckCode           Flags = 0x0200 // with a failed PublishAck: error code and retry class
	FlagAckDetail         Flags = 0x0400 // with AckCode: reason and wait
	FlagEventSkipped      Flags = 0x0800 // with EventOffsets: offsets below the base that hold no event
	FlagAckOffset         Flags = 0x1000 // with a successful PublishAck: offset of the first record
	FlagEventPublisher    Flags = 0x2000 // with an event body: who published the batch
	FlagEventTimestamps   Flags = 0x4000 // with an event body: append time before every event
)

const (
	// KnownFlags are all bits this package reads.
	KnownFlags Flags = 0x7FFF
	// OriginalV1Flags are what a peer that advertises nothing understands. Frozen.
	OriginalV1Flags Flags = 0x0007
	// DefaultClientFlags are what published clients offer unless asked for more.
	DefaultClientFlags Flags = 0x1FFF

	// PublishFlags, AckFlags and EventFlags are the bits that may stand in a frame of that kind.
	PublishFlags = FlagPublishBatch | FlagPublishAcked | FlagPublishKeyed | FlagPublishIdempotent
	AckFlags     = FlagPublishAck | FlagAckOwner | FlagAckCode | FlagAckDetail | FlagAckOffset
	EventFlags   = FlagEventBatch | FlagEventBatchShared | FlagEventOffsets | FlagEventSkipped | FlagEventPublisher | FlagEventTimestamps
)

// FrameKind is what the flags of a header say about its payload.
type FrameKind uint8

const (
	FrameInvalid FrameKind = iota // unknown bits, or bits that do not go together
	FrameMessage                  // one JSON message: ParseMessage
	FramePublish                  // Publish.Parse
	FrameAck                      // Ack.Parse
	FrameEvents                   // Events.Parse
)

// String names the kind for logs.
func (k FrameKind) String() string {
	switch k {
	case FrameMessage:
		return "message"
	case FramePublish:
		return "publish"
	case FrameAck:
		return "ack"
	case FrameEvents:
		return "events"
	}
	return "invalid"
}

// Has reports whether all bits of want are set.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Unknown returns the bits that are not in KnownFlags. A frame with any is refused.
func (f Flags) Unknown() Flags { return f &^ KnownFlags }

// Kind returns the kind of frame with these flags. It is FrameInvalid when a bit is unknown, no or several bodies are selected, or a
// bit stands without the bit that it needs; Err says which.
func (f Flags) Kind() FrameKind {
	switch {
	case f == 0:
		return FrameMessage
	case f.Has(FlagPublishBatch):
		if f&^PublishFlags == 0 && (!f.Has(FlagPublishIdempotent) || f.Has(FlagPublishAcked)) {
			return FramePublish
		}
	case f.Has(FlagPublishAck):
		// A code belongs to a failure and an offset to a success, so they never stand together.
		if f&^AckFlags == 0 && (!f.Has(FlagAckDetail) || f.Has(FlagAckCode)) && !f.Has(FlagAckCode|FlagAckOffset) {
			return FrameAck
		}
	case f&(FlagEventBatch|FlagEventBatchShared) != 0:
		if f&^EventFlags == 0 && !f.Has(FlagEventBatch|FlagEventBatchShared) && (!f.Has(FlagEventSkipped) || f.Has(FlagEventOffsets)) {
			return FrameEvents
		}
	}
	return FrameInvalid
}

// Err explains why Kind is FrameInvalid, or returns nil. The error wraps ErrMalformed.
func (f Flags) Err() error {
	if f.Kind() != FrameInvalid {
		return nil
	}
	if u := f.Unknown(); u != 0 {
		return fmt.Errorf("%w: unknown flags %#04x in %#04x", ErrMalformed, uint16(u), uint16(f))
	}
	return fmt.Errorf("%w: flags %#04x (%s) do not go together", ErrMalformed, uint16(f), f)
}

var flagNames = [16]string{
	"PUBLISH_BATCH", "EVENT_BATCH", "EVENT_BATCH_SHARED", "PUBLISH_ACKED", "PUBLISH_ACK", "EVENT_OFFSETS", "PUBLISH_KEYED", "ACK_OWNER",
	"PUBLISH_IDEMPOTENT", "ACK_CODE", "ACK_DETAIL", "EVENT_SKIPPED", "ACK_OFFSET", "EVENT_PUBLISHER", "EVENT_TIMESTAMPS", "0x8000",
}

// String lists the names of the bits, joined by "|"; "0" when there is none.
func (f Flags) String() string {
	if f == 0 {
		return "0"
	}
	var b strings.Builder
	for i, name := range flagNames {
		if f&(1<<i) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(name)
	}
	return b.String()
}
