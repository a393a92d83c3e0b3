package netio

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/netio/udp"
	"felix/netio/wire"
	"felix/replicate"
)

// Server is the client side of a broker: its sockets, connections and streams. Its methods may be called from any
// goroutine.
type Server struct {
	config       Config
	limits       Limits
	group        *core.Group
	catalog      *replicate.Catalog
	authenticate func(tenant, token string) error
	rand         io.Reader
	log          *slog.Logger

	ingress []*ingress // by core
	gate    *gate
	gates   []*coreGate // by listening core
	memory  *memory
	bytes   *budget // publish bytes in chunks of all connections
	large   *budget // of them, in chunks for large frames
	huge    *budget // of them, in chunks for the largest frames
	pages   *budget // bytes of pages that are read and not yet taken
	chunks  chunkPool

	accounts accounts
	runs     runPool
	parcels  sync.Pool

	peers       peerLog       // lines that clients cause
	subscribers subscribers   // who subscribes
	inspecting  chan struct{} // the place of the one list of them that is made at a time

	tls  *tls.Config // of every socket, so that a session ticket is good at each
	quic *quic.Config

	sockets []*socket // guarded by mu once accepting; nil after Close
	steered bool
	addr    netip.AddrPort
	ports   []uint16      // own ports, by listening core
	brokers []wire.Broker // what clients are told about the listening cores; empty when not announced

	ctx      context.Context // ends with Close; accepting hangs on it
	cancel   context.CancelFunc
	draining atomic.Bool

	mu         sync.Mutex
	conns      map[*conn]struct{} // guarded by mu
	closed     bool               // guarded by mu
	goroutines sync.WaitGroup     // accept loops and connections

	counts serverCounts
}

// A socket is one UDP socket with its QUIC transport, owned by a core.
type socket struct {
	core      core.ID
	conn      *udp.Conn
	transport *quic.Transport
	listener  *quic.Listener
}

// Listen binds every socket and adds the server's agents to the loops. It reports each address that cannot be
// bound, with what to do. Nothing is accepted before Start.
func Listen(config Config) (*Server, error) {
	s := &Server{
		config:       config,
		limits:       config.Limits.withDefaults(),
		group:        config.Group,
		catalog:      config.Catalog,
		authenticate: config.Authenticate,
		rand:         config.Rand,
		log:          config.Logger,
		conns:        make(map[*conn]struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	if s.config.DrainLinger == 0 {
		s.config.DrainLinger = 100 * time.Millisecond
	}
	if err := errors.Join(config.Limits.Validate(), validatePacketBytes(config.MaxPacketBytes)); err != nil {
		return nil, err
	}
	cores := len(s.group.Loops())
	listeners := config.Listeners
	if listeners == 0 {
		listeners = cores
	}
	if listeners < 1 || listeners > cores {
		return nil, fmt.Errorf("listeners is %d; give a number from 1 to the number of cores (%d)", listeners, cores)
	}
	if n := len(config.ListenerPorts); n != 0 && n != listeners {
		return nil, fmt.Errorf("listener_ports names %d ports for %d listeners; give one per listener", n, listeners)
	}
	if err := s.accounts.init(config.Quotas, s.group.NowOffCore); err != nil {
		return nil, err
	}
	s.peers = peerLog{log: s.log, now: s.group.NowOffCore, lines: s.limits.LogLines}
	s.bytes = newBudget(s.limits.IngressBytes)
	s.large, s.huge = newBudget(s.limits.IngressBytes/4), newBudget(s.limits.IngressBytes/4)
	s.pages = newBudget(pageBytes)
	s.memory = newMemory(config.Memory, s.limits, s.bytes, s.pages)
	s.gate = newGate(s.limits, s.memory)
	s.gate.refused = func(ip netip.Addr, why error) { s.peers.say(logRefused, ip.String(), why.Error()) }
	for range listeners {
		s.gates = append(s.gates, s.gate.forCore(s.group.NowOffCore))
	}
	s.inspecting = make(chan struct{}, 1)
	s.counts.accepted = make([]atomic.Uint64, cores)
	s.counts.events = make([]eventCounts, cores)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tls, s.quic = s.tlsConfig(), s.quicConfig()
	if err := s.bind(listeners); err != nil {
		s.closeSockets()
		return nil, err
	}
	s.announce()
	for _, loop := range s.group.Loops() {
		in := newIngress(s, cores)
		s.ingress = append(s.ingress, in)
		loop.AddAgent(in)
	}
	return s, nil
}

// bind opens the shared port's sockets and, with more than one listener, each listening core's own port.
func (s *Server) bind(listeners int) error {
	options := udp.Options{Logger: s.log}
	shared, steered, err := udp.ListenShared(s.config.Listen, listeners, options)
	if err != nil {
		return err
	}
	s.steered = steered
	s.addr = shared[0].AddrPort()
	for i, c := range shared {
		if err := s.listen(c, core.ID(i), "shared"); err != nil {
			for _, rest := range shared[i+1:] {
				rest.Close()
			}
			return err
		}
	}
	if listeners == 1 {
		return nil
	}
	for i := range listeners {
		port, err := s.ownPort(i)
		if err != nil {
			return err
		}
		c, err := udp.Listen(netip.AddrPortFrom(s.addr.Addr(), port), options)
		if err != nil {
			return fmt.Errorf("own port of core %d: %w", i, err)
		}
		s.ports = append(s.ports, c.AddrPort().Port())
		if err := s.listen(c, core.ID(i), "own"); err != nil {
			return err
		}
	}
	return nil
}

// ownPort is the port of listening core i as configured; 0 is an ephemeral one.
func (s *Server) ownPort(i int) (uint16, error) {
	if len(s.config.ListenerPorts) > 0 {
		return s.config.ListenerPorts[i], nil
	}
	if s.config.Listen.Port() == 0 {
		return 0, nil
	}
	port := int(s.config.Listen.Port()) + 1 + i
	if port > 1<<16-1 {
		return 0, fmt.Errorf("own port of core %d would be %d; choose a lower listen port, fewer listeners, or set listener_ports", i, port)
	}
	return uint16(port), nil
}

// listen puts a QUIC listener on a socket. The socket is the server's from here on.
func (s *Server) listen(c *udp.Conn, owner core.ID, kind string) error {
	// A reset key per socket: with a common one, a datagram that reaches the wrong socket would be answered
	// with a reset that the client believes.
	resetKey := quic.StatelessResetKey(s.derive(fmt.Sprintf("reset %s %d", kind, owner)))
	tokenKey := quic.TokenGeneratorKey(s.config.TokenKey)
	sock := &socket{core: owner, conn: c}
	sock.transport = &quic.Transport{
		Conn:                  c,
		ConnectionIDGenerator: udp.ConnectionIDs(uint8(owner)),
		StatelessResetKey:     &resetKey,
		TokenGeneratorKey:     &tokenKey,
		ConnContext:           s.gates[owner].connContext,
		VerifySourceAddress:   s.gates[owner].mustValidate,
	}
	s.sockets = append(s.sockets, sock)
	listener, err := sock.transport.Listen(s.tls, s.quic)
	if err != nil {
		return fmt.Errorf("QUIC on %s: %w", c.AddrPort(), err)
	}
	sock.listener = listener
	return nil
}

func (s *Server) derive(label string) (key [32]byte) {
	mac := hmac.New(sha256.New, s.config.ResetSecret[:])
	mac.Write([]byte(label))
	mac.Sum(key[:0])
	return key
}

// Start accepts connections. Group.Start must have been called.
func (s *Server) Start() {
	s.goroutines.Go(func() { s.relieve(s.ctx) })
	for _, sock := range s.sockets {
		s.goroutines.Go(func() { s.accept(sock) })
	}
}

func (s *Server) accept(sock *socket) {
	for {
		q, err := sock.listener.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, quic.ErrServerClosed) {
				s.log.Error("netio: a listener ended; its core accepts no more connections", "core", sock.core, "address", sock.conn.AddrPort(), "err", err)
			}
			return
		}
		s.counts.accepted[sock.core].Add(1)
		s.goroutines.Go(func() { s.serve(q, sock.core) })
	}
}

// add registers a connection; false when the server has closed or drained.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.draining.Load() {
		c.drain()
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

// Drain stops taking new streams (their auth is answered with draining), finishes what was accepted, closes every
// connection with code 0 and returns. It ends early with the context's error; Close must follow in either case.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, c := range s.connections() {
		wait.Go(func() { c.shutdown(ctx, s.config.DrainLinger) })
	}
	wait.Wait()
	return ctx.Err()
}

// Close ends every connection and releases the sockets. It waits for every goroutine of the server.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	var wait sync.WaitGroup
	for _, c := range s.connections() {
		wait.Go(func() { c.quic.CloseWithError(closeShutdown, "broker shutting down") })
	}
	wait.Wait()
	err := s.closeSockets()
	s.goroutines.Wait()
	return err
}

func (s *Server) closeSockets() error {
	s.mu.Lock()
	sockets := s.sockets
	s.sockets = nil // their counters go with them
	s.mu.Unlock()
	var errs []error
	for _, sock := range sockets {
		if sock.listener != nil {
			sock.listener.Close()
		}
		errs = append(errs, sock.transport.Close(), sock.conn.Close())
	}
	return errors.Join(errs...)
}

// Addr is the address of the shared port.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Ports are the own ports of the listening cores, in order; empty when there is only the shared port.
func (s *Server) Ports() []uint16 { return s.ports }

// window is the bound on unanswered publishes of a stream, whether it is granted or not.
func (s *Server) window() int {
	if s.limits.PublishWindow < 0 {
		return defaultPublishWindow
	}
	return s.limits.PublishWindow
}

// random returns 64 random bits for a producer id.
func (s *Server) random() uint64 {
	var b [8]byte
	if _, err := io.ReadFull(s.rand, b[:]); err != nil {
		panic(fmt.Sprintf("netio: no randomness: %v", err)) // the machine is wrong: ids could repeat
	}
	return binary.BigEndian.Uint64(b[:])
}
