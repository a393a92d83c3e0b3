package udp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const alpn = "test"

// serverTLS makes a certificate; clientTLS accepts any.
func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{alpn},
	}
}

func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}}
}

func quicConfig() *quic.Config {
	return &quic.Config{
		InitialPacketSize:              1452,
		DisablePathMTUDiscovery:        true,
		InitialStreamReceiveWindow:     4 << 20,
		MaxStreamReceiveWindow:         16 << 20,
		InitialConnectionReceiveWindow: 16 << 20,
		MaxConnectionReceiveWindow:     64 << 20,
		MaxIncomingStreams:             1000,
		MaxIdleTimeout:                 patience,
	}
}

// transport runs quic-go on a socket until the test ends.
func transport(t testing.TB, pc net.PacketConn, core uint8) *quic.Transport {
	t.Helper()
	tr := &quic.Transport{Conn: pc, ConnectionIDGenerator: ConnectionIDs(core)}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// pattern is a stream of bytes that both ends can make: no byte of it can be lost, doubled or moved unseen.
func pattern(seed uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// sendPattern writes n bytes of a pattern.
func sendPattern(w io.Writer, seed uint64, n int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(pattern(seed), n), make([]byte, 128<<10))
	return err
}

// verifyPattern reads n bytes and compares them with a pattern.
func verifyPattern(r io.Reader, seed uint64, n int64) error {
	want, got, at := make([]byte, 64<<10), make([]byte, 64<<10), int64(0)
	p := pattern(seed)
	for at < n {
		k, err := r.Read(got[:min(int64(len(got)), n-at)])
		if _, err := io.ReadFull(p, want[:k]); err != nil {
			return err
		}
		for i := range k {
			if got[i] != want[i] {
				return fmt.Errorf("byte %d of %d is %#x, want %#x", at+int64(i), n, got[i], want[i])
			}
		}
		at += int64(k)
		if err != nil && (err != io.EOF || at < n) {
			return fmt.Errorf("after %d of %d bytes: %w", at, n, err)
		}
	}
	return nil
}

// exchange moves n bytes each way on a stream of its own.
func exchange(ctx context.Context, c *quic.Conn, seed uint64, n int64) error {
	str, err := c.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := str.SetDeadline(deadline); err != nil {
			return err
		}
	}
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), uint64(n))
	if _, err := str.Write(head); err != nil {
		return err
	}
	if err := sendPattern(str, seed, n); err != nil {
		return err
	}
	if err := str.Close(); err != nil {
		return err
	}
	return verifyPattern(str, seed+1, n)
}

// serve accepts connections on a transport until the test ends and answers exchanges. It returns the count of
// connections accepted.
func serve(t testing.TB, tr *quic.Transport) *atomic.Int64 {
	t.Helper()
	ln, err := tr.Listen(serverTLS(t), quicConfig())
	check(t, err)
	var accepted atomic.Int64
	var all sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		tr.Close()
		all.Wait()
	})
	answer := func(str *quic.Stream) error {
		var head [16]byte
		if _, err := io.ReadFull(str, head[:]); err != nil {
			return err
		}
		seed, n := binary.LittleEndian.Uint64(head[:]), int64(binary.LittleEndian.Uint64(head[8:]))
		if err := verifyPattern(str, seed, n); err != nil {
			return err
		}
		if err := sendPattern(str, seed+1, n); err != nil {
			return err
		}
		return str.Close()
	}
	all.Go(func() {
		for {
			conn, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			accepted.Add(1)
			all.Go(func() {
				for {
					str, err := conn.AcceptStream(context.Background())
					if err != nil {
						return
					}
					all.Go(func() {
						err := answer(str)
						var closed *quic.ApplicationError // the client is content and leaves
						var gone *quic.IdleTimeoutError
						if err != nil && !errors.As(err, &closed) && !errors.As(err, &gone) && !errors.Is(err, quic.ErrTransportClosed) {
							t.Errorf("server: %v", err)
							str.CancelRead(1)
							str.CancelWrite(1)
						}
					})
				}
			})
		}
	})
	return &accepted
}

func dial(t testing.TB, tr *quic.Transport, to netip.AddrPort) *quic.Conn {
	t.Helper()
	c, err := tr.Dial(patient(t), net.UDPAddrFromAddrPort(to), clientTLS(), quicConfig())
	check(t, err)
	t.Cleanup(func() { c.CloseWithError(0, "") })
	return c
}

func TestTransfer(t *testing.T) {
	for _, c := range []struct {
		name         string
		listen, dial string
		disable      bool
	}{
		{"IPv4", "127.0.0.1:0", "127.0.0.1", false},
		{"IPv4 without GRO", "127.0.0.1:0", "127.0.0.1", true},
		{"IPv6", "[::1]:0", "::1", false},
		{"both families", "[::]:0", "127.0.0.1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{DisableGRO: c.disable}
			server := open(t, netip.MustParseAddrPort(c.listen), o)
			serve(t, transport(t, server, 0))
			to := netip.AddrPortFrom(netip.MustParseAddr(c.dial), server.AddrPort().Port())
			client := open(t, netip.AddrPortFrom(to.Addr(), 0), o)
			conn := dial(t, transport(t, client, 0), to)
			check(t, exchange(patient(t), conn, 1, 20<<20))
			for name, s := range map[string]Stats{"server": server.Stats(), "client": client.Stats()} {
				t.Logf("%s: %+v", name, s)
				if (s.SuperBuffers > 0) == c.disable {
					t.Errorf("%s: %d super-buffers", name, s.SuperBuffers)
				}
				if s.PacketsReceived < 20<<20/1452 || s.PacketsSent < 20<<20/1452 || s.Truncated != 0 {
					t.Errorf("%s: %+v", name, s)
				}
			}
		})
	}
}

// A witness is a client's socket that notes the senders of its packets.
type witness struct {
	*Conn
	mu   sync.Mutex
	from map[netip.AddrPort]int
}

func (w *witness) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	n, err := w.Conn.ReadBatch(ms, flags)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range ms[:n] {
		w.from[m.Addr.(*net.UDPAddr).AddrPort()]++
	}
	return n, err
}

func TestTransferOnAnUnspecifiedAddress(t *testing.T) {
	for listen, asked := range map[string]string{"0.0.0.0:0": "127.0.0.3", "[::]:0": "127.0.0.4"} {
		server := open(t, netip.MustParseAddrPort(listen), Options{})
		serve(t, transport(t, server, 0))
		to := netip.AddrPortFrom(netip.MustParseAddr(asked), server.AddrPort().Port())
		w := &witness{Conn: open(t, loopback4, Options{}), from: map[netip.AddrPort]int{}}
		conn := dial(t, transport(t, w, 0), to)
		check(t, exchange(patient(t), conn, 2, 1<<20))
		w.mu.Lock()
		if len(w.from) != 1 || w.from[to] == 0 {
			t.Errorf("%s: %s was asked, packets came from %v", listen, asked, w.from)
		}
		w.mu.Unlock()
	}
}

// A padder is a client's socket that makes first packets as long as those of the published clients.
type padder struct {
	*Conn
	size   int
	padded atomic.Int64
}

func (p *padder) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	const initial = 0xc0 // long header, type 0 of version 1
	if b[0]&0xf0 != initial || len(b) >= p.size {
		return p.Conn.WriteMsgUDP(b, oob, addr)
	}
	p.padded.Add(1)
	if _, oobn, err := p.Conn.WriteMsgUDP(append(b[:len(b):len(b)], make([]byte, p.size-len(b))...), oob, addr); err != nil {
		return 0, oobn, err
	}
	return len(b), len(oob), nil
}

func TestHandshakeWithABigFirstDatagram(t *testing.T) {
	for _, size := range []int{4096, 16336} {
		server := open(t, loopback4, Options{})
		serve(t, transport(t, server, 0))
		client := &padder{Conn: open(t, loopback4, Options{}), size: size}
		conn := dial(t, transport(t, client, 0), server.AddrPort())
		if client.padded.Load() == 0 {
			t.Fatal("no packet was padded")
		}
		check(t, exchange(patient(t), conn, 3, 2<<20))
		if s := server.Stats(); s.Truncated != 0 {
			t.Errorf("%d datagrams truncated", s.Truncated)
		}
	}
}

func TestTransferAmongEmptyDatagrams(t *testing.T) {
	server := open(t, loopback4, Options{})
	serve(t, transport(t, server, 0))
	conn := dial(t, transport(t, open(t, loopback4, Options{}), 0), server.AddrPort())
	stranger := sender(t, loopback4)
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// Empty, not QUIC, a short header of nobody, a long header cut short.
			p := [][]byte{nil, {0}, {0x40, 1, 2, 3, 4, 5, 6, 7, 8}, {0xc0, 0, 0, 0, 1, 20}}[i%4]
			if _, _, err := stranger.WriteMsgUDPAddrPort(p, nil, server.AddrPort()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	err := exchange(patient(t), conn, 4, 4<<20)
	close(stop)
	noise.Wait()
	check(t, err)
}

func TestQUICGoFindsTheOffloads(t *testing.T) {
	c := open(t, loopback4, Options{})
	s := c.Stats()
	// What the kernel of this machine can do is asked of it again, past our code.
	_, gso := 0, c.control(func(fd uintptr) error {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		return err
	}) == nil
	gro := c.control(func(fd uintptr) error {
		v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO)
		if err == nil && v == 0 {
			err = errors.New("off")
		}
		return err
	}) == nil
	if s.GSO != gso || s.GRO != gro || s.ReadBufferBytes == 0 || s.WriteBufferBytes == 0 {
		t.Errorf("stats %+v, the kernel says GSO %v, GRO %v", s, gso, gro)
	}
}
