package udp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	// inboxSlots bounds the datagrams that wait for a member after another one has received them.
	// Beyond it they are dropped and counted there; to QUIC they are lost packets. It is the bound
	// that quic-go puts on the packets waiting for one connection.
	inboxSlots = 256

	// slotBytes is what a slot keeps for its next datagram. Longer ones get memory of their own, so
	// an inbox holds 512 KiB when idle and 4 MiB at most.
	slotBytes = 2048
)

// past is a deadline that has gone by.
var past = time.Unix(1, 0)

// An inbox takes datagrams that belong to its Conn and came in at another member of the shared port. Any
// member's reader fills it, the Conn's own reader empties it.
//
// That reader may be blocked in the runtime's poller on its own socket. A read deadline in the past gets it out:
//
// Invariant: the socket's read deadline is past while slots are filled, and is deadline otherwise. Both change
// together under mu. So a timeout with the inbox empty is the caller's, any other one is ours.
type inbox struct {
	count atomic.Int32 // filled slots, written under mu; lets the reader look without the lock

	mu       sync.Mutex
	slots    []slot // a ring, made when first used
	head     int
	deadline time.Time // what the caller asked for
}

type slot struct {
	data    []byte
	kept    [keptBytes]byte
	keptLen int
	from    *net.UDPAddr // immutable, so the finder's address serves
}

// owner returns the member that datagram p, which came in at c, belongs to. It is c for what names no member,
// for a member that has been closed, and for new connections where the kernel does not steer.
func (g *group) owner(c *Conn, p []byte) *Conn {
	i, established, ok := route(p, len(g.members))
	if !ok || i == c.index || !established && !g.steered {
		return c
	}
	if o := g.members[i]; !o.closed.Load() {
		return o
	}
	return c
}

// offer copies a datagram in and wakes the reader. It reports false when there is no room.
func (in *inbox) offer(udp *net.UDPConn, p, kept []byte, from *net.UDPAddr) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := int(in.count.Load())
	if n == inboxSlots {
		return false
	}
	if in.slots == nil {
		in.slots = make([]slot, inboxSlots)
	}
	s := &in.slots[(in.head+n)%inboxSlots]
	if cap(s.data) < len(p) {
		s.data = make([]byte, 0, max(len(p), slotBytes))
	}
	s.data = append(s.data[:0], p...)
	s.keptLen = copy(s.kept[:], kept)
	s.from = from
	in.count.Store(int32(n + 1))
	if n == 0 {
		// It fails only on a closed socket, and then nobody reads.
		_ = udp.SetReadDeadline(past)
	}
	return true
}

// takeOver moves datagrams that other members received to ms.
func (c *Conn) takeOver(ms []ipv4.Message) int {
	in := &c.in
	if !in.waiting() {
		return 0
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	left := int(in.count.Load())
	n, bytes := min(left, len(ms)), 0
	for i := range n {
		s := &in.slots[in.head]
		put(&ms[i], s.data, s.kept[:s.keptLen], s.from)
		bytes += len(s.data)
		s.from = nil
		if cap(s.data) > slotBytes {
			s.data = nil
		}
		in.head = (in.head + 1) % inboxSlots
	}
	in.count.Store(int32(left - n))
	if left == n {
		_ = c.udp.SetReadDeadline(in.deadline) // as in offer
	}
	c.received.taken.Add(uint64(n))
	c.received.packets.Add(uint64(n))
	c.received.bytes.Add(uint64(bytes))
	return n
}

// waiting tells whether there is anything to take over.
func (in *inbox) waiting() bool { return in.count.Load() > 0 }

// setDeadline is the caller's SetReadDeadline. With datagrams waiting it takes effect after them.
func (in *inbox) setDeadline(udp *net.UDPConn, t time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.deadline = t
	if in.waiting() {
		return nil
	}
	return udp.SetReadDeadline(t)
}
