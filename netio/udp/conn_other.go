//go:build !linux

package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/quic-go/quic-go"
)

// A Conn is one UDP socket for a quic.Transport. On this system it is package net's own: no receive offload,
// datagrams above 1,452 bytes are cut, and counts are not kept.
type Conn struct {
	*net.UDPConn
	buffers struct{ read, write int }
}

var _ quic.OOBCapablePacketConn = (*Conn)(nil)

// Listen opens a socket on addr; port 0 takes a free one. An address of [::] takes IPv4 as well, as in
// package net.
func Listen(addr netip.AddrPort, o Options) (*Conn, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if !addr.IsValid() {
		return nil, errNoAddress
	}
	o = o.withDefaults()
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	pc, err := (&net.ListenConfig{}).ListenPacket(context.Background(), network(addr), addr.String())
	if err != nil {
		return nil, listenError(addr, err)
	}
	c := &Conn{UDPConn: pc.(*net.UDPConn)}
	c.buffers.read, c.buffers.write = o.ReadBufferBytes, o.WriteBufferBytes
	if err := errors.Join(c.SetReadBuffer(o.ReadBufferBytes), c.SetWriteBuffer(o.WriteBufferBytes)); err != nil {
		o.Logger.Warn("udp: the socket buffers came out smaller than asked, bursts may be lost", "addr", c.LocalAddr(), "err", err)
	}
	return c, nil
}

// ListenShared opens a single socket on this system: ports are not steered, so they are not shared. The
// bool is true only for n = 1.
func ListenShared(addr netip.AddrPort, n int, o Options) ([]*Conn, bool, error) {
	if n < 1 || n > MaxShared {
		return nil, false, fmt.Errorf("udp: %d sockets on one port: choose 1 to %d", n, MaxShared)
	}
	c, err := Listen(addr, o)
	if err != nil {
		return nil, false, err
	}
	if n > 1 {
		o.withDefaults().Logger.Warn("udp: this system does not steer a shared port, so one socket serves it; give every core a port of its own",
			"addr", c.LocalAddr(), "sockets", n)
	}
	return []*Conn{c}, n == 1, nil
}

// AddrPort returns the bound address.
func (c *Conn) AddrPort() netip.AddrPort {
	a := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Stats returns the buffer sizes that were asked for; nothing else is known here.
func (c *Conn) Stats() Stats {
	return Stats{ReadBufferBytes: c.buffers.read, WriteBufferBytes: c.buffers.write}
}
