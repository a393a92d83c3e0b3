package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// A link carries the datagrams between clients and a broker, and can be made to fail as networks do.
type link struct {
	t      *testing.T
	addr   string
	front  *net.UDPConn // clients send here
	broker netip.AddrPort
	wg     sync.WaitGroup

	mu    sync.Mutex
	flows map[netip.AddrPort]*flow
	fault fault
	held  []func() // datagrams that are stalled, in order
}

type fault int

const (
	faultNone fault = iota
	faultDrop       // all datagrams vanish
	faultStall
)

// A flow is the way of one client's socket to the broker.
type flow struct {
	back *net.UDPConn // to the broker
	dead bool         // its datagrams vanish for good
}

func newLink(t *testing.T, b *fakeBroker) *link {
	t.Helper()
	front, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	check(t, err)
	l := &link{t: t, addr: front.LocalAddr().String(), front: front, broker: netip.MustParseAddrPort(b.addr()), flows: make(map[netip.AddrPort]*flow)}
	l.wg.Go(l.forward)
	t.Cleanup(func() {
		front.Close()
		l.mu.Lock()
		for _, f := range l.flows {
			f.back.Close()
		}
		l.mu.Unlock()
		l.wg.Wait()
	})
	return l
}

func (l *link) forward() {
	buf := make([]byte, 16<<10)
	for {
		n, client, err := l.front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		f := l.flows[client]
		if f == nil {
			back, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.broker))
			if err != nil {
				l.mu.Unlock()
				return
			}
			f = &flow{back: back}
			l.flows[client] = f
			l.wg.Go(func() { l.back(f, client) })
		}
		l.pass(f, slices.Clone(buf[:n]), func(b []byte) { f.back.Write(b) })
		l.mu.Unlock()
	}
}

func (l *link) back(f *flow, client netip.AddrPort) {
	buf := make([]byte, 16<<10)
	for {
		n, err := f.back.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		l.mu.Lock()
		l.pass(f, slices.Clone(buf[:n]), func(b []byte) { l.front.WriteToUDPAddrPort(b, client) })
		l.mu.Unlock()
	}
}

// pass lets a datagram through, or not. The lock is held.
func (l *link) pass(f *flow, b []byte, send func([]byte)) {
	switch {
	case f.dead || l.fault == faultDrop:
	case l.fault == faultStall:
		l.held = append(l.held, func() { send(b) })
	default:
		send(b)
	}
}

// fail makes the link fail for d.
func (l *link) fail(fault fault, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
	l.wg.Add(1)
	time.AfterFunc(d, func() {
		defer l.wg.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fault = faultNone
		for _, send := range l.held {
			send()
		}
		l.held = nil
	})
}

// reset ends every connection through the link for good.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flows {
		f.dead = true
	}
}

// dial connects a client through the link.
func (l *link) dial(b *fakeBroker) *Client {
	l.t.Helper()
	c, err := Dial(within(l.t), l.addr, WithRootCAs(b.pool), WithCloseTimeout(100*time.Millisecond))
	check(l.t, err)
	l.t.Cleanup(func() { c.Close() })
	return c
}

// eachFault strikes for the times of the conformance catalogue: a dropped link is down for longer than the idle timeout of 6 s, a stalled
// one for less, by enough that a machine with much else to do does not lose the connection as well.
func eachFault(t *testing.T, f func(t *testing.T, name string, l *link, b *fakeBroker, strike func())) {
	for _, name := range []string{"dropped", "reset", "stalled"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFakeBroker(t)
			b.stream("orders", 1)
			l := newLink(t, b)
			f(t, name, l, b, func() {
				switch name {
				case "dropped":
					l.fail(faultDrop, idleTimeout+2*time.Second)
				case "reset":
					l.reset()
				case "stalled":
					l.fail(faultStall, 2*time.Second)
				}
			})
		})
	}
}

// Conformance: fault.publish_through_a_dropped_link, fault.publish_through_a_reset_link, fault.publish_through_a_stalled_link.
func TestFaultPublish(t *testing.T) {
	t.Parallel()
	eachFault(t, func(t *testing.T, name string, l *link, b *fakeBroker, strike func()) {
		ctx := within(t)
		c := l.dial(b)
		var acked []string
		failed := 0
		for i := range 10 {
			if i == 3 {
				strike()
			}
			record := fmt.Sprint(i)
			_, err := c.Publish(ctx, "orders", []byte(record))
			switch {
			case err == nil:
				acked = append(acked, record)
			case !errors.Is(err, ErrOutcomeUnknown):
				t.Errorf("publish %d: %v", i, err)
			default:
				failed++
			}
		}
		if failed > 1 || name == "stalled" && failed > 0 {
			t.Errorf("%d publishes failed", failed)
		}
		stored := b.records("orders", 0)
		for _, record := range acked {
			if !slices.Contains(stored, record) {
				t.Errorf("record %s was acknowledged and is not there", record)
			}
		}
	})
}

// Conformance: fault.subscription_through_a_dropped_link, fault.subscription_through_a_reset_link, fault.subscription_through_a_stalled_link.
func TestFaultSubscription(t *testing.T) {
	t.Parallel()
	eachFault(t, func(t *testing.T, name string, l *link, b *fakeBroker, strike func()) {
		ctx := within(t)
		subscriber := l.dial(b)
		publisher := b.dial() // past the link
		sub, err := subscriber.Subscribe(ctx, "orders")
		check(t, err)
		for i := range 10 {
			if i == 3 {
				take(t, sub, 0, 3)
				strike()
			}
			_, err := publisher.Publish(ctx, "orders", fmt.Appendf(nil, "r%d", i))
			check(t, err)
		}
		take(t, sub, 3, 7)
	})
}
