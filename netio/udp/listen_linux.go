package udp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settings are Options with what only tests and benchmarks vary.
type settings struct {
	Options
	batch int // messages per system call; 0 is what doc.go decides

	noBPF   bool // as if the kernel refused the steering program
	noShare bool // as if it refused to share a port
}

func defaults(o Options) settings {
	return settings{Options: o.withDefaults()}
}

// Listen opens a socket on addr; port 0 takes a free one. An address of [::] takes IPv4 as well, as in
// package net. Clients and probes listen on port 0 and dial from there.
func Listen(addr netip.AddrPort, o Options) (*Conn, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return listen(addr, false, defaults(o))
}

// ListenShared opens n sockets, 1 to MaxShared, on one port. The kernel gives each packet to the member
// that owns its connection: member i's transport must use ConnectionIDs(i). First packets of new
// connections are spread evenly.
//
// The bool tells whether the kernel does this steering. If it cannot (one log line), packets arrive by the
// kernel's hash of addresses and ports; new connections then stay where they came, and a packet of another
// member's connection is handed over to it, so everything works, but all connections of one source port land on
// one member. Where a port cannot be shared at all (another log line) the slice holds a single Conn.
//
// A port that any other socket holds is refused, also when that socket is willing to share it.
func ListenShared(addr netip.AddrPort, n int, o Options) ([]*Conn, bool, error) {
	if err := o.validate(); err != nil {
		return nil, false, err
	}
	return listenShared(addr, n, defaults(o))
}

func listenShared(addr netip.AddrPort, n int, s settings) ([]*Conn, bool, error) {
	if n < 1 || n > MaxShared {
		return nil, false, fmt.Errorf("udp: %d sockets on one port: choose 1 to %d", n, MaxShared)
	}
	// The first member binds alone, so that a port in use is noticed even where its holder (another
	// process of the same user) would share it. Only then does it open the port to its siblings.
	first, err := listen(addr, false, s)
	if err != nil {
		return nil, false, err
	}
	members := []*Conn{first}
	if n == 1 {
		return members, true, nil
	}
	closeAll := func() {
		for _, c := range members {
			c.Close()
		}
	}
	err = first.option(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if s.noShare {
		err = unix.ENOPROTOOPT
	}
	if err != nil {
		s.Logger.Warn("udp: this kernel cannot share a port, so one socket serves it; give every core a port of its own",
			"addr", first.AddrPort(), "err", err)
		return members, false, nil
	}
	quiet := s
	quiet.Logger = slog.New(slog.DiscardHandler) // what there is to say about buffers the first one has said
	addr = netip.AddrPortFrom(addr.Addr(), first.AddrPort().Port())
	for len(members) < n {
		c, err := listen(addr, true, quiet)
		if errors.Is(err, syscall.EADDRINUSE) && len(members) == 1 {
			s.Logger.Warn("udp: this kernel does not let a second socket join the port, so one serves it; give every core a port of its own",
				"addr", addr, "err", err)
			return members, false, nil
		}
		if err != nil {
			closeAll()
			return nil, false, err
		}
		members = append(members, c)
	}
	g := &group{members: members}
	if s.noBPF {
		err = unix.ENOPROTOOPT
	} else {
		err = first.control(func(fd uintptr) error { return attach(fd, n) })
	}
	if err != nil {
		s.Logger.Warn("udp: this kernel does not steer a shared port by connection ID; packets that arrive at the wrong socket are handed over, and all connections of one source port share a socket",
			"addr", addr, "sockets", n, "err", err)
	}
	g.steered = err == nil
	for i, c := range members {
		c.group, c.index = g, i
	}
	return members, g.steered, nil
}

// listen opens one socket, as a further member of a shared port if asked to.
func listen(addr netip.AddrPort, join bool, s settings) (*Conn, error) {
	if !addr.IsValid() {
		return nil, errNoAddress
	}
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	lc := net.ListenConfig{}
	if join {
		lc.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if cerr := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}); cerr != nil {
				return cerr
			}
			return err
		}
	}
	pc, err := lc.ListenPacket(context.Background(), network(addr), addr.String())
	if err != nil {
		return nil, listenError(addr, err)
	}
	c, err := newConn(pc.(*net.UDPConn), s)
	if err != nil {
		pc.Close()
		return nil, fmt.Errorf("udp: set up the socket on %s: %w", addr, err)
	}
	return c, nil
}

func newConn(u *net.UDPConn, s settings) (*Conn, error) {
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		udp:    u,
		raw:    raw,
		local:  u.LocalAddr().(*net.UDPAddr),
		kernel: realKernel,
	}
	err = c.control(func(fd uintptr) error {
		domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		c.v6 = domain == unix.AF_INET6
		return err
	})
	if err != nil {
		return nil, err
	}
	c.grow("receive", "rmem_max", unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, s.ReadBufferBytes, s.Logger)
	c.grow("send", "wmem_max", unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, s.WriteBufferBytes, s.Logger)
	if !s.DisableGRO {
		if err := c.option(unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
			s.Logger.Warn("udp: this kernel has no receive offload, so every packet costs a read of its own",
				"addr", c.local, "err", err)
		} else {
			c.gro = true
		}
	}
	// The same question quic-go asks.
	c.gso = c.control(func(fd uintptr) error {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		return err
	}) == nil
	batch, room := superBatch, superBytes
	if !c.gro {
		batch, room = singleBatch, singleBytes
	}
	if s.batch > 0 {
		batch = s.batch
	}
	c.rd.init(c, batch, room)
	c.sends.New = func() any { return newSend(c) }
	return c, nil
}

// grow asks for a socket buffer, with privilege first, and complains if it came out small.
func (c *Conn) grow(which, sysctl string, force, plain, want int, log *slog.Logger) {
	got := 0
	err := c.control(func(fd uintptr) error {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, force, want) != nil {
			// Without the privilege the kernel quietly gives the most it may.
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, plain, want); err != nil {
				return err
			}
		}
		var err error
		got, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, plain)
		return err
	})
	// The kernel doubles what it is asked for, to allow for its bookkeeping.
	if err != nil || got/2 < want {
		log.Warn(fmt.Sprintf("udp: the %s buffer came out smaller than asked, bursts may be lost: sysctl -w net.core.%s=%d", which, sysctl, want),
			"addr", c.local, "asked_bytes", want, "granted_bytes", got/2, "err", err)
	}
}

// control runs f on the descriptor, which stays open meanwhile.
func (c *Conn) control(f func(fd uintptr) error) error {
	var err error
	if cerr := c.raw.Control(func(fd uintptr) { err = f(fd) }); cerr != nil {
		return cerr
	}
	return err
}

// option sets a socket option.
func (c *Conn) option(level, name, value int) error {
	return c.control(func(fd uintptr) error { return unix.SetsockoptInt(int(fd), level, name, value) })
}

// askKernel brings the socket's drop count and buffer sizes up to date. What the kernel does not tell
// (after Close; drops before Linux 4.12) stays as it was.
func (c *Conn) askKernel() {
	const dropsField = 8 // SK_MEMINFO_DROPS of linux/sock_diag.h
	var info [dropsField + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_ = c.control(func(fd uintptr) error {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno == 0 && size == uint32(unsafe.Sizeof(info)) {
			c.socket.drops.Store(uint64(info[dropsField]))
		}
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			c.socket.readBuffer.Store(uint64(n))
		}
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
			c.socket.writeBuffer.Store(uint64(n))
		}
		return nil
	})
}
