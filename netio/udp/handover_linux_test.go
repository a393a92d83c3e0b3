package udp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// share opens a shared port, with the kernel's steering or without.
func share(t testing.TB, n int, steered bool) []*Conn {
	t.Helper()
	s := defaults(Options{})
	s.noBPF = !steered
	members, got, err := listenShared(loopback4, n, s)
	check(t, err)
	t.Cleanup(func() {
		for _, c := range members {
			c.Close()
		}
	})
	if len(members) != n {
		t.Fatalf("%d members, want %d", len(members), n)
	}
	if steered && !got {
		t.Skip("this kernel does not steer by classic BPF")
	}
	if got != steered {
		t.Fatalf("steered = %v, want %v", got, steered)
	}
	for _, c := range members {
		if c.AddrPort() != members[0].AddrPort() {
			t.Fatalf("members on %v and %v", members[0].AddrPort(), c.AddrPort())
		}
	}
	return members
}

// both runs a test with the kernel's steering and without.
func both(t *testing.T, f func(t *testing.T, steered bool)) {
	for _, steered := range []bool{true, false} {
		t.Run(fmt.Sprintf("steered=%v", steered), func(t *testing.T) { f(t, steered) })
	}
}

// of makes a packet of 100 bytes for a member, with a short header.
func of(member, number int) []byte {
	return append([]byte{0x40, byte(member), byte(number)}, make([]byte, 97)...)
}

// collectWhile runs act while a reader waits at every member, and returns the next n datagrams by member.
func collectWhile(t testing.TB, members []*Conn, n int, act func()) [][]datagram {
	t.Helper()
	type arrival struct {
		member int
		d      datagram
	}
	arrivals := make(chan arrival)
	var readers sync.WaitGroup
	for i, c := range members {
		readers.Go(func() {
			ms := messages(8)
			for {
				n, err := c.ReadBatch(ms, 0)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range ms[:n] {
					arrivals <- arrival{i, datagram{bytes.Clone(m.Buffers[0][:m.N]), nil, m.Addr.(*net.UDPAddr)}}
				}
			}
		})
	}
	act()
	got := make([][]datagram, len(members))
	wait := patient(t)
	for range n {
		select {
		case a := <-arrivals:
			got[a.member] = append(got[a.member], a.d)
		case <-wait.Done():
			t.Fatalf("%d datagrams expected, these came: %v", n, got)
		}
	}
	for _, c := range members {
		check(t, c.SetReadDeadline(past))
	}
	readers.Wait()
	for _, c := range members {
		check(t, c.SetReadDeadline(time.Time{}))
	}
	return got
}

// collect returns the next n datagrams by member.
func collect(t testing.TB, members []*Conn, n int) [][]datagram {
	t.Helper()
	return collectWhile(t, members, n, func() {})
}

func TestSharedPortSteersByConnectionID(t *testing.T) {
	members := share(t, 4, true)
	u := sender(t, loopback4)
	want := make([][][]byte, 4)
	for _, c := range packets {
		if !c.ok {
			continue
		}
		must(t, u, c.p, nil, members[0].AddrPort())
		want[c.member] = append(want[c.member], c.p)
	}
	for i, c := range members {
		for k, d := range read(t, c, len(want[i])) {
			if !bytes.Equal(d.data, want[i][k]) {
				t.Errorf("member %d: packet %d is %x, want %x", i, k, d.data, want[i][k])
			}
		}
		nothing(t, c)
		if s := c.Stats(); s.HandedOver != 0 || s.TakenOver != 0 {
			t.Errorf("member %d: the kernel did not steer: %+v", i, s)
		}
	}
}

func TestMixedSuperBufferReachesEveryMember(t *testing.T) {
	both(t, func(t *testing.T, steered bool) {
		members := share(t, 4, steered)
		u := sender(t, loopback4)
		var mixed []byte
		for k := range 5 {
			for _, member := range []int{2, 0, 3, 1} {
				mixed = append(mixed, of(member, k)...)
			}
		}
		results := collectWhile(t, members, 20, func() {
			must(t, u, mixed, segmentSize(100), members[0].AddrPort())
		})
		handed, taken, packets := uint64(0), uint64(0), uint64(0)
		for i := range members {
			if len(results[i]) != 5 {
				t.Errorf("member %d got %d packets, want 5", i, len(results[i]))
			}
			for k, d := range results[i] {
				if !bytes.Equal(d.data, of(i, k)) || d.from.AddrPort() != u.LocalAddr().(*net.UDPAddr).AddrPort() {
					t.Errorf("member %d: packet %d is %.4x from %v", i, k, d.data, d.from)
				}
			}
			s := members[i].Stats()
			handed, taken, packets = handed+s.HandedOver, taken+s.TakenOver, packets+s.PacketsReceived
			if s.HandoverDropped != 0 {
				t.Errorf("member %d dropped %d", i, s.HandoverDropped)
			}
		}
		if handed != 15 || taken != 15 || packets != 20 {
			t.Errorf("%d handed over, %d taken over, %d received; want 15, 15, 20", handed, taken, packets)
		}
		if s := members[2].Stats(); steered && s.HandedOver != 15 {
			t.Errorf("member 2 owns the first segment and handed over %d", s.HandedOver)
		}
	})
}

func TestNewConnectionsInAMixedSuperBuffer(t *testing.T) {
	both(t, func(t *testing.T, steered bool) {
		members := share(t, 2, steered)
		u := sender(t, loopback4)
		first := func(id byte) []byte {
			return append([]byte{0xc0, 0, 0, 0, 1, 8, 0, 0, 0, id, 1, 2, 3, 4}, make([]byte, 86)...)
		}
		// Two connections' first packets travel together, and a second packet of the second one follows.
		must(t, u, append(first(0), first(1)...), segmentSize(100), members[0].AddrPort())
		must(t, u, first(1), nil, members[0].AddrPort())
		got := make([]string, 2)
		for member, packets := range collect(t, members, 3) {
			for _, p := range packets {
				got[member] += fmt.Sprint(p.data[9])
			}
		}
		if steered && (got[0] != "0" || got[1] != "11") {
			t.Errorf("packets by member: %v; want one owner for each connection", got)
		}
		if !steered && got[0] != "011" && got[1] != "011" {
			t.Errorf("packets by member: %v; want all where the kernel put them", got)
		}
	})
}

func TestHandoverIsBounded(t *testing.T) {
	members := share(t, 2, true)
	u := sender(t, loopback4)
	// hand passes packets numbered from..to-1 to member 1 by way of member 0, which owns the first and the
	// last of each send and so has passed on all between when it has read both.
	hand := func(from, to int) {
		for k := from; k < to; {
			mixed := of(0, 0)
			for range min(50, to-k) {
				mixed = append(mixed, of(1, k)...)
				k++
			}
			must(t, u, append(mixed, of(0, 0)...), segmentSize(100), members[0].AddrPort())
			read(t, members[0], 2)
		}
	}
	hand(0, inboxSlots+44)
	if s := members[0].Stats(); s.HandedOver != inboxSlots || s.HandoverDropped != 44 {
		t.Fatalf("%d handed over, %d dropped, want %d, 44", s.HandedOver, s.HandoverDropped, inboxSlots)
	}
	// What fits is kept in order, and the ring goes on after it was full.
	for round := range 3 {
		for k, d := range read(t, members[1], inboxSlots) {
			if d.data[2] != byte(round*100+k) {
				t.Fatalf("round %d: packet %d has number %d", round, k, d.data[2])
			}
		}
		nothing(t, members[1])
		hand((round+1)*100, (round+1)*100+inboxSlots)
	}
}

func TestHandoverKeepsDeadlinesAndBigDatagrams(t *testing.T) {
	members := share(t, 2, false)
	u := sender(t, loopback4)
	// Without steering any member may get a packet; find the one that gets this sender's.
	must(t, u, []byte{0x40}, nil, members[0].AddrPort())
	finder := 0
	if found := collect(t, members, 1); len(found[1]) == 1 {
		finder = 1
	}
	owner := 1 - finder
	foreign := append(of(owner, 1), make([]byte, 9000)...)
	handOver := func() {
		must(t, u, foreign, nil, members[0].AddrPort())
		must(t, u, of(finder, 2), nil, members[0].AddrPort())
		read(t, members[finder], 1)
	}
	c := members[owner]

	// A deadline of the caller does not hide what waits, and is still there afterwards.
	handOver()
	check(t, c.SetReadDeadline(past))
	ms := messages(2)
	if n, err := c.ReadBatch(ms, 0); n != 1 || err != nil || !bytes.Equal(ms[0].Buffers[0][:ms[0].N], foreign) {
		t.Fatalf("ReadBatch = %d, %v", n, err)
	}
	if _, err := c.ReadBatch(ms, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the last datagram: %v", err)
	}
	// While something waits, a new deadline must not undo the wake-up of a reader that has not run yet.
	handOver()
	check(t, c.SetReadDeadline(time.Time{}))
	if err := c.raw.Read(func(uintptr) bool { return false }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a read of the socket with a datagram in the inbox: %v", err)
	}
	// And the wake-up leaves no deadline behind.
	if n, err := c.ReadBatch(ms, 0); n != 1 || err != nil {
		t.Fatalf("ReadBatch = %d, %v", n, err)
	}
	next := make(chan error)
	go func() {
		_, err := c.ReadBatch(ms, 0)
		next <- err
	}()
	handOver()
	check(t, <-next)
	check(t, c.Close())
	if _, err := c.ReadBatch(ms, 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	// Nobody takes over for a closed member; its packets stay where they came.
	must(t, u, foreign, nil, members[finder].AddrPort())
	if d := read(t, members[finder], 1)[0]; !bytes.Equal(d.data, foreign) {
		t.Errorf("read %d bytes", len(d.data))
	}
}

func TestSharedPortSpreadsOneClientSocket(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			members := share(t, n, true)
			accepted := make([]*atomic.Int64, n)
			for i, c := range members {
				accepted[i] = serve(t, transport(t, c, uint8(i)))
			}
			client := transport(t, open(t, loopback4, Options{}), 0)
			spread := func() bool {
				for _, a := range accepted {
					if a.Load() == 0 {
						return false
					}
				}
				return true
			}
			// Twenty come first; the chance that one of four members has none of them is 1 %, so a few
			// more may follow.
			for dialled := 0; dialled < 20 || !spread(); dialled++ {
				if dialled == 200 {
					t.Fatal("200 connections of one client socket do not reach every member")
				}
				conn := dial(t, client, members[0].AddrPort())
				check(t, exchange(patient(t), conn, uint64(dialled), 20<<10))
			}
			for i, a := range accepted {
				s := members[i].Stats()
				t.Logf("member %d: %d connections, %d packets, %d handed over", i, a.Load(), s.PacketsReceived, s.HandedOver)
				if s.HandoverDropped != 0 {
					t.Errorf("member %d dropped %d", i, s.HandoverDropped)
				}
			}
		})
	}
}

func TestSharedPortWithoutSteering(t *testing.T) {
	members := share(t, 4, false)
	total := &atomic.Int64{}
	var accepted []*atomic.Int64
	for i, c := range members {
		accepted = append(accepted, serve(t, transport(t, c, uint8(i))))
	}
	client := transport(t, open(t, loopback4, Options{}), 0)
	for i := range 20 {
		conn := dial(t, client, members[0].AddrPort())
		check(t, exchange(patient(t), conn, uint64(i), 50<<10))
	}
	busy := 0
	for _, a := range accepted {
		total.Add(a.Load())
		if a.Load() > 0 {
			busy++
		}
	}
	if total.Load() != 20 || busy != 1 {
		t.Errorf("%d connections at %d members, want 20 at 1: the kernel goes by addresses and ports", total.Load(), busy)
	}
}

func TestMigrationStaysWithItsMember(t *testing.T) {
	both(t, func(t *testing.T, steered bool) {
		members := share(t, 2, steered)
		for i, c := range members {
			serve(t, transport(t, c, uint8(i)))
		}
		conn := dial(t, transport(t, open(t, loopback4, Options{}), 0), members[0].AddrPort())
		check(t, exchange(patient(t), conn, 10, 100<<10))
		// Without steering the new port's hash may by chance name the same member: then move again.
		for move := 0; ; move++ {
			path, err := conn.AddPath(transport(t, open(t, loopback4, Options{}), 0))
			check(t, err)
			check(t, path.Probe(patient(t)))
			check(t, path.Switch())
			check(t, exchange(patient(t), conn, uint64(20+move), 200<<10))
			handed := members[0].Stats().HandedOver + members[1].Stats().HandedOver
			if steered {
				if handed != 0 {
					t.Errorf("%d packets of a migrated connection were handed over", handed)
				}
				break
			}
			if handed > 0 {
				break
			}
			if move == 60 {
				t.Fatal("60 ports, and the kernel's hash named the same member for all")
			}
		}
	})
}

func TestMemberClosesAloneAndOthersGoOn(t *testing.T) {
	both(t, func(t *testing.T, steered bool) {
		members := share(t, 4, steered)
		var transports []*quic.Transport
		var accepted []*atomic.Int64
		for i, c := range members {
			tr := transport(t, c, uint8(i))
			transports = append(transports, tr)
			accepted = append(accepted, serve(t, tr))
		}
		// One connection for each member at least.
		conns := map[int]*quic.Conn{}
		for dialled := 0; len(conns) < 4; dialled++ {
			if dialled == 400 {
				t.Fatal("400 connections do not reach every member")
			}
			before := make([]int64, 4)
			for i, a := range accepted {
				before[i] = a.Load()
			}
			conn := dial(t, transport(t, open(t, loopback4, Options{}), 0), members[0].AddrPort())
			check(t, exchange(patient(t), conn, 30, 1000))
			for i, a := range accepted {
				if a.Load() > before[i] {
					conns[i] = conn
				}
			}
		}
		// Member 1 goes: the kernel moves the last member to its place, so its index names another now.
		check(t, transports[1].Close())
		check(t, members[1].Close())
		for _, i := range []int{0, 2, 3} {
			if err := exchange(patient(t), conns[i], 40, 200<<10); err != nil {
				t.Errorf("connection of member %d: %v", i, err)
			}
		}
		client := transport(t, open(t, loopback4, Options{}), 0)
		for i := range 12 {
			conn := dial(t, client, members[0].AddrPort())
			check(t, exchange(patient(t), conn, uint64(50+i), 1000))
		}
	})
}

func TestCloseEndsReadsOfAGroup(t *testing.T) {
	members := share(t, 3, true)
	errs := make(chan error, 3)
	for _, c := range members {
		go func() {
			_, err := c.ReadBatch(messages(8), 0)
			errs <- err
		}()
	}
	for _, c := range members {
		check(t, c.Close())
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	}
}

func TestListenSharedFallsBackWithOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*settings)
		n       int
		members int
		steered bool
		lines   string
	}{
		"steered":         {func(*settings) {}, 4, 4, true, ""},
		"one member":      {func(s *settings) { s.noBPF = true }, 1, 1, true, ""},
		"no BPF":          {func(s *settings) { s.noBPF = true }, 4, 4, false, "handed over"},
		"no shared ports": {func(s *settings) { s.noShare = true }, 4, 1, false, "a port of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			// Small buffers, so that a kernel that is mean with them has nothing to say here.
			s := defaults(Options{ReadBufferBytes: 65536, WriteBufferBytes: 65536, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			c.change(&s)
			members, steered, err := listenShared(loopback4, c.n, s)
			check(t, err)
			for _, m := range members {
				defer m.Close()
			}
			if len(members) != c.members || steered != c.steered {
				t.Errorf("%d members, steered %v, want %d, %v", len(members), steered, c.members, c.steered)
			}
			lines := strings.Count(log.String(), "\n")
			if c.lines == "" && lines != 0 || c.lines != "" && (lines != 1 || !strings.Contains(log.String(), c.lines)) {
				t.Errorf("log %q, want one line about %q", log.String(), c.lines)
			}
			// What there is works.
			serve(t, transport(t, members[0], 0))
			for i, m := range members[1:] {
				serve(t, transport(t, m, uint8(i+1)))
			}
			check(t, exchange(patient(t), dial(t, transport(t, open(t, loopback4, Options{}), 0), members[0].AddrPort()), 60, 10000))
		})
	}
}

func TestListenSharedRefusesASharedPort(t *testing.T) {
	// Another process of the same user would be let in by the kernel and take a part of the packets.
	members := share(t, 2, true)
	for _, n := range []int{1, 2} {
		if _, _, err := ListenShared(members[0].AddrPort(), n, Options{}); err == nil || !strings.Contains(err.Error(), "already in use") {
			t.Errorf("a second group of %d on the port: %v", n, err)
		}
	}
	for _, n := range []int{0, -1, MaxShared + 1} {
		if _, _, err := ListenShared(loopback4, n, Options{}); err == nil || !strings.Contains(err.Error(), "1 to 64") {
			t.Errorf("%d members: %v", n, err)
		}
	}
	all, _, err := ListenShared(loopback4, MaxShared, Options{ReadBufferBytes: 65536, WriteBufferBytes: 65536})
	check(t, err)
	for _, c := range all {
		c.Close()
	}
}

func TestSmallBuffersAreReported(t *testing.T) {
	var log bytes.Buffer
	// No kernel grants a size beyond its own integer arithmetic.
	o := Options{ReadBufferBytes: 1 << 30, WriteBufferBytes: 1 << 30, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c := open(t, loopback4, o)
	s := c.Stats()
	if s.ReadBufferBytes/2 >= 1<<30 {
		t.Skip("this kernel grants everything")
	}
	for _, want := range []string{"net.core.rmem_max=1073741824", "net.core.wmem_max=1073741824", "granted_bytes"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %q", log.String(), want)
		}
	}
}
