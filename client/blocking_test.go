package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"felix/client"
	"felix/netio/faultnet"
)

// Every call that blocks ends when its context ends, when the client is closed, and when the broker is gone. The bound on waiting is
// generous: it tells an end from none.

// aCall is one blocking call of a client.
type aCall struct {
	name string
	call func(ctx context.Context) error
	// reads is a call that waits for what the broker may send one day: it goes on waiting for another broker unless it is told not to.
	reads bool
	// quiet is a call that says nothing where its caller has ended it.
	quiet bool
}

// A blocked client has a silent path to its broker: what is asked has no answer.
type blocked struct {
	*badPath
	client *client.Client
	calls  []*aCall
}

func newBlocked(t *testing.T) *blocked {
	t.Helper()
	path := newBadPath(t)
	path.streams()
	c, err := client.Dial(within(t), path.Addr().String(), client.WithCAFile(path.broker.CAFile()), client.WithCloseTimeout(100*time.Millisecond),
		client.WithReconnect(client.ReconnectPolicy{Backoff: 10 * time.Millisecond, Deadline: time.Second, SubscriptionDeadline: time.Second}))
	check(t, err)
	t.Cleanup(func() { c.Close() }) // it may say that publishes were lost
	b := &blocked{badPath: path, client: c}

	// Everything is connected, routed and authenticated, so that the calls wait for answers.
	ctx := within(t)
	publisher := func(opts ...client.PublishOption) *client.Publisher {
		p, err := c.Publisher("memory", opts...)
		check(t, err)
		_, err = p.Publish(ctx, []byte("first"))
		check(t, err)
		return p
	}
	// Subscriptions of a stream that nobody publishes to.
	subscription := func() *client.Subscription {
		sub, err := c.Subscribe(ctx, "quiet")
		check(t, err)
		return sub
	}
	p, once, flushed, closed := publisher(), publisher(client.Idempotent()), publisher(), publisher()
	unacked := publisher(client.NoAck())
	check(t, unacked.Flush(ctx))
	next, batch, all := subscription(), subscription(), subscription()
	_, err = c.Publish(ctx, "durable", []byte("first"))
	check(t, err)
	data := []byte("data")
	b.calls = []*aCall{
		{name: "Publish", call: func(ctx context.Context) error { _, err := c.Publish(ctx, "memory", data); return err }},
		{name: "Publish at least once", call: func(ctx context.Context) error {
			_, err := c.Publish(ctx, "memory", data, client.AtLeastOnce())
			return err
		}},
		{name: "PublishBatch", call: func(ctx context.Context) error {
			_, err := c.PublishBatch(ctx, "durable", [][]byte{data, data})
			return err
		}},
		{name: "Publish idempotent", call: func(ctx context.Context) error { _, err := once.Publish(ctx, data); return err }},
		{name: "Future.Wait", call: func(ctx context.Context) error {
			_, err := p.PublishAsync(ctx, data).Wait(ctx)
			return err
		}},
		{name: "Publisher.Flush", call: func(ctx context.Context) error {
			f := flushed.PublishAsync(ctx, data)
			if err := flushed.Flush(ctx); err != nil {
				return err
			}
			_, err := f.Wait(ctx) // Flush leaves failures to the futures
			return err
		}},
		{name: "Publisher.Flush without acks", call: func(ctx context.Context) error {
			unacked.PublishAsync(ctx, data)
			return unacked.Flush(ctx)
		}},
		{name: "Publisher.Close", call: func(ctx context.Context) error {
			f := closed.PublishAsync(ctx, data)
			if err := closed.Close(ctx); err != nil {
				return err
			}
			_, err := f.Wait(ctx)
			return err
		}},
		{name: "Subscribe", call: func(ctx context.Context) error { _, err := c.Subscribe(ctx, "memory"); return err }},
		{name: "Subscribe to a shard", call: func(ctx context.Context) error {
			_, err := c.Subscribe(ctx, "durable", client.Shard(0), client.FromEarliest())
			return err
		}},
		{name: "StreamShards", call: func(ctx context.Context) error { _, err := c.StreamShards(ctx, "memory"); return err }},
		{name: "ShardOwners", call: func(ctx context.Context) error { _, err := c.ShardOwners(ctx, "memory"); return err }},
		{name: "Topology", call: func(ctx context.Context) error { _, err := c.Topology(ctx); return err }},
		{name: "ReadPage", call: func(ctx context.Context) error {
			_, err := c.ReadPage(ctx, "durable", 0, 0, client.ReadOptions{})
			return err
		}},
		{name: "OffsetForTime", call: func(ctx context.Context) error {
			_, _, err := c.OffsetForTime(ctx, "durable", 0, time.Unix(0, 0))
			return err
		}},
		{name: "Subscription.Next", reads: true, call: func(ctx context.Context) error { _, err := next.Next(ctx); return err }},
		{name: "Subscription.NextBatch", reads: true, call: func(ctx context.Context) error { _, err := batch.NextBatch(ctx); return err }},
		{name: "Subscription.All", reads: true, quiet: true, call: func(ctx context.Context) error {
			for _, err := range all.All(ctx) {
				return err
			}
			return nil
		}},
	}
	return b
}

// run starts every call at once, lets end end them while they wait, and returns their errors once all have returned.
func (b *blocked) run(ctx context.Context, end func()) map[*aCall]error {
	b.t.Helper()
	before := b.Stats().Up.Blocked
	var mu sync.Mutex
	errs := make(map[*aCall]error)
	var started sync.WaitGroup
	returned := make(chan struct{}, len(b.calls))
	for _, call := range b.calls {
		started.Add(1)
		go func() {
			started.Done()
			err := call.call(ctx)
			mu.Lock()
			errs[call] = err
			mu.Unlock()
			returned <- struct{}{}
		}()
	}
	started.Wait()
	eventually(b.t, "something is asked", func() bool { return b.Stats().Up.Blocked > before })
	select {
	case <-returned:
		b.t.Fatalf("a call ended by itself: %v", errs)
	default:
	}
	end()
	late := time.After(time.Minute)
	for range b.calls {
		select {
		case <-returned:
		case <-late:
			mu.Lock()
			defer mu.Unlock()
			for _, call := range b.calls {
				if _, ok := errs[call]; !ok {
					b.t.Errorf("%s has not returned", call.name)
				}
			}
			b.t.FailNow()
		}
	}
	return errs
}

func TestCancelEndsCalls(t *testing.T) {
	b := newBlocked(t)
	b.Block()
	ctx, cancel := context.WithCancelCause(t.Context())
	errGaveUp := errors.New("gave up")
	for call, err := range b.run(ctx, func() { cancel(errGaveUp) }) {
		if !errors.Is(err, errGaveUp) && !(call.quiet && err == nil) {
			t.Errorf("%s: %v", call.name, err)
		}
	}
	// Nothing was broken by it.
	b.Unblock()
	_, err := b.client.Publish(within(t), "memory", []byte("after"))
	check(t, err)
}

func TestClientCloseEndsCalls(t *testing.T) {
	b := newBlocked(t)
	b.Block()
	closed := make(chan error, 1)
	for call, err := range b.run(t.Context(), func() { go func() { closed <- b.client.Close() }() }) {
		if !errors.Is(err, client.ErrClosed) && !(call.quiet && err == nil) {
			t.Errorf("%s: %v", call.name, err)
		}
	}
	if err := <-closed; !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("publishes were not answered, but Close says %v", err)
	}
}

// A broker that is gone for good ends everything, whether it says so or not. Subscriptions are told to wait for 1 s only.
func TestKilledBrokerEndsCalls(t *testing.T) {
	for _, says := range []bool{true, false} {
		t.Run(fmt.Sprintf("says so=%v", says), func(t *testing.T) {
			if !says && testing.Short() {
				t.Skip("waits for the idle timeout of 6 s")
			}
			t.Parallel()
			b := newBlocked(t)
			b.Block()
			errs := b.run(t.Context(), func() {
				if says {
					b.Unblock()
				}
				if err := b.broker.Close(); err != nil {
					t.Errorf("close the broker: %v", err)
				}
			})
			for call, err := range errs {
				var e *client.Error
				// With the path open again some answers may have come before the end.
				if answered := err == nil && says && !call.reads; !answered && !errors.As(err, &e) {
					t.Errorf("%s: %v", call.name, err)
				}
			}
		})
	}
}

// Dial ends with its context, while nobody answers, and a client whose broker is gone can be closed while it dials.
func TestDialEnds(t *testing.T) {
	path := newBadPath(t)
	c := path.dial()
	path.Block()
	ctx, cancel := context.WithCancelCause(t.Context())
	errGaveUp := errors.New("gave up")
	done := make(chan error, 1)
	before := path.Stats().Up.Initials
	go func() {
		_, err := client.Dial(ctx, path.Addr().String(), client.WithCAFile(path.broker.CAFile()))
		done <- err
	}()
	eventually(t, "a dial", func() bool { return path.Stats().Up.Initials > before })
	cancel(errGaveUp)
	if err := <-done; !errors.Is(err, errGaveUp) {
		t.Errorf("Dial: %v", err)
	}

	// The broker ends the connection, the client dials again and is closed meanwhile.
	path.Unblock(faultnet.Down)
	check(t, path.broker.Close())
	go func() {
		_, err := c.Publish(context.Background(), "memory", nil, client.AtLeastOnce())
		done <- err
	}()
	before = path.Stats().Up.Initials
	eventually(t, "the client dials again", func() bool { return path.Stats().Up.Initials > before })
	check(t, c.Close())
	if err := <-done; !errors.Is(err, client.ErrClosed) {
		t.Errorf("Publish: %v", err)
	}
}
