package udp

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	// superBatch is the number of messages that one system call may bring with receive offload, and
	// superBytes holds the largest of them: the UDP length field has 16 bits, and a super-buffer is bounded
	// alike. See Decisions in doc.go.
	superBatch = 4
	superBytes = 64 << 10

	// Without receive offload a message is one datagram, and more of them must share a call.
	singleBatch = 8
	singleBytes = MaxDatagramBytes

	// controlBytes holds the control messages of one message: at most both families' packet info (72)
	// and traffic class (48) and the segment size (24).
	controlBytes = 256

	// keptBytes bounds the control messages that are passed on. quic-go gives room for as many.
	keptBytes = 128

	// memoryPause is how long reading rests when the kernel is short of memory. The packets wait in the
	// socket buffer.
	memoryPause = time.Millisecond
)

// A reader is the receiving half of a Conn. Messages come from the kernel in batches into memory of its
// own and leave datagram by datagram.
type reader struct {
	mu sync.Mutex // held by the one goroutine that reads; it guards everything below

	msgs  []mmsghdr // as given to the kernel; the slices below are what they point to
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6 // large enough for either family
	data  []byte                  // room for each message
	room  int                     // of one message
	ctrl  []byte                  // controlBytes for each message

	got, next int    // messages of the last call; the first not yet opened
	rest      []byte // of the message that is open: datagrams not yet delivered
	size      int    // of each datagram in rest but the last
	kept      [keptBytes]byte
	keptLen   int
	from      *net.UDPAddr // sender of rest

	receive func(fd uintptr) bool // made once: a new closure for each read would be garbage
	errno   syscall.Errno
	peers   peers
	one     [1]ipv4.Message // for the reads of one datagram
	oneBuf  [1][]byte
}

func (r *reader) init(c *Conn, batch, room int) {
	r.room = room
	r.msgs = make([]mmsghdr, batch)
	r.iovs = make([]unix.Iovec, batch)
	r.names = make([]unix.RawSockaddrInet6, batch)
	r.data = make([]byte, batch*room)
	r.ctrl = make([]byte, batch*controlBytes)
	for i := range r.msgs {
		r.iovs[i].Base = &r.data[i*room]
		r.iovs[i].SetLen(room)
		h := &r.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Control = &r.ctrl[i*controlBytes]
	}
	r.receive = func(fd uintptr) bool {
		for i := range r.msgs {
			h := &r.msgs[i].hdr
			h.Namelen = unix.SizeofSockaddrInet6
			h.SetControllen(controlBytes)
		}
		r.got, r.errno = c.kernel.recvmmsg(fd, r.msgs)
		return r.errno != unix.EAGAIN
	}
}

// ReadBatch waits for datagrams and fills at most len(ms) messages with one each: N, NN, Addr and the
// contents of Buffers[0] and OOB. A datagram longer than Buffers[0] gets a new Buffers[0]. Addr is shared by
// all packets of a peer and must not be changed. flags is not used.
//
// It never returns without a datagram or an error, and never an error that goes away by itself:
// quic-go would take the messages of the read before for new ones.
func (c *Conn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if len(ms) == 0 {
		return 0, errors.New("udp: ReadBatch needs room for at least one message")
	}
	c.rd.mu.Lock()
	defer c.rd.mu.Unlock()
	return c.readBatch(ms)
}

func (c *Conn) readBatch(ms []ipv4.Message) (int, error) {
	for {
		if n := c.deliver(ms); n > 0 {
			return n, nil
		}
		if n := c.takeOver(ms); n > 0 {
			return n, nil
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
}

// deliver moves datagrams from the reader's memory to ms, and those of other members to their queues.
func (c *Conn) deliver(ms []ipv4.Message) int {
	r := &c.rd
	n, bytes := 0, 0
	for n < len(ms) {
		if len(r.rest) == 0 && !c.open() {
			break
		}
		p := r.rest[:min(r.size, len(r.rest))]
		r.rest = r.rest[len(p):]
		if len(p) > MaxDatagramBytes {
			c.received.truncated.Add(1)
			continue
		}
		if c.group != nil {
			if owner := c.group.owner(c, p); owner != c {
				if owner.in.offer(owner.udp, p, r.kept[:r.keptLen], r.from) {
					c.received.handed.Add(1)
				} else {
					c.received.lost.Add(1)
				}
				continue
			}
		}
		put(&ms[n], p, r.kept[:r.keptLen], r.from)
		n++
		bytes += len(p)
	}
	if n > 0 {
		c.received.packets.Add(uint64(n))
		c.received.bytes.Add(uint64(bytes))
	}
	return n
}

// put fills a message with one datagram.
func put(m *ipv4.Message, p, kept []byte, from *net.UDPAddr) {
	if len(p) > len(m.Buffers[0]) {
		// quic-go keeps its pooled buffer elsewhere and gives it back untouched; this one goes to the
		// collector once the packet is done with.
		m.Buffers[0] = make([]byte, len(p))
	}
	m.N = copy(m.Buffers[0], p)
	m.NN = 0
	m.Flags = 0
	if len(kept) <= len(m.OOB) {
		m.NN = copy(m.OOB, kept)
	} else {
		m.Flags = unix.MSG_CTRUNC
	}
	m.Addr = from
}

// open goes to the next message that holds anything. It reports false when the last call's are used up.
func (c *Conn) open() bool {
	r := &c.rd
	for r.next < r.got {
		i := r.next
		r.next++
		m := &r.msgs[i]
		n := int(m.len)
		if m.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			// Without its control messages a super-buffer cannot be told from a datagram.
			c.received.truncated.Add(1)
			continue
		}
		if n == 0 {
			continue // anyone may send an empty datagram; it means nothing to QUIC
		}
		from := r.peers.lookup(&r.names[i])
		if from == nil {
			continue // no sender of ours: neither IPv4 nor IPv6
		}
		size, kept := parseReceived(r.kept[:0], r.ctrl[i*controlBytes:][:m.hdr.Controllen])
		r.keptLen = len(kept)
		r.from = from
		r.rest = r.data[i*r.room:][:n]
		r.size = n
		if size > 0 && size < n {
			r.size = size
			c.received.supers.Add(1)
		}
		return true
	}
	return false
}

// fill waits for the next messages, or for datagrams from another member (then it returns without any).
func (c *Conn) fill() error {
	r := &c.rd
	for {
		r.got, r.next = 0, 0
		if err := c.raw.Read(r.receive); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && c.in.waiting() {
				return nil
			}
			return c.readError(err)
		}
		switch {
		case r.errno == 0:
			c.received.calls.Add(1)
			return nil
		case absorbedByRead(r.errno):
			c.received.errs.Add(1)
			if r.errno == unix.ENOBUFS || r.errno == unix.ENOMEM {
				c.kernel.pause(memoryPause)
			}
		default:
			return c.readError(os.NewSyscallError("recvmmsg", r.errno))
		}
	}
}

// absorbedByRead tells errors that say nothing about the socket: reports of earlier sends, each of which
// the kernel makes once, and want of memory.
func absorbedByRead(errno syscall.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENETUNREACH, unix.ENETDOWN,
		unix.EMSGSIZE, unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EACCES, unix.ETIMEDOUT,
		unix.ENOBUFS, unix.ENOMEM:
		return true
	}
	return false
}

// readError gives an error the form package net gives it.
func (c *Conn) readError(err error) error {
	if op, ok := err.(*net.OpError); ok {
		err = op.Err // of the poller, which knows less
	}
	return &net.OpError{Op: "read", Net: c.local.Network(), Source: c.local, Err: err}
}

// ReadMsgUDP reads one datagram; what does not fit into b is lost, as with any UDP socket, and flags has
// MSG_TRUNC. quic-go uses ReadBatch instead. The address must not be changed.
func (c *Conn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	r := &c.rd
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oneBuf[0] = b
	r.one[0] = ipv4.Message{Buffers: r.oneBuf[:], OOB: oob}
	defer func() { // keep nothing of the caller's
		r.oneBuf[0] = nil
		r.one[0] = ipv4.Message{}
	}()
	if _, err := c.readBatch(r.one[:]); err != nil {
		return 0, 0, 0, nil, err
	}
	m := &r.one[0]
	flags = m.Flags
	if m.N > len(b) {
		flags |= unix.MSG_TRUNC
	}
	return copy(b, m.Buffers[0][:m.N]), m.NN, flags, m.Addr.(*net.UDPAddr), nil
}

// ReadFrom is ReadMsgUDP without control messages.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, _, _, addr, err := c.ReadMsgUDP(b, nil)
	if err != nil {
		return 0, nil, err
	}
	return n, addr, nil
}
