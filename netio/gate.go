package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/quic-go/quic-go"
)

// A gate counts connections and refuses those beyond its limits before their handshake, so that a refused peer costs
// one packet. It may be used from any goroutine.
type gate struct {
	limits Limits
	memory *memory
	perIP  *xsync.MapOf[netip.Addr, ipCount] // an entry exists while it counts something

	connections, unauthenticated atomic.Int64

	// refused, unless it is nil, is told about every refusal, from any goroutine.
	refused func(ip netip.Addr, why error)

	refusedLimit, refusedPerIP, refusedUnauthenticated, retries atomic.Uint64
}

// A coreGate is the gate as the sockets of one listening core see it.
type coreGate struct {
	*gate
	handshakes *handshakeRate
	now        func() time.Duration
}

// A handshakeRate bounds the handshakes that begin at one listening core: Limits.HandshakesPerSecond, and a second's worth at once. It may be
// used from any goroutine.
type handshakeRate struct {
	step   time.Duration // in which one more may begin; 0 means no limit
	bucket bucket        // at most a second is missing, so that those who may begin all the same leave no debt
}

type ipCount struct{ connections, unauthenticated int }

// A ticket is one connection's place at the gate. It comes back when the connection's context ends.
type ticket struct {
	gate          *gate
	ip            netip.Addr
	authenticated atomic.Bool
	window        atomic.Int64 // the connection's receive window; leftWindow once it has ended
}

// ticketKey finds the ticket in a connection's context.
type ticketKey struct{}

var (
	errGateMemory          = errors.New("the memory budget is used up")
	errGateFull            = errors.New("too many connections")
	errGateIP              = errors.New("too many connections from this address")
	errGateUnauthenticated = errors.New("too many connections that have not authenticated")
)

func newGate(limits Limits, m *memory) *gate {
	return &gate{limits: limits, memory: m, perIP: xsync.NewMapOf[netip.Addr, ipCount]()}
}

// forCore returns the gate for a listening core, whose sockets share it. The clock may be read from any goroutine.
func (g *gate) forCore(now func() time.Duration) *coreGate {
	h := &handshakeRate{}
	if n := g.limits.HandshakesPerSecond; n > 0 {
		h.step = time.Second / time.Duration(n)
	}
	return &coreGate{gate: g, handshakes: h, now: now}
}

// begin counts a handshake that begins.
func (h *handshakeRate) begin(now time.Duration) {
	h.bucket.take(now, h.step, noLimit, time.Second)
}

// spent reports whether more handshakes have begun than the rate allows.
func (h *handshakeRate) spent(now time.Duration) bool {
	return h.step > 0 && h.bucket.missing(now) > time.Second-h.step
}

// connContext is the transport's ConnContext hook: an error refuses the connection with CONNECTION_REFUSED.
func (c *coreGate) connContext(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	c.handshakes.begin(c.now())
	if c.memory.over() {
		c.memory.refused.Add(1)
		return nil, errGateMemory
	}
	t := &ticket{gate: c.gate}
	if udp, ok := info.RemoteAddr.(*net.UDPAddr); ok {
		t.ip = sourceOf(udp.AddrPort().Addr().Unmap())
	}
	if err := t.enter(); err != nil {
		if c.refused != nil {
			c.refused(t.ip, err)
		}
		return nil, err
	}
	t.grant(int64(c.limits.InitialConnectionWindow))
	ctx = context.WithValue(ctx, ticketKey{}, t)
	context.AfterFunc(ctx, t.leave)
	return ctx, nil
}

// mustValidate is the transport's VerifySourceAddress hook, called for first packets without a token. Once half the places for
// unauthenticated connections are taken, a peer must show with a Retry that it is where it says before it gets one, so that forged packets
// do not take the rest. The same holds while handshakes begin faster than the core's rate: a Retry is made without keeping or signing
// anything, so that forged packets cannot take the CPU either. It costs an honest peer a round trip.
func (c *coreGate) mustValidate(net.Addr) bool {
	must := c.unauthenticated.Load() >= int64(c.limits.Unauthenticated+1)/2 || c.handshakes.spent(c.now())
	if must {
		c.retries.Add(1)
	}
	return must
}

// sourceOf is what counts as one source: an IPv4 address, or an IPv6 network of the size that one customer gets.
func sourceOf(ip netip.Addr) netip.Addr {
	if ip.Is4() || ip.IsLoopback() {
		return ip
	}
	return netip.PrefixFrom(ip, 64).Masked().Addr()
}

// enter counts the connection, or nothing and says why it is refused.
func (t *ticket) enter() error {
	g := t.gate
	if n := g.connections.Add(1); g.limits.Connections >= 0 && n > int64(g.limits.Connections) {
		g.connections.Add(-1)
		g.refusedLimit.Add(1)
		return errGateFull
	}
	if n := g.unauthenticated.Add(1); n > int64(g.limits.Unauthenticated) {
		g.unauthenticated.Add(-1)
		g.connections.Add(-1)
		g.refusedUnauthenticated.Add(1)
		return errGateUnauthenticated
	}
	var refusal error
	g.perIP.Compute(t.ip, func(c ipCount, _ bool) (ipCount, bool) {
		refusal = nil
		switch {
		case g.limits.ConnectionsPerIP >= 0 && c.connections >= g.limits.ConnectionsPerIP:
			refusal = errGateIP
		case c.unauthenticated >= g.limits.UnauthenticatedPerIP && !t.ip.IsLoopback():
			refusal = errGateUnauthenticated
		default:
			c.connections++
			c.unauthenticated++
		}
		return c, c.connections == 0
	})
	if refusal == nil {
		return nil
	}
	g.unauthenticated.Add(-1)
	g.connections.Add(-1)
	if refusal == errGateIP {
		g.refusedPerIP.Add(1)
	} else {
		g.refusedUnauthenticated.Add(1)
	}
	return refusal
}

// authenticate takes the connection out of the counts of unauthenticated ones. Calls after the first do nothing.
func (t *ticket) authenticate() {
	if t.authenticated.CompareAndSwap(false, true) {
		t.gate.unauthenticated.Add(-1)
		t.update(0, -1)
	}
}

// leave returns the place. It runs once, when the connection's context ends.
func (t *ticket) leave() {
	t.returnWindow()
	t.gate.connections.Add(-1)
	if t.authenticated.CompareAndSwap(false, true) {
		t.gate.unauthenticated.Add(-1)
		t.update(-1, -1)
		return
	}
	t.update(-1, 0)
}

func (t *ticket) update(connections, unauthenticated int) {
	t.gate.perIP.Compute(t.ip, func(c ipCount, _ bool) (ipCount, bool) {
		c.connections += connections
		c.unauthenticated += unauthenticated
		return c, c.connections == 0
	})
}
