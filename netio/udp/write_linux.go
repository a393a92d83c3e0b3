package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ENOBUFS says that a device queue or memory is full and offers nothing to wait on. A send pauses and tries
// again: 50 us, then twice as long each time, 6.35 ms in all. After that the packet counts as sent and lost, which
// QUIC knows how to repair; an error would end the connection.
const (
	maxPauses  = 7
	firstPause = 50 * time.Microsecond
)

// A send is one call of WriteMsgUDP. The struct is reused, so that neither the kernel's structures nor the
// functions the poller wants are garbage.
type send struct {
	hdr  unix.Msghdr
	iov  unix.Iovec
	name unix.RawSockaddrInet6 // large enough for either family

	n     int
	errno syscall.Errno
	try   func(fd uintptr)      // sends or sets errno
	wait  func(fd uintptr) bool // try, until it is not EAGAIN
}

func newSend(c *Conn) *send {
	s := &send{}
	s.hdr.Name = (*byte)(unsafe.Pointer(&s.name))
	s.hdr.Iov = &s.iov
	s.hdr.SetIovlen(1)
	s.try = func(fd uintptr) { s.n, s.errno = c.kernel.sendmsg(fd, &s.hdr) }
	s.wait = func(fd uintptr) bool {
		s.try(fd)
		return s.errno != unix.EAGAIN
	}
	return s
}

// WriteMsgUDP sends b to addr with the control messages oob: one datagram, or several with a segment
// size among them. It waits while the socket buffer is full, up to the write deadline. A datagram that is too
// long for the path (EMSGSIZE) and a segmented send that the device refuses (EIO) come back as errors. b and oob
// are free again when it returns.
func (c *Conn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if addr == nil {
		return 0, 0, c.writeError(nil, errors.New("no address given"))
	}
	s := c.sends.Get().(*send)
	defer c.release(s)
	if err := c.address(s, addr); err != nil {
		return 0, 0, c.writeError(addr, err)
	}
	s.iov.Base = unsafe.SliceData(b)
	s.iov.SetLen(len(b))
	s.hdr.Control = unsafe.SliceData(oob)
	s.hdr.SetControllen(len(oob))
	if len(oob) == 0 {
		s.hdr.Control = nil
	}

	// Sends run side by side: this holds the descriptor open, not its write lock.
	if err := c.raw.Control(s.try); err != nil {
		return 0, 0, c.writeError(addr, err)
	}
	refused := false
	for pauses := 0; s.errno != 0; {
		switch {
		case s.errno == unix.EAGAIN:
			c.sent.waits.Add(1)
			if err := c.raw.Write(s.wait); err != nil {
				return 0, 0, c.writeError(addr, err)
			}
			continue
		case s.errno == unix.ENOBUFS && pauses == maxPauses:
			c.sent.dropped.Add(1)
			return len(b), len(oob), nil
		case s.errno == unix.ENOBUFS:
			c.sent.noBuffers.Add(1)
			c.kernel.pause(firstPause << pauses)
			pauses++
		case s.errno == unix.ECONNREFUSED && !refused:
			refused = true // the report of an earlier send; this one has not been tried
		default:
			if s.errno == unix.EIO {
				c.sent.gsoErrors.Add(1)
			}
			// quic-go looks for this type, this name and this number.
			return 0, 0, c.writeError(addr, os.NewSyscallError("sendmsg", s.errno))
		}
		if err := c.raw.Control(s.try); err != nil {
			return 0, 0, c.writeError(addr, err)
		}
	}
	c.sent.calls.Add(1)
	c.sent.packets.Add(uint64(segments(len(b), oob)))
	c.sent.bytes.Add(uint64(s.n))
	return s.n, len(oob), nil
}

// release gives s back without the caller's memory.
func (c *Conn) release(s *send) {
	s.iov.Base = nil
	s.hdr.Control = nil
	c.sends.Put(s)
}

// WriteTo is WriteMsgUDP without control messages. addr is a *net.UDPAddr.
func (c *Conn) WriteTo(b []byte, addr net.Addr) (int, error) {
	a, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, c.writeError(addr, fmt.Errorf("the address is a %T, not a *net.UDPAddr", addr))
	}
	n, _, err := c.WriteMsgUDP(b, nil, a)
	return n, err
}

// address writes addr into s as the socket's family wants it.
func (c *Conn) address(s *send, addr *net.UDPAddr) error {
	if addr.Port < 0 || addr.Port > 0xffff {
		return fmt.Errorf("port %d is out of range", addr.Port)
	}
	port := [2]byte{byte(addr.Port >> 8), byte(addr.Port)}
	s.name = unix.RawSockaddrInet6{Port: binary.NativeEndian.Uint16(port[:])}
	v4 := addr.IP.To4()
	switch {
	case !c.v6 && v4 != nil:
		// sockaddr_in has the address where sockaddr_in6 has the flow label.
		s.name.Family = unix.AF_INET
		s.name.Flowinfo = binary.NativeEndian.Uint32(v4)
		s.hdr.Namelen = unix.SizeofSockaddrInet4
	case c.v6 && (v4 != nil || len(addr.IP) == net.IPv6len):
		s.name.Family = unix.AF_INET6
		if v4 != nil {
			s.name.Addr = [16]byte{10: 0xff, 11: 0xff}
			copy(s.name.Addr[12:], v4)
		} else {
			copy(s.name.Addr[:], addr.IP)
		}
		if addr.Zone != "" {
			index, err := c.zoneIndex(addr.Zone)
			if err != nil {
				return err
			}
			s.name.Scope_id = index
		}
		s.hdr.Namelen = unix.SizeofSockaddrInet6
	default:
		return fmt.Errorf("the socket on %s cannot send to %s", c.local, addr)
	}
	return nil
}

// A zone is the interface a link-local address was last looked up by name for.
type zone struct {
	name  string
	index uint32
}

// zoneIndex returns the number of an interface. Our own addresses carry numbers; a name, which only a
// dialled address has, is looked up once and remembered.
func (c *Conn) zoneIndex(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	if z := c.zone.Load(); z != nil && z.name == name {
		return z.index, nil
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", name, err)
	}
	c.zone.Store(&zone{name: name, index: uint32(ifi.Index)})
	return uint32(ifi.Index), nil
}

// writeError gives an error the form package net gives it.
func (c *Conn) writeError(addr net.Addr, err error) error {
	if op, ok := err.(*net.OpError); ok {
		err = op.Err // of the poller, which knows less
	}
	return &net.OpError{Op: "write", Net: c.local.Network(), Source: c.local, Addr: addr, Err: err}
}
