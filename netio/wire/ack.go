package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Owner names the broker that owns a shard, as a binary ack carries it after a batch was forwarded.
type Owner struct {
	NodeID     string
	Addr       string // host:port for clients; empty when unknown
	Generation uint64 // an answer with an older generation than one already held is ignored
}

// Ack is the binary answer to an acked publish.
type Ack struct {
	RequestID uint64
	Failed    bool
	Message   string // what went wrong, for people; empty on success

	// Code, Retry, Reason and RetryAfterMillis count on a failure with HasCode, the last two with HasDetail besides. They are sent only to
	// a client that offered them. An unknown code is kept, an unknown class reads as RetryFatal.
	Code             Code
	Retry            Retry
	HasCode          bool
	Reason           string
	RetryAfterMillis uint64 // least wait before another try, in milliseconds; 0 is none
	HasDetail        bool

	Owner *Owner // nil unless the batch was forwarded

	// Offset is that of the batch's first record: record i is at Offset + i. It counts on success with HasOffset, which is set only when
	// the answer was given after the write.
	Offset    Offset
	HasOffset bool
}

// The shortest ack has a status, a request id and an empty message.
const (
	ackPlainBytes  = 1 + 8 + 2
	ackStatusOK    = 0
	ackStatusError = 1

	// MaxAckOKBytes is the size of the longest frame that AppendAckOK writes, header included.
	MaxAckOKBytes = HeaderBytes + ackPlainBytes + 8
)

// Flags returns the flags of the frame that AppendAck writes.
func (a *Ack) Flags() Flags {
	flags := FlagPublishAck
	if a.Failed && a.HasCode {
		flags |= FlagAckCode
		if a.HasDetail {
			flags |= FlagAckDetail
		}
	}
	if a.Owner != nil {
		flags |= FlagAckOwner
	}
	if !a.Failed && a.HasOffset {
		flags |= FlagAckOffset
	}
	return flags
}

// AppendAck appends the frame for a, header included, to dst. Message, reason and node id are cut at 65,535 bytes. HasOffset has no effect
// on a failure, HasCode none on success. It allocates only when dst has too little to spare.
func AppendAck(dst []byte, a *Ack) []byte {
	start := len(dst)
	flags := a.Flags()
	dst = AppendHeader(dst, Header{Flags: flags})
	status := byte(ackStatusOK)
	if a.Failed {
		status = ackStatusError
	}
	dst = append(dst, status)
	dst = binary.BigEndian.AppendUint64(dst, a.RequestID)
	dst = appendString16(dst, a.Message)
	if flags&FlagAckCode != 0 {
		dst = binary.BigEndian.AppendUint16(dst, uint16(a.Code))
		dst = append(dst, byte(a.Retry.orFatal()))
	}
	if flags&FlagAckDetail != 0 {
		dst = appendString16(dst, a.Reason)
		dst = binary.BigEndian.AppendUint64(dst, a.RetryAfterMillis)
	}
	if flags&FlagAckOwner != 0 {
		dst = appendString16(dst, a.Owner.NodeID)
		dst = appendString16(dst, a.Owner.Addr)
		dst = binary.BigEndian.AppendUint64(dst, a.Owner.Generation)
	}
	if flags&FlagAckOffset != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.Offset))
	}
	PutHeader(dst[start:], Header{Flags: flags, Length: frameLength(len(dst) - start)})
	return dst
}

// AppendAckOK appends the frame of a success without owner, at most MaxAckOKBytes, to dst: the same bytes as AppendAck.
func AppendAckOK(dst []byte, requestID uint64, offset Offset, hasOffset bool) []byte {
	h := Header{Flags: FlagPublishAck, Length: ackPlainBytes}
	if hasOffset {
		h = Header{Flags: FlagPublishAck | FlagAckOffset, Length: ackPlainBytes + 8}
	}
	dst = AppendHeader(dst, h)
	dst = append(dst, ackStatusOK)
	dst = binary.BigEndian.AppendUint64(dst, requestID)
	dst = append(dst, 0, 0)
	if hasOffset {
		dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	}
	return dst
}

// Parse reads the body of a frame with these flags. It does not allocate for a success without owner; strings are copies. Bytes after the
// last part are ignored. On an error, which wraps ErrMalformed, a is only good to be parsed into again.
func (a *Ack) Parse(flags Flags, body []byte) error {
	*a = Ack{}
	if flags.Kind() != FrameAck {
		return kindError(flags, FrameAck)
	}
	r := reader{b: body}
	status := r.uint8("status")
	a.RequestID = r.uint64("request_id")
	message := r.bytes16("message")
	if r.bad != "" {
		return r.err()
	}
	switch {
	case status > ackStatusError:
		return fmt.Errorf("%w: ack status %d, want 0 (ok) or 1 (error)", ErrMalformed, status)
	case status == ackStatusOK && flags&FlagAckCode != 0:
		return fmt.Errorf("%w: a successful ack with an error code (flags %#04x)", ErrMalformed, uint16(flags))
	case status == ackStatusError && flags&FlagAckOffset != 0:
		return fmt.Errorf("%w: a failed ack with an offset (flags %#04x)", ErrMalformed, uint16(flags))
	}
	a.Failed = status == ackStatusError
	var reason, nodeID, addr []byte
	if flags&FlagAckCode != 0 {
		a.HasCode = true
		a.Code = Code(r.uint16("code"))
		a.Retry = Retry(r.uint8("retry")).orFatal()
	}
	if flags&FlagAckDetail != 0 {
		a.HasDetail = true
		reason = r.bytes16("reason")
		a.RetryAfterMillis = r.uint64("retry_after_ms")
	}
	var generation uint64
	if flags&FlagAckOwner != 0 {
		nodeID = r.bytes16("node_id")
		addr = r.bytes16("addr")
		generation = r.uint64("generation")
	}
	if flags&FlagAckOffset != 0 {
		a.HasOffset = true
		a.Offset = Offset(r.uint64("offset"))
	}
	if r.bad != "" {
		return r.err()
	}
	if !utf8.Valid(message) || !utf8.Valid(reason) || !utf8.Valid(nodeID) || !utf8.Valid(addr) {
		return fmt.Errorf("%w: a text of the ack is not UTF-8", ErrMalformed)
	}
	a.Message, a.Reason = string(message), string(reason)
	if flags&FlagAckOwner != 0 {
		a.Owner = &Owner{NodeID: string(nodeID), Addr: string(addr), Generation: generation}
	}
	return nil
}
