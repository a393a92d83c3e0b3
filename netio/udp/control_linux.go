package udp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A control is one control message (struct cmsghdr) within the list that goes with a message:
//
//	length of header and body (8 bytes, 4 on 32-bit systems), level (4), type (4), body, padding to the next
type control struct {
	level, typ int
	body       []byte
	whole      []byte // header, body and padding
}

// nextControl takes the first control message off b. It reports false at the end of the list, and at
// anything that is not a control message.
func nextControl(b []byte) (c control, rest []byte, ok bool) {
	if len(b) < unix.SizeofCmsghdr {
		return c, nil, false
	}
	var n uint64
	if unix.SizeofCmsghdr == 16 {
		n = binary.NativeEndian.Uint64(b)
	} else {
		n = uint64(binary.NativeEndian.Uint32(b))
	}
	if n < unix.SizeofCmsghdr || n > uint64(len(b)) {
		return c, nil, false
	}
	c.level = int(int32(binary.NativeEndian.Uint32(b[unix.SizeofCmsghdr-8:])))
	c.typ = int(int32(binary.NativeEndian.Uint32(b[unix.SizeofCmsghdr-4:])))
	c.body = b[unix.SizeofCmsghdr:n]
	end := min(unix.CmsgSpace(len(c.body)), len(b)) // the last one may lack its padding
	c.whole, rest = b[:end], b[end:]
	return c, rest, true
}

// parseReceived reads the control messages of a message from the kernel: the segment size of a
// super-buffer, 0 if there is none, and those of the IP layer (traffic class, packet info), which it appends to
// kept as they are, up to its capacity.
func parseReceived(kept, b []byte) (size int, _ []byte) {
	for c, rest, ok := nextControl(b); ok; c, rest, ok = nextControl(rest) {
		switch c.level {
		case unix.IPPROTO_IP, unix.IPPROTO_IPV6:
			if len(kept)+len(c.whole) <= cap(kept) {
				kept = append(kept, c.whole...)
			}
		case unix.IPPROTO_UDP:
			if c.typ == unix.UDP_GRO && len(c.body) >= 4 {
				size = int(int32(binary.NativeEndian.Uint32(c.body)))
			}
		}
	}
	return size, kept
}

// segments counts the datagrams that a send of n bytes with the control messages oob makes.
func segments(n int, oob []byte) int {
	for c, rest, ok := nextControl(oob); ok; c, rest, ok = nextControl(rest) {
		if c.level == unix.IPPROTO_UDP && c.typ == unix.UDP_SEGMENT && len(c.body) >= 2 {
			if size := int(binary.NativeEndian.Uint16(c.body)); size > 0 && n > 0 {
				return (n + size - 1) / size
			}
		}
	}
	return 1
}
