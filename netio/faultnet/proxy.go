package faultnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a Proxy is built from. It is copied by New and fixed from then on.
type Config struct {
	// Upstream is the broker's address. Required.
	Upstream netip.AddrPort
	// Rand seeds the faults: the same source and the same datagrams give the same faults. Required. New and the first datagram of each client
	// draw from it, one at a time.
	Rand rand.Source
	// Listen is the address clients send to. The zero value means a free port of 127.0.0.1, or of ::1 for an IPv6 upstream.
	Listen netip.AddrPort
	// MaxClients bounds the client addresses, 1,024 by default. Datagrams of further ones vanish and are counted as Refused.
	MaxClients int
	// MaxHeldBytes bounds the datagrams that are delayed or set aside, 8 MiB by default. Beyond it they vanish and are counted as Overflowed.
	MaxHeldBytes int
	// AfterFunc calls f in a goroutine of its own once d has passed, unless stop is called before and returns true. Nil means time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

const (
	defaultMaxClients   = 1024
	defaultMaxHeldBytes = 8 << 20
	// socketBufferBytes is what each socket asks the kernel to hold, so that the proxy loses nothing by itself.
	socketBufferBytes = 4 << 20
	// maxDatagramBytes is the largest UDP payload.
	maxDatagramBytes = 1<<16 - 1
)

// A Proxy carries datagrams between clients and a broker. Its methods may be called from any goroutine.
type Proxy struct {
	config Config
	front  *net.UDPConn
	addr   netip.AddrPort
	tasks  sync.WaitGroup // readers of sockets

	ways      [2]way // by Direction
	held      atomic.Int64
	heldBytes atomic.Int64
	sockets   atomic.Uint64

	mu     sync.Mutex
	flows  map[netip.AddrPort]*flow // by the client's address; guarded by mu
	blocks map[*block]struct{}      // BlockFor that has not ended; guarded by mu
	closed bool                     // guarded by mu
}

// A way is what all clients share in one direction.
type way struct {
	faults  atomic.Pointer[Faults]
	blocked atomic.Bool
	counts  counters
}

// A block is a BlockFor that has not ended.
type block struct {
	stop func() bool
	done chan struct{}
}

// A flow is one client's way to the broker and back.
type flow struct {
	client   netip.AddrPort
	up, down *link
	socket   atomic.Pointer[net.UDPConn] // towards the broker; replaced by rebind
}

// New starts a proxy. It fails when the configuration is not usable or the address cannot be bound.
func New(config Config) (*Proxy, error) {
	if !config.Upstream.IsValid() || config.Upstream.Port() == 0 {
		return nil, fmt.Errorf("faultnet: upstream is %v; give the address and port of a broker", config.Upstream)
	}
	if config.Rand == nil {
		return nil, errors.New("faultnet: Rand is nil; give a seeded source, as rand.NewPCG(1, 2)")
	}
	if config.MaxClients < 0 || config.MaxHeldBytes < 0 {
		return nil, fmt.Errorf("faultnet: at most %d clients and %d held bytes; give 0 for the defaults, or more", config.MaxClients, config.MaxHeldBytes)
	}
	if !config.Listen.IsValid() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if config.Upstream.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		config.Listen = netip.AddrPortFrom(loopback, 0)
	}
	if config.MaxClients == 0 {
		config.MaxClients = defaultMaxClients
	}
	if config.MaxHeldBytes == 0 {
		config.MaxHeldBytes = defaultMaxHeldBytes
	}
	if config.AfterFunc == nil {
		config.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	front, err := listen(config.Listen)
	if err != nil {
		return nil, fmt.Errorf("faultnet: %w", err)
	}
	p := &Proxy{config: config, front: front, flows: make(map[netip.AddrPort]*flow), blocks: make(map[*block]struct{})}
	p.addr = front.LocalAddr().(*net.UDPAddr).AddrPort()
	for i := range p.ways {
		p.ways[i].faults.Store(&Faults{})
	}
	p.tasks.Go(p.readClients)
	return p, nil
}

func listen(addr netip.AddrPort) (*net.UDPConn, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(socketBufferBytes) // best effort: the kernel grants what it allows
	_ = conn.SetWriteBuffer(socketBufferBytes)
	return conn, nil
}

// Addr is where clients send to.
func (p *Proxy) Addr() netip.AddrPort { return p.addr }

// Set replaces the faults of the given directions, of both when none is given. It panics on faults that Validate refuses: a test that asks
// for them is wrong.
func (p *Proxy) Set(f Faults, directions ...Direction) {
	if err := f.Validate(); err != nil {
		panic(err)
	}
	for _, d := range orBoth(directions) {
		p.ways[d].faults.Store(&f)
	}
}

func orBoth(directions []Direction) []Direction {
	if len(directions) == 0 {
		return []Direction{Up, Down}
	}
	return directions
}

// Block makes every datagram of the given directions vanish until Unblock, of both when none is given.
func (p *Proxy) Block(directions ...Direction) {
	for _, d := range orBoth(directions) {
		p.ways[d].blocked.Store(true)
	}
}

// Unblock ends Block, and a BlockFor that is still running, in the given directions, in both when none is given.
func (p *Proxy) Unblock(directions ...Direction) {
	for _, d := range orBoth(directions) {
		p.ways[d].blocked.Store(false)
	}
}

// BlockFor blocks the given directions, both when none is given, and unblocks them after d. The channel is closed when it has, or when the
// proxy is closed. Use one at a time for a direction: the first to end unblocks it.
func (p *Proxy) BlockFor(d time.Duration, directions ...Direction) <-chan struct{} {
	b := &block{done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		close(b.done)
		return b.done
	}
	directions = slices.Clone(directions)
	p.Block(directions...)
	p.blocks[b] = struct{}{}
	b.stop = p.config.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, running := p.blocks[b]; running {
			delete(p.blocks, b)
			p.Unblock(directions...)
			close(b.done)
		}
	})
	return b.done
}

// Rebind gives every client a new socket towards the broker, with a port of its own, as a NAT that forgot does. The old ones are closed, and
// what the broker sends there is lost. It returns how many were replaced; the error is that of the first one that could not be.
func (p *Proxy) Rebind() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, f := range p.flows {
		old := f.socket.Load()
		// The new one is opened before the old one is closed, so that the kernel cannot give the same port again.
		if err := p.open(f); err != nil {
			return n, err
		}
		old.Close()
		n++
	}
	return n, nil
}

// Stats is a snapshot of the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	clients := len(p.flows)
	p.mu.Unlock()
	return Stats{
		Up: p.ways[Up].counts.snapshot(), Down: p.ways[Down].counts.snapshot(),
		Held: int(p.held.Load()), Clients: clients, Sockets: p.sockets.Load(),
	}
}

// Clients lists the client addresses and what passed for each, in no order.
func (p *Proxy) Clients() []Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Client, 0, len(p.flows))
	for _, f := range p.flows {
		c := Client{Addr: f.client, Upstream: f.socket.Load().LocalAddr().(*net.UDPAddr).AddrPort()}
		c.Up.Datagrams, c.Up.Bytes = f.up.datagrams.Load(), f.up.bytes.Load()
		c.Down.Datagrams, c.Down.Bytes = f.down.datagrams.Load(), f.down.bytes.Load()
		list = append(list, c)
	}
	return list
}

// Close ends the proxy and waits for its goroutines. What is held is thrown away. Calls after the first do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	for b := range p.blocks {
		b.stop()
		close(b.done)
	}
	clear(p.blocks)
	err := p.front.Close()
	for _, f := range p.flows {
		f.socket.Load().Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
	for _, f := range p.flows { // nobody adds to it any more
		f.up.close()
		f.down.close()
	}
	return err
}

// readClients carries datagrams from clients until the proxy is closed.
func (p *Proxy) readClients() {
	buf := make([]byte, maxDatagramBytes)
	for {
		n, client, err := p.front.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for what was sent before
		}
		f, err := p.flow(netip.AddrPortFrom(client.Addr().Unmap(), client.Port()))
		if err != nil {
			c := &p.ways[Up].counts
			c.arrived(buf[:n])
			c.refused.Add(1)
			continue
		}
		f.up.receive(buf[:n])
	}
}

// readBroker carries datagrams for one client until the socket is closed.
func (p *Proxy) readBroker(f *flow, socket *net.UDPConn) {
	buf := make([]byte, maxDatagramBytes)
	for {
		n, _, err := socket.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			f.down.receive(buf[:n])
		}
	}
}

// errNoPlace refuses a client.
var errNoPlace = errors.New("faultnet: no place for another client")

// flow returns the way of a client, making it for the first datagram.
func (p *Proxy) flow(client netip.AddrPort) (*flow, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.flows[client]; f != nil {
		return f, nil
	}
	if p.closed || len(p.flows) == p.config.MaxClients {
		return nil, errNoPlace
	}
	f := &flow{client: client}
	f.up = newLink(p, Up, func(b []byte) error {
		_, err := f.socket.Load().WriteToUDPAddrPort(b, p.config.Upstream)
		return err
	})
	f.down = newLink(p, Down, func(b []byte) error {
		_, err := p.front.WriteToUDPAddrPort(b, client)
		return err
	})
	if err := p.open(f); err != nil {
		return nil, err
	}
	p.flows[client] = f
	return f, nil
}

// open gives a flow a new socket towards the broker. The caller holds mu.
func (p *Proxy) open(f *flow) error {
	if p.closed {
		return net.ErrClosed
	}
	socket, err := listen(netip.AddrPortFrom(p.config.Listen.Addr(), 0))
	if err != nil {
		return fmt.Errorf("faultnet: socket for %v: %w", f.client, err)
	}
	f.socket.Store(socket)
	p.sockets.Add(1)
	p.tasks.Go(func() { p.readBroker(f, socket) })
	return nil
}
