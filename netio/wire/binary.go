package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// A reader takes fields off the front of a body. After the first field that is not whole, every further one reads as zero, and bad
// names the one that failed, so that a parser checks once at the end.
type reader struct {
	b   []byte
	bad string
}

func (r *reader) uint8(field string) uint8 {
	if len(r.b) < 1 {
		r.fail(field)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint16(field string) uint16 {
	if len(r.b) < 2 {
		r.fail(field)
		return 0
	}
	v := binary.BigEndian.Uint16(r.b)
	r.b = r.b[2:]
	return v
}

func (r *reader) uint32(field string) uint32 {
	if len(r.b) < 4 {
		r.fail(field)
		return 0
	}
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *reader) uint64(field string) uint64 {
	if len(r.b) < 8 {
		r.fail(field)
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// bytes16 reads `u16 len, bytes` as a view without spare capacity.
func (r *reader) bytes16(field string) []byte { return r.bytes(field, int(r.uint16(field))) }

// bytes8 reads `u8 len, bytes` as a view without spare capacity.
func (r *reader) bytes8(field string) []byte { return r.bytes(field, int(r.uint8(field))) }

func (r *reader) bytes(field string, n int) []byte {
	if len(r.b) < n {
		r.fail(field)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// fail empties b as well, so that no later field reads from the middle of this one.
func (r *reader) fail(field string) {
	if r.bad == "" {
		r.bad = field
	}
	r.b = nil
}

func (r *reader) err() error {
	if r.bad == "" {
		return nil
	}
	return fmt.Errorf("%w: it ends inside %s", ErrMalformed, r.bad)
}

func kindError(flags Flags, want FrameKind) error {
	if err := flags.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: flags %#04x say %s, want %s", ErrMalformed, uint16(flags), flags.Kind(), want)
}

func appendBytes16(dst []byte, field string, v []byte) []byte {
	if len(v) > math.MaxUint16 {
		panic(fmt.Sprintf("BUG: wire: %s of %d bytes, at most %d fit", field, len(v), math.MaxUint16))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(v)))
	return append(dst, v...)
}

// appendString16 writes as much of s as fits, cut at a character.
func appendString16(dst []byte, s string) []byte {
	s = fit16(s)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

func fit16(s string) string {
	if len(s) <= math.MaxUint16 {
		return s
	}
	end := math.MaxUint16
	for end > math.MaxUint16-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// frameLength turns the size of a whole frame into the length field of its header.
func frameLength(frameBytes int) uint32 {
	n := frameBytes - HeaderBytes
	if uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("BUG: wire: payload of %d bytes does not fit a frame", n))
	}
	return uint32(n)
}

// cut shortens text of a peer for an error.
func cut[T ~string | ~[]byte](v T) T {
	const most = 64
	if len(v) > most {
		return v[:most]
	}
	return v
}
