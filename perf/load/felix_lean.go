package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
	"felix/netio/wire"
)

// LeanTarget publishes from a generator that builds frames with the broker's own wire package and does nothing else: no retries, no
// reconnects, no queue beyond one write. It is for cells in which a client library would be the bottleneck. Subscribers are those of
// ClientTarget.
type LeanTarget struct{ *felixBroker }

// NewLeanTarget makes a target of a broker. It connects to nothing yet.
func NewLeanTarget(c FelixConfig) (*LeanTarget, error) {
	b, err := newFelixBroker(c, maxLeanConnections)
	return &LeanTarget{b}, err
}

// Info is that of a Target.
func (t *LeanTarget) Info() Info {
	info := Info{
		Broker: t.name, Generator: "lean", Receiver: "client", Embedded: t.config.Broker != nil,
		BufferBytes: t.config.connections() * (connWindowBytes + socketBytes),
		Notes:       []string{"the generator is no client: it builds frames and checks answers, and a lost connection ends its publishers"},
	}
	if t.config.Plain {
		info.Notes = append(info.Notes, fmt.Sprintf("%d connections over the broker's ports publish to every shard, as plain clients do", t.config.Connections))
	}
	return info
}

// Open is that of a Target.
func (t *LeanTarget) Open(ctx context.Context, spec StreamSpec) (Stream, error) {
	name, made, err := t.settle(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &leanStream{clientStream: clientStream{broker: t.felixBroker, name: name, made: made}}, nil
}

// A leanStream has one connection, or as many as configured, to each owner of shards. It subscribes with the client.
type leanStream struct {
	clientStream

	mu     sync.Mutex
	dialer *leanDialer      // guarded by mu, like those below
	owners []netip.AddrPort // by shard
	doors  []netip.AddrPort // of plain connections, in turn
	conns  map[connPlace]*quic.Conn
}

// A connPlace is one of the connections to an address.
type connPlace struct {
	addr netip.AddrPort
	n    int
}

// Publisher is that of a Stream: it has a QUIC stream to each owner.
func (s *leanStream) Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialer == nil {
		d, err := s.broker.newDialer()
		if err != nil {
			return nil, err
		}
		s.dialer, s.conns = d, make(map[connPlace]*quic.Conn)
		if s.owners, err = d.owners(ctx, s.name); err != nil {
			return nil, err
		}
		if len(s.owners) == 0 {
			return nil, fmt.Errorf("nobody owns stream %q", s.name)
		}
		if s.broker.config.Plain {
			if s.doors, err = d.doors(ctx); err != nil {
				return nil, err
			}
		}
	}
	p := &leanPublisher{spec: spec, name: s.name, broker: s.broker}
	routes := make(map[netip.AddrPort]*leanRoute)
	route := func(shard uint32) (*leanRoute, error) {
		n := spec.Index % s.broker.config.Connections
		addr := s.owners[shard]
		if s.broker.config.Plain {
			addr = s.doors[n%len(s.doors)]
		}
		if r := routes[addr]; r != nil {
			return r, nil
		}
		place := connPlace{addr, n}
		if s.conns[place] == nil {
			conn, err := s.dialer.dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			s.conns[place] = conn
		}
		stream, _, err := s.dialer.open(ctx, s.conns[place])
		if err != nil {
			return nil, err
		}
		r := &leanRoute{publisher: p, stream: stream, want: 1}
		routes[addr] = r
		p.routes = append(p.routes, r)
		p.reading.Go(r.answers)
		return r, nil
	}
	fail := func(err error) (Publisher, error) {
		_ = p.Close()
		return nil, err
	}
	for _, text := range spec.Keys {
		key := []byte(text)
		r, err := route(wire.ShardOf(wire.RoutingModulo, key, true, uint32(len(s.owners))))
		if err != nil {
			return fail(err)
		}
		p.keys, p.byKey = append(p.keys, key), append(p.byKey, r)
	}
	var err error
	if p.plain, err = route(0); err != nil {
		return fail(err)
	}
	return p, nil
}

// Close is that of a Stream.
func (s *leanStream) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.dialer != nil {
		for _, conn := range s.conns {
			_ = conn.CloseWithError(0, "")
		}
		s.dialer.close()
		s.dialer = nil
	}
	s.mu.Unlock()
	return s.clientStream.Close(ctx)
}

// A leanPublisher publishes on one stream per owner.
type leanPublisher struct {
	spec    PublisherSpec
	name    string
	broker  *felixBroker
	keys    [][]byte
	byKey   []*leanRoute
	plain   *leanRoute // of records without key
	routes  []*leanRoute
	reading sync.WaitGroup
}

// leanWriteBytes is how much is held back for one write at most.
const leanWriteBytes = 256 << 10

// A leanRoute is one stream of a publisher. Frames are numbered from 1 and answered in order.
type leanRoute struct {
	publisher *leanPublisher
	stream    *quic.Stream
	buf       []byte // frames that were not written; owned by the publisher's goroutine, like requests
	requests  uint64
	want      uint64 // the next request to be answered; owned by answers

	mu      sync.Mutex
	tokens  []int // of unanswered frames, oldest first; guarded by mu
	failure error // nothing goes out any more; guarded by mu
}

// Publish is that of a Publisher.
func (p *leanPublisher) Publish(ctx context.Context, token, key int, records [][]byte) {
	route, frame := p.plain, wire.Publish{
		Flags: wire.FlagPublishBatch, AckMode: wire.AckPerBatch, Count: uint32(len(records)),
		Tenant: []byte(p.broker.config.Tenant), Namespace: []byte(p.broker.config.Namespace), Stream: []byte(p.name),
	}
	if key >= 0 {
		route = p.byKey[key]
		frame.Flags |= wire.FlagPublishKeyed
		frame.Key = p.keys[key]
	}
	acked := p.spec.Acks != AcksNone
	if acked {
		route.requests++
		frame.Flags |= wire.FlagPublishAcked
		frame.RequestID = route.requests
	}
	route.mu.Lock()
	failure := route.failure
	if failure == nil && acked {
		route.tokens = append(route.tokens, token)
	}
	route.mu.Unlock()
	if failure != nil {
		p.spec.Sink.Settle(token, Outcome{Refused, failure}, time.Now())
		return
	}
	start := len(route.buf)
	route.buf = wire.AppendPublish(route.buf, &frame) // its records follow, so that they are copied once
	for _, record := range records {
		route.buf = wire.AppendRecord(route.buf, record)
	}
	wire.PutHeader(route.buf[start:], wire.Header{Flags: frame.Flags, Length: uint32(len(route.buf) - start - wire.HeaderBytes)})
	if len(route.buf) >= leanWriteBytes {
		route.write(ctx)
	}
	if !acked {
		p.spec.Sink.Settle(token, Outcome{Fate: Sent}, time.Time{})
	}
}

// Push is that of a Publisher.
func (p *leanPublisher) Push(ctx context.Context) {
	for _, r := range p.routes {
		r.write(ctx)
	}
}

// write sends what was held back. It blocks while flow control does, until ctx ends.
func (r *leanRoute) write(ctx context.Context) {
	if len(r.buf) == 0 {
		return
	}
	stop := context.AfterFunc(ctx, func() { r.stream.CancelWrite(0) })
	defer stop()
	_, err := r.stream.Write(r.buf)
	r.buf = r.buf[:0]
	if err != nil {
		r.fail(fmt.Errorf("a write ended: %w", err))
	}
}

// fail ends the route: what was not answered is unknown.
func (r *leanRoute) fail(err error) {
	r.mu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	tokens := r.tokens
	r.tokens = nil
	r.mu.Unlock()
	now := time.Now()
	for _, token := range tokens {
		r.publisher.spec.Sink.Settle(token, Outcome{Unknown, err}, now)
	}
}

// errFinished is the failure of a route that was flushed.
var errFinished = errors.New("the stream was finished")

// answers takes every answer until the broker has finished the stream.
func (r *leanRoute) answers() {
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := r.stream.Read(buf[have:])
		now := time.Now()
		b := buf[:have+n]
		for {
			h, body, rest, ok, splitErr := wire.SplitFrame(b, uint32(len(buf)))
			if splitErr != nil {
				r.fail(splitErr)
				return
			}
			if !ok {
				break
			}
			if answerErr := r.answer(h, body, now); answerErr != nil {
				r.fail(answerErr)
				return
			}
			b = rest
		}
		have = copy(buf, b)
		if err == io.EOF {
			r.fail(errFinished) // with every answer taken there is nothing to fail
			return
		}
		if err != nil {
			r.fail(fmt.Errorf("the connection was lost: %w", err))
			return
		}
	}
}

// answer takes one answer. An error is an answer that cannot be.
func (r *leanRoute) answer(h wire.Header, body []byte, now time.Time) error {
	if h.Flags == 0 {
		m, err := wire.ParseMessage(body)
		if refusal, ok := m.(*wire.Error); ok {
			return errors.New(refusal.Message)
		}
		return fmt.Errorf("an answer that is none to a publish: %+v, %w", m, err)
	}
	var a wire.Ack
	if err := a.Parse(h.Flags, body); err != nil {
		return err
	}
	if a.RequestID != r.want {
		return fmt.Errorf("request %d was answered, and %d was next", a.RequestID, r.want)
	}
	r.want++
	r.mu.Lock()
	if len(r.tokens) == 0 {
		r.mu.Unlock()
		return fmt.Errorf("request %d was answered, and nothing was under way", a.RequestID)
	}
	token := r.tokens[0]
	r.tokens = r.tokens[1:]
	r.mu.Unlock()
	outcome := Outcome{Fate: Acked}
	if a.Failed {
		outcome = Outcome{Refused, fmt.Errorf("the broker refused: %+v", a)}
	}
	r.publisher.spec.Sink.Settle(token, outcome, now)
	return nil
}

// Flush is that of a Publisher: it finishes the streams and reads to the broker's end of them. Nothing can be published afterwards.
func (p *leanPublisher) Flush(ctx context.Context) error {
	for _, r := range p.routes {
		r.write(ctx)
		_ = r.stream.Close() // a stream that has failed says so below
	}
	stop := context.AfterFunc(ctx, p.cancel)
	p.reading.Wait()
	stop()
	var err error
	for _, r := range p.routes {
		r.mu.Lock()
		if !errors.Is(r.failure, errFinished) {
			err = errors.Join(err, r.failure)
		}
		r.mu.Unlock()
	}
	return err
}

func (p *leanPublisher) cancel() {
	for _, r := range p.routes {
		r.stream.CancelRead(0)
		r.stream.CancelWrite(0)
	}
}

// Close is that of a Publisher.
func (p *leanPublisher) Close() error {
	p.cancel()
	p.reading.Wait()
	return nil
}

// A leanDialer makes connections and asks questions on them.
type leanDialer struct {
	broker    *felixBroker
	entry     netip.AddrPort
	socket    *udp.Conn
	transport *quic.Transport
}

func (b *felixBroker) newDialer() (*leanDialer, error) {
	resolved, err := net.ResolveUDPAddr("udp", b.config.Addr)
	if err != nil {
		return nil, err
	}
	entry := netip.AddrPortFrom(resolved.AddrPort().Addr().Unmap(), resolved.AddrPort().Port())
	local := netip.IPv4Unspecified()
	switch {
	case entry.Addr().IsLoopback():
		local = entry.Addr()
	case entry.Addr().Is6():
		local = netip.IPv6Unspecified()
	}
	socket, err := udp.Listen(netip.AddrPortFrom(local, 0), udp.Options{})
	if err != nil {
		return nil, err
	}
	return &leanDialer{b, entry, socket, &quic.Transport{Conn: socket}}, nil
}

func (d *leanDialer) close() {
	_ = d.transport.Close()
	_ = d.socket.Close()
}

const leanDialTimeout = 6 * time.Second

func (d *leanDialer) dial(ctx context.Context, addr netip.AddrPort) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, leanDialTimeout)
	defer cancel()
	name := d.broker.serverName()
	if name == "" {
		name, _, _ = net.SplitHostPort(d.broker.config.Addr)
	}
	config := &quic.Config{
		MaxIdleTimeout: 6 * time.Second, KeepAlivePeriod: 2 * time.Second,
		InitialStreamReceiveWindow: 512 << 10, InitialConnectionReceiveWindow: 1 << 20,
	}
	config.InitialPacketSize, config.DisablePathMTUDiscovery = udp.PacketSizes(0, addr.Addr().IsLoopback())
	return d.transport.Dial(ctx, net.UDPAddrFromAddrPort(addr),
		&tls.Config{RootCAs: d.broker.roots, ServerName: name, NextProtos: []string{"felix/1"}, MinVersion: tls.VersionTLS13}, config)
}

// open opens a stream and authenticates it.
func (d *leanDialer) open(ctx context.Context, conn *quic.Conn) (*quic.Stream, *wire.AuthOK, error) {
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, err
	}
	auth := &wire.Auth{
		TenantID: d.broker.config.Tenant, Token: d.broker.config.Token, ClientFlags: wire.DefaultClientFlags, HasClientFlags: true,
		ClientFeatures: wire.FeaturePublishPipeline | wire.FeatureErrorCodes | wire.FeatureAckOnCommit, HasClientFeatures: true,
	}
	m, err := ask(ctx, stream, auth)
	if err != nil {
		return nil, nil, err
	}
	granted, ok := m.(*wire.AuthOK)
	if !ok {
		return nil, nil, fmt.Errorf("the answer to auth is %s: %+v", m.MessageType(), m)
	}
	return stream, granted, nil
}

// doors are the addresses over which plain clients spread their connections: the one they were given, then the ports that the broker announces.
func (d *leanDialer) doors(ctx context.Context) ([]netip.AddrPort, error) {
	conn, err := d.dial(ctx, d.entry)
	if err != nil {
		return nil, err
	}
	defer conn.CloseWithError(0, "")
	_, granted, err := d.open(ctx, conn)
	if err != nil {
		return nil, err
	}
	doors := []netip.AddrPort{d.entry}
	for _, port := range granted.ListenerPorts {
		if port != d.entry.Port() {
			doors = append(doors, netip.AddrPortFrom(d.entry.Addr(), port))
		}
	}
	return doors, nil
}

// ask sends a request on a stream that nobody else reads and returns the answer.
func ask(ctx context.Context, stream *quic.Stream, request wire.Message) (wire.Message, error) {
	stop := context.AfterFunc(ctx, func() { stream.CancelRead(0) })
	defer stop()
	if _, err := stream.Write(wire.AppendMessage(nil, request)); err != nil {
		return nil, err
	}
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return nil, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(stream, body); err != nil {
		return nil, err
	}
	return wire.ParseMessage(body)
}

// owners returns the address of each shard's owner; none means that the stream is not there.
func (d *leanDialer) owners(ctx context.Context, stream string) ([]netip.AddrPort, error) {
	conn, err := d.dial(ctx, d.entry)
	if err != nil {
		return nil, err
	}
	defer conn.CloseWithError(0, "")
	s, _, err := d.open(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &d.broker.config
	m, err := ask(ctx, s, &wire.ShardOwners{TenantID: c.Tenant, Namespace: c.Namespace, Name: stream, Kind: wire.ShardKindStream})
	if err != nil {
		return nil, err
	}
	view, ok := m.(*wire.ShardOwnersView)
	if !ok {
		return nil, fmt.Errorf("the answer to shard_owners is %s: %+v", m.MessageType(), m)
	}
	owners := make([]netip.AddrPort, len(view.Owners))
	for _, o := range view.Owners {
		addr := d.entry
		if o.Addr != "" {
			if addr, err = netip.ParseAddrPort(o.Addr); err != nil {
				return nil, fmt.Errorf("the owner of shard %d is at %q: %w", o.Shard, o.Addr, err)
			}
		}
		if int(o.Shard) >= len(owners) {
			return nil, fmt.Errorf("shard %d of %d has an owner", o.Shard, len(owners))
		}
		owners[o.Shard] = addr
	}
	return owners, nil
}
