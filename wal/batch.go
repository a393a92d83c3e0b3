package wal

import (
	"errors"
	"fmt"

	"felix/netio/wire"
)

// Kind says what a batch is. Kinds below 64 take offsets in their shard; the others take none.
type Kind uint8

const (
	// KindRecords holds published records: count x (u32 length big-endian, payload), as they came off the wire.
	KindRecords Kind = 1
	// KindCache holds cache changes in the same framing; expiry and key ride in extensions or in the payload.
	KindCache Kind = 2
	// KindCommit holds one event with its state changes as one record.
	KindCommit Kind = 3
	// KindCursor holds consumer group cursor changes in the same framing.
	KindCursor Kind = 4
	// KindTermStart is the record a new leader opens its term with. It takes an offset and is never delivered.
	KindTermStart Kind = 5
	// KindEntry is a consensus entry without published records, such as a configuration change. Its content is one
	// record, which takes an offset and is never delivered.
	KindEntry Kind = 6

	// KindRegister is a named value of a shard, latest wins: hard state, producer tables, fold checkpoints.
	// Batch.Slot names it.
	KindRegister Kind = 64

	kindStart      Kind = 128 // base is the shard's first kept offset
	kindTruncate   Kind = 129 // base is the shard's new end
	kindDelete     Kind = 130 // the shard is gone
	kindRelease    Kind = 131 // base is the epoch of a segment that holds nothing live any more
	kindCheckpoint Kind = 132 // the lane's whole shard table
	kindFooter     Kind = 133 // the runs of offsets a sealed segment holds
	kindIndex      Kind = 134 // the sparse index of these runs
)

// takesOffsets says whether batches of kind k advance their shard's end.
func (k Kind) takesOffsets() bool { return k > 0 && k < 64 }

// Flags of a batch.
type Flags uint8

const (
	flagConsensus Flags = 1 << iota // term and index are present
	flagProducer                    // producer id and sequence are present
	// FlagTombstone marks a batch whose records delete what they name.
	FlagTombstone
	flagMoved // written again at the tail by retention; the original may still be there
)

const (
	batchFixed     = 32
	consensusSize  = 16
	producerSize   = 16
	maxBatchHeader = batchFixed + consensusSize + producerSize + 1<<16
)

// Term is a consensus term. It is 0 without consensus.
type Term uint64

// A Batch is one publish as the log keeps it. On append the caller owns the slices and they are copied; on read they
// point into the Reader's buffer and live until its next call.
type Batch struct {
	Kind  Kind
	Flags Flags
	Slot  uint8 // of a KindRegister: which value, 0 is hard state
	Shard uint64
	// Base is the offset of the first record. On append it must be the shard's end. For a register it is the
	// offset up to which the value folds.
	Base  wire.Offset
	Count uint32 // records in Records; 0 for kinds without offsets
	// Time is the append time in microseconds since 1970. Append raises it to the shard's last one, so that
	// time never runs backwards within a shard.
	Time     int64
	Term     Term
	Index    uint64 // consensus index, 0 without consensus
	Producer uint64 // idempotent producer, 0 is none
	Sequence uint64
	// Extensions is a sequence of (u8 type, u16 length little-endian, value), as AppendExtension writes it; at most
	// 65,535 bytes. Unknown types are kept.
	Extensions []byte
	// Records is count x (u32 length big-endian, payload), or the value of a register.
	Records []byte
}

// End is the offset after the batch.
func (b *Batch) End() wire.Offset { return b.Base + wire.Offset(b.Count) }

// Extension types. 1-127 are felix's, others are free.
const (
	ExtPublisher uint8 = 1 // identity of the publisher, UTF-8
	ExtTrace     uint8 = 2 // trace context as the publisher sent it
	ExtExpiry    uint8 = 3 // i64 little-endian, milliseconds since 1970
)

// AppendExtension appends one extension to dst. It panics when value is longer than 65,535 bytes, which the caller
// bounds before.
func AppendExtension(dst []byte, typ uint8, value []byte) []byte {
	if len(value) > 1<<16-1 {
		panic(fmt.Sprintf("BUG: wal: extension %d of %d bytes", typ, len(value)))
	}
	dst = append(dst, typ)
	dst = le.AppendUint16(dst, uint16(len(value)))
	return append(dst, value...)
}

// Extension returns the first extension of the type, nil and false when there is none. The value points into b.
func (b *Batch) Extension(typ uint8) ([]byte, bool) {
	for e := b.Extensions; len(e) >= 3; {
		n := int(le.Uint16(e[1:]))
		if len(e) < 3+n {
			return nil, false
		}
		if e[0] == typ {
			return e[3 : 3+n], true
		}
		e = e[3+n:]
	}
	return nil, false
}

func validExtensions(e []byte) bool {
	for len(e) > 0 {
		if len(e) < 3 || len(e) < 3+int(le.Uint16(e[1:])) {
			return false
		}
		e = e[3+int(le.Uint16(e[1:])):]
	}
	return true
}

// encodedSize is the length of b in a group's body.
func (b *Batch) encodedSize() int {
	n := batchFixed + len(b.Extensions) + len(b.Records)
	if b.Term != 0 || b.Index != 0 {
		n += consensusSize
	}
	if b.Producer != 0 || b.Sequence != 0 {
		n += producerSize
	}
	return n
}

// diskFlags are b's flags with the presence bits that its fields ask for.
func (b *Batch) diskFlags() Flags {
	f := b.Flags &^ (flagConsensus | flagProducer)
	if b.Term != 0 || b.Index != 0 {
		f |= flagConsensus
	}
	if b.Producer != 0 || b.Sequence != 0 {
		f |= flagProducer
	}
	return f
}

// appendBatch appends the encoded batch to dst. parseBatch reads it back without copying.
func appendBatch(dst []byte, b *Batch) []byte {
	f := b.diskFlags()
	dst = append(dst, byte(b.Kind), byte(f))
	dst = le.AppendUint16(dst, uint16(len(b.Extensions)))
	if b.Kind == KindRegister {
		dst = le.AppendUint32(dst, uint32(b.Slot)<<24)
	} else {
		dst = le.AppendUint32(dst, b.Count)
	}
	dst = le.AppendUint64(dst, b.Shard)
	dst = le.AppendUint64(dst, uint64(b.Base))
	dst = le.AppendUint64(dst, uint64(b.Time))
	if f&flagConsensus != 0 {
		dst = le.AppendUint64(dst, uint64(b.Term))
		dst = le.AppendUint64(dst, b.Index)
	}
	if f&flagProducer != 0 {
		dst = le.AppendUint64(dst, b.Producer)
		dst = le.AppendUint64(dst, b.Sequence)
	}
	dst = append(dst, b.Extensions...)
	return append(dst, b.Records...)
}

var errBadBatch = errors.New("wal: batch does not parse")

// parseBatch decodes the batch that fills p. Slices of b point into p.
func parseBatch(p []byte, b *Batch) error {
	if len(p) < batchFixed {
		return errBadBatch
	}
	*b = Batch{Kind: Kind(p[0]), Flags: Flags(p[1]), Count: le.Uint32(p[4:]), Shard: le.Uint64(p[8:]),
		Base: wire.Offset(le.Uint64(p[16:])), Time: int64(le.Uint64(p[24:]))}
	ext := int(le.Uint16(p[2:]))
	if b.Kind == KindRegister {
		b.Slot, b.Count = uint8(b.Count>>24), b.Count&(1<<24-1)
	}
	if b.Kind == 0 || b.Kind.takesOffsets() != (b.Count > 0) || b.End() < b.Base {
		return errBadBatch
	}
	p = p[batchFixed:]
	if b.Flags&flagConsensus != 0 {
		if len(p) < consensusSize {
			return errBadBatch
		}
		b.Term, b.Index = Term(le.Uint64(p)), le.Uint64(p[8:])
		p = p[consensusSize:]
		if b.Term == 0 && b.Index == 0 {
			return errBadBatch
		}
	}
	if b.Flags&flagProducer != 0 {
		if len(p) < producerSize {
			return errBadBatch
		}
		b.Producer, b.Sequence = le.Uint64(p), le.Uint64(p[8:])
		p = p[producerSize:]
		if b.Producer == 0 && b.Sequence == 0 {
			return errBadBatch
		}
	}
	if len(p) < ext || !validExtensions(p[:ext]) {
		return errBadBatch
	}
	b.Extensions, b.Records = p[:ext:ext], p[ext:]
	return nil
}

// clip cuts b to the records with offsets in [from, to). The range must meet b's.
func (b *Batch) clip(from, to wire.Offset) error {
	rec, n := b.Records, b.Count
	for b.Base < from {
		size, err := recordSize(rec)
		if err != nil {
			return err
		}
		rec, n, b.Base = rec[size:], n-1, b.Base+1
	}
	if b.Base+wire.Offset(n) > to {
		keep := uint32(to - b.Base)
		used := 0
		for range keep {
			size, err := recordSize(rec[used:])
			if err != nil {
				return err
			}
			used += size
		}
		rec, n = rec[:used], keep
	}
	b.Records, b.Count = rec, n
	return nil
}

func recordSize(rec []byte) (int, error) {
	if len(rec) < 4 {
		return 0, errBadBatch
	}
	n := int(rec[0])<<24 | int(rec[1])<<16 | int(rec[2])<<8 | int(rec[3])
	if n > len(rec)-4 {
		return 0, errBadBatch
	}
	return 4 + n, nil
}
