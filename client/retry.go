package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"felix/netio/wire"
)

// maxRetryBytes bounds the frames of one slot that wait to be sent again. What is beyond it fails with the reason of its refusal.
const maxRetryBytes = 4 << 20

// A retryQueue sends refused publishes of one slot again, each after its backoff and oldest first, wherever their shard is served by then.
// It is entered from the readers of publish streams and runs in a goroutine only while it holds something. Publishes that come meanwhile
// are not held back, so a publish that is sent again may land after later ones; an idempotent publisher keeps the order (lane).
type retryQueue struct {
	client *Client

	mu      sync.Mutex
	items   []retryItem // guarded by mu
	bytes   int         // of their frames; guarded by mu
	running bool        // guarded by mu
}

type retryItem struct {
	failed
	due time.Duration // on the client's clock
}

func newRetryQueue(c *Client) *retryQueue { return &retryQueue{client: c} }

// failed gives every publish its outcome: the error, or another try. It keeps the frames, not the slice.
func (q *retryQueue) failed(bad []failed) {
	for _, b := range bad {
		f := b.future
		switch {
		case f.ghost:
		case f.lane != nil:
			f.lane.failed(b)
		default:
			e, ok := b.err.(*Error)
			if !ok || f.abandoned.Load() || !q.client.mayRetry(f, e) || !q.add(b, e) {
				f.fail(b.err)
			}
		}
	}
}

// mayRetry counts a refusal and decides by its class (WIRE section 14) whether the publish is sent again.
func (c *Client) mayRetry(f *Future, e *Error) bool {
	now := c.since()
	if f.tries == 0 {
		f.firstFailed = now
	}
	f.tries++
	policy := &c.config.reconnect
	age := now - f.firstFailed
	persistent := f.atLeastOnce || f.lane != nil // resends are wanted, for as long as the policy has patience
	switch e.Retry {
	case RetryRetry, RetryRedirect, RetryAfter:
		switch {
		case e.Code == wire.CodeNotFound:
			return age < c.config.notFoundRetry
		case e.Code == 0, persistent: // 0 is the network's
			return age < policy.Deadline
		}
		return f.tries < policy.Attempts && age < policy.Deadline
	case RetryOutcomeUnknown:
		return persistent && age < policy.Deadline
	}
	return false
}

// forgetRoute casts doubt on a route that a refusal or a lost connection contradicts.
func forgetRoute(f *Future, e *Error) {
	if e.Retry == RetryRetry || e.Retry == RetryRedirect || e.Retry == RetryOutcomeUnknown {
		f.topic.expire(f.topic.route.Load())
	}
}

// add reports false when the queue is full or the client closes.
func (q *retryQueue) add(b failed, e *Error) bool {
	forgetRoute(b.future, e)
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.client.closing:
		return false
	default:
	}
	if q.bytes > 0 && q.bytes+len(b.frame) > maxRetryBytes {
		return false
	}
	if !q.running {
		if !q.client.spawn(q.run) {
			return false
		}
		q.running = true
	}
	q.bytes += len(b.frame)
	q.items = append(q.items, retryItem{b, q.client.since() + q.client.backoff(b.future.tries, e.RetryAfter)})
	q.client.waiting.add(1)
	return true
}

func (q *retryQueue) run() {
	for {
		q.mu.Lock()
		if len(q.items) == 0 {
			q.items, q.running = nil, false
			q.mu.Unlock()
			return
		}
		item := q.items[0]
		q.mu.Unlock()

		wait := item.due - q.client.since()
		err := q.client.pause(q.client.ctx, "publish", "", max(0, wait))
		if err == nil {
			err = q.client.again(item.failed)
		} else {
			err = item.err // closing: what the broker said tells more
		}

		q.mu.Lock()
		q.items[0] = retryItem{}
		q.items = q.items[1:]
		q.bytes -= len(item.frame)
		q.mu.Unlock()
		if err != nil {
			q.failed([]failed{{item.future, err, item.frame}})
		}
		q.client.waiting.add(-1)
	}
}

// again sends a frame once more. An error means that it was not sent.
func (c *Client) again(b failed) error {
	f := b.future
	ctx, cancel := context.WithTimeout(c.ctx, c.config.reconnect.Deadline-(c.since()-f.firstFailed))
	defer cancel()
	key, keyed, explicit := frameKey(b.frame)
	m := message{topic: f.topic, again: b.frame, acked: true, keyed: keyed, key: string(key), explicit: explicit, shard: f.ack.Shard}
	var last *Error
	errors.As(b.err, &last)
	// A refusal by the owner itself sends the next try through the entry broker, which forwards.
	viaEntry := last != nil && last.Code != 0 && (last.Retry == RetryRetry || last.Retry == RetryRedirect) && last.Code != wire.CodeStaleWidth
	err := c.route(ctx, &m, f, viaEntry)
	if err != nil && last != nil && last.Retry == RetryOutcomeUnknown {
		// The first try may have been applied, whatever stopped this one.
		e := *asError("publish", f.topic.scope.Stream, err)
		e.Retry = RetryOutcomeUnknown
		return &e
	}
	return err
}

// route sends a message to its shard. It waits for the route, the connection and room in the stream, and looks for another stream when
// one ends meanwhile. An error means that nothing was sent. Message.shard and f.ack.Shard are set, unless the message names its shard.
func (c *Client) route(ctx context.Context, m *message, f *Future, viaEntry bool) error {
	var began time.Duration
	for try := 1; ; try++ {
		err := c.routeOnce(ctx, m, f, viaEntry)
		if err == nil {
			return nil
		}
		if err == errStreamGone && try < maxStreamsGone {
			continue // the stream broke between two lines; the next one is another
		}
		var e *Error
		if err == errStreamGone {
			e = unavailable("publish", m.topic.scope.Stream, err)
		} else {
			e = asError("publish", m.topic.scope.Stream, err)
		}
		if began == 0 {
			began = c.since()
		}
		if !c.mayPass(e, c.since()-began) {
			return e
		}
		m.topic.expire(m.topic.route.Load())
		if err := c.pause(ctx, "publish", m.topic.scope.Stream, c.backoff(min(try, c.config.reconnect.Attempts), e.RetryAfter)); err != nil {
			if last := asError("publish", m.topic.scope.Stream, err); ctx.Err() != nil {
				last.Message += "; the last try: " + e.Error()
			}
			return err
		}
	}
}

// mayPass says whether to wait out a failure before anything was sent, which has lasted for age.
func (c *Client) mayPass(e *Error, age time.Duration) bool {
	if e.Code == wire.CodeNotFound {
		return age < c.config.notFoundRetry
	}
	// A broker that names a time to wait will answer then.
	return (e.Code == 0 && e.Retry == RetryRetry || e.Retry == RetryAfter && e.RetryAfter > 0) && age < c.config.reconnect.Deadline
}

// routeFor returns the route of a topic. It waits out lost connections.
func (c *Client) routeFor(ctx context.Context, t *topic, op string) (*route, error) {
	if r := t.route.Load(); r != nil {
		t.touch()
		return r, nil
	}
	began := c.since()
	for try := 1; ; try++ {
		r, err := t.current(ctx, op)
		if err == nil {
			return r, nil
		}
		e := asError(op, t.scope.Stream, err)
		if !c.mayPass(e, c.since()-began) {
			return nil, e
		}
		if err := c.pause(ctx, op, t.scope.Stream, c.backoff(min(try, 8), e.RetryAfter)); err != nil {
			return nil, err
		}
	}
}

// maxStreamsGone bounds how many streams may end in a row under one publish before it waits.
const maxStreamsGone = 3

func (c *Client) routeOnce(ctx context.Context, m *message, f *Future, viaEntry bool) error {
	r, err := m.topic.current(ctx, "publish")
	if err != nil {
		return err
	}
	if !m.explicit {
		m.shard = r.shardOf(m.key, m.keyed)
	} else if m.shard >= r.shards {
		return invalidf("publish", m.topic.scope.Stream, "shard %d of a stream with %d shards", m.shard, r.shards)
	}
	f.ack.Shard = m.shard
	p := r.owner(c, m.shard)
	if viaEntry {
		p = c.entryPlace(m.shard)
	}
	s, err := p.stream(ctx)
	if err != nil {
		return err
	}
	if !m.acked {
		f.via = s
	}
	return s.publish(ctx, m, r, f)
}
