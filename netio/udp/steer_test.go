package udp

import "testing"

// packets are headers with their member in a group of 4.
var packets = []struct {
	name        string
	p           []byte
	member      int
	established bool
	ok          bool
}{
	{"short header of member 0", []byte{0x40, 0, 9, 9, 9, 9, 9, 9, 9, 9}, 0, true, true},
	{"short header of member 3", []byte{0x7f, 3, 9, 9, 9, 9, 9, 9, 9, 9}, 3, true, true},
	{"short header of no member", []byte{0x40, 4, 9, 9, 9, 9, 9, 9, 9, 9}, 4, true, false},
	{"long header of member 2", []byte{0xe0, 0, 0, 0, 1, 7, 2, 9, 9, 9, 9, 9, 9}, 2, true, true},
	{"long header of no member", []byte{0xe0, 0, 0, 0, 1, 7, 200, 9, 9, 9, 9, 9, 9}, 200, true, false},
	{"first packet, ID of 8 bytes", []byte{0xc0, 0, 0, 0, 1, 8, 0, 0, 0, 7, 1, 1, 1, 1}, 3, false, true},
	{"first packet, ID of 20 bytes", []byte{0xc0, 0, 0, 0, 1, 20, 0xff, 0xff, 0xff, 0xfd, 1, 1, 1, 1}, 1, false, true},
	{"empty", nil, 0, false, false},
	{"one byte", []byte{0x40}, 0, false, false},
	{"long header cut short", []byte{0xc0, 0, 0, 0, 1, 8, 1, 2, 3}, 0, false, false},
}

func TestRoute(t *testing.T) {
	for _, c := range packets {
		member, established, ok := route(c.p, 4)
		if ok != c.ok || ok && (member != c.member || established != c.established) {
			t.Errorf("%s: route = %d, %v, %v, want %d, %v, %v", c.name, member, established, ok, c.member, c.established, c.ok)
		}
	}
}

func TestRouteSpreadsEvenly(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7, 48, 64} {
		counts := make([]int, n)
		const each = 200
		// Any distribution of IDs that touches all bytes alike will do; a counter through a multiplier
		// gives the same one every time.
		for i := range uint32(each * n) {
			x := i * 2654435761
			p := []byte{0xc0, 0, 0, 0, 1, 8, byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x), 0, 0, 0, 0}
			m, established, ok := route(p, n)
			if !ok || established {
				t.Fatalf("route(%x, %d) = %d, %v, %v", p, n, m, established, ok)
			}
			counts[m]++
		}
		for m, got := range counts {
			if got < each/2 || got > each*2 {
				t.Errorf("group of %d: member %d gets %d of %d", n, m, got, each*n)
			}
		}
	}
}
