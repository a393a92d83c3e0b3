package netio

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/replicate"
)

// Config is what a Server is built from. Fields marked "zero means" have a default; the others are required.
// It is copied by Listen and fixed from then on.
type Config struct {
	// Group holds the cores. The server adds its agents to every loop, so Listen must run before Group.Start.
	Group *core.Group
	// Catalog resolves stream names.
	Catalog *replicate.Catalog

	// Listen is the address of the shared port. Port 0 takes an ephemeral one.
	Listen netip.AddrPort
	// Listeners is the number of listening cores, 1..number of cores. Zero means one per core. One means the
	// shared port only: no core has a port of its own.
	Listeners int
	// ListenerPorts are the own ports of the listening cores. Empty means the port of Listen plus 1, 2, ... or
	// ephemeral ones when that is 0. Otherwise there is one entry per listening core; 0 is an ephemeral port.
	ListenerPorts []uint16
	// Advertise is the host or host:port clients are told, "" for the bind address. See Server.announce.
	Advertise string
	// NodeID names this broker to clients; cores are NodeID.0, NodeID.1, ... Zero means "felix".
	NodeID string

	// TLS holds the certificate. NextProtos is set per ClientHello and need not be given.
	TLS *tls.Config
	// RequireALPN refuses clients that offer no ALPN at all.
	RequireALPN bool
	// MaxPacketBytes bounds the QUIC packets sent, 1,200 to udp.MaxPacketBytes, which zero means. udp.PacketSizes says how packets get
	// there.
	MaxPacketBytes int
	// ResetSecret derives the stateless reset key of each socket; TokenKey seals Retry tokens. Both last as long
	// as the data directory, so that clients of an earlier process notice a restart at once.
	ResetSecret, TokenKey [32]byte

	// Authenticate checks the tenant and token of a stream. It must not block. It is not asked again about the pair that a
	// connection was last let in with; an error is answered with unauthenticated, or forbidden when it wraps ErrForbidden.
	Authenticate func(tenant, token string) error

	Limits Limits
	// Memory is the budget for what peers make the broker hold.
	Memory MemoryConfig
	// Quotas bounds what tenants publish. It can be changed while the server runs: SetQuota.
	Quotas QuotaConfig

	// Rand makes producer ids. Nil means crypto/rand.
	Rand io.Reader

	// DrainLinger is how long Close waits for peers to finish reading what was written. Zero means 100 ms.
	DrainLinger time.Duration

	// Logger gets one line per event that an operator acts on. Nil means none.
	Logger *slog.Logger
}

// ErrForbidden marks an authentication error that is about rights, not about who the client is.
var ErrForbidden = errors.New("forbidden")

// Limits bounds what peers can make the server hold. The zero value of a field means its default; -1 switches a
// limit off where the field says so.
type Limits struct {
	// Connections is the number of client connections, 8,192 by default; -1 means no limit. Beyond it a handshake is refused with
	// CONNECTION_REFUSED.
	Connections int
	// ConnectionsPerIP is the share of one source address, 512 by default; -1 means no limit. Refused likewise.
	ConnectionsPerIP int
	// UnauthenticatedPerIP and Unauthenticated bound connections without an authenticated stream: 64 per
	// source address (loopback is exempt) and 512 in all. Refused likewise.
	UnauthenticatedPerIP, Unauthenticated int
	// HandshakesPerSecond is how many handshakes a second may begin at a listening core, and at once, before peers must show by a Retry that
	// they are where they say: 256 by default; -1 means no limit. Those who have shown it are not held back by it.
	HandshakesPerSecond int
	// AuthTimeout closes a connection without an authenticated stream with code 1. Default 10 s; -1 means never.
	AuthTimeout time.Duration
	// PreauthFrameBytes bounds the payload of a frame on an unauthenticated stream, 64 KiB by default. The
	// stream ends from the header alone.
	PreauthFrameBytes int
	// PreauthStreams is how many unauthenticated streams of a connection are read at a time, 16 by default.
	// Further ones wait.
	PreauthStreams int
	// FrameBytes bounds the payload of a frame, 16 MiB by default and at most. A larger one is answered with
	// invalid_request where there is somebody to answer, and ends the stream.
	FrameBytes int
	// Subscriptions per connection, 4,096 by default; then limit_exceeded.
	Subscriptions int
	// Requests bounds what is no publish, per connection and second: 5,000 by default, with two seconds' worth saved up; -1 means no
	// limit. Beyond it a request is refused with limit_exceeded, class retry_after.
	Requests int
	// LogLines is how many lines of the log a minute one thing that clients do wrong may cause, 10 by default. Beyond it they are counted,
	// and the minute ends with a line that has their number.
	LogLines int
	// SubscriberQueue is the default depth of a subscriber's queue in envelopes, 512; SubscriberQueueMax bounds
	// what a client may ask for, 4,096.
	SubscriberQueue, SubscriberQueueMax int
	// AnswerTimeout ends a stream whose peer has had no room for its answers for so long: 30 s by default, after which
	// published clients have given up by themselves.
	AnswerTimeout time.Duration
	// FrameTimeout ends a stream that keeps the broker waiting for the rest of a frame, 30 s by default and a second for every
	// 64 KiB of the frame besides: its first part holds memory that others wait for.
	FrameTimeout time.Duration
	// QueueWait is how long an acked publish may wait for a slot and for room at its shard together, 2 s by default. Then it is
	// refused with overloaded, reason publish_queue_full, and nothing of it is kept. Publishes without ack wait without limit.
	QueueWait time.Duration
	// AckWait is how long an acked publish that a shard has taken may wait for its answer, 6 s by default: longer than a subscriber
	// may hold a shard back. Then it is answered with unacknowledged, whose outcome the client does not know; the record
	// may still be written.
	AckWait time.Duration
	// ReadRecords bounds the records of a page that stream_read answers with, 10,000 by default and at most. A page is
	// at most 4 MiB besides.
	ReadRecords int
	// PublishWindow is how many acked publishes of a stream may be unanswered, 256 by default. -1 grants no
	// pipelining to clients; the bound stays.
	PublishWindow int
	// UnackedWindow is how many publishes without ack of a stream may wait for a slot, 1,024 by default. Then
	// the stream is not read and QUIC flow control paces the publisher.
	UnackedWindow int
	// ShedUnacked drops publishes without ack that find no slot, no bytes or no room in their tenant's quota, at once and counted. The
	// default is that they wait, and their stream with them: QUIC flow control paces the publisher.
	ShedUnacked bool
	// ConnectionBytes and IngressBytes bound the publish bytes held for one connection (16 MiB) and in all
	// (64 MiB), a quarter of it for frames above 64 KiB and another for those above 1 MiB. A stream that gets none is not read.
	ConnectionBytes, IngressBytes int64
	// Slots is the ingress depth of a core in publish frames, 512 by default.
	Slots int
	// Streams and UniStreams are the client's open streams per connection: 1,024 and 64 by default.
	Streams, UniStreams int
	// Receive windows. Defaults: 16 KiB a stream and 32 KiB a connection at first, 16 and 64 MiB at most.
	InitialStreamWindow, InitialConnectionWindow, MaxStreamWindow, MaxConnectionWindow int
}

const (
	defaultPublishWindow = 256
	maxFrameBytesLimit   = 16 << 20
	// minPacketBytes is what QUIC demands of every path (RFC 9000, section 14).
	minPacketBytes = 1200
)

// withDefaults returns l with its zero fields filled in.
func (l Limits) withDefaults() Limits {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.Connections, 8192)
	set(&l.ConnectionsPerIP, 512)
	set(&l.UnauthenticatedPerIP, 64)
	set(&l.Unauthenticated, 512)
	set(&l.HandshakesPerSecond, 256)
	set(&l.PreauthFrameBytes, 64<<10)
	set(&l.PreauthStreams, 16)
	set(&l.FrameBytes, maxFrameBytesLimit)
	set(&l.Subscriptions, 4096)
	set(&l.Requests, 5000)
	set(&l.LogLines, 10)
	set(&l.SubscriberQueue, 512)
	set(&l.SubscriberQueueMax, 4096)
	set(&l.ReadRecords, replicate.MaxReadRecords)
	set(&l.PublishWindow, defaultPublishWindow)
	set(&l.UnackedWindow, 1024)
	set(&l.Slots, 512)
	set(&l.Streams, 1024)
	set(&l.UniStreams, 64)
	set(&l.InitialStreamWindow, 16<<10)
	set(&l.InitialConnectionWindow, 32<<10)
	set(&l.MaxStreamWindow, 16<<20)
	set(&l.MaxConnectionWindow, 64<<20)
	if l.FrameTimeout == 0 {
		l.FrameTimeout = 30 * time.Second
	}
	if l.AckWait == 0 {
		l.AckWait = 6 * time.Second
	}
	if l.QueueWait == 0 {
		l.QueueWait = 2 * time.Second
	}
	if l.AuthTimeout == 0 {
		l.AuthTimeout = 10 * time.Second
	}
	if l.AnswerTimeout == 0 {
		l.AnswerTimeout = 30 * time.Second
	}
	if l.ConnectionBytes == 0 {
		l.ConnectionBytes = 16 << 20
	}
	if l.IngressBytes == 0 {
		l.IngressBytes = 64 << 20
	}
	return l
}

// Validate reports every value of l that is out of bounds, and the relations between limits that do not hold.
// Zero fields count as their defaults.
func (l Limits) Validate() error {
	l = l.withDefaults()
	var problems []error
	bound := func(name string, value, low, high int64) {
		if value < low || value > high {
			problems = append(problems, fmt.Errorf("%s is %d; give a value from %d to %d", name, value, low, high))
		}
	}
	bound("connections", int64(l.Connections), -1, 1<<20)
	bound("connections per IP", int64(l.ConnectionsPerIP), -1, 1<<20)
	bound("unauthenticated connections per IP", int64(l.UnauthenticatedPerIP), 1, 1<<20)
	bound("unauthenticated connections", int64(l.Unauthenticated), 1, 1<<20)
	bound("handshakes per second", int64(l.HandshakesPerSecond), -1, 1<<20)
	bound("frame bytes", int64(l.FrameBytes), 1<<10, maxFrameBytesLimit)
	bound("frame bytes before authentication", int64(l.PreauthFrameBytes), 1<<10, maxFrameBytesLimit)
	bound("streams before authentication", int64(l.PreauthStreams), 1, 1<<16)
	bound("subscriptions per connection", int64(l.Subscriptions), 1, 1<<20)
	bound("requests per connection and second", int64(l.Requests), -1, 1<<20)
	bound("log lines per cause", int64(l.LogLines), 1, 1<<20)
	bound("subscriber queue", int64(l.SubscriberQueue), 1, fanout.MaxCapacity)
	bound("subscriber queue maximum", int64(l.SubscriberQueueMax), 1, fanout.MaxCapacity)
	bound("answer timeout in ms", l.AnswerTimeout.Milliseconds(), 1, int64(time.Hour/time.Millisecond))
	bound("publish queue wait in ms", l.QueueWait.Milliseconds(), 1, int64(time.Hour/time.Millisecond))
	bound("records per read", int64(l.ReadRecords), 1, replicate.MaxReadRecords)
	bound("publish window", int64(l.PublishWindow), -1, 1<<16)
	bound("unacked window", int64(l.UnackedWindow), 1, 1<<16)
	bound("ingress slots per core", int64(l.Slots), 1, 1<<20)
	bound("streams per connection", int64(l.Streams), 41, 1<<16)
	bound("unidirectional streams per connection", int64(l.UniStreams), 1, 1<<16)
	bound("connection bytes", l.ConnectionBytes, int64(l.FrameBytes), 1<<40)
	if l.ConnectionBytes > l.IngressBytes {
		problems = append(problems, fmt.Errorf("connection bytes (%d) exceed ingress bytes (%d); lower the first or raise the second", l.ConnectionBytes, l.IngressBytes))
	}
	if l.SubscriberQueue > l.SubscriberQueueMax {
		problems = append(problems, fmt.Errorf("subscriber queue (%d) exceeds its maximum (%d); lower the first or raise the second", l.SubscriberQueue, l.SubscriberQueueMax))
	}
	if l.InitialStreamWindow > l.MaxStreamWindow || l.InitialConnectionWindow > l.MaxConnectionWindow {
		problems = append(problems, errors.New("an initial receive window exceeds its maximum; lower the initial one"))
	}
	return errors.Join(problems...)
}
