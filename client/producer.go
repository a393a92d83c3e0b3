package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"felix/netio/wire"
)

// A producer gives the batches of an idempotent publisher their numbers: per shard, from 0. It has its id from the broker, and ends for
// good when a batch is refused in a way that breaks the order (WIRE section 13).
type producer struct {
	client *Client
	topic  *topic

	mu    sync.Mutex
	id    uint64
	known bool             // id is
	call  *initCall        // that asks for it; guarded by mu
	lanes map[uint32]*lane // by shard; guarded by mu
	err   error            // not nil: it has ended; guarded by mu
}

type initCall struct {
	done chan struct{}
	err  error
}

func newProducer(c *Client, t *topic) *producer {
	return &producer{client: c, topic: t, lanes: make(map[uint32]*lane)}
}

// start asks for the id, once.
func (p *producer) start(ctx context.Context) error {
	p.mu.Lock()
	if p.known || p.err != nil {
		defer p.mu.Unlock()
		return p.err
	}
	call := p.call
	if call == nil {
		call = &initCall{done: make(chan struct{})}
		p.call = call
		if !p.client.spawn(func() { p.init(call) }) {
			p.call = nil
			p.mu.Unlock()
			return closedError("publish", p.topic.scope.Stream)
		}
	}
	p.mu.Unlock()
	select {
	case <-call.done:
		return call.err
	case <-ctx.Done():
		return contextError("publish", p.topic.scope.Stream, ctx)
	case <-p.client.closing:
		return closedError("publish", p.topic.scope.Stream)
	}
}

func (p *producer) init(call *initCall) {
	ctx, cancel := context.WithTimeout(p.client.ctx, p.client.config.reconnect.Deadline)
	defer cancel()
	id, err := ask(p.client, ctx, "publish", p.topic.scope.Stream, wire.FeatureIdempotentProducer, func(ctx context.Context, c *conn) (uint64, error) {
		m, err := c.ask(ctx, "publish", p.topic.scope.Stream, &wire.ProducerInit{RequestID: 1})
		if err != nil {
			return 0, err
		}
		answer, ok := m.(*wire.ProducerInitOK)
		if !ok {
			return 0, unavailable("publish", p.topic.scope.Stream, errWrongAnswer)
		}
		return answer.ProducerID, nil
	})
	p.mu.Lock()
	p.id, p.known, p.call = id, err == nil, nil
	p.mu.Unlock()
	call.err = err
	close(call.done)
}

// submit numbers a batch and sends it, or queues it behind those that come first.
func (p *producer) submit(ctx context.Context, m *message, f *Future) error {
	if err := p.start(ctx); err != nil {
		return err
	}
	r, err := p.client.routeFor(ctx, p.topic, "publish")
	if err != nil {
		return err
	}
	m.idempotent, m.producer = true, p.id
	m.shard = r.shardOf(m.key, m.keyed)
	f.ack.Shard = m.shard
	p.mu.Lock()
	l := p.lanes[m.shard]
	if l == nil {
		l = &lane{producer: p, shard: m.shard, change: make(chan struct{}, 1)}
		p.lanes[m.shard] = l
	}
	err = p.err
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return l.submit(ctx, m, r, f)
}

// stop ends the producer: nothing it has queued is sent any more.
func (p *producer) stop(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	err = p.err
	lanes := make([]*lane, 0, len(p.lanes))
	for _, l := range p.lanes {
		lanes = append(lanes, l)
	}
	p.mu.Unlock()
	for _, l := range lanes {
		l.stop(err)
	}
}

const (
	// laneWindow is how many batches of a producer and shard are unanswered at most: as many as the broker remembers.
	laneWindow = 64
	// maxLaneBytes and maxLaneItems bound what waits behind them; then a publish waits for room.
	maxLaneBytes = 4 << 20
	maxLaneItems = 4096
)

// A lane is the order of one producer's batches in one shard.
//
//	submit --(nothing queued, window open)--> stream --answer--> done
//	   \--> queue --run--> stream --refused or lost--> queue, in order of the numbers
//
// Invariants: batches are in the stream or in the queue in the order of their numbers, and every number in the queue is above those in the
// stream, unless again is set; then nothing is sent before the stream holds none.
type lane struct {
	producer *producer
	shard    uint32

	mu      sync.Mutex
	next    uint64        // number of the next batch
	out     int           // batches that are sent and not answered
	via     *pubStream    // that they were sent on; nil when it is not known, or none are out
	queue   []laneItem    // in order of their numbers
	bytes   int           // of the frames in queue
	again   bool          // something in queue was sent before
	after   time.Duration // on the client's clock: nothing in queue is sent before it
	running bool          // run is
	room    roomQueue     // publishes that wait for a place in queue
	err     error         // not nil: the producer has ended

	change chan struct{} // capacity 1; wakes run
}

type laneItem struct {
	future *Future
	frame  []byte
	err    error // of the last try; nil before it
}

// submit is called by publishers. The error says that nothing was sent and no number was given.
func (l *lane) submit(ctx context.Context, m *message, r *route, f *Future) error {
	if err := m.prepare(wire.KnownFlags); err != nil {
		return err
	}
	c := l.producer.client
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	m.sequence, f.sequence, f.lane = l.next, l.next, l
	// While run is, it may be on its way with the batch before.
	if !l.running && len(l.queue) == 0 && l.room.first == nil && l.out < laneWindow {
		if s := r.owner(c, l.shard).open(); s != nil && l.follows(s) && s.flags.Has(m.flags()) && s.tryPublish(m, r, f) {
			l.next++
			l.out++
			l.via = s
			l.mu.Unlock()
			return nil
		}
	}
	size := m.frameBytes()
	if l.room.first != nil || !l.fits(size) {
		if err := l.waitForRoom(ctx, size); err != nil {
			f.lane = nil
			return err
		}
		m.sequence, f.sequence = l.next, l.next
	}
	frame := m.appendFrame(make([]byte, 0, size), 0)
	if !l.start() {
		f.lane = nil
		l.mu.Unlock()
		return closedError("publish", m.topic.scope.Stream)
	}
	l.next++
	l.push(len(l.queue), laneItem{future: f, frame: frame})
	l.mu.Unlock()
	return nil
}

// follows reports whether a batch may be sent on s now. On another stream than those before it, it could arrive first: they may be lost
// with theirs and not be known to be.
func (l *lane) follows(s *pubStream) bool { return l.out == 0 || s == l.via }

func (l *lane) fits(size int) bool {
	bytes := l.bytes + l.room.granted
	return bytes == 0 || bytes+size <= maxLaneBytes && len(l.queue)+l.room.coming < maxLaneItems
}

// waitForRoom is entered and left with the mutex held, except with an error.
func (l *lane) waitForRoom(ctx context.Context, size int) error {
	w := l.room.add(size)
	stream := l.producer.topic.scope.Stream
	l.mu.Unlock()
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = contextError("publish", stream, ctx)
	case <-l.producer.client.closing:
		err = closedError("publish", stream)
	}
	l.mu.Lock()
	granted := l.room.leave(w)
	if err == nil && l.err != nil {
		err = l.err
	}
	if err == nil {
		return nil
	}
	if granted {
		l.grantRoom()
	}
	l.mu.Unlock()
	return err
}

func (l *lane) grantRoom() {
	for w := l.room.first; w != nil && l.fits(w.size); w = l.room.first {
		l.room.grant()
	}
}

// push puts an item into the queue. The mutex is held.
func (l *lane) push(i int, item laneItem) {
	l.queue = slices.Insert(l.queue, i, item)
	l.bytes += len(item.frame)
	l.producer.client.waiting.add(1)
}

func (l *lane) pop() laneItem {
	item := l.queue[0]
	l.queue[0] = laneItem{}
	if l.queue = l.queue[1:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.bytes -= len(item.frame)
	l.grantRoom()
	return item
}

// start makes sure that run is running. It reports false when the client closes. The mutex is held.
func (l *lane) start() bool {
	if !l.running {
		if !l.producer.client.spawn(l.run) {
			return false
		}
		l.running = true
	}
	select {
	case l.change <- struct{}{}:
	default: // it will look anyway
	}
	return true
}

// answered is called when a batch was stored.
func (l *lane) answered() {
	l.mu.Lock()
	l.out--
	if len(l.queue) > 0 {
		l.start()
	}
	l.mu.Unlock()
}

// failed is called with a batch that was refused or lost on the way.
func (l *lane) failed(b failed) {
	l.mu.Lock()
	l.out--
	l.mu.Unlock()
	l.giveBack(laneItem{b.future, b.frame, b.err})
}

// giveBack queues a batch again under its number, or ends the producer.
func (l *lane) giveBack(item laneItem) {
	f, c := item.future, l.producer.client
	stream := l.producer.topic.scope.Stream
	l.mu.Lock()
	retry, wait := false, time.Duration(0)
	switch e := item.err.(type) {
	case *Error:
		item.err = e.withOp("publish", stream)
		if retry = e.Code != wire.CodeStaleWidth && c.mayRetry(f, e); retry {
			forgetRoute(f, e)
			wait = c.backoff(f.tries, e.RetryAfter)
		}
	case *ProducerError:
		expected := e.Sequence // as the broker says it
		named := *e
		named.Stream, named.Shard, named.Sequence = stream, l.shard, f.sequence
		item.err = &named
		// The gap of an earlier batch that is to be sent again: it will be closed.
		retry = e.Reason == wire.RefusalSequenceGap.String() && expected < f.sequence && len(l.queue) > 0 && l.queue[0].future.sequence < f.sequence
	}
	if l.err == nil && retry && l.start() {
		i := 0
		for i < len(l.queue) && l.queue[i].future.sequence < f.sequence {
			i++
		}
		l.push(i, item)
		l.again = true
		l.after = max(l.after, c.since()+wait)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f.fail(item.err)
	l.producer.stop(item.err)
}

// stop fails what is queued.
func (l *lane) stop(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	queue := l.queue
	l.queue, l.bytes = nil, 0
	l.room.grantAll()
	if l.running {
		l.start()
	}
	l.mu.Unlock()
	stream := l.producer.topic.scope.Stream
	for _, item := range queue {
		if item.err != nil {
			item.future.fail(lost("publish", stream, err))
		} else {
			item.future.fail(&Error{Op: "publish", Stream: stream, Retry: RetryFatal, Message: "not sent, an earlier batch ended the publisher", Err: err})
		}
	}
	l.producer.client.waiting.add(-len(queue))
}

// run sends what is queued, in order, as the window and the backoff allow. It ends when nothing is left.
func (l *lane) run() {
	c := l.producer.client
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		wait := l.after - c.since()
		s := l.producer.open(l.shard)
		if l.out >= laneWindow || l.out > 0 && (l.again || s == nil || s != l.via) || wait > 0 {
			l.mu.Unlock()
			l.sleep(wait)
			select {
			case <-c.closing:
				l.producer.stop(closedError("publish", l.producer.topic.scope.Stream))
			default:
			}
			continue
		}
		l.again = false
		item := l.pop()
		l.out++
		l.via = nil // until it is sent; nothing else is meanwhile
		l.mu.Unlock()
		sent, err := l.send(item, s)
		l.mu.Lock()
		l.via = sent
		l.mu.Unlock()
		if err != nil {
			item.err = err
			l.failed(failed{item.future, err, item.frame})
		}
		c.waiting.add(-1)
	}
}

// sleep waits for d when it is positive, and for a change otherwise; a change or the end of the client ends it early.
func (l *lane) sleep(d time.Duration) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-l.change:
	case <-due:
	case <-l.producer.client.closing:
	}
}

// open returns the stream that a batch for a shard would be sent on now, nil when there is none or it is not known.
func (p *producer) open(shard uint32) *pubStream {
	if r := p.topic.route.Load(); r != nil {
		return r.owner(p.client, shard).open()
	}
	return nil
}

// send sends a queued frame to the lane's shard: on s when that goes at once, else wherever the route leads. It returns the stream, nil
// when that is not known. An error means that it was not sent now; it keeps the class of an earlier try whose outcome is unknown.
func (l *lane) send(item laneItem, s *pubStream) (*pubStream, error) {
	c := l.producer.client
	m := message{topic: l.producer.topic, again: item.frame, acked: true, idempotent: true, explicit: true, shard: l.shard}
	if r := m.topic.route.Load(); r != nil && item.future.tries == 0 && s != nil {
		if m.prepare(s.flags) == nil && s.tryPublish(&m, r, item.future) {
			return s, nil
		}
	}
	left := c.config.reconnect.Deadline
	if item.future.tries > 0 {
		left -= c.since() - item.future.firstFailed
	}
	ctx, cancel := context.WithTimeout(c.ctx, left)
	defer cancel()
	err := c.route(ctx, &m, item.future, false)
	var before *Error
	if e, ok := item.err.(*Error); ok {
		before = e
	}
	if err != nil && before != nil && before.Retry == RetryOutcomeUnknown {
		e := *asError("publish", l.producer.topic.scope.Stream, err)
		e.Retry = RetryOutcomeUnknown
		return nil, &e
	}
	return nil, err
}
