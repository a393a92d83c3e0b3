package udp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

var loopback6 = netip.MustParseAddrPort("[::1]:0")

// patience bounds every wait of a test. No test measures time.
const patience = 2 * time.Minute

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// messages is what quic-go gives to ReadBatch.
func messages(n int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i].Buffers = [][]byte{make([]byte, 1452)}
		ms[i].OOB = make([]byte, 128)
	}
	return ms
}

// A datagram is what a test keeps of one.
type datagram struct {
	data []byte
	oob  []byte
	from *net.UDPAddr
}

// read takes n datagrams, in batches of up to 8.
func read(t testing.TB, c *Conn, n int) []datagram {
	t.Helper()
	var got []datagram
	for len(got) < n {
		ms := messages(min(8, n-len(got)))
		check(t, c.SetReadDeadline(time.Now().Add(patience)))
		k, err := c.ReadBatch(ms, 0)
		check(t, err)
		if k < 1 || k > len(ms) {
			t.Fatalf("ReadBatch returned %d messages of %d", k, len(ms))
		}
		for _, m := range ms[:k] {
			got = append(got, datagram{bytes.Clone(m.Buffers[0][:m.N]), bytes.Clone(m.OOB[:m.NN]), m.Addr.(*net.UDPAddr)})
		}
	}
	check(t, c.SetReadDeadline(time.Time{}))
	return got
}

// nothing fails if a datagram waits to be read.
func nothing(t testing.TB, c *Conn) {
	t.Helper()
	check(t, c.SetReadDeadline(past))
	defer c.SetReadDeadline(time.Time{})
	ms := messages(1)
	if n, err := c.ReadBatch(ms, 0); err == nil {
		t.Errorf("%d unexpected datagrams, the first is %x from %v", n, ms[0].Buffers[0][:ms[0].N], ms[0].Addr)
	}
}

// sender is a plain socket.
func sender(t testing.TB, addr netip.AddrPort) *net.UDPConn {
	t.Helper()
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	check(t, err)
	t.Cleanup(func() { u.Close() })
	return u
}

// cmsg makes one control message.
func cmsg(level, typ int, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(typ)
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

// segmentSize asks the kernel to cut a send into datagrams.
func segmentSize(n int) []byte {
	return cmsg(unix.IPPROTO_UDP, unix.UDP_SEGMENT, binary.NativeEndian.AppendUint16(nil, uint16(n)))
}

// controlData finds the data of a control message.
func controlData(t testing.TB, oob []byte, level, typ int) ([]byte, bool) {
	t.Helper()
	ms, err := unix.ParseSocketControlMessage(oob)
	check(t, err)
	for _, m := range ms {
		if int(m.Header.Level) == level && int(m.Header.Type) == typ {
			return m.Data, true
		}
	}
	return nil, false
}

func setOption(t testing.TB, c *Conn, level, name, value int) {
	t.Helper()
	check(t, c.option(level, name, value))
}

// must writes one send with control messages.
func must(t testing.TB, u *net.UDPConn, b, oob []byte, to netip.AddrPort) {
	t.Helper()
	_, _, err := u.WriteMsgUDPAddrPort(b, oob, to)
	check(t, err)
}
