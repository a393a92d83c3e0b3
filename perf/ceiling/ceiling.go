package ceiling

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
)

const alpn = "ceiling"

// A Form says in how many processes a probe runs.
type Form int

const (
	// OneProcess has server and client in this process, as benchmarks of package perf have broker and client.
	OneProcess Form = iota
	// TwoProcesses starts this program once more as the server, as perf/matrix has broker and generator: what it costs to wake the other
	// process is part of the figure. main, or TestMain, must call ServeIfAsked first.
	TwoProcesses
)

// A half is the server half of a probe, in this process or in another.
type half interface {
	address() net.Addr
	certificates() *x509.CertPool // to trust
	// received is how many bytes the server has read, which only Sink's counts.
	received(ctx context.Context) (int64, error)
	close() error
}

// A link is a server half and the clients that talk to it over loopback.
type link struct {
	half
	clients []*client
}

// client is one connection with a socket of its own.
type client struct {
	socket    *udp.Conn
	transport *quic.Transport
	conn      *quic.Conn
}

// connTimeout bounds a handshake, and the silence of a connection; then the probe fails. A machine that others use as well may leave a
// server process without a CPU for many seconds.
const connTimeout = 60 * time.Second

func quicConfig() *quic.Config {
	initial, fixed := udp.PacketSizes(0, true)
	return &quic.Config{
		HandshakeIdleTimeout:           connTimeout,
		MaxIdleTimeout:                 connTimeout,
		InitialPacketSize:              initial,
		DisablePathMTUDiscovery:        fixed,
		InitialStreamReceiveWindow:     512 << 10,
		MaxStreamReceiveWindow:         16 << 20,
		InitialConnectionReceiveWindow: 1 << 20,
		MaxConnectionReceiveWindow:     64 << 20,
		MaxIncomingStreams:             1024,
		MaxIncomingUniStreams:          1024,
	}
}

// Certificate makes a certificate for loopback, as an address and by name, that signs itself.
func Certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// open starts the server half of a probe.
func (f Form) open(ctx context.Context, a ask) (l *link, err error) {
	l = &link{}
	if f == TwoProcesses {
		l.half, err = startProcess(ctx, a)
	} else {
		l.half, err = startServer(a)
	}
	if err != nil {
		return nil, fmt.Errorf("the server of probe %s: %w", a.probe, err)
	}
	return l, nil
}

func (l *link) dial(ctx context.Context) (*quic.Conn, error) {
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return nil, err
	}
	c := &client{socket: socket, transport: &quic.Transport{Conn: socket}}
	config := &tls.Config{RootCAs: l.certificates(), NextProtos: []string{alpn}, MinVersion: tls.VersionTLS13}
	c.conn, err = c.transport.Dial(ctx, l.address(), config, quicConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial the probe's server: %w", err), c.transport.Close(), c.socket.Close())
	}
	l.clients = append(l.clients, c)
	return c.conn, nil
}

// close ends clients and server and waits for the server's end.
func (l *link) close() error {
	for _, c := range l.clients {
		c.conn.CloseWithError(0, "")
		c.transport.Close()
		c.socket.Close()
	}
	return l.half.close()
}
