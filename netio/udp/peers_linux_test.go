package udp

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// sockaddr is what the kernel writes for a sender.
func sockaddr(a netip.AddrPort, scope uint32) *unix.RawSockaddrInet6 {
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, a.Port()))
	if a.Addr().Is4() {
		ip := a.Addr().As4()
		return &unix.RawSockaddrInet6{Family: unix.AF_INET, Port: port, Flowinfo: binary.NativeEndian.Uint32(ip[:])}
	}
	return &unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: a.Addr().As16(), Scope_id: scope}
}

func TestPeersKeepOneAddressEach(t *testing.T) {
	var p peers
	for _, c := range []struct {
		addr  string
		scope uint32
		want  string
	}{
		{"192.0.2.1:1", 0, "192.0.2.1:1"},
		{"192.0.2.1:2", 0, "192.0.2.1:2"},
		{"[2001:db8::1]:443", 0, "[2001:db8::1]:443"},
		{"[fe80::1]:443", 3, "[fe80::1%3]:443"},
		{"[fe80::1]:443", 4, "[fe80::1%4]:443"},
		{"[::ffff:192.0.2.9]:5", 0, "192.0.2.9:5"},
		{"[::]:0", 0, "[::]:0"},
		{"0.0.0.0:0", 0, "0.0.0.0:0"},
	} {
		sa := sockaddr(netip.MustParseAddrPort(c.addr), c.scope)
		first := p.lookup(sa)
		if first.String() != c.want {
			t.Errorf("%s scope %d: %s, want %s", c.addr, c.scope, first, c.want)
		}
		p.lookup(sockaddr(netip.MustParseAddrPort("198.51.100.1:9"), 0)) // so that it is not only the last one
		if again := p.lookup(sa); again != first {
			t.Errorf("%s: a second address was made", c.addr)
		}
	}
	if a := p.lookup(&unix.RawSockaddrInet6{Family: unix.AF_UNIX}); a != nil {
		t.Errorf("a sender of another family is %v", a)
	}
}

func TestPeersAreBounded(t *testing.T) {
	var p peers
	regular := sockaddr(netip.MustParseAddrPort("192.0.2.1:1"), 0)
	first := p.lookup(regular)
	for i := range uint32(10 * maxPeers) {
		ip := [4]byte{10}
		binary.BigEndian.PutUint32(ip[:], 10<<24|i)
		p.lookup(sockaddr(netip.AddrPortFrom(netip.AddrFrom4(ip), 7), 0))
		if i%100 == 0 {
			if p.lookup(regular) != first {
				t.Fatalf("after %d forged senders a regular one has a new address", i)
			}
		}
		if n := len(p.young) + len(p.old); n > 2*maxPeers {
			t.Fatalf("%d addresses are kept, the bound is %d", n, 2*maxPeers)
		}
	}
}
