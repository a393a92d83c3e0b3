package ceiling

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
)

// The probes that have a server.
const (
	probeLoop = "loop"
	probeEcho = "echo"
	probeSink = "sink"
)

// maxRings bounds the rings of a Loop: each keeps its last 1,024 records.
const maxRings = 4096

// An ask is what a server half is to do.
type ask struct {
	probe string
	rings int // of Loop; otherwise 0
}

// A server is the server half in the process that runs it. Its methods may be called from any goroutine.
type server struct {
	socket      *udp.Conn
	transport   *quic.Transport
	listener    *quic.Listener
	certificate []byte // DER; what clients trust
	bytes       atomic.Int64
	goroutines  sync.WaitGroup
}

// startServer listens on a free port of loopback and serves every stream of every connection.
func startServer(a ask) (*server, error) {
	s := &server{}
	serve, err := s.handler(a)
	if err != nil {
		return nil, err
	}
	cert, err := Certificate()
	if err != nil {
		return nil, err
	}
	s.certificate = cert.Certificate[0]
	if s.socket, err = udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{}); err != nil {
		return nil, err
	}
	s.transport = &quic.Transport{Conn: s.socket}
	s.listener, err = s.transport.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}, MinVersion: tls.VersionTLS13}, quicConfig())
	if err != nil {
		return nil, errors.Join(err, s.transport.Close(), s.socket.Close())
	}
	s.goroutines.Go(func() {
		for {
			conn, err := s.listener.Accept(context.Background())
			if err != nil {
				return
			}
			s.goroutines.Go(func() {
				for {
					stream, err := conn.AcceptStream(context.Background())
					if err != nil {
						return
					}
					s.goroutines.Go(func() { serve(stream) })
				}
			})
		}
	})
	return s, nil
}

// handler is what happens to a stream.
func (s *server) handler(a ask) (func(*quic.Stream), error) {
	switch a.probe {
	case probeLoop:
		if a.rings < 1 || a.rings > maxRings {
			return nil, fmt.Errorf("rings is %d; give 1 to %d", a.rings, maxRings)
		}
		rings := make([]ring, a.rings)
		return func(stream *quic.Stream) { serveLoop(stream, rings) }, nil
	case probeEcho:
		return serveEcho, nil
	case probeSink:
		return func(stream *quic.Stream) { serveSink(stream, &s.bytes) }, nil
	}
	return nil, fmt.Errorf("there is no probe %q", a.probe)
}

func (s *server) address() net.Addr { return s.socket.LocalAddr() }

func (s *server) certificates() *x509.CertPool { return trust(s.certificate) }

func (s *server) received(context.Context) (int64, error) { return s.bytes.Load(), nil }

// close ends the connections that are left and waits for the goroutines.
func (s *server) close() error {
	s.listener.Close()
	s.transport.Close()
	s.socket.Close()
	s.goroutines.Wait()
	return nil
}

// trust is a pool with one certificate, in DER; an empty one when that is no certificate, which then fails the handshake.
func trust(der []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	if leaf, err := x509.ParseCertificate(der); err == nil {
		pool.AddCert(leaf)
	}
	return pool
}
