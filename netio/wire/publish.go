package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// AckMode is when a publish is answered. Both acknowledged modes mean one answer for the frame.
type AckMode uint8

const (
	AckNone       AckMode = 0 // never answered; left out in JSON, no FlagPublishAcked in binary
	AckPerMessage AckMode = 1
	AckPerBatch   AckMode = 2
)

// String returns the name in JSON.
func (m AckMode) String() string {
	switch m {
	case AckPerMessage:
		return "per_message"
	case AckPerBatch:
		return "per_batch"
	}
	return "none"
}

// ParseAckMode reads a name in JSON.
func ParseAckMode(name string) (AckMode, bool) {
	switch name {
	case "none":
		return AckNone, true
	case "per_message":
		return AckPerMessage, true
	case "per_batch":
		return AckPerBatch, true
	}
	return 0, false
}

const (
	// MaxNameBytes bounds a tenant, namespace or stream name in a binary publish.
	MaxNameBytes = 1<<16 - 1
	// MaxKeyBytes bounds a routing key in a binary publish.
	MaxKeyBytes = 1<<16 - 1
)

// Publish is the body of a publish frame: one batch for one shard. All slices are views: after Parse of the body, before AppendPublish of
// what the caller put there.
type Publish struct {
	// Flags are those of the frame and say which of the fields below count. FlagPublishBatch is set by AppendPublish in any case.
	Flags      Flags
	RequestID  uint64  // with FlagPublishAcked
	AckMode    AckMode // with FlagPublishAcked: AckPerMessage or AckPerBatch
	ProducerID uint64  // with FlagPublishIdempotent
	Sequence   uint64  // with FlagPublishIdempotent
	Key        []byte  // with FlagPublishKeyed; may be empty. One key for the batch

	Tenant, Namespace, Stream []byte // UTF-8

	// Count records stand in Records, as `(u32 len, payload)*`. Invariant after Parse: Records holds exactly Count whole records and
	// has no spare capacity.
	Count   uint32
	Records []byte
}

// Acked reports whether an answer is owed.
func (p *Publish) Acked() bool { return p.Flags.Has(FlagPublishAcked) }

// Idempotent reports whether ProducerID and Sequence count.
func (p *Publish) Idempotent() bool { return p.Flags.Has(FlagPublishIdempotent) }

// HasKey reports whether Key counts.
func (p *Publish) HasKey() bool { return p.Flags.Has(FlagPublishKeyed) }

// PublishRequestID returns the request id of an acked publish body (flags with FlagPublishAcked) that may be malformed otherwise, so that
// it can be refused by its id. It is false when the body is shorter than the id.
func PublishRequestID(body []byte) (uint64, bool) {
	if len(body) < 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(body), true
}

// Parse reads the body of a frame with these flags and checks all of it, every record length included, in one pass and without
// allocating. Bytes after the last record are ignored and not part of Records. On an error, which wraps ErrMalformed, p is only good to be
// parsed into again.
func (p *Publish) Parse(flags Flags, body []byte) error {
	*p = Publish{Flags: flags}
	if flags.Kind() != FramePublish {
		return kindError(flags, FramePublish)
	}
	r := reader{b: body}
	r.publishHead(p)
	if flags&FlagPublishAcked != 0 && r.bad == "" && p.AckMode != AckPerMessage && p.AckMode != AckPerBatch {
		return fmt.Errorf("%w: ack_mode %d, want 1 (per_message) or 2 (per_batch)", ErrMalformed, p.AckMode)
	}
	if r.bad != "" {
		return r.err()
	}
	if !utf8.Valid(p.Tenant) || !utf8.Valid(p.Namespace) || !utf8.Valid(p.Stream) {
		return fmt.Errorf("%w: scope %q/%q/%q is not UTF-8", ErrMalformed, cut(p.Tenant), cut(p.Namespace), cut(p.Stream))
	}
	n, err := checkRecords(r.b, p.Count, 0)
	if err != nil {
		return err
	}
	p.Records = r.b[:n:n]
	return nil
}

// PublishScope reads the names and the count at the front of the body of a publish frame, of which the rest need not be there. ok is false
// when even these are not. Names and Key are slices of body; Records is left empty.
func PublishScope(flags Flags, body []byte) (p Publish, ok bool) {
	p = Publish{Flags: flags}
	r := reader{b: body}
	r.publishHead(&p)
	return p, r.bad == "" && flags.Kind() == FramePublish
}

// publishHead reads what comes before the records.
func (r *reader) publishHead(p *Publish) {
	if p.Flags&FlagPublishAcked != 0 {
		p.RequestID = r.uint64("request_id")
		p.AckMode = AckMode(r.uint8("ack_mode"))
	}
	if p.Flags&FlagPublishIdempotent != 0 {
		p.ProducerID = r.uint64("producer_id")
		p.Sequence = r.uint64("sequence")
	}
	if p.Flags&FlagPublishKeyed != 0 {
		p.Key = r.bytes16("key")
	}
	p.Tenant = r.bytes16("tenant_id")
	p.Namespace = r.bytes16("namespace")
	p.Stream = r.bytes16("stream")
	p.Count = r.uint32("count")
}

// FrameBytes returns the size of the frame that AppendPublish writes, header included.
func (p *Publish) FrameBytes() int {
	n := HeaderBytes + 3*2 + len(p.Tenant) + len(p.Namespace) + len(p.Stream) + 4 + len(p.Records)
	if p.Flags&FlagPublishAcked != 0 {
		n += 8 + 1
	}
	if p.Flags&FlagPublishIdempotent != 0 {
		n += 8 + 8
	}
	if p.Flags&FlagPublishKeyed != 0 {
		n += 2 + len(p.Key)
	}
	return n
}

// AppendPublish appends the frame for p, header included, to dst; it allocates only when dst has less than p.FrameBytes() to spare. The
// caller keeps names and key within MaxNameBytes and MaxKeyBytes, the frame within the peer's limit, and Count equal to the records in
// Records; names, key or flags that cannot be written panic.
func AppendPublish(dst []byte, p *Publish) []byte {
	flags := p.Flags | FlagPublishBatch
	if flags.Kind() != FramePublish {
		panic(fmt.Sprintf("BUG: wire: AppendPublish with flags %#04x (%s)", uint16(flags), flags))
	}
	dst = AppendHeader(dst, Header{Flags: flags, Length: frameLength(p.FrameBytes())})
	if flags&FlagPublishAcked != 0 {
		dst = binary.BigEndian.AppendUint64(dst, p.RequestID)
		dst = append(dst, byte(p.AckMode))
	}
	if flags&FlagPublishIdempotent != 0 {
		dst = binary.BigEndian.AppendUint64(dst, p.ProducerID)
		dst = binary.BigEndian.AppendUint64(dst, p.Sequence)
	}
	if flags&FlagPublishKeyed != 0 {
		dst = appendBytes16(dst, "key", p.Key)
	}
	dst = appendBytes16(dst, "tenant", p.Tenant)
	dst = appendBytes16(dst, "namespace", p.Namespace)
	dst = appendBytes16(dst, "stream", p.Stream)
	dst = binary.BigEndian.AppendUint32(dst, p.Count)
	return append(dst, p.Records...)
}
