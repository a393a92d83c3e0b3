package udp

import (
	"testing"

	"golang.org/x/net/bpf"
)

// FuzzRoute holds the kernel's program and route together: where route names a member, so does the program;
// where route says there is none, the program's answer is outside the group, or 0 for a packet too short for it.
func FuzzRoute(f *testing.F) {
	for _, c := range packets {
		f.Add(c.p, uint8(4))
	}
	machines := map[int]*bpf.VM{}
	for n := 1; n <= MaxShared; n++ {
		vm, err := bpf.NewVM(program(n))
		check(f, err)
		machines[n] = vm
	}
	f.Fuzz(func(t *testing.T, p []byte, members uint8) {
		n := int(members)%MaxShared + 1
		got, err := machines[n].Run(p)
		if err != nil {
			t.Fatal(err)
		}
		member, _, ok := route(p, n)
		switch {
		case ok && (got != member || member < 0 || member >= n):
			t.Errorf("group of %d, packet %x: the program says %d, route says %d", n, p, got, member)
		case !ok && len(p) >= routeBytes && got < n:
			t.Errorf("group of %d, packet %x: the program says %d, route finds none", n, p, got)
		case !ok && len(p) < routeBytes && got < n && got != 0 && (len(p) < 7 || p[5] != ConnectionIDBytes):
			t.Errorf("group of %d, short packet %x: the program says %d, route finds none", n, p, got)
		}
	})
}
