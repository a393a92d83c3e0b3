package client

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
	"felix/netio/wire"
)

// A fakeBroker speaks the part of FLX1 that the client uses, over real QUIC on loopback, and does what a real broker cannot be made to do:
// lose answers, refuse by plan, end streams, forget records. It keeps everything in memory under one lock.
type fakeBroker struct {
	t        testing.TB
	cert     tls.Certificate
	pool     *x509.CertPool
	flags    wire.Flags
	features wire.Features
	window   uint32

	mu        sync.Mutex
	listeners []*fakeListener
	streams   map[string]*fakeStream
	topology  []wire.Broker
	owners    bool // name the listeners as owners, shard by shard
	create    uint32
	nextID    uint64
	producers uint64

	// Hooks, guarded by mu while the broker runs. nil means the default.
	onAuth    func(token string) *wire.Error
	onPublish func(p *fakePublish) fakeVerdict
	onAsk     func(m wire.Message) wire.Message // answers of one-request streams and of the asker; nil result means the default

	widths       atomic.Int64 // publish_width messages
	published    atomic.Int64 // records
	connections  atomic.Int64 // accepted
	subscribed   atomic.Int64 // subscriptions made
	finished     atomic.Int64 // publish streams that were ended by the client's FIN
	publishOpens atomic.Int64

	discard atomic.Bool // count records, keep none
}

type fakeListener struct {
	broker    *fakeBroker
	index     int
	addr      string
	socket    *udp.Conn
	transport *quic.Transport
	listener  *quic.Listener
	wg        sync.WaitGroup
	conns     map[*quic.Conn]struct{} // guarded by broker.mu
}

type fakeStream struct {
	routing wire.Routing
	shards  []*fakeShard
	deleted bool
}

type fakeShard struct {
	base    wire.Offset // of records[0]
	records [][]byte
	changed chan struct{} // closed and replaced when records change
	seqs    map[uint64]*fakeProducer
}

type fakeProducer struct {
	next    uint64
	offsets map[uint64]wire.Offset
}

type fakePublish struct {
	wire.Publish
	shard    uint32
	listener int
}

// A fakeVerdict says what becomes of a publish. The zero value stores and acknowledges it.
type fakeVerdict struct {
	code       wire.Code // not 0: refuse
	retry      wire.Retry
	reason     string
	retryAfter uint64
	silent     bool // store it, never answer
	dropConn   bool // store it, then lose the connection without an answer
	reset      bool // end the stream at once, store nothing
	refused    *wire.RefusalReason
	wait       <-chan struct{} // answer after it is closed
}

const fakeFeatures = wire.FeatureTopology | wire.FeatureStreamShards | wire.FeatureIdempotentProducer | wire.FeatureErrorCodes |
	wire.FeatureUnsupported | wire.FeatureSequenceReused | wire.FeaturePublishPipeline | wire.FeatureStreamPublishWindow |
	wire.FeatureShardOwners | wire.FeatureAckOnCommit | wire.FeatureSubscribeQueue | wire.FeatureSecondWord | wire.FeatureStreamDeleted |
	wire.FeaturePublishWidth | wire.FeatureExplicitShard

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	b := &fakeBroker{t: t, flags: 0x177F, features: fakeFeatures, window: 256, streams: make(map[string]*fakeStream)}
	b.cert, b.pool = fakeCertificate(t)
	b.listen()
	t.Cleanup(b.close)
	return b
}

func fakeCertificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fake"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	leaf, err := x509.ParseCertificate(der)
	check(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen opens one more listening core.
func (b *fakeBroker) listen() *fakeListener { return b.listenOn("127.0.0.1:0") }

func (b *fakeBroker) listenOn(addr string) *fakeListener {
	b.t.Helper()
	socket, err := udp.Listen(netip.MustParseAddrPort(addr), udp.Options{})
	check(b.t, err)
	transport := &quic.Transport{Conn: socket}
	l := &fakeListener{broker: b, addr: socket.LocalAddr().String(), socket: socket, transport: transport, conns: make(map[*quic.Conn]struct{})}
	l.listener, err = transport.Listen(&tls.Config{Certificates: []tls.Certificate{b.cert}, NextProtos: []string{"felix/1"}, MinVersion: tls.VersionTLS13},
		&quic.Config{MaxIdleTimeout: idleTimeout, MaxIncomingStreams: 1024, MaxIncomingUniStreams: 64, InitialPacketSize: 1452, DisablePathMTUDiscovery: true,
			MaxStreamReceiveWindow: 16 << 20, MaxConnectionReceiveWindow: 64 << 20})
	check(b.t, err)
	b.mu.Lock()
	l.index = len(b.listeners)
	b.listeners = append(b.listeners, l)
	b.mu.Unlock()
	l.wg.Go(l.accept)
	return l
}

// set changes what the broker does from now on.
func (b *fakeBroker) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// refuse lets f decide what becomes of every publish.
func (b *fakeBroker) refuse(f func(*fakePublish) fakeVerdict) { b.set(func() { b.onPublish = f }) }

// authenticate lets f decide about every stream.
func (b *fakeBroker) authenticate(f func(token string) *wire.Error) { b.set(func() { b.onAuth = f }) }

func (b *fakeBroker) addr() string { return b.listeners[0].addr }

func (b *fakeBroker) close() {
	for _, l := range b.listeners {
		l.close()
	}
}

func (l *fakeListener) close() {
	l.listener.Close()
	l.dropAll()
	l.transport.Close()
	l.socket.Close()
	l.wg.Wait()
}

// dropAll closes every connection, which to a client is a lost one.
func (l *fakeListener) dropAll() {
	l.broker.mu.Lock()
	conns := make([]*quic.Conn, 0, len(l.conns))
	for q := range l.conns {
		conns = append(conns, q)
	}
	l.broker.mu.Unlock()
	for _, q := range conns {
		q.CloseWithError(0, "gone")
	}
}

func (b *fakeBroker) dropConnections() {
	for _, l := range b.listeners {
		l.dropAll()
	}
}

// stream makes a stream, or returns the one there is.
func (b *fakeBroker) stream(name string, shards int) *fakeStream {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streamLocked(name, shards)
}

func (b *fakeBroker) streamLocked(name string, shards int) *fakeStream {
	s := b.streams[name]
	if s == nil && shards > 0 {
		s = &fakeStream{}
		for range shards {
			s.shards = append(s.shards, &fakeShard{changed: make(chan struct{}), seqs: make(map[uint64]*fakeProducer)})
		}
		b.streams[name] = s
	}
	return s
}

// records returns what a shard holds.
func (b *fakeBroker) records(name string, shard int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, r := range b.streams[name].shards[shard].records {
		all = append(all, string(r))
	}
	return all
}

// trim forgets the records below offset.
func (b *fakeBroker) trim(name string, shard int, offset wire.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name].shards[shard]
	s.records = s.records[offset-s.base:]
	s.base = offset
}

func (b *fakeBroker) delete(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name]
	s.deleted = true
	delete(b.streams, name)
	for _, sh := range s.shards {
		sh.notify()
	}
}

func (s *fakeShard) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeShard) append(records []byte) wire.Offset {
	first := s.base + wire.Offset(len(s.records))
	for r := range wire.AllRecords(records) {
		s.records = append(s.records, slices.Clone(r))
	}
	s.notify()
	return first
}

func (l *fakeListener) accept() {
	for {
		q, err := l.listener.Accept(context.Background())
		if err != nil {
			return
		}
		l.broker.connections.Add(1)
		l.broker.mu.Lock()
		l.conns[q] = struct{}{}
		l.broker.mu.Unlock()
		l.wg.Go(func() { l.serve(q) })
	}
}

func (l *fakeListener) serve(q *quic.Conn) {
	defer func() {
		l.broker.mu.Lock()
		delete(l.conns, q)
		l.broker.mu.Unlock()
	}()
	for {
		st, err := q.AcceptStream(context.Background())
		if err != nil {
			return
		}
		l.wg.Go(func() {
			l.serveStream(q, st)
			st.CancelRead(0)
		})
	}
}

func readFrame(r *bufio.Reader) (wire.Header, []byte, error) {
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return wire.Header{}, nil, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return h, nil, err
	}
	body := make([]byte, h.Length)
	_, err = io.ReadFull(r, body)
	return h, body, err
}

func (l *fakeListener) serveStream(q *quic.Conn, st *quic.Stream) {
	b := l.broker
	r := bufio.NewReaderSize(st, 64<<10)
	h, body, err := readFrame(r)
	if err != nil || h.Flags != 0 {
		return
	}
	m, err := wire.ParseMessage(body)
	if err != nil {
		b.t.Errorf("fake broker: %v", err)
		return
	}
	auth, ok := m.(*wire.Auth)
	if !ok {
		b.t.Errorf("fake broker: a stream starts with %s", m.MessageType())
		return
	}
	b.mu.Lock()
	onAuth := b.onAuth
	answer := &wire.AuthOK{ServerFlags: b.flags & auth.ClientFlags, ServerFeatures: b.features.For(auth.ClientFeatures), HasServerFeatures: true}
	if b.features.Has(wire.FeaturePublishPipeline) {
		answer.PublishWindow, answer.HasPublishWindow = b.window, true
	}
	b.mu.Unlock()
	if onAuth != nil {
		if refused := onAuth(auth.Token); refused != nil {
			st.Write(wire.AppendMessage(nil, refused))
			st.Close()
			return
		}
	}
	if _, err := st.Write(wire.AppendMessage(nil, answer)); err != nil {
		return
	}
	defer st.Close()
	p := &fakePublisher{listener: l, q: q, st: st, r: r, widths: make(map[string]*wire.PublishWidth)}
	for {
		h, body, err := readFrame(r)
		if err != nil {
			if p.used && err == io.EOF {
				b.finished.Add(1)
			}
			p.flush()
			if p.silent {
				<-q.Context().Done() // answers are still owed
			}
			return
		}
		if h.Flags.Kind() == wire.FramePublish {
			if !p.binary(h.Flags, body) {
				return
			}
			continue
		}
		m, err := wire.ParseMessage(body)
		if err != nil {
			b.t.Errorf("fake broker: %v", err)
			return
		}
		if p.json(m) {
			continue
		}
		answer := l.answer(q, m)
		if answer == nil {
			return
		}
		if _, err := st.Write(wire.AppendMessage(nil, answer)); err != nil {
			return
		}
	}
}

// A fakePublisher serves one publish stream.
type fakePublisher struct {
	listener *fakeListener
	q        *quic.Conn
	st       *quic.Stream
	r        *bufio.Reader
	out      []byte
	widths   map[string]*wire.PublishWidth
	used     bool
	silent   bool
}

func (p *fakePublisher) flush() bool {
	if len(p.out) == 0 {
		return true
	}
	_, err := p.st.Write(p.out)
	p.out = p.out[:0]
	return err == nil
}

func (p *fakePublisher) open() {
	if !p.used {
		p.used = true
		p.listener.broker.publishOpens.Add(1)
	}
}

func (p *fakePublisher) binary(flags wire.Flags, body []byte) bool {
	p.open()
	var f fakePublish
	if err := f.Parse(flags, body); err != nil {
		p.listener.broker.t.Errorf("fake broker: %v", err)
		return false
	}
	return p.publish(&f, false, nil)
}

func (p *fakePublisher) json(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.PublishWidth:
		p.open()
		p.listener.broker.widths.Add(1)
		p.widths[m.Stream] = m
		if p.r.Buffered() == 0 {
			p.flush() // answers to what came before
		}
		return true
	case *wire.PublishBatch:
		p.open()
		f := fakePublish{Publish: wire.Publish{RequestID: m.RequestID, Key: m.Key, Stream: []byte(m.Stream), Count: m.Count, Records: m.Records}}
		if m.Ack != wire.AckNone {
			f.Flags |= wire.FlagPublishAcked
		}
		if m.HasKey {
			f.Flags |= wire.FlagPublishKeyed
		}
		var shard *uint32
		if m.HasShard {
			shard = &m.Shard
		}
		return p.publish(&f, true, shard)
	}
	return false
}

// publish returns false when the stream is to end.
func (p *fakePublisher) publish(f *fakePublish, json bool, shard *uint32) bool {
	b := p.listener.broker
	b.mu.Lock()
	stream := b.streamLocked(string(f.Stream), int(b.create))
	verdict := fakeVerdict{}
	f.listener = p.listener.index
	if stream != nil {
		f.shard = wire.ShardOf(stream.routing, f.Key, f.HasKey(), uint32(len(stream.shards)))
		if shard != nil {
			f.shard = *shard
		}
	}
	onPublish := b.onPublish
	b.mu.Unlock()
	if onPublish != nil {
		verdict = onPublish(f)
	}
	if verdict.wait != nil {
		p.flush()
		select {
		case <-verdict.wait:
		case <-p.q.Context().Done():
			return false
		}
	}
	if verdict.reset {
		p.st.CancelRead(1)
		p.st.CancelWrite(1)
		return false
	}
	width := p.widths[string(f.Stream)]
	offset := wire.Offset(0)
	b.mu.Lock()
	switch {
	case verdict.code != 0 || verdict.refused != nil:
	case stream == nil:
		verdict.code, verdict.retry = wire.CodeNotFound, wire.RetryAfter
	case width != nil && f.HasKey() && (width.Shards != uint32(len(stream.shards)) || width.Routing != stream.routing):
		verdict.code, verdict.retry = wire.CodeStaleWidth, wire.RetryRetry
	case f.Idempotent():
		offset, verdict.refused = stream.shards[f.shard].idempotent(f)
		if verdict.refused == nil {
			b.published.Add(int64(f.Count))
		}
	default:
		if b.discard.Load() {
			stream.shards[f.shard].base += wire.Offset(f.Count)
			offset = stream.shards[f.shard].base
		} else {
			offset = stream.shards[f.shard].append(f.Records)
		}
		b.published.Add(int64(f.Count))
	}
	b.mu.Unlock()
	if verdict.dropConn {
		p.q.CloseWithError(0, "gone")
		return false
	}
	if verdict.silent {
		p.silent = true
	}
	if !p.silent && f.Acked() {
		p.answer(f, json, offset, verdict)
	}
	if p.r.Buffered() == 0 || len(p.out) > 32<<10 {
		return p.flush()
	}
	return true
}

func (s *fakeShard) idempotent(f *fakePublish) (wire.Offset, *wire.RefusalReason) {
	p := s.seqs[f.ProducerID]
	if p == nil {
		if f.Sequence != 0 {
			return 0, &wire.RefusalReason{Kind: wire.RefusalUnknownProducer}
		}
		p = &fakeProducer{offsets: make(map[uint64]wire.Offset)}
		s.seqs[f.ProducerID] = p
	}
	switch {
	case f.Sequence < p.next:
		return p.offsets[f.Sequence], nil
	case f.Sequence > p.next:
		return 0, &wire.RefusalReason{Kind: wire.RefusalSequenceGap, Expected: p.next}
	}
	p.next++
	p.offsets[f.Sequence] = s.append(f.Records)
	return p.offsets[f.Sequence], nil
}

func (p *fakePublisher) answer(f *fakePublish, json bool, offset wire.Offset, v fakeVerdict) {
	hasDetail := v.reason != "" || v.retryAfter > 0
	switch {
	case v.refused != nil:
		p.out = wire.AppendMessage(p.out, &wire.PublishRefused{RequestID: f.RequestID, Reason: *v.refused, Message: "refused"})
	case (json || f.Idempotent()) && v.code != 0:
		p.out = wire.AppendMessage(p.out, &wire.PublishError{RequestID: f.RequestID, Message: "no", Code: v.code, Retry: v.retry, HasCode: true,
			Reason: v.reason, RetryAfterMillis: v.retryAfter, HasDetail: hasDetail})
	case json || f.Idempotent():
		p.out = wire.AppendMessage(p.out, &wire.PublishOK{RequestID: f.RequestID, Offset: offset, HasOffset: true})
	case v.code != 0:
		p.out = wire.AppendAck(p.out, &wire.Ack{RequestID: f.RequestID, Failed: true, Message: "no", Code: v.code, Retry: v.retry, HasCode: true,
			Reason: v.reason, RetryAfterMillis: v.retryAfter, HasDetail: hasDetail})
	default:
		p.out = wire.AppendAckOK(p.out, f.RequestID, offset, true)
	}
}

// answer handles the requests that are answered one by one.
func (l *fakeListener) answer(q *quic.Conn, m wire.Message) wire.Message {
	b := l.broker
	b.mu.Lock()
	onAsk := b.onAsk
	b.mu.Unlock()
	if onAsk != nil {
		if answer := onAsk(m); answer != nil {
			return answer
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m := m.(type) {
	case *wire.StreamShards:
		view := &wire.StreamShardsView{RequestID: m.RequestID}
		if s := b.streamLocked(m.Stream, int(b.create)); s != nil {
			view.Shards, view.Routing = uint32(len(s.shards)), s.routing
		}
		return view
	case *wire.ShardOwners:
		view := &wire.ShardOwnersView{RequestID: m.RequestID}
		if s := b.streamLocked(m.Name, int(b.create)); s != nil {
			for i := range s.shards {
				o := wire.ShardOwner{Shard: uint32(i)}
				if b.owners {
					o.NodeID, o.Addr, o.Generation = "fake", b.listeners[1+i%(len(b.listeners)-1)].addr, 1
				}
				view.Owners = append(view.Owners, o)
			}
		}
		return view
	case *wire.Topology:
		return &wire.TopologyView{Brokers: b.topology}
	case *wire.ProducerInit:
		b.producers++
		return &wire.ProducerInitOK{RequestID: m.RequestID, ProducerID: b.producers}
	case *wire.Subscribe:
		return l.subscribe(q, m)
	case *wire.Unknown:
		return m.Unsupported()
	}
	b.t.Errorf("fake broker: unexpected %s", m.MessageType())
	return nil
}

// subscribe is called with the lock held.
func (l *fakeListener) subscribe(q *quic.Conn, m *wire.Subscribe) wire.Message {
	b := l.broker
	s := b.streamLocked(m.Stream, int(b.create))
	if s == nil {
		return wire.NewError(wire.CodeNotFound, "stream not found: "+m.Stream)
	}
	if int(m.Shard) >= len(s.shards) {
		return wire.NewError(wire.CodeInvalidRequest, "no such shard")
	}
	sh := s.shards[m.Shard]
	tail := sh.base + wire.Offset(len(sh.records))
	start := tail
	switch m.Start.Kind {
	case wire.StartEarliest:
		start = sh.base
	case wire.StartOffset:
		start = m.Start.Offset
		if start < sh.base {
			return &wire.SubscribeCursorError{Reason: wire.CursorTooOld, Requested: start, Available: sh.base}
		}
		if start > tail {
			return &wire.SubscribeCursorError{Reason: wire.CursorInFuture, Requested: start, Available: tail}
		}
	}
	b.nextID++
	id := b.nextID
	b.subscribed.Add(1)
	l.wg.Go(func() { b.deliver(q, id, s, sh, start) })
	answer := &wire.Subscribed{SubscriptionID: id, StartOffset: start, HasStartOffset: true, LiveOffset: wire.LiveOffsetUnreached + tail, HasLiveOffset: true}
	if m.HasQueueCapacity {
		answer.QueueCapacity, answer.HasQueueCapacity = min(m.QueueCapacity, 4096), true
	}
	return answer
}

func (b *fakeBroker) deliver(q *quic.Conn, id uint64, s *fakeStream, sh *fakeShard, next wire.Offset) {
	st, err := q.OpenUniStreamSync(q.Context())
	if err != nil {
		return
	}
	out := wire.AppendMessage(nil, &wire.EventStreamHello{SubscriptionID: id})
	for {
		if _, err := st.Write(out); err != nil {
			return
		}
		out = out[:0]
		for len(out) == 0 {
			b.mu.Lock()
			if s.deleted {
				b.mu.Unlock()
				st.Write(wire.AppendMessage(nil, &wire.StreamDeleted{SubscriptionID: id}))
				st.Close()
				return
			}
			changed := sh.changed
			next = max(next, sh.base) // what was trimmed meanwhile is a hole
			e := wire.Events{Flags: wire.FlagEventBatchShared | wire.FlagEventOffsets, Base: next}
			for i := int(next - sh.base); i < len(sh.records) && e.Count < 64; i++ {
				e.Records = wire.AppendRecord(e.Records, sh.records[i])
				e.Count++
			}
			b.mu.Unlock()
			if e.Count > 0 {
				next += wire.Offset(e.Count)
				out = wire.AppendEvents(out, &e)
				break
			}
			select {
			case <-changed:
			case <-q.Context().Done():
				return
			case <-st.Context().Done():
				return
			}
		}
	}
}

// dial connects a client to the fake broker and closes it with the test.
func (b *fakeBroker) dial(opts ...Option) *Client {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := Dial(ctx, b.addr(), append([]Option{WithRootCAs(b.pool)}, opts...)...)
	check(b.t, err)
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, ErrOutcomeUnknown) {
			b.t.Errorf("close: %v", err)
		}
	})
	return c
}

// patience bounds what a test waits for.
const patience = 30 * time.Second
