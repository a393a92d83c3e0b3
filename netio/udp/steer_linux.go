package udp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// program is route for the kernel: it runs on the payload of a datagram and returns the index of the
// socket within the group, in the order of their binds. An index outside the group makes the kernel fall
// back to its hash of addresses and ports; a load beyond the packet's end ends the program with 0.
func program(n int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x80, SkipTrue: 2},

		bpf.LoadAbsolute{Off: 1, Size: 1}, // short header: first byte of the connection ID
		bpf.RetA{},

		bpf.LoadAbsolute{Off: 5, Size: 1}, // long header: length of the destination ID
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ConnectionIDBytes, SkipFalse: 2},
		bpf.LoadAbsolute{Off: 6, Size: 1}, // ours: first byte of the connection ID
		bpf.RetA{},

		bpf.LoadAbsolute{Off: 6, Size: 4}, // the client's: random, any four bytes spread evenly
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(n)},
		bpf.RetA{},
	}
}

// attach gives the program to the group that the socket fd belongs to. All members must be bound before:
// the index counts binds.
func attach(fd uintptr, n int) error {
	raw, err := bpf.Assemble(program(n))
	if err != nil {
		panic("BUG: udp: the steering program does not assemble: " + err.Error())
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}
