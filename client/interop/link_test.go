package interop

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"felix/netio/faultnet"
)

// anyPort is an address to listen on.
const anyPort = "127.0.0.1:0"

// startLink starts a proxy that listens at one address and leads to another. It ends with the test.
func startLink(t *testing.T, listen, target string) *faultnet.Proxy {
	t.Helper()
	from, err := netip.ParseAddrPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultnet.New(faultnet.Config{Listen: from, Upstream: to, Rand: rand.NewPCG(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// awaitDial waits until a client dials through a link, more often than it had.
func awaitDial(t *testing.T, link *faultnet.Proxy, before uint64) {
	t.Helper()
	timer, look := time.NewTimer(patience), time.NewTicker(time.Millisecond)
	defer timer.Stop()
	defer look.Stop()
	for link.Stats().Up.Initials == before {
		select {
		case <-look.C:
		case <-timer.C:
			t.Fatalf("%v have passed and no client dialed", patience)
		}
	}
}
