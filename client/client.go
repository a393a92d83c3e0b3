package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// A Client publishes to and subscribes from a broker or a cluster. All its methods may be called from any goroutine. It holds one
// connection to the address dialled and one to each owner of a shard in use; Close ends them.
type Client struct {
	config   config
	seedName string // host of the address dialled, when it is a name
	started  time.Time

	ctx     context.Context // ends last, with everything that runs in the background
	cancel  context.CancelFunc
	closing <-chan struct{} // closed when the client ends: no call waits any longer
	calls   context.Context // ends with closing, for calls that wait for a context
	endCall context.CancelFunc
	closed  chan struct{} // closed when it has returned

	entries []*target // any broker that answers; questions go to the first
	topics  atomic.Pointer[map[topicKey]*topic]

	refusing atomic.Bool // Close or Shutdown was called: nothing new is taken

	mu      sync.Mutex
	shut    bool                       // no goroutine starts any more; guarded by mu
	wg      sync.WaitGroup             // every goroutine; Add is called under mu and not after shut, except by those counted
	known   []string                   // seeds; the address dialled is the first; guarded by mu
	targets map[targetKey]*target      // owners; guarded by mu
	subs    map[*Subscription]struct{} // open subscriptions; guarded by mu

	futures sync.Pool // of *Future with wake, for Publish
	called  sync.Pool // of *Future with pool, for PublishFunc
	waiting waitCount // publishes that wait to be sent again, for Shutdown
}

// Dial connects to the broker at addr, host:port, and authenticates. It waits until the context ends, 6 s at most. Bad options are
// reported together before anything is sent. Close the client when it is no longer used.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	config := defaultConfig()
	var problems []error
	for _, option := range opts {
		if err := option(&config); err != nil {
			problems = append(problems, err)
		}
	}
	host, _, err := net.SplitHostPort(addr)
	if err == nil && !isHostPort(addr) {
		err = errors.New("give host:port")
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("address %q: %w", addr, err))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, &Error{Op: "dial", Retry: RetryFatal, Err: err}
	}
	c := newClient(config)
	c.known = []string{addr}
	if _, err := netip.ParseAddr(host); err != nil {
		c.seedName = host
	}
	if _, err := c.entries[0].get(ctx); err != nil {
		c.Close()
		return nil, asError("dial", "", err)
	}
	c.spawn(c.maintain)
	return c, nil
}

func newClient(config config) *Client {
	c := &Client{
		config: config, started: time.Now(), closed: make(chan struct{}),
		targets: make(map[targetKey]*target), subs: make(map[*Subscription]struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.calls, c.endCall = context.WithCancel(c.ctx)
	c.closing = c.calls.Done()
	c.topics.Store(new(map[topicKey]*topic))
	c.futures.New = func() any { return &Future{wake: make(chan struct{}, 1)} }
	c.called.New = func() any { return &Future{pool: &c.called} }
	for range config.connections {
		c.entries = append(c.entries, newTarget(c, ""))
	}
	return c
}

// spawn runs f in a goroutine that Close waits for. It reports false, and does nothing, once the client is closing.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return false
	}
	c.wg.Go(f)
	return true
}

// maintain keeps what is in use up to date: routes, topology, owners that were down, streams that have stopped answering.
func (c *Client) maintain() {
	c.refreshTopology()
	for {
		timer := time.NewTimer(refreshInterval + rand.N(refreshInterval/5))
		select {
		case <-c.closing:
			timer.Stop()
			return
		case <-timer.C:
		}
		now := time.Now()
		for _, t := range c.allTargets() {
			t.watch(now)
		}
		c.refreshTopology()
		for _, t := range *c.topics.Load() {
			if t.used.Swap(false) {
				ctx, cancel := context.WithTimeout(c.ctx, refreshInterval)
				t.refresh(ctx)
				cancel()
			}
		}
	}
}

func (c *Client) allTargets() []*target {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append([]*target(nil), c.entries...)
	for _, t := range c.targets {
		all = append(all, t)
	}
	return all
}

// refreshTopology learns further addresses to try when the connection is lost. It asks over a connection that is there, never dials.
func (c *Client) refreshTopology() {
	conn := c.entries[0].live()
	if conn == nil || !conn.features.Has(wire.FeatureTopology) {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, refreshInterval)
	defer cancel()
	if brokers, err := conn.topology(ctx); err == nil {
		c.learn(brokers)
	}
}

// since is the client's clock: time since it was made.
func (c *Client) since() time.Duration { return time.Since(c.started) }

// backoff returns the wait before try number try+1: doubling, drawn between half and all, and at least what the broker named.
func (c *Client) backoff(try int, least time.Duration) time.Duration {
	r := &c.config.reconnect
	wait := r.MaxBackoff
	if try < 16 {
		wait = min(r.Backoff<<(try-1), r.MaxBackoff)
	}
	if wait > 1 {
		wait = wait/2 + rand.N(wait/2)
	}
	return max(wait, least)
}

// pause waits for d, or until the context or the client ends, which it reports.
func (c *Client) pause(ctx context.Context, op, stream string, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(op, stream, ctx)
	case <-c.closing:
		return closedError(op, stream)
	}
}

// untilClosing is the context of a call that ends with the client as well.
func (c *Client) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.calls, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// disownAfter is how long Close lets publishes that are under way have their answers before their callers are told ErrOutcomeUnknown.
const disownAfter = 60 * time.Millisecond

// Close ends the client: subscriptions and calls that wait end within 100 ms with ErrClosed, and publishes that have no answer by then with
// ErrOutcomeUnknown. It still sends what was published, and waits until the broker has taken it, 5 s at most or as WithCloseTimeout says;
// when that is too short the error says so. Flush or Shutdown before it to see every answer. Calling it again waits and returns nil.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.config.closeTimeout,
		fmt.Errorf("the broker has not taken everything within %v", c.config.closeTimeout))
	defer cancel()
	return c.shutdown(ctx, true)
}

// Shutdown closes the client as Close does, but lets publishes that are under way have their answers until the context ends. The error is
// the context's when something was cut off.
func (c *Client) Shutdown(ctx context.Context) error { return c.shutdown(ctx, false) }

func (c *Client) shutdown(ctx context.Context, hurry bool) error {
	if c.refusing.Swap(true) {
		<-c.closed
		return nil
	}
	defer close(c.closed)
	if !hurry {
		c.waiting.wait(ctx) // publishes that are to be sent again need the client as it is
	}
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.endCall()
	c.mu.Lock()
	subs := make([]*Subscription, 0, len(c.subs))
	for s := range c.subs {
		subs = append(subs, s)
	}
	c.mu.Unlock()
	for _, s := range subs {
		s.stop(closedError("subscribe", s.stream))
	}

	var streams []*pubStream
	for _, t := range c.allTargets() {
		for _, s := range t.slots {
			if p := s.current.Load(); p != nil {
				streams = append(streams, p)
				p.finish()
			}
		}
	}
	if hurry {
		timer := time.AfterFunc(disownAfter, func() {
			for _, p := range streams {
				p.disown(lost("publish", "", ErrClosed))
			}
		})
		defer timer.Stop()
	}
	var err error
	for _, p := range streams {
		select {
		case <-p.ended:
		case <-ctx.Done():
			err = &Error{Op: "close", Retry: RetryOutcomeUnknown, Err: context.Cause(ctx)}
			p.fail(lost("publish", "", ErrClosed))
		}
	}
	for _, t := range c.allTargets() {
		if conn := t.conn.Load(); conn != nil {
			conn.end(ErrClosed)
		}
	}
	c.cancel()
	c.wg.Wait()
	return err
}

// A waitCount counts things and lets one goroutine wait for none.
type waitCount struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (w *waitCount) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n += n
	if w.n == 0 && w.zero != nil {
		close(w.zero)
		w.zero = nil
	}
}

// wait returns when the count is 0 or the context ends.
func (w *waitCount) wait(ctx context.Context) {
	w.mu.Lock()
	if w.n == 0 {
		w.mu.Unlock()
		return
	}
	if w.zero == nil {
		w.zero = make(chan struct{})
	}
	zero := w.zero
	w.mu.Unlock()
	select {
	case <-zero:
	case <-ctx.Done():
	}
}
