package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// failSends makes the next sends fail with each of errs in turn.
func failSends(c *Conn, errs ...syscall.Errno) (calls *int, pauses *[]time.Duration) {
	real := c.kernel
	calls, pauses = new(int), new([]time.Duration)
	c.kernel.sendmsg = func(fd uintptr, msg *unix.Msghdr) (int, syscall.Errno) {
		*calls++
		if len(errs) > 0 {
			errno := errs[0]
			errs = errs[1:]
			return -1, errno
		}
		return real.sendmsg(fd, msg)
	}
	c.kernel.pause = func(d time.Duration) { *pauses = append(*pauses, d) }
	return calls, pauses
}

func TestWriteAbsorbsPassingErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		errs   []syscall.Errno
		waits  uint64
		pauses []time.Duration
	}{
		{"socket buffer full", []syscall.Errno{unix.EAGAIN}, 1, nil},
		{"device queue full", []syscall.Errno{unix.ENOBUFS, unix.ENOBUFS}, 0, []time.Duration{firstPause, 2 * firstPause}},
		{"report of an earlier send", []syscall.Errno{unix.ECONNREFUSED}, 0, nil},
		{"one after the other", []syscall.Errno{unix.EAGAIN, unix.ENOBUFS, unix.EAGAIN, unix.ECONNREFUSED}, 2, []time.Duration{firstPause}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := open(t, loopback4, Options{}), open(t, loopback4, Options{})
			calls, pauses := failSends(a, c.errs...)
			n, oobn, err := a.WriteMsgUDP(make([]byte, 300), segmentSize(100), b.LocalAddr().(*net.UDPAddr))
			if n != 300 || oobn == 0 || err != nil {
				t.Fatalf("WriteMsgUDP = %d, %d, %v", n, oobn, err)
			}
			read(t, b, 3)
			nothing(t, b)
			if *calls != len(c.errs)+1 || !slices.Equal(*pauses, c.pauses) {
				t.Errorf("%d calls, pauses %v; want %d, %v", *calls, *pauses, len(c.errs)+1, c.pauses)
			}
			s := a.Stats()
			if s.SendWaits != c.waits || s.NoBuffers != uint64(len(c.pauses)) || s.SendCalls != 1 || s.PacketsSent != 3 || s.BytesSent != 300 || s.SendDropped != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestWriteGivesUpOnAFullDevice(t *testing.T) {
	c := open(t, loopback4, Options{})
	calls, pauses := failSends(c, slices.Repeat([]syscall.Errno{unix.ENOBUFS}, 100)...)
	n, _, err := c.WriteMsgUDP([]byte("lost"), nil, c.LocalAddr().(*net.UDPAddr))
	if n != 4 || err != nil {
		t.Errorf("WriteMsgUDP = %d, %v; a lost packet is no error", n, err)
	}
	if *calls != maxPauses+1 || len(*pauses) != maxPauses {
		t.Errorf("%d calls, %d pauses", *calls, len(*pauses))
	}
	if s := c.Stats(); s.SendDropped != 1 || s.NoBuffers != maxPauses || s.PacketsSent != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestWritePassesErrorsOn(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EIO, unix.EMSGSIZE, unix.EPERM, unix.ENETUNREACH} {
		c := open(t, loopback4, Options{})
		calls, _ := failSends(c, errno)
		_, _, err := c.WriteMsgUDP([]byte("x"), nil, c.LocalAddr().(*net.UDPAddr))
		// This is what quic-go looks for.
		var sys *os.SyscallError
		if !errors.As(err, &sys) || sys.Syscall != "sendmsg" || sys.Err != errno || *calls != 1 {
			t.Errorf("%v: WriteMsgUDP = %v after %d calls", errno, err, *calls)
		}
		if s := c.Stats(); (s.GSOErrors == 1) != (errno == unix.EIO) || s.PacketsSent != 0 {
			t.Errorf("%v: stats %+v", errno, s)
		}
	}
	c := open(t, loopback4, Options{})
	calls, _ := failSends(c, unix.ECONNREFUSED, unix.ECONNREFUSED)
	if _, err := c.WriteTo([]byte("x"), c.LocalAddr()); !errors.Is(err, unix.ECONNREFUSED) || *calls != 2 {
		t.Errorf("refused twice: %v after %d calls", err, *calls)
	}
}

func TestWriteTooLong(t *testing.T) {
	c := open(t, loopback4, Options{})
	if _, err := c.WriteTo(make([]byte, 70000), c.LocalAddr()); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("70,000 bytes: %v", err)
	}
	if _, err := c.WriteTo([]byte("ok"), c.LocalAddr()); err != nil {
		t.Error(err)
	}
}

func TestWriteRefusesWhatItCannotReach(t *testing.T) {
	v4, v6 := open(t, loopback4, Options{}), open(t, loopback6, Options{})
	for _, c := range []struct {
		from *Conn
		to   net.Addr
		want string
	}{
		{v4, v6.LocalAddr(), "cannot send to"},
		{v4, &net.UDPAddr{Port: 1}, "cannot send to"},
		{v6, &net.UDPAddr{Port: 1}, "cannot send to"},
		{v4, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 65536}, "port 65536"},
		{v4, &net.TCPAddr{}, "*net.TCPAddr"},
		{v6, &net.UDPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "no-such-interface"}, `zone "no-such-interface"`},
	} {
		if _, err := c.from.WriteTo([]byte("x"), c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %v: %v, want %q", c.from.LocalAddr(), c.to, err, c.want)
		}
	}
	if _, _, err := v4.WriteMsgUDP([]byte("x"), nil, nil); err == nil {
		t.Error("a send without an address succeeded")
	}
}

func TestWriteReachesBothFamilies(t *testing.T) {
	both := open(t, netip.MustParseAddrPort("[::]:0"), Options{})
	for _, addr := range []netip.AddrPort{loopback4, loopback6} {
		peer := open(t, addr, Options{})
		_, err := both.WriteTo([]byte("there"), peer.LocalAddr())
		check(t, err)
		d := read(t, peer, 1)[0]
		if string(d.data) != "there" || d.from.Port != int(both.AddrPort().Port()) {
			t.Errorf("%s: %q from %v", addr, d.data, d.from)
		}
		_, err = peer.WriteTo([]byte("back"), d.from)
		check(t, err)
		d = read(t, both, 1)[0]
		if string(d.data) != "back" || d.from.AddrPort() != peer.AddrPort() {
			t.Errorf("%s: %q from %v", addr, d.data, d.from)
		}
		// A mapped address is as good.
		_, err = both.WriteTo([]byte("mapped"), &net.UDPAddr{IP: peer.LocalAddr().(*net.UDPAddr).IP.To16(), Port: int(peer.AddrPort().Port())})
		check(t, err)
		read(t, peer, 1)
	}
}

func TestWriteToAZone(t *testing.T) {
	ifis, err := net.Interfaces()
	check(t, err)
	c := open(t, loopback6, Options{})
	for _, ifi := range ifis {
		for _, zone := range []string{ifi.Name, fmt.Sprint(ifi.Index), ifi.Name} {
			var s send
			check(t, c.address(&s, &net.UDPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: zone}))
			if s.name.Scope_id != uint32(ifi.Index) {
				t.Errorf("zone %s is scope %d, want %d", zone, s.name.Scope_id, ifi.Index)
			}
		}
	}
}

func TestRepliesLeaveFromTheAddressThatWasAsked(t *testing.T) {
	c := open(t, netip.MustParseAddrPort("0.0.0.0:0"), Options{})
	setOption(t, c, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	// A connected socket hears only the address it is connected to.
	asked := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: int(c.AddrPort().Port())}
	client, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, asked)
	check(t, err)
	defer client.Close()
	_, err = client.Write([]byte("ask"))
	check(t, err)
	d := read(t, c, 1)[0]
	info, ok := controlData(t, d.oob, unix.IPPROTO_IP, unix.IP_PKTINFO)
	if !ok {
		t.Fatalf("no packet info in %x", d.oob)
	}
	// in_pktinfo: interface, local address, destination of the packet. A reply's source is the second.
	reply := make([]byte, 12)
	copy(reply[4:8], info[8:12])
	_, _, err = c.WriteMsgUDP([]byte("answer"), cmsg(unix.IPPROTO_IP, unix.IP_PKTINFO, reply), d.from)
	check(t, err)
	check(t, client.SetReadDeadline(time.Now().Add(patience)))
	b := make([]byte, 16)
	n, err := client.Read(b)
	check(t, err)
	if string(b[:n]) != "answer" {
		t.Errorf("read %q", b[:n])
	}
}
