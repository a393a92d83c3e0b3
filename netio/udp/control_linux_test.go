package udp

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSegments(t *testing.T) {
	tos := cmsg(unix.IPPROTO_IP, unix.IP_TOS, []byte{2})
	for _, c := range []struct {
		n    int
		oob  []byte
		want int
	}{
		{100, nil, 1}, {100, tos, 1}, {0, segmentSize(100), 1},
		{100, segmentSize(100), 1}, {101, segmentSize(100), 2}, {20328, slices.Concat(tos, segmentSize(1452)), 14},
		{100, []byte{1, 2, 3}, 1}, {100, segmentSize(0), 1},
	} {
		if got := segments(c.n, c.oob); got != c.want {
			t.Errorf("segments(%d, %x) = %d, want %d", c.n, c.oob, got, c.want)
		}
	}
}

func TestParseReceived(t *testing.T) {
	tos := cmsg(unix.IPPROTO_IP, unix.IP_TOS, []byte{2})
	info := cmsg(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, bytes.Repeat([]byte{7}, 20))
	gro := cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, []byte{0xac, 5, 0, 0})
	drops := cmsg(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, []byte{1, 0, 0, 0})
	for _, c := range []struct {
		name string
		in   []byte
		size int
		kept []byte
	}{
		{"nothing", nil, 0, nil},
		{"a super-buffer", slices.Concat(tos, gro), 1452, tos},
		{"all there is", slices.Concat(info, drops, tos, gro), 1452, slices.Concat(info, tos)},
		{"more than is kept", slices.Concat(info, info, info, info, gro, tos), 1452, slices.Concat(info, info, info)},
		{"the last one unpadded", tos[:unix.CmsgLen(1)], 0, tos[:unix.CmsgLen(1)]},
		{"cut in the header", slices.Concat(tos, gro[:10]), 0, tos},
		{"a size cut short", cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, []byte{1, 2}), 0, nil},
	} {
		var room [keptBytes]byte
		if size, kept := parseReceived(room[:0], c.in); size != c.size || !bytes.Equal(kept, c.kept) {
			t.Errorf("%s: size %d, kept %x, want %d, %x", c.name, size, kept, c.size, c.kept)
		}
	}
}

// FuzzParseReceived feeds what a kernel would not write. The parser must not read beyond its input, and what it
// keeps must be whole messages of the IP layer, in order.
func FuzzParseReceived(f *testing.F) {
	f.Add(slices.Concat(cmsg(unix.IPPROTO_IP, unix.IP_TOS, []byte{1}), cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, []byte{0xac, 5, 0, 0})))
	f.Add(cmsg(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, make([]byte, 20)))
	f.Add(cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, []byte{1}))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var room [keptBytes]byte
		_, kept := parseReceived(room[:0], b)
		if len(kept) > keptBytes {
			t.Fatalf("kept %d bytes", len(kept))
		}
		for rest := kept; len(rest) > 0; {
			c, next, ok := nextControl(rest)
			if !ok {
				t.Fatalf("kept %x, of which %x is no control message", kept, rest)
			}
			if c.level != unix.IPPROTO_IP && c.level != unix.IPPROTO_IPV6 {
				t.Fatalf("kept level %d", c.level)
			}
			if !bytes.Contains(b, c.whole) {
				t.Fatalf("kept what was not there: %x", c.whole)
			}
			rest = next
		}
		if n := segments(100, b); n < 1 || n > 100 {
			t.Fatalf("100 bytes make %d datagrams", n)
		}
	})
}
