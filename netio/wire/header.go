package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// Magic opens every frame: "FLX1".
	Magic = 0x464C5831
	// Version is the only version of the frame header.
	Version = 1
	// HeaderBytes is the size of the frame header.
	HeaderBytes = 12
	// MaxFrameBytes is the default bound on the payload of a frame, header not counted, in both directions.
	MaxFrameBytes = 16 << 20
	// MaxPreAuthFrameBytes is the default bound on the payload of a frame on a stream that has not authenticated.
	MaxPreAuthFrameBytes = 64 << 10
)

var (
	// ErrShortHeader means that fewer than HeaderBytes bytes are there; with more bytes the header may be good.
	ErrShortHeader = errors.New("wire: frame header is incomplete")
	// ErrBadMagic means that the bytes are no frame. Nothing after them can be trusted.
	ErrBadMagic = errors.New("wire: bad magic")
	// ErrBadVersion means a header version other than Version. Nothing after it can be trusted.
	ErrBadVersion = errors.New("wire: bad version")
	// ErrFrameTooLarge means a payload beyond the caller's limit.
	ErrFrameTooLarge = errors.New("wire: frame too large")
	// ErrMalformed is wrapped by every error about the payload of a frame. The stream is still at a frame boundary.
	ErrMalformed = errors.New("wire: malformed payload")
)

// Offset is the number of a record in its shard, from 0.
type Offset uint64

// Header is the header of one frame.
type Header struct {
	Flags  Flags
	Length uint32 // bytes of payload that follow the header
}

// AppendHeader appends the HeaderBytes bytes of h to dst.
func AppendHeader(dst []byte, h Header) []byte {
	dst = binary.BigEndian.AppendUint32(dst, Magic)
	dst = binary.BigEndian.AppendUint16(dst, Version)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Flags))
	return binary.BigEndian.AppendUint32(dst, h.Length)
}

// PutHeader writes h over the first HeaderBytes bytes of b. It panics if b is shorter.
func PutHeader(b []byte, h Header) {
	_ = b[HeaderBytes-1]
	binary.BigEndian.PutUint32(b, Magic)
	binary.BigEndian.PutUint16(b[4:], Version)
	binary.BigEndian.PutUint16(b[6:], uint16(h.Flags))
	binary.BigEndian.PutUint32(b[8:], h.Length)
}

// ParseHeader reads the header at the front of b, which may be longer. The errors are ErrShortHeader (bare) and errors that wrap
// ErrBadMagic or ErrBadVersion. Magic and version are judged as soon as their bytes are there. Flags are not judged: see
// Flags.Unknown and Flags.Kind.
func ParseHeader(b []byte) (Header, error) {
	if len(b) >= 4 && binary.BigEndian.Uint32(b) != Magic {
		return Header{}, fmt.Errorf("%w %#08x: a frame starts with %#08x (FLX1)", ErrBadMagic, binary.BigEndian.Uint32(b), uint32(Magic))
	}
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) != Version {
		return Header{}, fmt.Errorf("%w %d: only version %d is spoken here", ErrBadVersion, binary.BigEndian.Uint16(b[4:]), Version)
	}
	if len(b) < HeaderBytes {
		return Header{}, ErrShortHeader
	}
	return Header{Flags: Flags(binary.BigEndian.Uint16(b[6:])), Length: binary.BigEndian.Uint32(b[8:])}, nil
}

// SplitFrame takes the first frame off b. When b does not hold the whole frame yet, ok is false and h is valid if its header is
// there (h.Length > 0 or len(b) >= HeaderBytes). A payload above maxBytes is refused by the header alone with an error that wraps
// ErrFrameTooLarge; h is valid then. body and rest are views of b; body has no spare capacity.
func SplitFrame(b []byte, maxBytes uint32) (h Header, body, rest []byte, ok bool, err error) {
	h, err = ParseHeader(b)
	if err == ErrShortHeader {
		return Header{}, nil, b, false, nil
	}
	if err != nil {
		return Header{}, nil, b, false, err
	}
	if h.Length > maxBytes {
		return h, nil, b, false, fmt.Errorf("%w: payload of %d bytes, at most %d are accepted", ErrFrameTooLarge, h.Length, maxBytes)
	}
	end := HeaderBytes + int(h.Length)
	if len(b) < end {
		return h, nil, b, false, nil
	}
	return h, b[HeaderBytes:end:end], b[end:], true, nil
}
