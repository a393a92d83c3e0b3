package netio

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
	"felix/netio/wire"
)

const (
	alpn = "felix/1"

	// Both ends of the published protocol use these (WIRE section 1.1): an idle connection is noticed within 6 s.
	idleTimeout = 6 * time.Second
	keepAlive   = 2 * time.Second
)

// tlsConfig chooses the application protocol per client: felix/1 where it is offered, none where none is (as every
// published client does unless told to), and no handshake where only others are.
func (s *Server) tlsConfig() *tls.Config {
	base := s.config.TLS.Clone()
	base.MinVersion = tls.VersionTLS13
	withALPN := base.Clone()
	withALPN.NextProtos = []string{alpn}
	silent := base.Clone()
	silent.NextProtos = nil
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case slices.Contains(hello.SupportedProtos, alpn):
			return withALPN, nil
		case len(hello.SupportedProtos) > 0:
			return withALPN, nil // crypto/tls answers no_application_protocol
		case s.config.RequireALPN:
			return nil, errors.New("the client offers no application protocol and felix/1 is required")
		}
		return silent, nil
	}
	return base
}

func (s *Server) quicConfig() *quic.Config {
	l := s.limits
	config := &quic.Config{
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		MaxIncomingStreams:             int64(l.Streams),
		MaxIncomingUniStreams:          int64(l.UniStreams),
		InitialStreamReceiveWindow:     uint64(l.InitialStreamWindow),
		MaxStreamReceiveWindow:         uint64(l.MaxStreamWindow),
		InitialConnectionReceiveWindow: uint64(l.InitialConnectionWindow),
		MaxConnectionReceiveWindow:     uint64(l.MaxConnectionWindow),
		AllowConnectionWindowIncrease:  s.memory.mayGrow,
	}
	config.InitialPacketSize, config.DisablePathMTUDiscovery = udp.PacketSizes(s.config.MaxPacketBytes, s.config.Listen.Addr().IsLoopback())
	return config
}

// announce decides what clients are told about the cores' own ports. An address that a client cannot reach costs it six
// seconds, so nothing is said unless the bind address, or advertise, names a host.
func (s *Server) announce() {
	if len(s.ports) == 0 {
		return
	}
	host := s.config.Advertise
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "" {
		if s.addr.Addr().IsUnspecified() {
			s.log.Info("netio: the own ports of the cores are not announced: the bind address names no host; set advertise", "listen", s.addr)
			return
		}
		host = s.addr.Addr().String()
	}
	node := s.config.NodeID
	if node == "" {
		node = "felix"
	}
	for i, port := range s.ports {
		s.brokers = append(s.brokers, wire.Broker{
			NodeID: node + "." + strconv.Itoa(i),
			Addr:   net.JoinHostPort(host, strconv.Itoa(int(port))),
		})
	}
}

func (s *Server) announced() bool { return len(s.brokers) > 0 }

// validatePacketBytes checks Config.MaxPacketBytes.
func validatePacketBytes(n int) error {
	if n == 0 || n >= minPacketBytes && n <= udp.MaxPacketBytes {
		return nil
	}
	return errors.New("max_packet_bytes is " + strconv.Itoa(n) + "; give 0 or a value from " + strconv.Itoa(minPacketBytes) + " to " + strconv.Itoa(udp.MaxPacketBytes))
}
