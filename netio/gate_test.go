package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// TestForgedAddressesDoNotFillTheGate connects beyond half the places for unauthenticated connections, where peers must show by a
// Retry that they are where they say.
func TestForgedAddressesDoNotFillTheGate(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.Unauthenticated = 4 }})
	d := f.dialer()
	for i := range 4 {
		if must := f.server.gates[0].mustValidate(nil); must != (i >= 2) {
			t.Errorf("with %d connections a peer must validate: %v", i, must)
		}
		conn, err := d.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
	}
	_, err := d.dial()
	var refused *quic.TransportError
	if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
		t.Fatalf("fifth connection: %v, want CONNECTION_REFUSED", err)
	}
}

// A peer that answers a Retry is let in whatever the rate, and none is asked for one while there is an allowance.
func TestHandshakeRateAsksForARetry(t *testing.T) {
	for _, tt := range []struct {
		rate    int
		dials   int
		retries func(n uint64) bool
	}{
		{rate: 1, dials: 20, retries: func(n uint64) bool { return n > 0 }},
		{rate: 1000, dials: 20, retries: func(n uint64) bool { return n == 0 }},
		{rate: -1, dials: 20, retries: func(n uint64) bool { return n == 0 }},
	} {
		f := start(t, fixtureOptions{cores: 1, change: func(c *Config) { c.Limits.HandshakesPerSecond = tt.rate }})
		d := f.dialer()
		for range tt.dials {
			conn, err := d.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseWithError(0, "")
		}
		if s := f.server.Stats(); !tt.retries(s.RetriesAsked) || s.Connections != int64(tt.dials) {
			t.Errorf("rate %d: %d retries for %d connections", tt.rate, s.RetriesAsked, s.Connections)
		}
	}
}

func TestHandshakeRate(t *testing.T) {
	now := 5 * time.Second
	core := gateOf(Limits{HandshakesPerSecond: 10}).forCore(func() time.Duration { return now })
	h := core.handshakes
	spend := func(n int) {
		t.Helper()
		for i := range n {
			if h.spent(now) {
				t.Fatalf("%v: spent after %d handshakes, want %d", now, i, n)
			}
			h.begin(now)
		}
		if !h.spent(now) || !core.mustValidate(nil) {
			t.Fatalf("%v: not spent after %d handshakes", now, n)
		}
	}
	spend(10) // a second's worth at once
	for range 1000 {
		h.begin(now) // those that have answered a Retry leave no debt
	}
	now += 300 * time.Millisecond
	h.begin(now - 200*time.Millisecond) // a goroutine that read the clock earlier
	spend(2)
	now += time.Hour
	spend(10)
	if n := core.retries.Load(); n != 3 {
		t.Errorf("%d retries counted, want 3", n)
	}
	off := gateOf(Limits{HandshakesPerSecond: -1}).forCore(func() time.Duration { return now })
	for range 10_000 {
		off.handshakes.begin(now)
	}
	if off.mustValidate(nil) {
		t.Error("without a limit a peer must validate")
	}
}

// Connections without authentication are few per source; an IPv6 customer's whole network is one source. Every count comes back.
func TestUnauthenticatedPerIP(t *testing.T) {
	g := gateOf(Limits{UnauthenticatedPerIP: 2, ConnectionsPerIP: 3})
	core := g.forCore(func() time.Duration { return 0 })
	var leave []context.CancelFunc
	enter := func(addr string) (*ticket, error) {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		ctx, err := core.connContext(ctx, &quic.ClientInfo{RemoteAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))})
		if err != nil {
			return nil, err
		}
		return ctx.Value(ticketKey{}).(*ticket), nil
	}
	for _, tt := range []struct {
		addr string
		auth bool // the connection authenticates
		want error
	}{
		{"192.0.2.1:1", false, nil}, {"192.0.2.1:2", false, nil}, {"192.0.2.1:3", false, errGateUnauthenticated}, {"192.0.2.2:1", false, nil},
		{"198.51.100.1:1", true, nil}, {"198.51.100.1:2", true, nil}, {"198.51.100.1:3", true, nil}, {"198.51.100.1:4", true, errGateIP},
		{"[2001:db8:1:2::1]:1", false, nil}, {"[2001:db8:1:2::2]:1", false, nil}, {"[2001:db8:1:2:ffff::]:1", false, errGateUnauthenticated},
		{"[2001:db8:1:3::1]:1", false, nil},
	} {
		ticket, err := enter(tt.addr)
		if err != tt.want {
			t.Errorf("%s: %v, want %v", tt.addr, err, tt.want)
		}
		if tt.auth && ticket != nil {
			ticket.authenticate()
		}
	}
	if c, u := g.connections.Load(), g.unauthenticated.Load(); c != 9 || u != 6 {
		t.Errorf("%d connections, %d of them unauthenticated; want 9 and 6", c, u)
	}
	for _, f := range leave {
		f()
	}
	waitFor(t, "every place to come back", func() bool {
		return g.connections.Load() == 0 && g.unauthenticated.Load() == 0 && g.perIP.Size() == 0
	})
}

// gateOf is a gate of its own in front of a budget without bound.
func gateOf(l Limits) *gate {
	l = l.withDefaults()
	return newGate(l, newMemory(MemoryConfig{}, l, newBudget(1), newBudget(1)))
}
