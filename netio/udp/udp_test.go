package udp

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestConnectionIDs(t *testing.T) {
	seen := map[string]bool{}
	for core := range 256 {
		g := ConnectionIDs(uint8(core))
		if g.ConnectionIDLen() != ConnectionIDBytes {
			t.Fatalf("core %d: IDs of %d bytes", core, g.ConnectionIDLen())
		}
		for range 4 {
			id, err := g.GenerateConnectionID()
			check(t, err)
			b := id.Bytes()
			if len(b) != ConnectionIDBytes || b[0] != uint8(core) {
				t.Fatalf("core %d: ID %x", core, b)
			}
			if seen[string(b[1:])] {
				t.Fatalf("core %d: the rest of ID %x was there before", core, b)
			}
			seen[string(b[1:])] = true
		}
	}
}

func TestListenNamesAddressAndRemedy(t *testing.T) {
	taken := open(t, loopback4, Options{})
	for _, c := range []struct {
		addr netip.AddrPort
		want []string
	}{
		{taken.AddrPort(), []string{taken.AddrPort().String(), "address already in use", "choose another port"}},
		{netip.MustParseAddrPort("192.0.2.1:0"), []string{"192.0.2.1:0", "assign requested address", "0.0.0.0"}},
		{netip.AddrPort{}, []string{"no address", "127.0.0.1:0"}},
	} {
		for name, listen := range map[string]func() error{
			"Listen":       func() error { _, err := Listen(c.addr, Options{}); return err },
			"ListenShared": func() error { _, _, err := ListenShared(c.addr, 2, Options{}); return err },
		} {
			err := listen()
			if err == nil {
				t.Errorf("%s(%v) succeeded", name, c.addr)
				continue
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s(%v): %q lacks %q", name, c.addr, err, w)
				}
			}
		}
	}
}

func TestOptionsReportEveryProblem(t *testing.T) {
	o := Options{ReadBufferBytes: -1, WriteBufferBytes: -2}
	_, err := Listen(loopback4, o)
	_, _, err2 := ListenShared(loopback4, 2, o)
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), "ReadBufferBytes is -1") || !strings.Contains(err.Error(), "WriteBufferBytes is -2") {
			t.Errorf("error %v", err)
		}
	}
}

func TestListenFamilies(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:0":          "127.0.0.1",
		"0.0.0.0:0":            "0.0.0.0",
		"[::1]:0":              "::1",
		"[::]:0":               "::",
		"[::ffff:127.0.0.1]:0": "127.0.0.1",
	} {
		c := open(t, netip.MustParseAddrPort(addr), Options{})
		if got := c.AddrPort(); got.Addr().String() != want || got.Port() == 0 {
			t.Errorf("Listen(%s) is bound to %s", addr, got)
		}
		if a, ok := c.LocalAddr().(*net.UDPAddr); !ok || a.Port != int(c.AddrPort().Port()) {
			t.Errorf("LocalAddr() = %v (%T)", c.LocalAddr(), c.LocalAddr())
		}
	}
}
