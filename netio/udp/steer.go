package udp

import "encoding/binary"

// route tells which of n members of a shared port a packet belongs to, from its bytes alone. established
// means that the packet carries a connection ID of ours, so that its connection lives at that member and
// nowhere else; otherwise any member can take it, and always choosing the same one keeps the several
// packets of a first flight together. ok is false for what names no member; it stays where it came.
//
// The kernel's program (program) gives the same answer for every packet of at least routeBytes.
func route(p []byte, n int) (member int, established, ok bool) {
	if len(p) < 2 {
		return 0, false, false
	}
	if p[0]&0x80 == 0 { // short header: the connection ID follows the first byte
		return int(p[1]), true, int(p[1]) < n
	}
	// Long header: version in bytes 1 to 4, then the length of the destination ID, then the ID.
	if len(p) < routeBytes {
		return 0, false, false
	}
	if p[5] == ConnectionIDBytes {
		return int(p[6]), true, int(p[6]) < n
	}
	return int(binary.BigEndian.Uint32(p[6:]) % uint32(n)), false, true
}

// routeBytes is as far as route looks.
const routeBytes = 10
