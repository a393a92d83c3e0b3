package udp

import (
	"encoding/binary"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPeers bounds each of the two generations of a peers cache, so 8,192 addresses in all, about 2 MiB.
const maxPeers = 4096

// peers keeps one *net.UDPAddr for each sender, so that a packet costs no allocation. Addresses are never
// changed once they are made: quic-go keeps them for as long as a connection lives.
//
// New addresses go to the young generation. When that is full it becomes the old one, and what was old is
// forgotten. An address in use is moved to the young generation by its next packet, so a flood of forged senders
// costs those who are really there a map lookup now and then.
type peers struct {
	last       peer
	young, old map[peerKey]*net.UDPAddr
}

type peer struct {
	key  peerKey
	addr *net.UDPAddr
}

// A peerKey is a sender: address (16 bytes), scope (4), port (2), family (2). An array hashes in one go.
type peerKey [24]byte

// lookup returns the address in a sockaddr of the kernel, nil if it is of another family.
func (p *peers) lookup(sa *unix.RawSockaddrInet6) *net.UDPAddr {
	key, ok := keyOf(sa)
	if !ok {
		return nil
	}
	if key == p.last.key {
		return p.last.addr
	}
	addr, ok := p.young[key]
	if !ok {
		if addr, ok = p.old[key]; !ok {
			addr = key.addr()
		}
		if p.young == nil || len(p.young) >= maxPeers {
			p.old, p.young = p.young, make(map[peerKey]*net.UDPAddr)
		}
		p.young[key] = addr
	}
	p.last = peer{key, addr}
	return addr
}

// keyOf reads a sockaddr_in or sockaddr_in6. Both begin with family and port.
func keyOf(sa *unix.RawSockaddrInet6) (key peerKey, ok bool) {
	switch sa.Family {
	case unix.AF_INET:
		// sockaddr_in has the address where sockaddr_in6 has the flow label.
		binary.NativeEndian.PutUint32(key[:4], sa.Flowinfo)
		key[23] = 4
	case unix.AF_INET6:
		if mapped(sa.Addr) {
			copy(key[:4], sa.Addr[12:])
			key[23] = 4
		} else {
			copy(key[:16], sa.Addr[:])
			binary.NativeEndian.PutUint32(key[16:20], sa.Scope_id)
			key[23] = 6
		}
	default:
		return key, false
	}
	// The port is in network order in either.
	binary.NativeEndian.PutUint16(key[20:22], sa.Port)
	return key, true
}

// mapped tells an IPv4 address in IPv6 clothes, as a socket of both families shows it.
func mapped(a [16]byte) bool {
	return [12]byte(a[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

func (k peerKey) addr() *net.UDPAddr {
	a := &net.UDPAddr{Port: int(binary.BigEndian.Uint16(k[20:22]))}
	if k[23] == 4 {
		a.IP = net.IP(append([]byte(nil), k[:4]...))
		return a
	}
	a.IP = net.IP(append([]byte(nil), k[:16]...))
	if scope := binary.NativeEndian.Uint32(k[16:20]); scope != 0 {
		// The interface's number, not its name: a name costs system calls, and either is understood.
		a.Zone = strconv.FormatUint(uint64(scope), 10)
	}
	return a
}
