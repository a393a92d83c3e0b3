package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"felix/netio/wire"
)

// A SubscribeOption says what a subscription delivers.
type SubscribeOption func(*subscribeOptions) error

type subscribeOptions struct {
	namespace string
	shard     uint32
	oneShard  bool
	start     wire.StartPosition
	at        time.Time // instead of start, unless it is zero
	offsets   map[uint32]Offset
	capacity  int
}

// Shard subscribes to one shard. Without it all shards are merged.
func Shard(shard uint32) SubscribeOption {
	return func(o *subscribeOptions) error {
		o.shard, o.oneShard = shard, true
		return nil
	}
}

// FromLatest starts behind the newest record, which is the default.
func FromLatest() SubscribeOption {
	return func(o *subscribeOptions) error {
		o.start, o.at = wire.StartPosition{Kind: wire.StartLatest}, time.Time{}
		return nil
	}
}

// FromEarliest starts at the oldest record that is kept.
func FromEarliest() SubscribeOption {
	return func(o *subscribeOptions) error {
		o.start, o.at = wire.StartPosition{Kind: wire.StartEarliest}, time.Time{}
		return nil
	}
}

// FromOffset starts at a record of one shard: together with Shard, or on a stream of one shard. Subscribe fails with a *CursorError when
// it is no longer kept or not there yet.
func FromOffset(offset Offset) SubscribeOption {
	return func(o *subscribeOptions) error {
		o.start, o.at = wire.StartPosition{Kind: wire.StartOffset, Offset: offset}, time.Time{}
		return nil
	}
}

// FromTime starts each shard of a durable stream at its first record that the broker appended at or after a time. Where there is none, and
// for a time to come, that is behind the newest record. Subscribe fails with ErrInvalid for a stream in memory, which keeps no times.
func FromTime(at time.Time) SubscribeOption {
	return func(o *subscribeOptions) error {
		if at.IsZero() {
			return errors.New("FromTime of the zero time; give FromEarliest for everything that is kept")
		}
		o.start, o.at = wire.StartPosition{Kind: wire.StartLatest}, at
		return nil
	}
}

// FromOffsets starts each shard at its own record. A shard that is not in the map starts as the other options say.
func FromOffsets(offsets map[uint32]Offset) SubscribeOption {
	return func(o *subscribeOptions) error {
		if o.offsets == nil {
			o.offsets = make(map[uint32]Offset, len(offsets))
		}
		for shard, offset := range offsets {
			o.offsets[shard] = offset
		}
		return nil
	}
}

// QueueCapacity asks for the size of the broker's queue for each shard, in published batches. The broker grants what it allows.
func QueueCapacity(n int) SubscribeOption {
	return func(o *subscribeOptions) error {
		if n < 1 {
			return fmt.Errorf("queue capacity %d; give at least 1", n)
		}
		o.capacity = n
		return nil
	}
}

// FromNamespace names the namespace of the stream, instead of the client's.
func FromNamespace(namespace string) SubscribeOption {
	return func(o *subscribeOptions) error {
		o.namespace = namespace
		return checkName("namespace", namespace)
	}
}

// openAtOnce bounds the shards of a subscription that are opened at the same time.
const openAtOnce = 16

// Subscribe starts to deliver the records of a stream. It returns when every shard is subscribed, or fails as a whole; the context is for
// that only. Refusals that may pass are retried as the reconnect policy says.
func (c *Client) Subscribe(ctx context.Context, stream string, opts ...SubscribeOption) (*Subscription, error) {
	o := subscribeOptions{namespace: c.config.namespace, start: wire.StartPosition{Kind: wire.StartLatest}}
	var problems []error
	for _, option := range opts {
		if err := option(&o); err != nil {
			problems = append(problems, err)
		}
	}
	if err := checkName("stream", stream); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, invalidf("subscribe", stream, "%v", err)
	}
	if c.refusing.Load() {
		return nil, closedError("subscribe", stream)
	}
	t := c.topicFor(o.namespace, stream)
	shards := []uint32{o.shard}
	if !o.oneShard {
		r, err := c.routeFor(ctx, t, "subscribe")
		if err != nil {
			return nil, err
		}
		if r.shards > 1 && o.start.Kind == wire.StartOffset {
			return nil, invalidf("subscribe", stream, "FromOffset on %d shards; add Shard, or give FromOffsets", r.shards)
		}
		shards = make([]uint32, r.shards)
		for i := range shards {
			shards[i] = uint32(i)
		}
	}
	s := &Subscription{client: c, topic: t, stream: stream, queue: make(chan *delivery, c.config.subscriptionQueue), positions: make([]Offset, len(shards))}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	for i, shard := range shards {
		x := &shardSub{sub: s, index: i, shard: shard, start: o.start, at: o.at, capacity: o.capacity}
		if offset, ok := o.offsets[shard]; ok {
			x.at = time.Time{}
			x.start = wire.StartPosition{Kind: wire.StartOffset, Offset: offset}
		}
		s.shards = append(s.shards, x)
	}
	if err := s.begin(ctx); err != nil {
		s.stop(err)
		s.wg.Wait()
		return nil, err
	}
	return s, nil
}

// begin subscribes every shard and starts their goroutines. With an error all of them end.
func (s *Subscription) begin(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return closedError("subscribe", s.stream)
	}
	c.subs[s] = struct{}{}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel) // Close of the client
	defer stop()
	s.open.Store(int32(len(s.shards)))
	results := make(chan error, len(s.shards))
	turns := make(chan struct{}, openAtOnce)
	follow := func(x *shardSub) bool {
		s.wg.Add(1)
		if !c.spawn(func() {
			defer s.wg.Done()
			turns <- struct{}{}
			err := x.subscribe(ctx, false)
			<-turns
			x.offsets, x.first = x.known, x.next
			results <- err
			if err == nil {
				x.run()
			}
		}) {
			s.wg.Done()
			return false
		}
		return true
	}
	started := 0
	for _, x := range s.shards {
		if !follow(x) {
			break
		}
		started++
	}
	var first error
	if started < len(s.shards) {
		first = closedError("subscribe", s.stream)
		cancel()
	}
	for range started {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if first != nil && s.ctx.Err() != nil {
		return closedError("subscribe", s.stream)
	}
	for i, x := range s.shards {
		s.positions[i] = x.first
	}
	return first
}

// A shardSub follows one shard. Its goroutine owns it once it runs.
type shardSub struct {
	sub      *Subscription
	index    int
	shard    uint32
	start    wire.StartPosition
	at       time.Time // instead of start, unless it is zero
	capacity int

	next    Offset // the next record of the shard
	known   bool   // next counts
	offsets bool   // the broker sends offsets; set before Subscribe returns
	first   Offset // where it started; set likewise

	conn   *conn // that serves the shard
	reader *eventReader
}

// maxHops bounds the redirects that are followed in a row (WIRE section 16).
const maxHops = 3

// subscribe asks the owner of the shard, follows redirects and waits out refusals that may pass. resume says that a subscription goes on,
// which is tried for longer.
func (x *shardSub) subscribe(ctx context.Context, resume bool) error {
	c := x.sub.client
	began := time.Now()
	var at *target // where a redirect points; nil means the route
	hops := 0
	visited := make(map[string]bool)
	for try := 1; ; try++ {
		moved, err := x.subscribeOnce(ctx, at)
		if err == nil && moved == nil {
			return nil
		}
		if err == nil {
			x.sub.topic.expire(x.sub.topic.route.Load())
			hops++
			if at = nil; moved.Addr != "" && !visited[moved.Addr] && hops <= maxHops {
				visited[moved.Addr] = true
				at = c.target(moved.Addr, 0)
				try--
				continue // a redirect is not a failure
			}
			err = &Error{Op: "subscribe", Stream: x.sub.stream, Code: wire.CodeNotLeader, Retry: RetryRedirect, Message: "the owner of the shard was not found"}
		}
		at, hops = nil, 0
		clear(visited)
		var cursor *CursorError
		if errors.As(err, &cursor) {
			return cursor
		}
		e := asError("subscribe", x.sub.stream, err)
		if ctx.Err() != nil {
			return e
		}
		age := time.Since(began)
		policy := &c.config.reconnect
		switch {
		case e.Retry == RetryFatal:
			return e
		case e.Code == wire.CodeNotFound:
			if limit := c.config.notFoundRetry; age >= limit && !(resume && age < maxNotFoundRetry) {
				return e
			}
		case resume:
			if policy.SubscriptionDeadline > 0 && age >= policy.SubscriptionDeadline {
				return e
			}
		case try >= policy.Attempts || age >= policy.Deadline:
			return e
		}
		x.sub.topic.expire(x.sub.topic.route.Load())
		if resume && try == 1 {
			c.config.logger.Warn("client: a subscription is interrupted", "stream", x.sub.stream, "shard", x.shard, "err", e)
		}
		if err := c.pause(ctx, "subscribe", x.sub.stream, c.backoff(min(try, 8), e.RetryAfter)); err != nil {
			return err
		}
	}
}

// subscribeOnce asks one broker. On success reader is set; moved is a redirect.
func (x *shardSub) subscribeOnce(ctx context.Context, at *target) (moved *wire.NotLeader, err error) {
	s := x.sub
	if at == nil {
		r, err := s.topic.current(ctx, "subscribe")
		if err != nil {
			return nil, err
		}
		if x.shard >= r.shards {
			return nil, invalidf("subscribe", s.stream, "shard %d of a stream with %d shards", x.shard, r.shards)
		}
		at = r.owner(s.client, x.shard).target
	}
	conn, err := at.get(ctx)
	if err != nil {
		return nil, err
	}
	request := &wire.Subscribe{Scope: s.topic.scope, Start: x.start, Shard: x.shard, HasShard: x.shard > 0}
	byTime := !x.known && !x.at.IsZero()
	switch {
	case x.known:
		request.Start = wire.StartPosition{Kind: wire.StartOffset, Offset: x.next}
	case byTime:
		if request.Start, err = x.timeStart(ctx, conn); err != nil {
			return nil, err
		}
	}
	if !conn.flags.Has(wire.FlagEventOffsets) && request.Start.Kind != wire.StartLatest {
		return nil, unsupported("subscribe", s.stream, "offsets, so a subscription can start at the latest record only")
	}
	if x.capacity > 0 && conn.features.Has(wire.FeatureSubscribeQueue) {
		request.QueueCapacity, request.HasQueueCapacity = uint64(x.capacity), true
	}
	m, err := conn.ask(ctx, "subscribe", s.stream, request)
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.Subscribed:
		reader, err := conn.eventStream(ctx, m.SubscriptionID)
		if err != nil {
			return nil, conn.requestError(ctx, "subscribe", s.stream, err)
		}
		x.conn, x.reader = conn, reader
		if m.HasStartOffset && !x.known {
			x.next, x.known = m.StartOffset, true
		}
		return nil, nil
	case *wire.SubscribeCursorError:
		err := cursorError("subscribe", s.stream, x.shard, m)
		if available, tooOld := isTooOld(err); byTime && tooOld {
			// Retention went past it since the time was asked for; what is left is later still.
			x.start, x.at = wire.StartPosition{Kind: wire.StartOffset, Offset: available}, time.Time{}
			return x.subscribeOnce(ctx, at)
		}
		return nil, err
	case *wire.NotLeader:
		return m, nil
	}
	return nil, unavailable("subscribe", s.stream, errWrongAnswer)
}

// run delivers what the event streams bring, and resumes, until the subscription ends.
func (x *shardSub) run() {
	s := x.sub
	for {
		err := x.deliver()
		x.reader.cancel()
		x.reader.close()
		if s.ctx.Err() != nil {
			return
		}
		wait, end := x.classify(err)
		if end != nil {
			x.finish(end)
			return
		}
		s.topic.expire(s.topic.route.Load()) // the owner may be another by now
		if wait > 0 && s.client.pause(s.ctx, "subscribe", s.stream, wait) != nil {
			return
		}
		if err := x.resume(); err != nil {
			if s.ctx.Err() == nil {
				x.finish(err)
			}
			return
		}
		s.client.config.logger.Info("client: a subscription is resumed", "stream", s.stream, "shard", x.shard, "offset", x.next, "addr", x.conn.addr)
	}
}

// resume subscribes again behind the last record. What the broker no longer keeps is reported as a gap.
func (x *shardSub) resume() error {
	s := x.sub
	for {
		err := x.subscribe(s.ctx, true)
		var cursor *CursorError
		if !errors.As(err, &cursor) || cursor.InFuture || cursor.Available <= x.next {
			return err
		}
		d := s.newDelivery(x.index)
		d.frames = append(d.frames, eventFrame{gapFrom: x.next, gapTo: cursor.Available})
		if !s.push(d) {
			return closedError("subscribe", s.stream)
		}
		x.next = cursor.Available
	}
}

// classify says how to go on after an event stream has ended: with an error for ever, or by resuming after a wait.
func (x *shardSub) classify(err error) (wait time.Duration, end error) {
	s := x.sub
	var said *streamEnd
	if errors.As(err, &said) {
		switch {
		case said.deleted:
			return 0, &Error{Op: "subscribe", Stream: s.stream, Retry: RetryFatal, Err: ErrStreamDeleted}
		case said.refused != nil:
			e := refusal("subscribe", s.stream, said.refused)
			if e.Code == 0 || e.Retry == RetryFatal {
				return 0, e
			}
			wait = max(s.client.config.reconnect.Backoff, e.RetryAfter)
		case said.moved != nil && said.moved.HasResumeFrom:
			x.next = max(x.next, said.moved.ResumeFrom)
		}
	} else if err == io.EOF {
		if len(s.shards) == 1 {
			return 0, io.EOF
		}
		wait = resumeWait // one shard of several: it comes back
	}
	if !x.known {
		return 0, lost("subscribe", s.stream, fmt.Errorf("the broker sends no offsets, so it cannot be resumed: %w", err))
	}
	return wait, nil
}

// finish ends the subscription with an error behind everything that was delivered; the other shards go on until it is read. Of several
// shards that end well the last one counts.
func (x *shardSub) finish(end error) {
	s := x.sub
	if end == io.EOF && s.open.Add(-1) > 0 {
		return
	}
	d := s.newDelivery(x.index)
	d.end = end
	s.push(d)
}

// deliver reads the event stream to its end and hands over what every read brings.
func (x *shardSub) deliver() error {
	s, r := x.sub, x.reader
	stop := context.AfterFunc(s.ctx, r.cancel)
	defer stop()
	r.pool = &s.pool
	for {
		d := s.newDelivery(x.index)
		var end error
		for {
			h, body, ok, err := r.frame()
			if err != nil {
				end = err
				break
			}
			if !ok {
				break
			}
			if end = parseEvents(d, h, body, &x.next, &x.known); end != nil {
				break
			}
		}
		if len(d.frames) > 0 {
			d.chunk = r.chunk
			d.chunk.refs.Add(1)
			if !s.push(d) {
				return s.ctx.Err()
			}
		} else {
			s.release(d)
		}
		if end != nil {
			return end
		}
		if err := r.read(); err != nil {
			return err
		}
	}
}
