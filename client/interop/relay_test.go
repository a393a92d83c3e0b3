package interop

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// A relay is a UDP link to a broker: clients send to Addr, the broker sees a socket of the relay for each address that
// sends. The link can fall silent, and the sockets towards the broker can be replaced by new ones, as when a NAT between
// the two forgets. Close ends it; its methods may be called from any goroutine.
type relay struct {
	front  *net.UDPConn
	target netip.AddrPort
	tasks  sync.WaitGroup

	mu     sync.Mutex
	flows  map[netip.AddrPort]*net.UDPConn // by the client's address
	silent bool                            // every datagram vanishes, both ways
	dialed chan struct{}                   // closed by the first Initial that vanishes; nil while nobody waits for it
	opened int                             // sockets towards the broker, ever
	bytes  int                             // carried from clients to the broker
	closed bool
}

// relayBufferBytes is what the relay asks the kernel to hold for each socket, so that it loses nothing by itself.
const relayBufferBytes = 4 << 20

// anyPort is an address to listen on.
const anyPort = "127.0.0.1:0"

// startRelay starts a relay that listens at one address and leads to another.
func startRelay(t *testing.T, listen, target string) *relay {
	t.Helper()
	addr, err := netip.ParseAddrPort(target)
	if err != nil {
		t.Fatal(err)
	}
	front, err := listenUDP(listen)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, target: addr, flows: map[netip.AddrPort]*net.UDPConn{}}
	r.tasks.Go(r.forward)
	t.Cleanup(r.Close)
	return r
}

func listenUDP(addr string) (*net.UDPConn, error) {
	local, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(relayBufferBytes) // best effort: the kernel grants what it allows
	_ = conn.SetWriteBuffer(relayBufferBytes)
	return conn, nil
}

// Addr is where clients connect.
func (r *relay) Addr() string { return r.front.LocalAddr().String() }

// forward carries datagrams from clients to the broker until the relay is closed.
func (r *relay) forward() {
	buf := make([]byte, 1<<16)
	for {
		n, client, err := r.front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if flow := r.flow(client, buf[:n]); flow != nil {
			_, _ = flow.WriteToUDPAddrPort(buf[:n], r.target) // a lost datagram is what QUIC expects of a network
		}
	}
}

// flow returns the socket for a client, or nil when its datagram vanishes.
func (r *relay) flow(client netip.AddrPort, datagram []byte) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		if r.dialed != nil && isInitial(datagram) {
			close(r.dialed)
			r.dialed = nil
		}
		return nil
	}
	if r.flows[client] == nil {
		r.openFlow(client)
	}
	r.bytes += len(datagram)
	return r.flows[client]
}

// openFlow opens the socket for a client. The caller holds mu.
func (r *relay) openFlow(client netip.AddrPort) {
	if r.closed {
		return
	}
	flow, err := listenUDP(anyPort)
	if err != nil {
		return // this datagram is lost; the next one tries again
	}
	r.flows[client] = flow
	r.opened++
	r.tasks.Go(func() { r.back(flow, client) })
}

// back carries datagrams from the broker to one client until the socket is closed.
func (r *relay) back(flow *net.UDPConn, client netip.AddrPort) {
	buf := make([]byte, 1<<16)
	for {
		n, err := flow.Read(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		silent := r.silent
		r.mu.Unlock()
		if !silent {
			_, _ = r.front.WriteToUDPAddrPort(buf[:n], client)
		}
	}
}

// isInitial reports whether a datagram begins with an Initial packet of QUIC version 1: a client that dials (RFC 9000, 17.2.2).
func isInitial(datagram []byte) bool {
	return len(datagram) >= 5 && datagram[0]&0xf0 == 0xc0 && bytes.Equal(datagram[1:5], []byte{0, 0, 0, 1})
}

// Silence makes every datagram vanish until Restore. The channel it returns is closed when a client dials.
func (r *relay) Silence() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	dialed := make(chan struct{})
	r.silent, r.dialed = true, dialed
	return dialed
}

// Restore lets datagrams pass again.
func (r *relay) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent, r.dialed = false, nil
}

// Rebind gives every client a new socket towards the broker, with a port of its own. The old ones are closed. It returns how
// many were replaced.
func (r *relay) Rebind() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client, old := range r.flows {
		r.openFlow(client) // before the old one is closed, so that the kernel cannot give the same port again
		old.Close()
	}
	return len(r.flows)
}

// Opened is how many sockets towards the broker there were, ever.
func (r *relay) Opened() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// Bytes is how much was carried from clients to the broker.
func (r *relay) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Close ends the relay and waits for its goroutines.
func (r *relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.front.Close()
	for _, flow := range r.flows {
		flow.Close()
	}
	r.mu.Unlock()
	r.tasks.Wait()
}

// echo is a peer that sends every datagram back, with the address it came from behind it.
func echo(t *testing.T) (addr string) {
	t.Helper()
	conn, err := listenUDP(anyPort)
	if err != nil {
		t.Fatal(err)
	}
	var task sync.WaitGroup
	task.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(slices.Clone(buf[:n]), " from %v", from), from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		task.Wait()
	})
	return conn.LocalAddr().String()
}

// relayClient is the client's end of a link.
type relayClient struct {
	t    *testing.T
	conn net.Conn
}

func (c relayClient) send(text string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c relayClient) receive() string {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.conn.Read(buf)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(buf[:n])
}

func TestRelay(t *testing.T) {
	r := startRelay(t, anyPort, echo(t))
	conn, err := net.Dial("udp4", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := relayClient{t, conn}

	client.send("one")
	first := client.receive()

	if n := r.Rebind(); n != 1 {
		t.Fatalf("%d sockets replaced, want 1", n)
	}
	client.send("one")
	if second := client.receive(); second == first {
		t.Fatalf("the peer saw %q again: the port did not change", second)
	}

	dialed := r.Silence()
	client.send("lost")
	client.send("\xc0\x00\x00\x00\x01 a client dials")
	within(t, dialed, "the Initial to be seen")
	r.Restore()
	client.send("two")
	if got := client.receive(); got[:3] != "two" {
		t.Fatalf("after the silence %q arrived", got)
	}
	if n := r.Opened(); n != 2 {
		t.Fatalf("%d sockets were opened, want 2", n)
	}
	r.Close()
	r.Close()
}

func TestIsInitial(t *testing.T) {
	for datagram, want := range map[string]bool{
		"\xc3\x00\x00\x00\x01\x08": true,  // Initial
		"\xe3\x00\x00\x00\x01\x08": false, // Handshake
		"\xc3\x00\x00\x00\x00\x08": false, // Version Negotiation
		"\x43\x00\x00\x00\x01\x08": false, // short header
		"\xc3\x00\x00":             false,
		"":                         false,
	} {
		if got := isInitial([]byte(datagram)); got != want {
			t.Errorf("isInitial(%x) = %v", datagram, got)
		}
	}
}
