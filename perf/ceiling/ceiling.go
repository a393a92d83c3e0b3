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
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
)

const alpn = "ceiling"

// link is a server and a client that talk over loopback.
type link struct {
	serverConn *udp.Conn
	server     *quic.Transport
	listener   *quic.Listener
	clientTLS  *tls.Config

	mu      sync.Mutex
	clients []*client

	goroutines sync.WaitGroup // of the server
}

// client is one connection with a socket of its own.
type client struct {
	socket    *udp.Conn
	transport *quic.Transport
	conn      *quic.Conn
}

func quicConfig() *quic.Config {
	initial, fixed := udp.PacketSizes(0, true)
	return &quic.Config{
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

func certificate() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool, nil
}

// newLink starts a server that runs serve for every stream it accepts.
func newLink(serve func(*quic.Stream)) (*link, error) {
	cert, roots, err := certificate()
	if err != nil {
		return nil, err
	}
	l := &link{clientTLS: &tls.Config{RootCAs: roots, NextProtos: []string{alpn}, MinVersion: tls.VersionTLS13}}
	l.serverConn, err = udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return nil, err
	}
	l.server = &quic.Transport{Conn: l.serverConn}
	l.listener, err = l.server.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}, MinVersion: tls.VersionTLS13}, quicConfig())
	if err != nil {
		return nil, errors.Join(err, l.server.Close(), l.serverConn.Close())
	}
	l.goroutines.Go(func() {
		for {
			conn, err := l.listener.Accept(context.Background())
			if err != nil {
				return
			}
			l.goroutines.Go(func() {
				for {
					stream, err := conn.AcceptStream(context.Background())
					if err != nil {
						return
					}
					l.goroutines.Go(func() { serve(stream) })
				}
			})
		}
	})
	return l, nil
}

func (l *link) dial(ctx context.Context) (*quic.Conn, error) {
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return nil, err
	}
	c := &client{socket: socket, transport: &quic.Transport{Conn: socket}}
	c.conn, err = c.transport.Dial(ctx, l.serverConn.LocalAddr(), l.clientTLS, quicConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial the probe's server: %w", err), c.transport.Close(), c.socket.Close())
	}
	l.mu.Lock()
	l.clients = append(l.clients, c)
	l.mu.Unlock()
	return c.conn, nil
}

// close ends clients and server and waits for the server's goroutines.
func (l *link) close() {
	for _, c := range l.clients {
		c.conn.CloseWithError(0, "")
		c.transport.Close()
		c.socket.Close()
	}
	l.listener.Close()
	l.server.Close()
	l.serverConn.Close()
	l.goroutines.Wait()
}
