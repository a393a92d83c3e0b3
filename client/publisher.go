package client

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Publisher publishes to one stream with many publishes under way. Its methods may be called from any goroutine; publishes of one
// goroutine with one key keep their order. Several publishers of a client share its connections and streams.
//
// At most 256 publishes of a QUIC stream are unanswered at the broker, or as many as it grants; up to 4,096 publishes and 4 MiB are queued
// behind them here. Beyond that a publish blocks until there is room or its context ends.
type Publisher struct {
	client   *Client
	topic    *topic
	options  publishOptions
	producer *producer // nil unless idempotent

	epoch    atomic.Pointer[epoch] // of the publishes that the next Flush waits for
	flushing chan struct{}         // capacity 1; held by Flush
	closed   atomic.Bool
	last     atomic.Pointer[pubStream] // that took an unanswered publish; a quick look at plain

	mu    sync.Mutex
	plain map[*pubStream]struct{} // streams with unanswered publishes since the last flush; guarded by mu
}

// Publisher returns a publisher for a stream. It sends nothing yet. Close it, or the client, when it is no longer used.
func (c *Client) Publisher(stream string, opts ...PublishOption) (*Publisher, error) {
	o := publishOptions{namespace: c.config.namespace}
	if err := o.apply(stream, opts, false); err != nil {
		return nil, err
	}
	if err := checkName("stream", stream); err != nil {
		return nil, invalidf("publish", stream, "%v", err)
	}
	p := &Publisher{client: c, topic: c.topicFor(o.namespace, stream), options: o, flushing: make(chan struct{}, 1), plain: make(map[*pubStream]struct{})}
	if o.idempotent {
		p.producer = newProducer(c, p.topic)
	}
	p.epoch.Store(newEpoch(nil))
	return p, nil
}

// prepare takes up the options of a call and enters the epoch.
func (p *Publisher) prepare(m *message, o *publishOptions, opts []PublishOption) (*epoch, error) {
	*o = p.options
	stream := p.topic.scope.Stream
	if len(opts) > 0 {
		if err := o.apply(stream, opts, true); err != nil {
			return nil, err
		}
		if o.namespace != p.options.namespace {
			return nil, invalidf("publish", stream, "a publisher stays in its namespace %q", p.options.namespace)
		}
	}
	m.topic = p.topic
	for {
		if p.closed.Load() {
			return nil, closedError("publish", stream)
		}
		if e := p.epoch.Load(); e.enter() {
			return e, nil
		}
	}
}

// Publish is Client.Publish with the publisher's stream and options.
func (p *Publisher) Publish(ctx context.Context, data []byte, opts ...PublishOption) (Ack, error) {
	m := message{data: data, single: true}
	return p.publish(ctx, &m, opts)
}

// PublishBatch is Client.PublishBatch with the publisher's stream and options.
func (p *Publisher) PublishBatch(ctx context.Context, batch [][]byte, opts ...PublishOption) (Ack, error) {
	m := message{batch: batch}
	return p.publish(ctx, &m, opts)
}

func (p *Publisher) publish(ctx context.Context, m *message, opts []PublishOption) (Ack, error) {
	var o publishOptions
	e, err := p.prepare(m, &o, opts)
	if err != nil {
		return Ack{}, err
	}
	return p.client.publishNow(ctx, m, &o, p, e)
}

// PublishAsync starts to publish one record. data is copied before it returns. It returns at once while there is room, and otherwise waits
// for room until the context ends; every failure, that one included, is the future's. With NoAck the future has ended.
func (p *Publisher) PublishAsync(ctx context.Context, data []byte, opts ...PublishOption) *Future {
	m := message{data: data, single: true}
	f := &Future{topic: p.topic}
	p.start(ctx, &m, f, opts)
	return f
}

// PublishBatchAsync starts to publish records together, as Client.PublishBatch does. The records are copied before it returns.
func (p *Publisher) PublishBatchAsync(ctx context.Context, batch [][]byte, opts ...PublishOption) *Future {
	m := message{batch: batch}
	f := &Future{topic: p.topic}
	p.start(ctx, &m, f, opts)
	return f
}

// PublishFunc starts to publish one record, as PublishAsync does, and calls done once with what Publish would return: where the answers are
// read, or before PublishFunc returns when the publish fails at once or with NoAck. Nothing is allocated and no goroutine woken for the
// answer. done must not block or take long: the answers to other publishes wait for it, and publishes that wait for room wait for those, so
// it must neither publish nor flush nor close. Flush waits until done has returned.
func (p *Publisher) PublishFunc(ctx context.Context, data []byte, done func(Ack, error), opts ...PublishOption) {
	m := message{data: data, single: true}
	p.startFunc(ctx, &m, done, opts)
}

// PublishBatchFunc starts to publish records together, as Client.PublishBatch does, and calls done once, as PublishFunc does.
func (p *Publisher) PublishBatchFunc(ctx context.Context, batch [][]byte, done func(Ack, error), opts ...PublishOption) {
	m := message{batch: batch}
	p.startFunc(ctx, &m, done, opts)
}

func (p *Publisher) startFunc(ctx context.Context, m *message, done func(Ack, error), opts []PublishOption) {
	f := p.client.called.Get().(*Future)
	f.reset(p.topic, false)
	f.done = done
	p.start(ctx, m, f, opts)
}

// start publishes with f, which is new.
func (p *Publisher) start(ctx context.Context, m *message, f *Future, opts []PublishOption) {
	var o publishOptions
	e, err := p.prepare(m, &o, opts)
	if err != nil {
		f.end(err)
		return
	}
	f.epoch, f.atLeastOnce = e, o.atLeastOnce
	if err := p.client.submit(ctx, m, &o, f, p); err != nil {
		f.end(err)
	} else if o.noAck {
		f.end(nil)
	}
}

// sentPlain remembers a stream that took a publish without answer.
func (p *Publisher) sentPlain(s *pubStream) {
	if p.last.Load() == s {
		return
	}
	p.mu.Lock()
	p.plain[s] = struct{}{}
	p.last.Store(s)
	p.mu.Unlock()
}

// Flush waits until every publish that was started before has ended, and until the broker has read those without answer. For the latter it
// finishes their streams: publishes that come meanwhile wait, those of other publishers on the same streams as well. The error is the
// context's, or says that publishes without answer may be lost. Futures tell of themselves.
func (p *Publisher) Flush(ctx context.Context) error {
	select {
	case p.flushing <- struct{}{}:
		defer func() { <-p.flushing }()
	case <-ctx.Done():
		return p.flushError(ctx)
	}
	e := p.epoch.Load()
	p.epoch.Store(newEpoch(e))
	e.release() // the publisher's own reference
	for ; e != nil; e = e.previous() {
		select {
		case <-e.done:
		case <-ctx.Done():
			return p.flushError(ctx)
		}
	}
	p.mu.Lock()
	plain := p.plain
	p.plain = make(map[*pubStream]struct{})
	p.last.Store(nil)
	p.mu.Unlock()
	for s := range plain {
		s.finish()
	}
	var err error
	for s := range plain {
		select {
		case <-s.ended:
			if failure := s.failure(); failure != nil && err == nil {
				err = lost("flush", p.topic.scope.Stream, failure)
			}
		case <-ctx.Done():
			p.mu.Lock()
			p.plain[s] = struct{}{} // for the next flush
			p.mu.Unlock()
			err = p.flushError(ctx)
		}
	}
	return err
}

func (p *Publisher) flushError(ctx context.Context) error {
	return &Error{Op: "flush", Stream: p.topic.scope.Stream, Retry: RetryOutcomeUnknown, Err: context.Cause(ctx)}
}

// Close flushes and ends the publisher: later publishes fail with ErrClosed. It returns what Flush returns.
func (p *Publisher) Close(ctx context.Context) error {
	p.closed.Store(true)
	return p.Flush(ctx)
}
