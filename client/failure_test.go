package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
)

// Conformance: retry.ambiguous_outcomes_are_not_silently_retried, ack.at_least_once_may_duplicate_and_says_so.
func TestLostConnection(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	var drop atomic.Bool
	b.refuse(func(*fakePublish) fakeVerdict { return fakeVerdict{dropConn: drop.Swap(false)} })
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ctx := within(t)
	_, err := c.Publish(ctx, "orders", []byte("a"))
	check(t, err)
	drop.Store(true)
	if _, err := c.Publish(ctx, "orders", []byte("b")); !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	_, err = c.Publish(ctx, "orders", []byte("c")) // on a new connection
	check(t, err)
	drop.Store(true)
	_, err = c.Publish(ctx, "orders", []byte("d"), AtLeastOnce())
	check(t, err)
	if got := fmt.Sprint(b.records("orders", 0)); got != "[a b c d d]" {
		t.Fatalf("%s", got)
	}
}

// A stream that the broker ends takes what is out with it, and nothing else.
func TestLostStream(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	var reset atomic.Bool
	b.refuse(func(*fakePublish) fakeVerdict { return fakeVerdict{reset: reset.Swap(false)} })
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ctx := within(t)
	reset.Store(true)
	if _, err := c.Publish(ctx, "orders", []byte("a")); !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("%v", err)
	}
	_, err := c.Publish(ctx, "orders", []byte("b"))
	check(t, err)
	if n := b.connections.Load(); n != 1 {
		t.Fatalf("%d connections", n)
	}
}

func TestOwners(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 8)
	b.listen()
	b.listen()
	b.set(func() { b.owners = true })
	var wrong atomic.Int64
	b.refuse(func(p *fakePublish) fakeVerdict {
		if p.listener != 1+int(p.shard)%2 {
			wrong.Add(1)
		}
		return fakeVerdict{}
	})
	c := b.dial()
	ctx := within(t)
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	// One that has not answered within ownerPatience is passed over until it has.
	eventually(t, "the owners are connected", func() bool {
		targets := c.allTargets()
		for _, target := range targets {
			if target.live() == nil || target.down.Load() {
				return false
			}
		}
		return len(targets) == 3
	})
	for i := range 100 {
		_, err := c.Publish(ctx, "orders", fmt.Append(nil, i), Key(fmt.Sprint(i)))
		check(t, err)
	}
	for range 100 {
		_, err := sub.Next(ctx)
		check(t, err)
	}
	if wrong.Load() != 0 || b.connections.Load() != 3 {
		t.Fatalf("%d publishes went to another core, %d connections", wrong.Load(), b.connections.Load())
	}
	if n := b.publishOpens.Load(); n != 8 {
		t.Fatalf("8 shards of two owners use %d streams, want 8", n)
	}
	// The owners go: the entry serves, after it has been tried.
	b.listeners[1].close()
	b.listeners[2].close()
	b.set(func() { b.owners = false })
	for i := range 20 {
		_, err := c.Publish(ctx, "orders", fmt.Append(nil, i), Key(fmt.Sprint(i)), AtLeastOnce())
		check(t, err)
	}
}

// An owner that does not answer costs one attempt, not one per call.
func TestOwnerUnreachable(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	b.listen()
	b.set(func() { b.owners = true })
	b.listeners[1].close()
	const timeout = 200 * time.Millisecond
	c := b.dial()
	c.config.dialTimeout = timeout // of the owner; the entry has had its time
	ctx := within(t)
	for i := range 10 {
		_, err := c.Publish(ctx, "orders", fmt.Append(nil, i), Key(fmt.Sprint(i)))
		check(t, err)
	}
	owner := c.allTargets()[1]
	owner.mu.Lock()
	defer owner.mu.Unlock()
	if !owner.down.Load() || owner.pause != minDownPause {
		t.Fatalf("the owner was tried for ten publishes, and again after %v", owner.pause)
	}
}

// Conformance: error.unauthorized_is_typed.
func TestTokenRefused(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	b.authenticate(func(token string) *wire.Error {
		if token == "good" || token == "better" {
			return nil
		}
		return wire.NewError(wire.CodeUnauthenticated, "no")
	})
	_, err := Dial(within(t), b.addr(), WithRootCAs(b.pool), WithToken("bad"))
	if !errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	// A token function is asked again when its token was refused.
	var asked atomic.Int64
	c := b.dial(WithTokenFunc(func(context.Context) (string, error) {
		if asked.Add(1) == 1 {
			return "expired", nil
		}
		return "good", nil
	}))
	_, err = c.Publish(within(t), "orders", nil)
	check(t, err)
	// A publish stream whose token is refused fails what is in it.
	var token atomic.Value
	token.Store("good")
	c = b.dial(WithTokenFunc(func(context.Context) (string, error) { return token.Load().(string), nil }))
	token.Store("bad")
	if _, err = c.Publish(within(t), "orders", nil); !errors.Is(err, ErrUnauthenticated) {
		t.Fatalf("%v", err)
	}
	token.Store("better")
	_, err = c.Publish(within(t), "orders", nil)
	check(t, err)
}

func TestDialRefused(t *testing.T) {
	b := newFakeBroker(t)
	ctx := within(t)
	_, err := Dial(ctx, b.addr())
	var e *Error
	if !errors.As(err, &e) || e.Retry != RetryFatal {
		t.Errorf("unknown certificate: %v", err)
	}
	if _, err := Dial(ctx, b.addr(), WithRootCAs(b.pool), WithServerName("example.com")); !errors.As(err, &e) || e.Retry != RetryFatal {
		t.Errorf("wrong name: %v", err)
	}
	if _, err := Dial(ctx, b.addr(), WithRootCAs(b.pool), WithALPN("h3")); !errors.As(err, &e) || e.Retry != RetryFatal {
		t.Errorf("wrong protocol: %v", err)
	}
	for _, opts := range [][]Option{
		{WithTenant("")}, {WithNamespace("")}, {WithTokenFunc(nil)}, {WithCAFile("/nonexistent")}, {WithRootCAs(nil)}, {WithServerName("")},
		{WithLogger(nil)}, {WithConnections(0)}, {WithPublishStreams(65)}, {WithReconnect(ReconnectPolicy{Attempts: -1})},
		{WithNotFoundRetry(time.Minute)}, {WithCloseTimeout(0)}, {WithMaxPacketBytes(1199)}, {WithMaxPacketBytes(1453)},
	} {
		if c, err := Dial(ctx, b.addr(), opts...); err == nil {
			c.Close()
			t.Errorf("a bad option was taken")
		}
	}
	for _, addr := range []string{"", "localhost", "localhost:x", ":5000"} {
		if c, err := Dial(ctx, addr, WithRootCAs(b.pool)); err == nil {
			c.Close()
			t.Errorf("address %q was taken", addr)
		}
	}
	c := b.dial(WithInsecureSkipVerifyForTests())
	check(t, c.Close())
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(short, "127.0.0.1:9", WithRootCAs(b.pool)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody there: %v", err)
	}
}

// Calls that wait end when the client is closed. Conformance: client.close_is_idempotent.
func TestCloseEndsCalls(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	var arrived atomic.Int64
	b.refuse(func(*fakePublish) fakeVerdict { arrived.Add(1); return fakeVerdict{silent: true} })
	c := b.dial(WithCloseTimeout(time.Second))
	c.config.perStreamBytes = 1 << 10
	ctx := within(t)
	b.stream("quiet", 1)
	sub, err := c.Subscribe(ctx, "quiet")
	check(t, err)
	p, err := c.Publisher("orders")
	check(t, err)
	unanswered, full, next, wait, question := make(chan error, 1), make(chan error, 1), make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Publish(ctx, "orders", make([]byte, 2<<10))
		unanswered <- err
	}()
	eventually(t, "a publish is out", func() bool { return arrived.Load() == 1 })
	s := c.entries[0].slots[0].current.Load()
	go func() {
		_, err := c.Publish(ctx, "orders", make([]byte, 2<<10))
		full <- err
	}()
	go func() { _, err := sub.Next(ctx); next <- err }()
	go func() {
		_, err := p.PublishAsync(ctx, make([]byte, 2<<10)).Wait(ctx)
		wait <- err
	}()
	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	b.set(func() {
		b.onAsk = func(m wire.Message) wire.Message {
			if _, ok := m.(*wire.StreamShards); ok {
				close(asked)
				<-release
			}
			return nil
		}
	})
	go func() { _, err := c.StreamShards(ctx, "orders"); question <- err }()
	<-asked
	eventually(t, "two publishes wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waiters.first != nil && s.waiters.first.next != nil
	})
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := <-unanswered; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrClosed) {
		t.Errorf("publish that is out: %v", err)
	}
	for _, waiting := range []chan error{full, next, wait, question} {
		if err := <-waiting; !errors.Is(err, ErrClosed) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("call that waits: %v", err)
		}
	}
	if err := <-closed; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a publish was not answered, but Close says %v", err)
	}
	check(t, c.Close())
	if _, err := c.Publish(ctx, "orders", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("publish after Close: %v", err)
	}
	if _, err := c.Subscribe(ctx, "orders"); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribe after Close: %v", err)
	}
	if _, err := c.StreamShards(ctx, "orders"); !errors.Is(err, ErrClosed) {
		t.Errorf("question after Close: %v", err)
	}
}

// Shutdown lets what is under way have its answer.
func TestShutdownWaits(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	release := make(chan struct{})
	var arrived atomic.Int64
	b.refuse(func(*fakePublish) fakeVerdict { arrived.Add(1); return fakeVerdict{wait: release} })
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	var futures []*Future
	for range 1000 {
		futures = append(futures, p.PublishAsync(ctx, []byte("x")))
	}
	done := make(chan error, 1)
	go func() { done <- c.Shutdown(ctx) }()
	eventually(t, "the client refuses", func() bool { return c.refusing.Load() })
	close(release)
	check(t, <-done)
	for _, f := range futures {
		_, err := f.Wait(ctx)
		check(t, err)
	}
	if got := b.published.Load(); got != 1000 {
		t.Fatalf("%d records stored", got)
	}
}

// Conformance: reconnect.survives_broker_loss, reconnect.discovers_brokers_from_one_seed.
func TestAnotherBroker(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	other := b.listen()
	b.set(func() { b.topology = []wire.Broker{{NodeID: "other", Addr: other.addr}} })
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ctx := within(t)
	eventually(t, "the other broker is known", func() bool { return len(c.seeds(nil)) == 2 })
	b.listeners[0].close()
	_, err := c.Publish(ctx, "orders", []byte("x"))
	check(t, err)
	if got := c.entries[0].live().addr; got != other.addr {
		t.Fatalf("connected to %s", got)
	}
}

// An event stream that nobody asks for any more is ended.
func TestSubscribeGivenUp(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	release := make(chan struct{})
	b.set(func() {
		b.onAsk = func(m wire.Message) wire.Message {
			if _, ok := m.(*wire.Subscribe); ok {
				cancel()
				<-release
			}
			return nil
		}
	})
	_, err := c.Subscribe(ctx, "orders", Shard(0))
	close(release)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	eventually(t, "the broker has subscribed it", func() bool { return b.subscribed.Load() == 1 })
}

// Who asks for it waits for a stream that is made later.
func TestNotFoundRetry(t *testing.T) {
	b := newFakeBroker(t)
	var asked atomic.Int64
	b.set(func() {
		b.onAsk = func(m wire.Message) wire.Message {
			if _, ok := m.(*wire.StreamShards); ok && asked.Add(1) == 3 {
				b.stream("orders", 2)
			}
			return nil
		}
	})
	c := b.dial(WithNotFoundRetry(5*time.Second), WithReconnect(ReconnectPolicy{Backoff: 1e6, MaxBackoff: 1e6}))
	_, err := c.Publish(within(t), "orders", []byte("x"))
	check(t, err)
	asked.Store(0)
	b.set(func() { delete(b.streams, "orders") })
	c.topicFor("default", "orders").route.Store(nil)
	_, err = c.Subscribe(within(t), "orders")
	check(t, err)
}
