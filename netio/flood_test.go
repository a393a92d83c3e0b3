package netio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"felix/fanout"
)

// floodPackets is how many first packets each flood sends. FELIX_FLOOD_PACKETS replaces it.
const floodPackets = 2000

// A mute is a socket that sends nothing and hears nothing: it keeps what a transport would have sent.
type mute struct {
	sent chan []byte
	stop chan struct{}
	once sync.Once
}

func newMute() *mute { return &mute{sent: make(chan []byte, 1024), stop: make(chan struct{})} }

func (m *mute) WriteTo(b []byte, _ net.Addr) (int, error) {
	select {
	case m.sent <- slices.Clone(b):
	default:
	}
	return len(b), nil
}

func (m *mute) ReadFrom([]byte) (int, net.Addr, error) {
	<-m.stop
	return 0, nil, os.ErrDeadlineExceeded
}

// SetReadDeadline is how a transport that closes ends its read.
func (m *mute) SetReadDeadline(time.Time) error {
	m.once.Do(func() { close(m.stop) })
	return nil
}

func (m *mute) SetReadBuffer(int) error          { return nil }
func (m *mute) SetWriteBuffer(int) error         { return nil }
func (m *mute) Close() error                     { return nil }
func (m *mute) LocalAddr() net.Addr              { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (m *mute) SetDeadline(time.Time) error      { return nil }
func (m *mute) SetWriteDeadline(time.Time) error { return nil }

// firstPackets makes n Initial packets of clients that dial, each with connection IDs and keys of its own.
func firstPackets(t *testing.T, n int) [][]byte {
	t.Helper()
	m := newMute()
	transport := &quic.Transport{Conn: m}
	defer transport.Close()
	// One key share, so that the hello fits one packet.
	config := &tls.Config{ServerName: "localhost", NextProtos: []string{alpn}, CurvePreferences: []tls.CurveID{tls.X25519}}
	packets := make([][]byte, 0, n)
	seen := map[string]bool{} // by destination connection ID
	for len(packets) < n {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			transport.Dial(ctx, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}, config, &quic.Config{InitialPacketSize: minPacketBytes, DisablePathMTUDiscovery: true})
		}()
		var b []byte
		for b = <-m.sent; !isInitial(b) || seen[destination(b)]; b = <-m.sent { // the end of the one before
		}
		seen[destination(b)] = true
		packets = append(packets, b)
		cancel()
		<-ended
	}
	return packets
}

// Long headers of QUIC version 1 (RFC 9000, section 17.2).
func isInitial(b []byte) bool     { return len(b) > 6 && b[0]&0xf0 == 0xc0 }
func isRetry(b []byte) bool       { return len(b) > 6 && b[0]&0xf0 == 0xf0 }
func destination(b []byte) string { return string(b[6 : 6+int(b[5])]) }

// A source is a peer that sends first packets and never answers.
type source struct {
	conn           *net.UDPConn
	sent           uint64
	heard, retries atomic.Uint64 // bytes; packets
}

// flood has sources, which send round after round. Each is an address of its own.
type flood struct {
	t       *testing.T
	to      netip.AddrPort
	sources []*source
	readers sync.WaitGroup
}

// newFlood makes n sources; oneIP gives them one address with n ports.
func newFlood(t *testing.T, to netip.AddrPort, n int, oneIP bool) *flood {
	t.Helper()
	f := &flood{t: t, to: to}
	for i := range n {
		ip := net.IPv4(127, 9, byte(i>>8), byte(i))
		if oneIP {
			ip = net.IPv4(127, 9, 0, 1)
		}
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip})
		if err != nil {
			t.Fatal(err)
		}
		s := &source{conn: conn}
		f.sources = append(f.sources, s)
		f.readers.Go(func() {
			buf := make([]byte, 1<<16)
			for {
				n, err := conn.Read(buf)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				s.heard.Add(uint64(n))
				if isRetry(buf[:n]) {
					s.retries.Add(1)
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, s := range f.sources {
			s.conn.Close()
		}
		f.readers.Wait()
	})
	return f
}

func (f *flood) send(i int, packet []byte) {
	f.t.Helper()
	s := f.sources[i%len(f.sources)]
	if _, err := s.conn.WriteToUDPAddrPort(packet, f.to); err != nil {
		f.t.Fatal(err)
	}
	s.sent += uint64(len(packet))
}

// TestFloods sends first packets that are never completed from many addresses, while a client publishes.
func TestFloods(t *testing.T) {
	total := floodPackets
	if s := os.Getenv("FELIX_FLOOD_PACKETS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("FELIX_FLOOD_PACKETS is %q; give a number of packets", s)
		}
		total = n
	}
	if testing.Short() {
		total /= 10
	}
	packets := firstPackets(t, total)
	// The two cores have two sockets each, and each socket asks before it counts.
	const slack = 4
	// A core begins a second's worth of handshakes at once, and more until the first have been given up, within 10 s.
	const rate, begun = 4, 2 * (4 + 10*4)
	for _, tt := range []struct {
		name    string
		limits  Limits
		oneIP   bool
		retries bool  // the broker must ask for some
		most    int64 // connections that have not authenticated at a time
		refused func(s Stats) uint64
	}{
		{name: "rate", limits: Limits{HandshakesPerSecond: rate}, retries: true, most: begun + slack},
		{name: "places", limits: Limits{HandshakesPerSecond: -1, Unauthenticated: 40}, retries: true, most: 20 + slack},
		{name: "one address", limits: Limits{HandshakesPerSecond: -1, ConnectionsPerIP: 8}, oneIP: true, most: 8 + slack,
			refused: func(s Stats) uint64 { return s.RefusedPerIP }},
		{name: "all connections", limits: Limits{HandshakesPerSecond: -1, Connections: 30}, most: 29 + slack,
			refused: func(s Stats) uint64 { return s.RefusedLimit }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, fixtureOptions{change: func(c *Config) { c.Limits = tt.limits }})
			f.createStream("updates", 1, fanout.Block)
			k := f.connect().authed()
			waitFor(t, "the client's connection to be the only one", func() bool { s := f.server.Stats(); return s.Connections == 1 && s.Unauthenticated == 0 })

			flood := newFlood(t, f.server.Addr(), 64, tt.oneIP)
			const round = 50
			published := uint64(0)
			for i, packet := range packets {
				flood.send(i, packet)
				if i%round != 0 {
					continue
				}
				published++
				k.publish(batch(published, "updates", "", fmt.Sprint(i)))
				if a := k.ack(); a.Failed || a.RequestID != published {
					t.Fatalf("publish %d during the flood: %+v", published, a)
				}
				if s := f.server.Stats(); s.Unauthenticated > tt.most {
					t.Fatalf("after %d packets %d connections have not authenticated, want %d at most", i+1, s.Unauthenticated, tt.most)
				}
			}
			s := f.server.Stats()
			if s.Unauthenticated > tt.most {
				t.Errorf("%d connections have not authenticated, want %d at most", s.Unauthenticated, tt.most)
			}
			if tt.refused != nil && tt.refused(s) == 0 {
				t.Errorf("no connection was refused: %+v", s)
			}
			waitFor(t, "the connections of the flood to be given up", func() bool {
				s := f.server.Stats()
				return s.Connections == 1 && s.Unauthenticated == 0
			})
			published++
			k.publish(batch(published, "updates", "", "after"))
			if a := k.ack(); a.Failed || uint64(a.Offset) != published-1 {
				t.Errorf("after the flood: %+v", a)
			}
			var heard, retries uint64
			for _, s := range flood.sources {
				if s.heard.Load() > 3*s.sent {
					t.Errorf("%v sent %d bytes and was sent %d: more than three times as much", s.conn.LocalAddr(), s.sent, s.heard.Load())
				}
				heard += s.heard.Load()
				retries += s.retries.Load()
			}
			if heard == 0 {
				t.Error("the broker answered nothing: the flood did not reach it")
			}
			if s := f.server.Stats(); tt.retries != (s.RetriesAsked > 0) || tt.retries != (retries > 0) {
				t.Errorf("the broker asked for %d retries and %d arrived, want some: %v", s.RetriesAsked, retries, tt.retries)
			}
			t.Logf("%d packets: %d bytes came back, %d retries, refused: limit %d, per IP %d, unauthenticated %d",
				len(packets), heard, retries, s.RefusedLimit, s.RefusedPerIP, s.RefusedUnauthenticated)
		})
	}
}
