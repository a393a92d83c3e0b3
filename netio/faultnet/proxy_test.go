package faultnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; it is far beyond what a loaded machine needs.
const patience = 30 * time.Second

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}

// end is a socket at one side of the proxy.
type end struct {
	t    *testing.T
	conn *net.UDPConn
}

func newEnd(t *testing.T) end {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return end{t, conn}
}

func (e end) addr() netip.AddrPort { return e.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (e end) send(to netip.AddrPort, text string) {
	e.t.Helper()
	if _, err := e.conn.WriteToUDPAddrPort([]byte(text), to); err != nil {
		e.t.Fatal(err)
	}
}

func (e end) receive() (text string, from netip.AddrPort) {
	e.t.Helper()
	e.conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 1<<16)
	n, from, err := e.conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(buf[:n]), from
}

// timers are what a proxy asked its AfterFunc for. They go off by hand.
type timers struct {
	mu  sync.Mutex
	due []*timer
}

type timer struct {
	after   time.Duration
	f       func()
	stopped bool
}

func (c *timers) afterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := &timer{after: d, f: f}
	c.due = append(c.due, one)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := one.stopped
		one.stopped = true
		return !was
	}
}

// fire lets the oldest timer go off, and returns what it was set to; -1 when there is none.
func (c *timers) fire() time.Duration {
	c.mu.Lock()
	for len(c.due) > 0 && c.due[0].stopped {
		c.due = c.due[1:]
	}
	if len(c.due) == 0 {
		c.mu.Unlock()
		return -1
	}
	one := c.due[0]
	one.stopped = true
	c.mu.Unlock()
	one.f()
	return one.after
}

// bench is a proxy with a client before it and a broker behind it.
type bench struct {
	*Proxy
	t              *testing.T
	client, broker end
	timers         *timers
	read           uint64 // datagrams that seen has read
}

func newBench(t *testing.T, seed uint64, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, client: newEnd(t), broker: newEnd(t), timers: &timers{}}
	config := Config{Upstream: b.broker.addr(), Rand: rand.NewPCG(seed, 0), AfterFunc: b.timers.afterFunc}
	for _, f := range change {
		f(&config)
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	b.Proxy = p
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		b.balance()
		if s := p.Stats(); s.Held != 0 || p.heldBytes.Load() != 0 {
			t.Errorf("%d datagrams and %d bytes are held after Close", s.Held, p.heldBytes.Load())
		}
	})
	return b
}

// up sends datagrams from the client and waits until the proxy is done with them. They are few enough for the sockets' buffers.
func (b *bench) up(texts ...string) {
	b.t.Helper()
	before := b.Stats().Up.Datagrams
	for _, text := range texts {
		b.client.send(b.Addr(), text)
	}
	waitFor(b.t, "the proxy to take the datagrams", func() bool { return b.Stats().Up.Datagrams == before+uint64(len(texts)) })
	b.settled()
}

// seen reads what the broker got since it was called last.
func (b *bench) seen() []string {
	b.t.Helper()
	var texts []string
	for ; b.read < b.Stats().Up.Sent; b.read++ {
		text, _ := b.broker.receive()
		texts = append(texts, text)
	}
	return texts
}

// settled waits until each datagram has been accounted for.
func (b *bench) settled() {
	b.t.Helper()
	waitFor(b.t, "the books to balance", func() bool { return b.missing() == 0 })
}

func (b *bench) missing() int64 {
	s := b.Stats()
	in, out := uint64(0), uint64(s.Held)
	for _, c := range []Counts{s.Up, s.Down} {
		in += c.Datagrams + c.Duplicated
		out += c.Refused + c.Blocked + c.TooLarge + c.Lost + c.Overflowed + c.Unsent + c.Sent
	}
	return int64(in - out)
}

func (b *bench) balance() {
	b.t.Helper()
	if n := b.missing(); n != 0 {
		b.t.Errorf("%d datagrams are not accounted for: %+v", n, b.Stats())
	}
}

func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("datagram %d", i)
	}
	return texts
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPassesBothWays(t *testing.T) {
	b := newBench(t, 1)
	others := []end{b.client, newEnd(t)}
	var ports []netip.AddrPort
	for i, client := range others {
		client.send(b.Addr(), fmt.Sprint("from ", i))
		text, from := b.broker.receive()
		if text != fmt.Sprint("from ", i) || slices.Contains(ports, from) {
			t.Fatalf("client %d: %q from %v, the others come from %v", i, text, from, ports)
		}
		ports = append(ports, from)
	}
	for i, client := range others {
		b.broker.send(ports[i], fmt.Sprint("to ", i))
		if text, from := client.receive(); text != fmt.Sprint("to ", i) || from != b.Addr() {
			t.Errorf("client %d got %q from %v", i, text, from)
		}
	}
	b.settled()
	s := b.Stats()
	if s.Clients != 2 || s.Sockets != 2 || s.Up.Sent != 2 || s.Up.Bytes != 12 || s.Down.Datagrams != 2 || s.Down.SentBytes != 8 {
		t.Errorf("stats %+v", s)
	}
	for _, c := range b.Clients() {
		i := slices.IndexFunc(others, func(e end) bool { return e.addr() == c.Addr })
		if i < 0 || c.Upstream != ports[i] || c.Up.Bytes != 6 || c.Down.Bytes != 4 || c.Up.Datagrams != 1 || c.Down.Datagrams != 1 {
			t.Errorf("client %+v", c)
		}
	}
}

func TestSameSeedSameFate(t *testing.T) {
	all := Faults{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1}
	run := func(seed uint64, first Faults) []string {
		b := newBench(t, seed)
		b.Set(first, Up)
		b.up(numbered(100)...)
		got := b.seen()
		b.Set(all, Up)
		for range 2 {
			b.up(numbered(100)...)
			got = append(got, b.seen()...)
		}
		for _, n := range []uint64{b.Stats().Up.Lost, b.Stats().Up.Corrupted, b.Stats().Up.Duplicated, b.Stats().Up.Reordered} {
			if n == 0 || n > 50 {
				t.Errorf("a fault of 10 %% struck %d of 200 datagrams: %+v", n, b.Stats().Up)
			}
		}
		return got
	}
	one := run(1, Faults{})
	again := run(1, Faults{})
	same(t, again, one...)
	if other := run(2, Faults{}); slices.Equal(one, other) {
		t.Error("two seeds make the same faults")
	}
	// What was set before changes nothing for what comes after.
	same(t, run(1, Faults{MaxBytes: 1}), one[100:]...)
}

func TestEachFault(t *testing.T) {
	three := numbered(3)
	for _, tt := range []struct {
		name   string
		faults Faults
		send   []string
		want   []string
		count  func(c Counts) uint64
	}{
		{"none", Faults{}, three, three, func(c Counts) uint64 { return 3 }},
		{"loss", Faults{Loss: 1}, three, nil, func(c Counts) uint64 { return c.Lost }},
		{"duplicate", Faults{Duplicate: 1}, []string{"a", "b", "c"}, []string{"a", "a", "b", "b", "c", "c"}, func(c Counts) uint64 { return c.Duplicated }},
		{"cap", Faults{MaxBytes: 1200}, []string{strings.Repeat("x", 1201), strings.Repeat("y", 1452), "s", strings.Repeat("z", 1300), strings.Repeat("w", 1200)},
			[]string{"s", strings.Repeat("w", 1200)}, func(c Counts) uint64 { return c.TooLarge }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 1)
			b.Set(tt.faults, Up)
			b.up(tt.send...)
			same(t, b.seen(), tt.want...)
			if n := tt.count(b.Stats().Up); n != 3 {
				t.Errorf("counted %d, want 3: %+v", n, b.Stats().Up)
			}
			// The other direction is left alone.
			if len(tt.want) > 0 {
				b.broker.send(b.Clients()[0].Upstream, strings.Repeat("down", 400))
				if text, _ := b.client.receive(); len(text) != 1600 {
					t.Errorf("%d bytes came down", len(text))
				}
			}
		})
	}
}

func TestCorruptChangesBits(t *testing.T) {
	b := newBench(t, 1)
	b.Set(Faults{Corrupt: 1}, Up)
	sent := numbered(100)
	b.up(sent...)
	b.up("")
	for i, got := range b.seen()[:100] {
		bits := 0
		for j := range got {
			for x := got[j] ^ sent[i][j]; x != 0; x &= x - 1 {
				bits++
			}
		}
		if len(got) != len(sent[i]) || bits != 1 && bits != 3 {
			t.Errorf("%q became %q: %d bits differ", sent[i], got, bits)
		}
	}
	if n := b.Stats().Up.Corrupted; n != 100 {
		t.Errorf("%d corrupted, want 100; an empty datagram has nothing to corrupt", n)
	}
}

func TestReorder(t *testing.T) {
	b := newBench(t, 1)
	b.Set(Faults{Reorder: 1}, Up)
	b.up("late")
	if s := b.Stats(); s.Held != 1 || s.Up.Sent != 0 || s.Up.Reordered != 1 {
		t.Fatalf("stats %+v", s)
	}
	b.Set(Faults{}, Up)
	b.up(numbered(maxReorderDepth)...)
	got := b.seen()
	i := slices.Index(got, "late")
	if i < 1 {
		t.Fatalf("%q", got)
	}
	same(t, slices.Delete(got, i, i+1), numbered(maxReorderDepth)...)

	// Where nothing follows, a timer lets it go, once.
	b.Set(Faults{Reorder: 1}, Up)
	b.up("last")
	if d := b.timers.fire(); d != reorderHold {
		t.Fatalf("the timer was set to %v", d)
	}
	same(t, b.seen(), "last")
	if b.timers.fire() >= 0 {
		t.Error("a timer is left")
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	b := newBench(t, 1)
	b.Set(Faults{Delay: time.Hour}, Up)
	b.up("a", "b")
	b.Set(Faults{}, Up)
	b.up("c") // behind those that wait
	if s := b.Stats(); s.Held != 3 || s.Up.Sent != 0 || s.Up.Delayed != 3 {
		t.Fatalf("stats %+v", s)
	}
	for _, want := range []time.Duration{time.Hour, time.Hour, 0} {
		if d := b.timers.fire(); d != want {
			t.Errorf("a timer was set to %v, want %v", d, want)
		}
	}
	b.up("d")
	same(t, b.seen(), "a", "b", "c", "d")
}

func TestHeldIsBounded(t *testing.T) {
	const size = 1000
	b := newBench(t, 1, func(c *Config) { c.MaxHeldBytes = 3 * (size + heldOverheadBytes) })
	datagram := strings.Repeat("x", size)
	b.Set(Faults{Delay: time.Hour}, Up)
	b.up(datagram, datagram)
	b.Set(Faults{Delay: time.Hour, Reorder: 1}, Up)
	b.up(datagram, datagram, datagram)
	if s := b.Stats(); s.Held != 3 || s.Up.Overflowed != 2 || s.Up.Delayed != 2 || s.Up.Reordered != 1 {
		t.Fatalf("stats %+v", s)
	}
	for b.timers.fire() >= 0 {
	}
	b.Set(Faults{Delay: time.Hour}, Up)
	b.up("room again") // and Close finds it held
	if s := b.Stats(); s.Held != 1 || s.Up.Sent != 3 {
		t.Fatalf("stats %+v", s)
	}
}

func TestBlock(t *testing.T) {
	b := newBench(t, 1)
	b.up("first")
	port := b.Clients()[0].Upstream
	b.Block(Up)
	b.up("lost")
	b.broker.send(port, "down")
	if text, _ := b.client.receive(); text != "down" {
		t.Fatalf("got %q", text)
	}
	b.Unblock(Up)
	b.Block(Down)
	b.broker.send(port, "lost too")
	waitFor(t, "the datagram to vanish", func() bool { return b.Stats().Down.Blocked == 1 })
	b.up("second")
	b.Block()
	b.up("lost again")
	b.Unblock()
	b.broker.send(port, "back")
	if text, _ := b.client.receive(); text != "back" {
		t.Fatalf("got %q", text)
	}
	same(t, b.seen(), "first", "second")
	if s := b.Stats(); s.Up.Blocked != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestBlockFor(t *testing.T) {
	b := newBench(t, 1)
	over := b.BlockFor(time.Minute, Up)
	b.up("lost")
	select {
	case <-over:
		t.Fatal("the block ended by itself")
	default:
	}
	if d := b.timers.fire(); d != time.Minute {
		t.Fatalf("blocked for %v", d)
	}
	<-over
	b.up("passes")
	same(t, b.seen(), "passes")
	closed := b.BlockFor(time.Minute)
	b.Close()
	<-closed
	<-b.BlockFor(time.Minute)
	b.timers.fire()
}

func TestRebind(t *testing.T) {
	b := newBench(t, 1)
	b.up("before")
	_, old := b.broker.receive()
	if n, err := b.Rebind(); n != 1 || err != nil {
		t.Fatalf("Rebind: %d, %v", n, err)
	}
	b.broker.send(old, "to a port that is gone")
	b.up("after")
	text, from := b.broker.receive()
	if text != "after" || from == old || b.Clients()[0].Upstream != from {
		t.Fatalf("%q from %v, before it was %v", text, from, old)
	}
	b.broker.send(from, "back")
	if text, _ := b.client.receive(); text != "back" {
		t.Fatalf("got %q", text)
	}
	if s := b.Stats(); s.Sockets != 2 || s.Clients != 1 || s.Down.Datagrams != 1 {
		t.Errorf("stats %+v", s)
	}
	b.Close()
	if _, err := b.Rebind(); err == nil {
		t.Error("a closed proxy was rebound")
	}
}

func TestClientsAreBounded(t *testing.T) {
	b := newBench(t, 1, func(c *Config) { c.MaxClients = 1 })
	b.up("first")
	newEnd(t).send(b.Addr(), "one too many")
	waitFor(t, "the datagram to be refused", func() bool { return b.Stats().Up.Refused == 1 })
	b.up("second")
	same(t, b.seen(), "first", "second")
	if s := b.Stats(); s.Clients != 1 || s.Up.Datagrams != 3 {
		t.Errorf("stats %+v", s)
	}
}

// Faults change while datagrams pass both ways, and the books balance.
func TestFaultsChangeUnderLoad(t *testing.T) {
	b := newBench(t, 1, func(c *Config) { c.AfterFunc = nil })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // an echo
		buf := make([]byte, 1<<16)
		for {
			n, from, err := b.broker.conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			b.broker.conn.WriteToUDPAddrPort(buf[:n], from)
		}
	})
	for range 3 {
		client := newEnd(t)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					client.conn.WriteToUDPAddrPort(make([]byte, i%1500), b.Addr())
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		b.Set(Faults{
			Loss: r.Float64(), Duplicate: r.Float64(), Reorder: r.Float64(), Corrupt: r.Float64(),
			MaxBytes: 1000 + r.IntN(1000), Delay: time.Duration(r.IntN(int(time.Millisecond))),
		}, Direction(i%2))
		if i%4 == 0 {
			if _, err := b.Rebind(); err != nil {
				t.Error(err)
			}
			<-b.BlockFor(time.Millisecond, Direction(i/4%2))
		}
		taken := b.Stats().Up.Datagrams
		waitFor(t, "datagrams to pass", func() bool { return b.Stats().Up.Datagrams > taken+20 })
	}
	close(stop)
	b.broker.conn.Close()
	wg.Wait()
	s := b.Stats()
	if s.Up.Delayed == 0 || s.Up.Sent == 0 || s.Down.Sent == 0 || s.Down.Reordered == 0 || s.Sockets < 11 {
		t.Errorf("stats %+v", s)
	}
}

func TestConfigIsChecked(t *testing.T) {
	broker := netip.MustParseAddrPort("127.0.0.1:5000")
	for _, config := range []Config{
		{}, {Upstream: broker}, {Rand: rand.NewPCG(1, 1)}, {Upstream: broker, Rand: rand.NewPCG(1, 1), MaxClients: -1},
		{Upstream: broker, Rand: rand.NewPCG(1, 1), MaxHeldBytes: -1},
		{Upstream: broker, Rand: rand.NewPCG(1, 1), Listen: netip.MustParseAddrPort("192.0.2.1:1")},
	} {
		if p, err := New(config); err == nil {
			p.Close()
			t.Errorf("%+v was taken", config)
		}
	}
}

func TestFaultsAreChecked(t *testing.T) {
	if err := (Faults{Loss: 1, Duplicate: 0.5, MaxBytes: 1200, Delay: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
	for name, f := range map[string]Faults{"Loss": {Loss: 1.1}, "Duplicate": {Duplicate: -0.1}, "Reorder": {Reorder: 2}, "Corrupt": {Corrupt: 5},
		"MaxBytes": {MaxBytes: -1}, "Delay": {Delay: -1}} {
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	b := newBench(t, 1)
	defer func() {
		if recover() == nil {
			t.Error("Set took a probability of 2")
		}
	}()
	b.Set(Faults{Loss: 2})
}

func TestInitials(t *testing.T) {
	b := newBench(t, 1)
	b.up("\xc3\x00\x00\x00\x01\x08", // an Initial
		"\xe3\x00\x00\x00\x01\x08", // Handshake
		"\xc3\x00\x00\x00\x00\x08", // Version Negotiation
		"\x43\x00\x00\x00\x01\x08", // short header
		"\xc3\x00\x00", "")
	if n := b.Stats().Up.Initials; n != 1 {
		t.Errorf("%d Initials counted, want 1", n)
	}
}
