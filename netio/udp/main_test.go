package udp

import (
	"net/netip"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var loopback4 = netip.MustParseAddrPort("127.0.0.1:0")

// open is Listen with a cleanup.
func open(t testing.TB, addr netip.AddrPort, o Options) *Conn {
	t.Helper()
	c, err := Listen(addr, o)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
