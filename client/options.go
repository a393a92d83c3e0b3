package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"felix/netio/udp"
	"felix/netio/wire"
)

// An Option configures a Client. A bad value fails Dial before anything is sent.
type Option func(*config) error

// A config is what the options of Dial amount to. It does not change afterwards.
type config struct {
	tenant, namespace string
	token             func(context.Context) (string, error)

	rootCAs    *x509.CertPool // nil means those of the system
	serverName string         // empty means the host of the address
	alpn       string         // empty offers none
	insecure   bool

	maxPacketBytes int // 0 leaves it to the path

	logger         *slog.Logger
	connections    int
	publishStreams int
	reconnect      ReconnectPolicy
	notFoundRetry  time.Duration
	closeTimeout   time.Duration

	// Tests change these.
	dialTimeout       time.Duration
	idleTimeout       time.Duration
	perStreamBytes    int
	perStreamPending  int
	subscriptionQueue int
}

// A ReconnectPolicy says how long the client tries again, after a lost connection and after refusals that applied nothing.
type ReconnectPolicy struct {
	// Backoff is the wait before the first retry of a request, 200 ms by default. It doubles up to MaxBackoff, 2 s by default. Waits are
	// drawn between half of that and all of it.
	Backoff, MaxBackoff time.Duration
	// Attempts bounds how often one request is sent when it is refused, 5 by default. It does not count for at-least-once and idempotent
	// publishes, nor for lost connections.
	Attempts int
	// Deadline bounds the time from a request's first failure to its last try, 30 s by default. It is what at-least-once and idempotent
	// publishes keep trying for, and what calls wait for a connection when their context has no earlier end.
	Deadline time.Duration
	// SubscriptionDeadline ends a subscription that could not be resumed for so long. Zero means that it tries until its context ends or
	// it is closed.
	SubscriptionDeadline time.Duration
}

const (
	defaultBackoff        = 200 * time.Millisecond
	defaultMaxBackoff     = 2 * time.Second
	defaultAttempts       = 5
	defaultDeadline       = 30 * time.Second
	defaultPublishStreams = 4
	defaultCloseTimeout   = 5 * time.Second
	maxNotFoundRetry      = 5 * time.Second // WIRE section 14: not_found is retried for 5 s at most

	// perStreamBytes bounds the frames of one publish stream that are queued or unanswered. At the bound a publish waits for room. One
	// that is larger than the bound goes alone.
	perStreamBytes = 4 << 20
	// perStreamPending bounds the same frames by number.
	perStreamPending = 4096
	// subscriptionQueue bounds the reads that wait for a slow reader of a subscription, in all its shards together. Beyond it the event
	// streams are not read, and QUIC flow control makes the broker hold what follows.
	subscriptionQueue = 16
)

func defaultConfig() config {
	return config{
		tenant:         "default",
		namespace:      "default",
		token:          func(context.Context) (string, error) { return "", nil },
		alpn:           "felix/1",
		logger:         slog.New(slog.DiscardHandler),
		connections:    1,
		publishStreams: defaultPublishStreams,
		reconnect: ReconnectPolicy{
			Backoff: defaultBackoff, MaxBackoff: defaultMaxBackoff, Attempts: defaultAttempts, Deadline: defaultDeadline,
		},
		closeTimeout:      defaultCloseTimeout,
		dialTimeout:       dialTimeout,
		idleTimeout:       idleTimeout,
		perStreamBytes:    perStreamBytes,
		perStreamPending:  perStreamPending,
		subscriptionQueue: subscriptionQueue,
	}
}

// WithTenant names the tenant of every request, "default" without it. The token must be for this tenant.
func WithTenant(tenant string) Option {
	return func(c *config) error {
		c.tenant = tenant
		return checkName("tenant", tenant)
	}
}

// WithNamespace names the namespace of every request that does not name its own, "default" without it.
func WithNamespace(namespace string) Option {
	return func(c *config) error {
		c.namespace = namespace
		return checkName("namespace", namespace)
	}
}

// WithToken is the token presented on every QUIC stream. Without it the empty token is sent.
func WithToken(token string) Option {
	return WithTokenFunc(func(context.Context) (string, error) { return token, nil })
}

// WithTokenFunc asks for the token whenever a QUIC stream is opened, so that a token can be replaced before it expires. It may be called
// from several goroutines at once and should answer from memory: publishes wait for it.
func WithTokenFunc(token func(ctx context.Context) (string, error)) Option {
	return func(c *config) error {
		if token == nil {
			return errors.New("token function is nil")
		}
		c.token = token
		return nil
	}
}

// WithCAFile trusts the certificates of a PEM file instead of the system's. For a broker that made its own certificate this is the file
// it exports.
func WithCAFile(path string) Option {
	return func(c *config) error {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("CA file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("CA file %s holds no PEM certificate", path)
		}
		c.rootCAs = pool
		return nil
	}
}

// WithRootCAs trusts the certificates of the pool instead of the system's. The pool must not change afterwards.
func WithRootCAs(pool *x509.CertPool) Option {
	return func(c *config) error {
		if pool == nil {
			return errors.New("pool of root certificates is nil")
		}
		c.rootCAs = pool
		return nil
	}
}

// WithServerName is the name that the broker's certificate must hold. Without it, it is the host of the address dialled, and for an
// owner's address that is an IP, the host of the first address when that is a name.
func WithServerName(name string) Option {
	return func(c *config) error {
		if name == "" {
			return errors.New("server name is empty")
		}
		c.serverName = name
		return nil
	}
}

// WithALPN is the protocol offered in the TLS handshake, "felix/1" without it. The empty string offers none.
func WithALPN(protocol string) Option {
	return func(c *config) error {
		c.alpn = protocol
		return nil
	}
}

// WithInsecureSkipVerifyForTests accepts every certificate. Anyone on the path can then read and change what is sent.
func WithInsecureSkipVerifyForTests() Option {
	return func(c *config) error {
		c.insecure = true
		return nil
	}
}

// WithMaxPacketBytes bounds the QUIC packets that the client sends, 1,200 to 1,452 bytes of UDP payload, for a path that carries less than
// the default: 1,452 on loopback, and elsewhere 1,280, from where path MTU discovery goes up to 1,452. In a jumbo build the most is 8,932,
// and discovery goes up to that on loopback, too. A path that does not carry the first packets looks like a broker that does not answer.
// What the broker sends has a setting of its own, max_packet_bytes.
func WithMaxPacketBytes(n int) Option {
	return func(c *config) error {
		if n < minPacketBytes || n > udp.MaxPacketBytes {
			return fmt.Errorf("packets of at most %d bytes; give %d to %d", n, minPacketBytes, udp.MaxPacketBytes)
		}
		c.maxPacketBytes = n
		return nil
	}
}

// WithLogger gets a line when a connection is lost or made again and when a subscription is resumed. Without it nothing is logged.
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) error {
		if logger == nil {
			return errors.New("logger is nil")
		}
		c.logger = logger
		return nil
	}
}

// WithConnections is the number of QUIC connections per broker address, 1..64, 1 by default. A connection is served by about one CPU on
// either side; a broker with a port per core gets one per core in any case.
func WithConnections(n int) Option {
	return func(c *config) error {
		if n < 1 || n > 64 {
			return fmt.Errorf("%d connections per address; give 1 to 64", n)
		}
		c.connections = n
		return nil
	}
}

// WithPublishStreams is the number of publish streams per connection, 1..64, 4 by default. A shard always uses the same one. Few streams
// make large writes, which is faster; more of them let small records pass a large one.
func WithPublishStreams(n int) Option {
	return func(c *config) error {
		if n < 1 || n > 64 {
			return fmt.Errorf("%d publish streams per connection; give 1 to 64", n)
		}
		c.publishStreams = n
		return nil
	}
}

// WithReconnect replaces the fields of the reconnect policy that are not zero.
func WithReconnect(p ReconnectPolicy) Option {
	return func(c *config) error {
		r := &c.reconnect
		if p.Backoff < 0 || p.MaxBackoff < 0 || p.Attempts < 0 || p.Deadline < 0 || p.SubscriptionDeadline < 0 {
			return fmt.Errorf("reconnect policy %+v has a negative value", p)
		}
		if p.Backoff > 0 {
			r.Backoff = p.Backoff
		}
		if p.MaxBackoff > 0 {
			r.MaxBackoff = p.MaxBackoff
		}
		if p.Attempts > 0 {
			r.Attempts = p.Attempts
		}
		if p.Deadline > 0 {
			r.Deadline = p.Deadline
		}
		r.SubscriptionDeadline = p.SubscriptionDeadline
		if r.MaxBackoff < r.Backoff {
			return fmt.Errorf("reconnect policy: longest backoff %v is below the first one, %v", r.MaxBackoff, r.Backoff)
		}
		return nil
	}
}

// WithNotFoundRetry retries requests for unknown streams for d, at most 5 s, instead of failing at once: for programs that start together
// with what creates their streams.
func WithNotFoundRetry(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 || d > maxNotFoundRetry {
			return fmt.Errorf("retry of not_found for %v; give up to %v", d, maxNotFoundRetry)
		}
		c.notFoundRetry = d
		return nil
	}
}

// WithCloseTimeout bounds how long Close waits for the broker to take what was published, 5 s by default.
func WithCloseTimeout(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("close timeout %v; give more than 0", d)
		}
		c.closeTimeout = d
		return nil
	}
}

func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if len(name) > wire.MaxNameBytes {
		return fmt.Errorf("%s has %d bytes, at most %d fit", what, len(name), wire.MaxNameBytes)
	}
	return nil
}
