package netio

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"go.uber.org/goleak"

	"felix/core"
	"felix/fanout"
	"felix/netio/udp"
	"felix/netio/wire"
	"felix/replicate"
	"felix/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; it is far beyond what a loaded machine needs.
const patience = 30 * time.Second

// fixture is a server on loopback with its cores and catalog, without package felix.
type fixture struct {
	t       *testing.T
	server  *Server
	catalog *replicate.Catalog
	group   *core.Group
	roots   *x509.CertPool
	hosts   []*replicate.Host
	closed  bool
}

type fixtureOptions struct {
	cores  int
	baton  bool
	pinned bool
	auto   bool
	log    bool                          // durable streams can be made
	disk   func(wal.Backend) wal.Backend // what they are written with; nil is the ordinary one
	ring   fanout.Limits                 // of memory; zero fields are defaults
	now    func() time.Duration          // the clock of the loops; nil is the real one
	change func(*Config)
}

func start(t *testing.T, o fixtureOptions) *fixture {
	t.Helper()
	if o.cores == 0 {
		o.cores = 2
	}
	began := time.Now()
	if o.now == nil {
		o.now = func() time.Duration { return time.Since(began) }
	}
	group, err := core.NewGroup(core.Config{Cores: o.cores, Baton: o.baton, Pinned: o.pinned, CheckOwner: true, Now: o.now})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, group: group}
	var hosts []*replicate.Host
	slabs := fanout.NewSlabs(fanout.SlabsConfig{})
	for _, l := range group.Loops() {
		hosts = append(hosts, replicate.NewHost(l, replicate.HostConfig{Slabs: slabs, Limits: o.ring, NowMicros: func() int64 { return time.Now().UnixMicro() }}))
		if o.log {
			f.addLane(hosts[l.ID()], l, o.disk)
		}
	}
	f.catalog = replicate.NewCatalog(replicate.CatalogConfig{Hosts: hosts, AutoCreate: o.auto})
	cert, roots := testCertificate(t)
	f.roots = roots
	config := Config{
		Group: group, Catalog: f.catalog,
		Listen: netip.MustParseAddrPort("127.0.0.1:0"),
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}},
		Authenticate: func(tenant, token string) error {
			switch token {
			case "bad":
				return errors.New("this token is not good")
			case "other":
				return ErrForbidden
			}
			return nil
		},
	}
	config.Limits.AckWait = patience // a busy disk is no fault
	rand.Read(config.ResetSecret[:])
	if o.change != nil {
		o.change(&config)
	}
	f.server, err = Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range group.Loops() {
		l.AddAgent(hosts[i])
	}
	f.hosts = hosts
	group.Start()
	f.server.Start()
	t.Cleanup(f.close)
	return f
}

// errDisk is how the disks of tests fail.
var errDisk = errors.New("the disk is broken")

// addLane gives a host a lane in a temporary directory.
func (f *fixture) addLane(host *replicate.Host, l *core.Loop, disk func(wal.Backend) wal.Backend) {
	f.t.Helper()
	lane, recovered, err := wal.Open(filepath.Join(f.t.TempDir(), "lane"), wal.Options{
		Lane: uint64(l.ID()), Now: time.Now, Notify: l.WakeOffCore, SegmentBytes: 8 << 20, ZeroAhead: -1, WrapBackend: disk,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	host.AddLane(uint64(l.ID()), lane, recovered)
	l.AddAgent(host.Lanes())
}

func (f *fixture) close() {
	if f.closed {
		return
	}
	f.closed = true
	if err := f.server.Close(); err != nil {
		f.t.Errorf("Close: %v", err)
	}
	for _, h := range f.hosts {
		if err := h.CloseOffCore(); err != nil && !errors.Is(err, errDisk) {
			f.t.Errorf("close the lanes: %v", err)
		}
	}
	f.group.Close()
	// A connection's place at the gate comes back with its context, which a goroutine of its own sees.
	waitFor(f.t, "the books to balance after Close", func() bool {
		s := f.server.Stats()
		return s.Connections == 0 && s.Unauthenticated == 0 && s.Streams == 0 && s.Subscriptions == 0 && f.server.SubscriptionStates()["live"] == 0 && s.IngressBytes == 0 && s.SlotsInUse == 0 && s.SlotsWaiting == 0
	})
}

func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func (f *fixture) createStream(name string, shards uint32, policy fanout.Policy) *replicate.Stream {
	f.t.Helper()
	if _, _, err := f.catalog.CreateTenant(f.t.Context(), "t1", ""); err != nil {
		f.t.Fatal(err)
	}
	if _, _, err := f.catalog.CreateNamespace(f.t.Context(), "t1", "default", ""); err != nil {
		f.t.Fatal(err)
	}
	s, _, err := f.catalog.CreateStream(f.t.Context(), replicate.StreamConfig{Tenant: "t1", Namespace: "default", Name: name, Shards: shards, OnSlow: policy})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// dialer is one client socket; several connections may share it, as those of a published client do.
type dialer struct {
	f         *fixture
	socket    *udp.Conn
	transport *quic.Transport
}

func (f *fixture) dialer() *dialer {
	f.t.Helper()
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	d := &dialer{f: f, socket: socket, transport: &quic.Transport{Conn: socket}}
	f.t.Cleanup(func() {
		d.transport.Close()
		d.socket.Close()
	})
	return d
}

func (d *dialer) dial(protos ...string) (*quic.Conn, error) {
	return d.dialTo(d.f.server.Addr(), protos...)
}

func (d *dialer) dialTo(addr netip.AddrPort, protos ...string) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(d.f.t.Context(), patience)
	defer cancel()
	return d.transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), &tls.Config{RootCAs: d.f.roots, ServerName: "localhost", NextProtos: protos},
		&quic.Config{MaxIdleTimeout: 6 * time.Second, KeepAlivePeriod: 2 * time.Second, MaxIncomingUniStreams: 1024, InitialPacketSize: 1452, DisablePathMTUDiscovery: true})
}

// peer is a client that speaks frames by hand.
type peer struct {
	f    *fixture
	conn *quic.Conn
}

func (f *fixture) connect() *peer { return f.dialer().connect() }

func (d *dialer) connect() *peer {
	d.f.t.Helper()
	conn, err := d.dial("felix/1")
	if err != nil {
		d.f.t.Fatal(err)
	}
	d.f.t.Cleanup(func() { conn.CloseWithError(0, "") })
	return &peer{d.f, conn}
}

// talk is a bidirectional stream of a peer.
type talk struct {
	t *testing.T
	s *quic.Stream
}

func (p *peer) open() *talk {
	p.f.t.Helper()
	ctx, cancel := context.WithTimeout(p.f.t.Context(), patience)
	defer cancel()
	s, err := p.conn.OpenStreamSync(ctx)
	if err != nil {
		p.f.t.Fatal(err)
	}
	return &talk{p.f.t, s}
}

// allFeatures is what a 0.6.2 client offers.
const allFeatures = wire.Features(0xF_FB77FFFF)

func auth() *wire.Auth {
	return &wire.Auth{
		TenantID: "t1", Token: "x",
		ClientFlags: wire.DefaultClientFlags, HasClientFlags: true,
		ClientFeatures: allFeatures, HasClientFeatures: true,
	}
}

// authed opens a stream and authenticates it.
func (p *peer) authed() *talk {
	p.f.t.Helper()
	k := p.open()
	k.send(auth())
	if _, ok := k.message().(*wire.AuthOK); !ok {
		p.f.t.Fatal("no auth_ok")
	}
	return k
}

func (k *talk) send(m wire.Message) {
	k.t.Helper()
	k.raw(wire.AppendMessage(nil, m))
}

func (k *talk) raw(b []byte) {
	k.t.Helper()
	k.s.SetWriteDeadline(time.Now().Add(patience))
	if _, err := k.s.Write(b); err != nil {
		k.t.Fatalf("write: %v", err)
	}
}

func (k *talk) publish(p *wire.Publish) {
	k.t.Helper()
	k.raw(wire.AppendPublish(nil, p))
}

type frameReader interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// readFrame reads one frame; io.EOF at a clean end.
func readFrame(r frameReader) (wire.Header, []byte, error) {
	r.SetReadDeadline(time.Now().Add(patience))
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

func (k *talk) message() wire.Message {
	k.t.Helper()
	h, body, err := readFrame(k.s)
	if err != nil {
		k.t.Fatalf("reading a message: %v", err)
	}
	if h.Flags != 0 {
		k.t.Fatalf("frame with flags %s where a message was expected", h.Flags)
	}
	m, err := wire.ParseMessage(body)
	if err != nil {
		k.t.Fatal(err)
	}
	return m
}

func (k *talk) ack() wire.Ack {
	k.t.Helper()
	h, body, err := readFrame(k.s)
	if err != nil {
		k.t.Fatalf("reading an ack: %v", err)
	}
	if h.Flags == 0 {
		k.t.Fatalf("message %s where an ack was expected", body)
	}
	var a wire.Ack
	if err := a.Parse(h.Flags, body); err != nil {
		k.t.Fatal(err)
	}
	return a
}

func (k *talk) mustEnd() {
	k.t.Helper()
	if h, body, err := readFrame(k.s); !errors.Is(err, io.EOF) {
		k.t.Fatalf("frame %v %s, %v where the stream should have ended", h, body, err)
	}
}

func batch(requestID uint64, stream, key string, payloads ...string) *wire.Publish {
	p := &wire.Publish{
		Flags: wire.FlagPublishBatch | wire.FlagPublishAcked, RequestID: requestID, AckMode: wire.AckPerBatch,
		Tenant: []byte("t1"), Namespace: []byte("default"), Stream: []byte(stream), Count: uint32(len(payloads)),
	}
	if key != "" {
		p.Flags |= wire.FlagPublishKeyed
		p.Key = []byte(key)
	}
	for _, payload := range payloads {
		p.Records = wire.AppendRecord(p.Records, []byte(payload))
	}
	return p
}

// events reads one event stream.
type events struct {
	t  *testing.T
	s  *quic.ReceiveStream
	id uint64
}

func (p *peer) acceptEvents() *events {
	p.f.t.Helper()
	ctx, cancel := context.WithTimeout(p.f.t.Context(), patience)
	defer cancel()
	s, err := p.conn.AcceptUniStream(ctx)
	if err != nil {
		p.f.t.Fatal(err)
	}
	_, body, err := readFrame(s)
	if err != nil {
		p.f.t.Fatal(err)
	}
	m, err := wire.ParseMessage(body)
	hello, ok := m.(*wire.EventStreamHello)
	if err != nil || !ok {
		p.f.t.Fatalf("first frame of an event stream is %T, %v", m, err)
	}
	return &events{p.f.t, s, hello.SubscriptionID}
}

func (e *events) next() wire.Events {
	e.t.Helper()
	h, body, err := readFrame(e.s)
	if err != nil {
		e.t.Fatalf("reading an event frame: %v", err)
	}
	var ev wire.Events
	if err := ev.Parse(h.Flags, body); err != nil {
		e.t.Fatalf("event frame %s: %v", body, err)
	}
	return ev
}

func subscribeTo(stream string, shard uint32, start wire.StartPosition) *wire.Subscribe {
	return &wire.Subscribe{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: stream}, Shard: shard, HasShard: true, Start: start}
}

// waitFor polls a condition that another goroutine brings about and that nothing signals to a test.
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
