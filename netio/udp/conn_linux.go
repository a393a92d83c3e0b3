package udp

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// A Conn is one UDP socket the way quic-go wants it: a quic.OOBCapablePacketConn that reads batches by
// itself. Give it to a quic.Transport. Close it after the transport, which does not do so.
//
// All methods may be called from any goroutine. Reads take turns; sends run side by side.
type Conn struct {
	udp   *net.UDPConn    // owns the descriptor, its place in the runtime's poller and its deadlines
	raw   syscall.RawConn // of udp
	local *net.UDPAddr    // never changed: callers share it
	v6    bool            // the socket's family is IPv6; IPv4 peers are mapped addresses to it

	gro, gso bool
	kernel   kernel // the system calls; tests put their own here before the first use

	group  *group // nil unless the port is shared by several
	index  int    // within group
	closed atomic.Bool

	rd    reader
	in    inbox
	sends sync.Pool // of *send
	zone  atomic.Pointer[zone]

	received receiveCounts
	_        [64]byte // the two halves run on different CPUs
	sent     sendCounts
	socket   socketCounts
}

var _ quic.OOBCapablePacketConn = (*Conn)(nil)

// A group is the members of one shared port. It is complete before any of them is handed out, and fixed.
type group struct {
	members []*Conn
	steered bool // the kernel runs the program
}

// receiveCounts are written by whoever reads, once per batch.
type receiveCounts struct {
	packets, bytes, calls, supers, handed, lost, taken, truncated, errs atomic.Uint64
}

// sendCounts are written by senders, side by side, once per send.
type sendCounts struct {
	packets, bytes, calls, waits, noBuffers, dropped, gsoErrors atomic.Uint64
}

// socketCounts are what the kernel said last; they are kept for after Close.
type socketCounts struct {
	drops, readBuffer, writeBuffer atomic.Uint64
}

// Stats returns the counts so far. It asks the kernel for its part and does not block.
func (c *Conn) Stats() Stats {
	c.askKernel()
	return Stats{
		PacketsReceived:  c.received.packets.Load(),
		BytesReceived:    c.received.bytes.Load(),
		ReadCalls:        c.received.calls.Load(),
		SuperBuffers:     c.received.supers.Load(),
		HandedOver:       c.received.handed.Load(),
		HandoverDropped:  c.received.lost.Load(),
		TakenOver:        c.received.taken.Load(),
		Truncated:        c.received.truncated.Load(),
		ReadErrors:       c.received.errs.Load(),
		KernelDrops:      c.socket.drops.Load(),
		PacketsSent:      c.sent.packets.Load(),
		BytesSent:        c.sent.bytes.Load(),
		SendCalls:        c.sent.calls.Load(),
		SendWaits:        c.sent.waits.Load(),
		NoBuffers:        c.sent.noBuffers.Load(),
		SendDropped:      c.sent.dropped.Load(),
		GSOErrors:        c.sent.gsoErrors.Load(),
		GRO:              c.gro,
		GSO:              c.gso,
		ReadBufferBytes:  int(c.socket.readBuffer.Load()),
		WriteBufferBytes: int(c.socket.writeBuffer.Load()),
	}
}

// LocalAddr returns the bound address, a *net.UDPAddr that must not be changed.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// AddrPort returns the bound address.
func (c *Conn) AddrPort() netip.AddrPort {
	a := c.local.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Close ends blocked reads and sends with net.ErrClosed. The other members of a shared port go on: what the
// kernel still steers to this one's place reaches them, and what belongs to this one alone is lost.
func (c *Conn) Close() error {
	c.askKernel()
	// Before the descriptor goes: siblings must stop handing over while there is still a reader.
	c.closed.Store(true)
	return c.udp.Close()
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// SetReadDeadline ends reads that block at t or later with os.ErrDeadlineExceeded; zero means never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(c.udp, t) }

// SetWriteDeadline bounds the wait of sends for room in the socket buffer; zero means no bound.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.udp.SetWriteDeadline(t) }

// SetReadBuffer asks the kernel for another receive buffer. quic-go calls it when the present one is small.
func (c *Conn) SetReadBuffer(bytes int) error { return c.udp.SetReadBuffer(bytes) }

// SetWriteBuffer asks the kernel for another send buffer. quic-go calls it when the present one is small.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.udp.SetWriteBuffer(bytes) }

// SyscallConn gives access to the descriptor for socket options. Reading through it would bypass the
// splitting of super-buffers.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.udp.SyscallConn() }
