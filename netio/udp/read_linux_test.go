package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadSplitsSuperBuffers(t *testing.T) {
	for _, disable := range []bool{false, true} {
		t.Run(fmt.Sprintf("DisableGRO=%v", disable), func(t *testing.T) {
			c := open(t, loopback4, Options{DisableGRO: disable})
			u := sender(t, loopback4)
			var want [][]byte
			var send []byte
			for i := range 20 {
				p := bytes.Repeat([]byte{byte(i + 1)}, 1200)
				if i == 19 {
					p = p[:77] // the last datagram of a send may be shorter
				}
				want = append(want, p)
				send = append(send, p...)
			}
			must(t, u, send, segmentSize(1200), c.AddrPort())
			must(t, u, []byte("single"), nil, c.AddrPort())
			want = append(want, []byte("single"))
			for i, d := range read(t, c, len(want)) {
				if !bytes.Equal(d.data, want[i]) {
					t.Errorf("datagram %d has %d bytes %.8x, want %d bytes %.8x", i, len(d.data), d.data, len(want[i]), want[i])
				}
				if d.from.AddrPort() != u.LocalAddr().(*net.UDPAddr).AddrPort() {
					t.Errorf("datagram %d comes from %v", i, d.from)
				}
			}
			nothing(t, c)
			s := c.Stats()
			supers := uint64(1)
			if disable {
				supers = 0
			}
			if s.GRO == disable || s.SuperBuffers != supers {
				t.Errorf("GRO %v, %d super-buffers, want %v, %d", s.GRO, s.SuperBuffers, !disable, supers)
			}
			if s.PacketsReceived != 21 || s.BytesReceived != 19*1200+77+6 {
				t.Errorf("%d packets, %d bytes received", s.PacketsReceived, s.BytesReceived)
			}
		})
	}
}

func TestReadDeliversBigDatagramsWhole(t *testing.T) {
	for _, disable := range []bool{false, true} {
		t.Run(fmt.Sprintf("DisableGRO=%v", disable), func(t *testing.T) { testBigDatagrams(t, disable) })
	}
}

func testBigDatagrams(t *testing.T, disable bool) {
	c := open(t, loopback4, Options{DisableGRO: disable})
	u := sender(t, loopback4)
	for _, size := range []int{1452, 1453, 4096, 16336, MaxDatagramBytes} {
		p := make([]byte, size)
		for i := range p {
			p[i] = byte(i * 7)
		}
		must(t, u, p, nil, c.AddrPort())
		if d := read(t, c, 1)[0]; !bytes.Equal(d.data, p) {
			t.Errorf("a datagram of %d bytes came as %d bytes", size, len(d.data))
		}
	}
	// Longer ones go, and nothing else with them.
	must(t, u, make([]byte, MaxDatagramBytes+1), nil, c.AddrPort())
	must(t, u, make([]byte, 65507), nil, c.AddrPort())
	must(t, u, []byte("next"), nil, c.AddrPort())
	if d := read(t, c, 1)[0]; string(d.data) != "next" {
		t.Errorf("read %d bytes", len(d.data))
	}
	if s := c.Stats(); s.Truncated != 2 {
		t.Errorf("%d datagrams counted as too long, want 2", s.Truncated)
	}
}

func TestReadBatchKeepsTheCallersBuffer(t *testing.T) {
	// quic-go gives its pooled buffer back after use; the reader must fill that very buffer, or
	// replace it without touching it.
	c := open(t, loopback4, Options{})
	u := sender(t, loopback4)
	ms := messages(1)
	own := ms[0].Buffers[0]
	must(t, u, []byte("small"), nil, c.AddrPort())
	if _, err := c.ReadBatch(ms, 0); err != nil {
		t.Fatal(err)
	}
	if &ms[0].Buffers[0][0] != &own[0] || string(own[:5]) != "small" {
		t.Error("a small datagram is not in the caller's buffer")
	}
	must(t, u, make([]byte, 4096), nil, c.AddrPort())
	if _, err := c.ReadBatch(ms, 0); err != nil {
		t.Fatal(err)
	}
	if &ms[0].Buffers[0][0] == &own[0] || len(ms[0].Buffers[0]) != 4096 || string(own[:5]) != "small" || len(own) != 1452 {
		t.Error("a big datagram touched the caller's buffer")
	}
}

func TestReadSkipsEmptyDatagrams(t *testing.T) {
	c := open(t, loopback4, Options{})
	u := sender(t, loopback4)
	var want []string
	for i := range 30 {
		must(t, u, nil, nil, c.AddrPort())
		if i%3 == 0 {
			want = append(want, fmt.Sprint("packet ", i))
			must(t, u, []byte(want[len(want)-1]), nil, c.AddrPort())
		}
		must(t, u, nil, nil, c.AddrPort())
	}
	for i, d := range read(t, c, len(want)) {
		if string(d.data) != want[i] {
			t.Errorf("datagram %d is %q, want %q", i, d.data, want[i])
		}
	}
	nothing(t, c)
}

func TestReadMsgUDPAndReadFrom(t *testing.T) {
	c := open(t, loopback4, Options{})
	setOption(t, c, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
	u := sender(t, loopback4)
	from := u.LocalAddr().(*net.UDPAddr).AddrPort()
	send := func() { must(t, u, []byte("abcdefgh"), segmentSize(4), c.AddrPort()) }

	send()
	b, oob := make([]byte, 10), make([]byte, 128)
	n, oobn, flags, addr, err := c.ReadMsgUDP(b, oob)
	check(t, err)
	if _, ok := controlData(t, oob[:oobn], unix.IPPROTO_IP, unix.IP_TOS); string(b[:n]) != "abcd" || !ok || flags != 0 || addr.AddrPort() != from {
		t.Errorf("ReadMsgUDP: %q, oob %x, flags %#x, from %v", b[:n], oob[:oobn], flags, addr)
	}
	n, a, err := c.ReadFrom(b)
	check(t, err)
	if string(b[:n]) != "efgh" || a.(*net.UDPAddr).AddrPort() != from {
		t.Errorf("ReadFrom: %q from %v", b[:n], a)
	}
	send()
	if n, _, flags, _, err := c.ReadMsgUDP(b[:2], oob); err != nil || n != 2 || string(b[:2]) != "ab" || flags != unix.MSG_TRUNC {
		t.Errorf("ReadMsgUDP into 2 bytes: %d, flags %#x, %v", n, flags, err)
	}
}

func TestReadKeepsECNAndPacketInfo(t *testing.T) {
	for _, c := range []struct {
		name, listen, dial string
		tos                []byte
		level, ecn, info   int
		option, infoOption int
		localAt            int // of the local address in the packet info
	}{
		{"IPv4", "0.0.0.0:0", "127.0.0.2", cmsg(unix.IPPROTO_IP, unix.IP_TOS, []byte{2}),
			unix.IPPROTO_IP, unix.IP_TOS, unix.IP_PKTINFO, unix.IP_RECVTOS, unix.IP_PKTINFO, 8},
		{"IPv6", "[::]:0", "::1", cmsg(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, []byte{2, 0, 0, 0}),
			unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_PKTINFO, unix.IPV6_RECVTCLASS, unix.IPV6_RECVPKTINFO, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := open(t, netip.MustParseAddrPort(c.listen), Options{})
			setOption(t, conn, c.level, c.option, 1)
			setOption(t, conn, c.level, c.infoOption, 1)
			to := netip.AddrPortFrom(netip.MustParseAddr(c.dial), conn.AddrPort().Port())
			u := sender(t, netip.AddrPortFrom(to.Addr(), 0))
			must(t, u, make([]byte, 300), append(slices.Clone(c.tos), segmentSize(100)...), to)
			for i, d := range read(t, conn, 3) {
				ecn, ok := controlData(t, d.oob, c.level, c.ecn)
				if !ok || ecn[0]&3 != 2 {
					t.Errorf("segment %d: ECN %x, %v", i, ecn, ok)
				}
				info, ok := controlData(t, d.oob, c.level, c.info)
				if !ok || !bytes.HasPrefix(info[c.localAt:], to.Addr().AsSlice()) {
					t.Errorf("segment %d: packet info %x, %v", i, info, ok)
				}
				if _, ok := controlData(t, d.oob, unix.IPPROTO_UDP, unix.UDP_GRO); ok {
					t.Errorf("segment %d carries the size of a super-buffer that is no more", i)
				}
			}
		})
	}
}

// faults makes reading fail with each of errs in turn before it works.
func faults(c *Conn, errs ...syscall.Errno) (pauses *[]time.Duration) {
	real := c.kernel
	pauses = new([]time.Duration)
	c.kernel.recvmmsg = func(fd uintptr, msgs []mmsghdr) (int, syscall.Errno) {
		if len(errs) > 0 {
			errno := errs[0]
			errs = errs[1:]
			return -1, errno
		}
		return real.recvmmsg(fd, msgs)
	}
	c.kernel.pause = func(d time.Duration) { *pauses = append(*pauses, d) }
	return pauses
}

func TestReadAbsorbsPassingErrors(t *testing.T) {
	c := open(t, loopback4, Options{})
	errs := []syscall.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENOMEM, unix.ENOBUFS, unix.EPROTO}
	pauses := faults(c, errs...)
	must(t, sender(t, loopback4), []byte("still here"), nil, c.AddrPort())
	if d := read(t, c, 1)[0]; string(d.data) != "still here" {
		t.Errorf("read %q", d.data)
	}
	if s := c.Stats(); s.ReadErrors != uint64(len(errs)) || s.ReadCalls != 1 {
		t.Errorf("%d errors absorbed, %d calls, want %d, 1", s.ReadErrors, s.ReadCalls, len(errs))
	}
	if !slices.Equal(*pauses, []time.Duration{memoryPause, memoryPause}) {
		t.Errorf("pauses %v", *pauses)
	}
}

func TestReadReturnsLastingErrors(t *testing.T) {
	c := open(t, loopback4, Options{})
	faults(c, unix.EBADF)
	n, err := c.ReadBatch(messages(1), 0)
	var op *net.OpError
	if n != 0 || !errors.Is(err, unix.EBADF) || !errors.As(err, &op) || op.Op != "read" {
		t.Errorf("ReadBatch = %d, %v", n, err)
	}
	if _, err := c.ReadBatch(nil, 0); err == nil {
		t.Error("ReadBatch without room succeeded")
	}
}

func TestDeadlineEndsRead(t *testing.T) {
	c := open(t, loopback4, Options{})
	check(t, c.SetDeadline(past))
	_, err := c.ReadBatch(messages(1), 0)
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("ReadBatch past the deadline: %v", err)
	}
	check(t, c.SetDeadline(time.Time{}))
	must(t, sender(t, loopback4), []byte("x"), nil, c.AddrPort())
	read(t, c, 1)
}

func TestCloseEndsRead(t *testing.T) {
	c := open(t, loopback4, Options{})
	errs := make(chan error)
	var started sync.WaitGroup
	started.Add(1)
	go func() {
		started.Done()
		_, err := c.ReadBatch(messages(8), 0)
		errs <- err
	}()
	started.Wait()
	check(t, c.Close())
	if err := <-errs; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.WriteTo([]byte("x"), c.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	c.Stats() // still answers
}

func TestKernelDropsAreCounted(t *testing.T) {
	c := open(t, loopback4, Options{ReadBufferBytes: 8192})
	u := sender(t, loopback4)
	const n = 200
	flood := func() {
		for range n {
			must(t, u, make([]byte, 1000), nil, c.AddrPort())
		}
	}
	flood()
	first := c.Stats()
	if first.KernelDrops == 0 || first.KernelDrops >= n {
		t.Fatalf("%d drops of %d datagrams into a buffer of %d bytes", first.KernelDrops, n, first.ReadBufferBytes)
	}
	read(t, c, int(n-first.KernelDrops))
	nothing(t, c)
	flood()
	check(t, c.Close())
	if last := c.Stats(); last.KernelDrops <= first.KernelDrops || last.KernelDrops >= 2*n {
		t.Errorf("%d drops after the first flood, %d after the second one and Close", first.KernelDrops, last.KernelDrops)
	}
}

func TestReadAndWriteDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations differ under the race detector")
	}
	for _, c := range []struct{ listen, dial string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"},
	} {
		a, b := open(t, netip.MustParseAddrPort(c.listen), Options{}), open(t, netip.MustParseAddrPort(c.listen), Options{})
		for _, c := range []*Conn{a, b} {
			setOption(t, c, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
			if c.v6 {
				setOption(t, c, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
			}
		}
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.dial), b.AddrPort().Port()))
		second := open(t, netip.MustParseAddrPort(c.listen), Options{}) // so that the last address is not always the next
		small, big, oob := make([]byte, 256), make([]byte, 14*1452), segmentSize(1452)
		ms := messages(8)
		one := make([]byte, 1452)
		if n := testing.AllocsPerRun(200, func() {
			for _, send := range []struct {
				b, oob []byte
				want   int
			}{{small, nil, 1}, {big, oob, 14}} {
				if _, _, err := a.WriteMsgUDP(send.b, send.oob, to); err != nil {
					t.Fatal(err)
				}
				for got := 0; got < send.want; {
					n, err := b.ReadBatch(ms, 0)
					if err != nil {
						t.Fatal(err)
					}
					got += n
				}
			}
			if _, err := second.WriteTo(small, to); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.ReadFrom(one); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for 3 sends and 16 packets", c.listen, n)
		}
	}
}
