package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"felix/netio/wire"
)

// Sizes and marks of the on-disk format. doc.go draws the layouts; a change here is a new format version.
const (
	// formatVersion is written into every segment header. A segment with another version refuses the lane.
	formatVersion = 1

	// blockSize is the alignment of groups. It is the page size of the page cache and the largest unit a
	// disk is assumed to tear, so no group shares such a unit with an acknowledged one.
	blockSize = 4096

	groupMagic   = 0x31475846 // "FXG1"
	groupFixed   = 64         // bytes of the group header before its directory
	dirEntrySize = 32         // bytes of one directory entry
	echoSize     = 16         // bytes of one entry of the previous group's ends

	// maxGroupEntries bounds the batches of one group; later appends start the next group.
	maxGroupEntries = 4096

	// maxBodyBytes bounds what a group header may claim, so that a scan never allocates more.
	maxBodyBytes = 256 << 20
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func alignUp(n int64) int64 { return (n + blockSize - 1) &^ (blockSize - 1) }

// groupHeader is the decoded header of one group. A scan owns it until it moves to the next group.
type groupHeader struct {
	lane     uint64
	epoch    uint64 // number of the segment, so that a recycled file's old groups are foreign
	salt     uint64 // random per segment use; a payload cannot forge a group without knowing it
	sequence uint64 // from 1, one more per group over the life of the lane
	durable  uint64 // highest sequence known to be on disk when this group was written
	written  int64  // microseconds since 1970
	bodyLen  uint32
	dir      []dirEntry
	echo     []shardEnd // ends after the previous group of the shards it touched
}

// dirEntry describes one batch of a group's body.
type dirEntry struct {
	shard uint64
	base  wire.Offset
	count uint32
	size  uint32 // encoded bytes of the batch in the body
	crc   uint32 // CRC-32C of these bytes
	kind  Kind
	flags Flags
}

// end is the offset after the batch. Invariant: kinds without offsets have count 0.
func (e *dirEntry) end() wire.Offset { return e.base + wire.Offset(e.count) }

// shardEnd is one shard's next offset at a moment of the log.
type shardEnd struct {
	shard uint64
	end   wire.Offset
}

func groupHeadLen(entries, echoes int) int {
	return groupFixed + entries*dirEntrySize + echoes*echoSize
}

// headLen is the encoded length of the header with its directory and echo.
func (h *groupHeader) headLen() int { return groupHeadLen(len(h.dir), len(h.echo)) }

// diskLen is the room the group takes in its segment, padding included.
func (h *groupHeader) diskLen() int64 { return alignUp(int64(h.headLen()) + int64(h.bodyLen)) }

// appendGroupHeader appends the encoded header to dst. parseGroupHeader reads it back.
func appendGroupHeader(dst []byte, h *groupHeader) []byte {
	start := len(dst)
	dst = le.AppendUint32(dst, groupMagic)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, h.lane)
	dst = le.AppendUint64(dst, h.epoch)
	dst = le.AppendUint64(dst, h.salt)
	dst = le.AppendUint64(dst, h.sequence)
	dst = le.AppendUint64(dst, h.durable)
	dst = le.AppendUint64(dst, uint64(h.written))
	dst = le.AppendUint32(dst, h.bodyLen)
	dst = le.AppendUint16(dst, uint16(len(h.dir)))
	dst = le.AppendUint16(dst, uint16(len(h.echo)))
	for i := range h.dir {
		e := &h.dir[i]
		dst = le.AppendUint64(dst, e.shard)
		dst = le.AppendUint64(dst, uint64(e.base))
		dst = le.AppendUint32(dst, e.count)
		dst = le.AppendUint32(dst, e.size)
		dst = le.AppendUint32(dst, e.crc)
		dst = append(dst, byte(e.kind), byte(e.flags), 0, 0)
	}
	for _, p := range h.echo {
		dst = le.AppendUint64(dst, p.shard)
		dst = le.AppendUint64(dst, uint64(p.end))
	}
	le.PutUint32(dst[start+4:], checksum(dst[start+8:]))
	return dst
}

// Reasons why bytes are not a group header. A scan treats all of them alike.
var (
	errNoGroup    = errors.New("wal: no group header here")
	errShortGroup = errors.New("wal: group header cut short")
)

// peekGroupHeader reads the fixed part of a header in b and returns the length of the whole header. It allocates
// nothing and checks only what it needs to know how much to read.
func peekGroupHeader(b []byte) (headLen int, bodyLen uint32, err error) {
	if len(b) < groupFixed {
		return 0, 0, errShortGroup
	}
	if le.Uint32(b) != groupMagic {
		return 0, 0, errNoGroup
	}
	n, m := int(le.Uint16(b[60:])), int(le.Uint16(b[62:]))
	bodyLen = le.Uint32(b[56:])
	if n > maxGroupEntries || m > maxGroupEntries || bodyLen > maxBodyBytes {
		return 0, 0, errNoGroup
	}
	return groupHeadLen(n, m), bodyLen, nil
}

// parseGroupHeader decodes the header at the front of b into h, reusing h's slices. What parses appends back to the
// same bytes.
func parseGroupHeader(b []byte, h *groupHeader) error {
	n, bodyLen, err := peekGroupHeader(b)
	if err != nil {
		return err
	}
	if len(b) < n {
		return errShortGroup
	}
	b = b[:n]
	if le.Uint32(b[4:]) != checksum(b[8:]) {
		return errNoGroup
	}
	h.lane, h.epoch, h.salt = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	h.sequence, h.durable = le.Uint64(b[32:]), le.Uint64(b[40:])
	h.written, h.bodyLen = int64(le.Uint64(b[48:])), bodyLen
	entries, echoes := int(le.Uint16(b[60:])), int(le.Uint16(b[62:]))
	h.dir, h.echo = h.dir[:0], h.echo[:0]
	b = b[groupFixed:]
	var total uint64
	for range entries {
		e := dirEntry{
			shard: le.Uint64(b), base: wire.Offset(le.Uint64(b[8:])), count: le.Uint32(b[16:]),
			size: le.Uint32(b[20:]), crc: le.Uint32(b[24:]), kind: Kind(b[28]), flags: Flags(b[29]),
		}
		if b[30] != 0 || b[31] != 0 || e.end() < e.base {
			return errNoGroup
		}
		total += uint64(e.size)
		h.dir = append(h.dir, e)
		b = b[dirEntrySize:]
	}
	for range echoes {
		h.echo = append(h.echo, shardEnd{le.Uint64(b), wire.Offset(le.Uint64(b[8:]))})
		b = b[echoSize:]
	}
	if total != uint64(bodyLen) {
		return errNoGroup
	}
	return nil
}

// Segment headers stand twice at the front of a segment, a block each, so that one damaged block does not hide the
// salt that the segment's groups are recognised by.
const (
	segmentMagic      = 0x31535846 // "FXS1"
	segmentHeaderSize = 64
	segmentDataStart  = 2 * blockSize
	// sealMagic marks the last block of a sealed segment, which says where the footer is.
	sealMagic = 0x31455846 // "FXE1"
	sealSize  = 48
)

// segmentHeader is the decoded header of a segment file.
type segmentHeader struct {
	version  uint16
	flags    uint16
	lane     uint64
	epoch    uint64
	salt     uint64
	size     int64  // bytes of the file, a multiple of blockSize
	recycled bool   // every block was written before, so the file needs no zeroing
	created  int64  // microseconds since 1970
	log      uint64 // the same in all segments of a log and drawn when its first one is made; 0 where that is not known
}

const segmentRecycled = 1 // flag: blocks were all written by an earlier use

func appendSegmentHeader(dst []byte, h *segmentHeader) []byte {
	start := len(dst)
	flags := h.flags &^ segmentRecycled
	if h.recycled {
		flags |= segmentRecycled
	}
	dst = le.AppendUint32(dst, segmentMagic)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint16(dst, h.version)
	dst = le.AppendUint16(dst, flags)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, h.lane)
	dst = le.AppendUint64(dst, h.epoch)
	dst = le.AppendUint64(dst, h.salt)
	dst = le.AppendUint64(dst, uint64(h.size))
	dst = le.AppendUint64(dst, uint64(h.created))
	dst = le.AppendUint64(dst, h.log)
	le.PutUint32(dst[start+4:], checksum(dst[start+8:]))
	return dst
}

var errNoSegment = errors.New("wal: no segment header here")

func parseSegmentHeader(b []byte, h *segmentHeader) error {
	if len(b) < segmentHeaderSize || le.Uint32(b) != segmentMagic {
		return errNoSegment
	}
	b = b[:segmentHeaderSize]
	if le.Uint32(b[4:]) != checksum(b[8:]) {
		return errNoSegment
	}
	h.version, h.flags = le.Uint16(b[8:]), le.Uint16(b[10:])
	h.lane, h.epoch, h.salt = le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	h.size, h.created = int64(le.Uint64(b[40:])), int64(le.Uint64(b[48:]))
	h.recycled = h.flags&segmentRecycled != 0
	if h.version != formatVersion {
		return nil // the caller refuses it by number; other fields may mean something else
	}
	if h.size < segmentDataStart+2*blockSize || h.size%blockSize != 0 || le.Uint32(b[12:]) != 0 {
		return errNoSegment
	}
	h.log = le.Uint64(b[56:])
	return nil
}

// seal is the decoded last block of a sealed segment. It is derived: without it the segment is scanned.
type seal struct {
	epoch, salt  uint64
	footerPos    int64
	lastSequence uint64 // sequence of the footer group, the segment's last
}

func appendSeal(dst []byte, s *seal) []byte {
	start := len(dst)
	dst = le.AppendUint32(dst, sealMagic)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, s.epoch)
	dst = le.AppendUint64(dst, s.salt)
	dst = le.AppendUint64(dst, uint64(s.footerPos))
	dst = le.AppendUint64(dst, s.lastSequence)
	dst = le.AppendUint64(dst, 0)
	le.PutUint32(dst[start+4:], checksum(dst[start+8:]))
	return dst
}

func parseSeal(b []byte, s *seal) error {
	if len(b) < sealSize || le.Uint32(b) != sealMagic || le.Uint32(b[4:]) != checksum(b[8:sealSize]) || le.Uint64(b[40:]) != 0 {
		return errors.New("wal: no seal here")
	}
	s.epoch, s.salt = le.Uint64(b[8:]), le.Uint64(b[16:])
	s.footerPos, s.lastSequence = int64(le.Uint64(b[24:])), le.Uint64(b[32:])
	return nil
}

const (
	segmentSuffix = ".seg"   // holds log
	freshSuffix   = ".new"   // being made; holds nothing
	spareSuffix   = ".spare" // holds nothing; its blocks wait for reuse
	lockName      = "LOCK"
)

func segmentName(epoch uint64) string { return fmt.Sprintf("%016x%s", epoch, segmentSuffix) }

// parseSegmentName returns the epoch that a file name with the given suffix carries.
func parseSegmentName(name, suffix string) (uint64, bool) {
	if len(name) != 16+len(suffix) || name[16:] != suffix {
		return 0, false
	}
	var v uint64
	for _, c := range []byte(name[:16]) {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// offsetOfEpoch stores a segment's number in the base field of a release record.
func offsetOfEpoch(epoch uint64) wire.Offset { return wire.Offset(epoch) }
