package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"felix/perf/load"
)

// Publisher is that of a Stream.
func (s *stream) Publisher(_ context.Context, spec load.PublisherSpec) (load.Publisher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		return nil, errors.New("the stream is closed")
	}
	p := publisher{conn: s.conns[spec.Index%len(s.conns)], sink: spec.Sink, none: s.subject(0)}
	for _, key := range spec.Keys {
		h := fnv.New32a()
		h.Write([]byte(key))
		p.subjects = append(p.subjects, s.subject(int(h.Sum32()%uint32(s.shards))))
	}
	switch {
	case s.target.mode == core && spec.Acks == load.AcksNone:
		return &corePublisher{p}, nil
	case s.target.mode == core && spec.Acks == load.AcksBatch:
		return newFlushedPublisher(p, spec.InFlight), nil
	case s.target.mode == request && spec.Acks == load.AcksEach:
		return newRequester(p), nil
	case s.target.mode.jetStream() && spec.Acks == load.AcksEach:
		return newLonePublisher(p)
	case s.target.mode.jetStream() && spec.Acks == load.AcksBatch:
		return newAsyncPublisher(p, spec)
	}
	return nil, fmt.Errorf("NATS as %s has no publishes with acks %s", s.target.mode, spec.Acks)
}

// A publisher is what all have in common.
type publisher struct {
	conn     *nats.Conn
	sink     load.Sink
	subjects []string // by key
	none     string   // the subject of records without key
}

func (p *publisher) subject(key int) string {
	if key < 0 {
		return p.none
	}
	return p.subjects[key]
}

// Push is that of a Publisher: nats.go has a goroutine that sends what is in its buffer.
func (p *publisher) Push(context.Context) {}

// Flush is that of a Publisher: the server answers when it has read everything before.
func (p *publisher) Flush(ctx context.Context) error { return flush(ctx, p.conn) }

// Close is that of a Publisher. The connection is shared and ends with the stream.
func (p *publisher) Close() error { return nil }

// flushTimeout bounds a flush: nats.go wants a deadline.
const flushTimeout = time.Minute

func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}

// A corePublisher fires and forgets.
type corePublisher struct{ publisher }

// Publish is that of a Publisher.
func (p *corePublisher) Publish(_ context.Context, token, key int, records [][]byte) {
	subject := p.subject(key)
	for i, record := range records {
		if err := p.conn.Publish(subject, record); err != nil {
			fate := load.Refused
			if i > 0 {
				fate = load.Unknown
			}
			p.sink.Settle(token, load.Outcome{Fate: fate, Err: err}, time.Now())
			return
		}
	}
	p.sink.Settle(token, load.Outcome{Fate: load.Sent}, time.Time{})
}

// A flushedPublisher takes the server's answer to a ping behind a batch as the answer to it: the server has read the batch and queued it for
// every subscriber. One ping stands for all batches that wait for one.
type flushedPublisher struct {
	publisher
	tokens   chan int // room for all in flight, so that sending never blocks
	ctx      context.Context
	cancel   context.CancelFunc
	settling sync.WaitGroup
}

func newFlushedPublisher(p publisher, inFlight int) *flushedPublisher {
	f := &flushedPublisher{publisher: p, tokens: make(chan int, inFlight)}
	f.ctx, f.cancel = context.WithTimeout(context.Background(), never)
	f.settling.Go(f.settle)
	return f
}

// Publish is that of a Publisher.
func (p *flushedPublisher) Publish(_ context.Context, token, key int, records [][]byte) {
	subject := p.subject(key)
	for i, record := range records {
		if err := p.conn.Publish(subject, record); err != nil {
			fate := load.Refused
			if i > 0 {
				fate = load.Unknown
			}
			p.sink.Settle(token, load.Outcome{Fate: fate, Err: err}, time.Now())
			return
		}
	}
	p.tokens <- token
}

func (p *flushedPublisher) settle() {
	var waiting []int
	for token := range p.tokens {
		waiting = append(waiting[:0], token)
		for more := true; more; {
			select {
			case token, ok := <-p.tokens:
				if more = ok; ok {
					waiting = append(waiting, token)
				}
			default:
				more = false
			}
		}
		outcome := outcomeOf(p.conn.FlushWithContext(p.ctx))
		at := time.Now()
		for _, token := range waiting {
			p.sink.Settle(token, outcome, at)
		}
	}
}

// Close is that of a Publisher.
func (p *flushedPublisher) Close() error {
	p.cancel()
	close(p.tokens)
	p.settling.Wait()
	return nil
}

// A caller publishes one record after the other, each by a call that waits for its answer.
type caller struct {
	publisher
	call func(ctx context.Context, subject string, record []byte) error

	// nats.go wants a deadline, or sets a timer for each call: this is the engine's context with one that never comes.
	ctx    context.Context
	cancel context.CancelFunc
}

// newRequester asks the responder.
func newRequester(p publisher) *caller {
	return &caller{publisher: p, call: func(ctx context.Context, subject string, record []byte) error {
		_, err := p.conn.RequestWithContext(ctx, subject, record)
		return err
	}}
}

// newLonePublisher waits for what JetStream says.
func newLonePublisher(p publisher) (*caller, error) {
	js, err := jetstream.New(p.conn)
	return &caller{publisher: p, call: func(ctx context.Context, subject string, record []byte) error {
		_, err := js.Publish(ctx, subject, record)
		return err
	}}, err
}

// Publish is that of a Publisher.
func (p *caller) Publish(ctx context.Context, token, key int, records [][]byte) {
	if p.ctx == nil { // the engine gives the same one to every call
		p.ctx, p.cancel = context.WithTimeout(ctx, never)
	}
	err := p.call(p.ctx, p.subject(key), records[0])
	p.sink.Settle(token, outcomeOf(err), time.Now())
}

// never is longer than any run.
const never = 48 * time.Hour

// Close is that of a Publisher.
func (p *caller) Close() error {
	if p.cancel != nil {
		p.cancel()
	}
	return nil
}

// outcomeOf says what an error of a publish means.
func outcomeOf(err error) load.Outcome {
	var refusal *jetstream.APIError
	switch {
	case err == nil:
		return load.Outcome{Fate: load.Acked}
	case errors.As(err, &refusal), errors.Is(err, nats.ErrNoResponders):
		return load.Outcome{Fate: load.Refused, Err: err}
	}
	return load.Outcome{Fate: load.Unknown, Err: err}
}

// An asyncPublisher has a window of batches under way. Messages are made once and used again: their places say which batch they are of.
type asyncPublisher struct {
	publisher
	js jetstream.JetStream

	batches []batch              // by token
	owner   map[*nats.Msg]*batch // fixed once made

	mu   sync.Mutex
	open int           // batches under way; guarded by mu
	idle chan struct{} // closed when none is; nil when nobody waits; guarded by mu
}

// A batch is a token's messages and how they fare.
type batch struct {
	token    int
	messages []nats.Msg
	payloads []byte

	mu    sync.Mutex
	left  int   // messages without an answer; guarded by mu
	acked int   // guarded by mu
	err   error // the first; guarded by mu
}

func newAsyncPublisher(p publisher, spec load.PublisherSpec) (load.Publisher, error) {
	a := &asyncPublisher{publisher: p, batches: make([]batch, spec.InFlight), owner: make(map[*nats.Msg]*batch, spec.InFlight*spec.Batch)}
	for token := range a.batches {
		b := &a.batches[token]
		b.token, b.messages, b.payloads = token, make([]nats.Msg, spec.Batch), make([]byte, spec.Batch*spec.Size)
		for i := range b.messages {
			b.messages[i].Data = b.payloads[i*spec.Size : (i+1)*spec.Size]
			a.owner[&b.messages[i]] = b
		}
	}
	var err error
	a.js, err = jetstream.New(p.conn,
		// The window is the engine's: nats.go is never to stall within it.
		jetstream.WithPublishAsyncMaxPending(spec.InFlight*spec.Batch+1),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { a.answered(m, nil) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) { a.answered(m, err) }))
	return a, err
}

// Publish is that of a Publisher.
func (a *asyncPublisher) Publish(_ context.Context, token, key int, records [][]byte) {
	b := &a.batches[token]
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
	b.mu.Lock()
	b.left, b.acked, b.err = len(records), 0, nil
	b.mu.Unlock()
	subject := a.subject(key)
	for i, record := range records {
		m := &b.messages[i]
		m.Subject = subject
		copy(m.Data, record) // nats.go may send it again
		if _, err := a.js.PublishMsgAsync(m); err != nil {
			a.answered(m, err)
		}
	}
}

// answered takes the answer to a message.
func (a *asyncPublisher) answered(m *nats.Msg, err error) {
	b := a.owner[m]
	b.mu.Lock()
	b.left--
	if err == nil {
		b.acked++
	} else if b.err == nil {
		b.err = err
	}
	left, acked, first := b.left, b.acked, b.err
	b.mu.Unlock()
	if left != 0 {
		return
	}
	outcome := outcomeOf(first)
	if first != nil && acked > 0 {
		outcome.Fate = load.Unknown // some are there
	}
	a.sink.Settle(b.token, outcome, time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open--; a.open == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// Flush is that of a Publisher.
func (a *asyncPublisher) Flush(ctx context.Context) error {
	a.mu.Lock()
	if a.open == 0 {
		a.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	a.idle = idle
	a.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close is that of a Publisher.
func (a *asyncPublisher) Close() error {
	a.js.CleanupPublisher()
	return nil
}
