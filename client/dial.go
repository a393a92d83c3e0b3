package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
	"felix/netio/wire"
)

const (
	// dialTimeout bounds one attempt at one address: name, handshake and auth together. An address that does not answer costs this once.
	dialTimeout = 6 * time.Second
	// resolveTimeout bounds the look-up of a name (WIRE section 16).
	resolveTimeout = 2 * time.Second
	// idleTimeout ends a connection whose broker is not heard any more; a third of it, 2 s, is the time after which a living one is made to
	// be heard (WIRE section 1.1).
	idleTimeout = 6 * time.Second

	// Receive windows: what the broker may send before it is read. They grow with use (DESIGN section 6).
	initialStreamWindow = 512 << 10
	initialConnWindow   = 768 << 10
	maxStreamWindow     = 16 << 20
	maxConnWindow       = 64 << 20
	// incomingUniStreams are event streams, one per subscription and shard.
	incomingUniStreams = 4096

	// minPacketBytes is what QUIC demands of every path (RFC 9000, section 14).
	minPacketBytes = 1200
)

// clientFlags and clientFeatures are offered: what this package can read, and ACK_ON_COMMIT, which asks that acks follow the write.
const (
	clientFlags    = wire.DefaultClientFlags
	clientFeatures = wire.FeatureRedirect | wire.FeatureIdempotentProducer | wire.FeatureErrorCodes | wire.FeatureShardMoved |
		wire.FeatureUnsupported | wire.FeatureSequenceReused | wire.FeaturePublishPipeline | wire.FeatureAckOnCommit |
		wire.FeatureSubscriptionLagged | wire.FeatureStreamDeleted | wire.FeatureSecondWord
)

// defaultWindow is how many publishes a stream has unanswered when the broker grants no window: what published clients queue.
const defaultWindow = 64

// connect makes one connection: socket, handshake, auth on the stream that stays for questions.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.dialTimeout, fmt.Errorf("no answer within %v", c.config.dialTimeout))
	defer cancel()
	peer, err := resolve(ctx, addr)
	if err != nil {
		return nil, dialError(addr, err)
	}
	local := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	switch {
	case peer.Addr().IsLoopback() && peer.Addr().Is4():
		local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	case peer.Addr().IsLoopback():
		local = netip.AddrPortFrom(netip.IPv6Loopback(), 0)
	case peer.Addr().Is6():
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	socket, err := udp.Listen(local, udp.Options{Logger: c.config.logger})
	if err != nil {
		return nil, dialError(addr, err)
	}
	transport := &quic.Transport{Conn: socket}
	q, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(peer), c.tlsConfig(addr), c.quicConfig(peer.Addr().IsLoopback()))
	if err != nil {
		transport.Close()
		socket.Close()
		return nil, dialError(addr, err)
	}
	conn := newConn(c, addr, peer.String(), q, func() {
		transport.Close()
		socket.Close()
	})
	if err := conn.open(ctx); err != nil {
		conn.end(err)
		if ctx.Err() != nil {
			return nil, dialError(addr, context.Cause(ctx))
		}
		return nil, asError("connect", "", err)
	}
	return conn, nil
}

// resolve returns the first address of host:port.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	if peer, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()), nil
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port %q is not a number from 0 to 65535", portText)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(ips) == 0 {
		return netip.AddrPort{}, fmt.Errorf("host %q has no address", host)
	}
	best := ips[0]
	for _, ip := range ips {
		if ip.Unmap().Is4() && !best.Unmap().Is4() && ip.IsLoopback() {
			best = ip // brokers listen on 127.0.0.1 unless told otherwise
		}
	}
	return netip.AddrPortFrom(best.Unmap(), uint16(port)), nil
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// tlsConfig is for the certificate at addr. For an owner's address that is an IP, the name configured or dialled first stays.
func (c *Client) tlsConfig(addr string) *tls.Config {
	name := c.config.serverName
	if name == "" {
		name, _, _ = net.SplitHostPort(addr)
		if _, err := netip.ParseAddr(name); err == nil && c.seedName != "" {
			name = c.seedName
		}
	}
	t := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.config.rootCAs, ServerName: name, InsecureSkipVerify: c.config.insecure}
	if c.config.alpn != "" {
		t.NextProtos = []string{c.config.alpn}
	}
	return t
}

func (c *Client) quicConfig(loopback bool) *quic.Config {
	q := &quic.Config{
		HandshakeIdleTimeout:           c.config.dialTimeout,
		MaxIdleTimeout:                 c.config.idleTimeout,
		KeepAlivePeriod:                c.config.idleTimeout / 3,
		InitialStreamReceiveWindow:     initialStreamWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialConnWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             -1,
		MaxIncomingUniStreams:          incomingUniStreams,
	}
	q.InitialPacketSize, q.DisablePathMTUDiscovery = udp.PacketSizes(c.config.maxPacketBytes, loopback)
	return q
}

// authFrame is the first frame of every stream.
func (c *Client) authFrame(ctx context.Context) ([]byte, string, error) {
	token, err := c.config.token(ctx)
	if err != nil {
		return nil, "", &Error{Op: "authenticate", Code: wire.CodeUnauthenticated, Retry: RetryFatal, Message: "no token", Err: err}
	}
	return wire.AppendMessage(nil, &wire.Auth{
		TenantID: c.config.tenant, Token: token,
		ClientFlags: clientFlags, HasClientFlags: true, ClientFeatures: clientFeatures, HasClientFeatures: true,
	}), token, nil
}

// errNoAnswer is the end of a stream before the answer.
var errNoAnswer = errors.New("the broker closed the stream without an answer")
