package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"felix/client"
)

const (
	// maxReaderConnections bounds the connections of subscribers that read; beyond it they share them in turn. Those that do not read have
	// one each, whose flow control holds up nobody else.
	maxReaderConnections = 64
	// clientDeadline is how long the client tries again. A handshake with a broker that goes away meanwhile takes the 6 s of a dial to
	// end, so that less would give up on one that has come back.
	clientDeadline = 15 * time.Second

	// What the client and a connection hold: 4 publish streams of 4 MiB each per connection, and a send window of 16 MiB each up to 64 MiB.
	clientQueueBytes = 16 << 20
	connWindowBytes  = 64 << 20
	socketBytes      = 14 << 20 // both directions
)

// ClientTarget drives felix through the public Go client.
type ClientTarget struct{ *felixBroker }

// NewClientTarget makes a target of a broker. It connects to nothing yet.
func NewClientTarget(c FelixConfig) (*ClientTarget, error) {
	if c.Plain {
		return nil, errors.New("the client publishes to the owners of shards; take the lean generator for plain connections")
	}
	b, err := newFelixBroker(c, maxClientConnections)
	return &ClientTarget{b}, err
}

// Info is that of a Target.
func (t *ClientTarget) Info() Info {
	return Info{
		Broker: t.name, Generator: "client", Receiver: "client", Embedded: t.config.Broker != nil,
		BufferBytes: t.config.connections() * (clientQueueBytes + connWindowBytes + socketBytes), RecordsPerAnswer: client.MaxPackedRecords,
	}
}

// Open is that of a Target.
func (t *ClientTarget) Open(ctx context.Context, spec StreamSpec) (Stream, error) {
	name, made, err := t.settle(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &clientStream{broker: t.felixBroker, name: name, made: made}, nil
}

// A clientStream is a stream and the clients that use it.
type clientStream struct {
	broker *felixBroker
	name   string
	made   bool

	mu      sync.Mutex
	writer  *client.Client   // of all publishers; guarded by mu
	readers []*client.Client // by place; guarded by mu
	others  []*client.Client // of subscribers that do not read; guarded by mu
}

func (s *clientStream) Name() string { return s.name }

// dial makes a client.
func (s *clientStream) dial(ctx context.Context, connections int) (*client.Client, error) {
	c := &s.broker.config
	options := []client.Option{
		client.WithTenant(c.Tenant), client.WithNamespace(c.Namespace), client.WithToken(c.Token), client.WithConnections(connections),
		client.WithReconnect(client.ReconnectPolicy{Deadline: clientDeadline}), client.WithCloseTimeout(clientDeadline),
	}
	if s.broker.roots != nil {
		options = append(options, client.WithRootCAs(s.broker.roots))
	}
	if name := s.broker.serverName(); name != "" {
		options = append(options, client.WithServerName(name))
	}
	return client.Dial(ctx, c.Addr, options...)
}

// Publisher is that of a Stream.
func (s *clientStream) Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		c, err := s.dial(ctx, s.broker.config.Connections)
		if err != nil {
			return nil, err
		}
		s.writer = c
	}
	var options []client.PublishOption
	if spec.Acks == AcksNone {
		options = append(options, client.NoAck())
	}
	out, err := s.writer.Publisher(s.name, options...)
	if err != nil {
		return nil, err
	}
	p := &clientPublisher{out: out, sink: spec.Sink, lone: spec.Acks != AcksNone && spec.InFlight == 1, flights: make([]flight, spec.InFlight)}
	for token := range p.flights {
		f := &p.flights[token]
		f.done = func(_ client.Ack, err error) {
			switch {
			case !f.open.Swap(false):
			case spec.Acks == AcksNone:
				p.sink.Settle(token, outcomeOf(err, Sent), time.Time{})
			default:
				p.sink.Settle(token, outcomeOf(err, Acked), time.Now())
			}
		}
	}
	for _, key := range spec.Keys {
		p.keys = append(p.keys, client.Key(key))
	}
	return p, nil
}

// A clientPublisher takes answers where the client reads them.
type clientPublisher struct {
	out     *client.Publisher
	sink    Sink
	keys    []client.PublishOption
	lone    bool     // one at a time: Publish waits for the answer itself, as whoever has one record to publish does
	flights []flight // by token
}

// A flight is a publish under way.
type flight struct {
	open atomic.Bool             // it has no outcome yet
	done func(client.Ack, error) // gives it one, if it is open
}

// Publish is that of a Publisher.
func (p *clientPublisher) Publish(ctx context.Context, token, key int, records [][]byte) {
	f := &p.flights[token]
	f.open.Store(true)
	if p.lone {
		f.done(p.publishNow(ctx, key, records))
		return
	}
	switch {
	case len(records) > 1 && key >= 0:
		p.out.PublishBatchFunc(ctx, records, f.done, p.keys[key])
	case len(records) > 1:
		p.out.PublishBatchFunc(ctx, records, f.done)
	case key >= 0:
		p.out.PublishFunc(ctx, records[0], f.done, p.keys[key])
	default:
		p.out.PublishFunc(ctx, records[0], f.done)
	}
}

// publishNow publishes and waits for the answer.
func (p *clientPublisher) publishNow(ctx context.Context, key int, records [][]byte) (client.Ack, error) {
	switch {
	case len(records) > 1 && key >= 0:
		return p.out.PublishBatch(ctx, records, p.keys[key])
	case len(records) > 1:
		return p.out.PublishBatch(ctx, records)
	case key >= 0:
		return p.out.Publish(ctx, records[0], p.keys[key])
	default:
		return p.out.Publish(ctx, records[0])
	}
}

// outcomeOf says what an error of the client means; success is what none means.
func outcomeOf(err error, success Fate) Outcome {
	if err == nil {
		return Outcome{Fate: success} // apart from failed, whose variable is on the heap
	}
	return failed(err)
}

func failed(err error) Outcome {
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Retry != client.RetryOutcomeUnknown {
		return Outcome{Refused, err}
	}
	return Outcome{Unknown, err}
}

// Push is that of a Publisher: the client holds nothing back.
func (p *clientPublisher) Push(context.Context) {}

// Flush is that of a Publisher.
func (p *clientPublisher) Flush(ctx context.Context) error {
	err := p.out.Flush(ctx)
	if err != nil {
		for i := range p.flights {
			p.flights[i].done(client.Ack{}, client.ErrOutcomeUnknown) // if it has no answer
		}
	}
	return err
}

// Close is that of a Publisher: the client is shared and ends with the stream.
func (p *clientPublisher) Close() error { return nil }

// Subscribe is that of a Stream.
func (s *clientStream) Subscribe(ctx context.Context, spec SubscriberSpec) (Subscriber, error) {
	c, err := s.readerClient(ctx, spec)
	if err != nil {
		return nil, err
	}
	sub, err := c.Subscribe(ctx, s.name, client.FromLatest())
	if err != nil {
		return nil, err
	}
	return &clientSubscriber{sub}, nil
}

// readerClient is the client of a subscriber.
func (s *clientStream) readerClient(ctx context.Context, spec SubscriberSpec) (*client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := spec.Index % maxReaderConnections
	if !spec.Slow && place < len(s.readers) {
		return s.readers[place], nil
	}
	c, err := s.dial(ctx, 1)
	switch {
	case err != nil:
		return nil, err
	case spec.Slow:
		s.others = append(s.others, c)
	default:
		s.readers = append(s.readers, c)
	}
	return c, nil
}

type clientSubscriber struct{ sub *client.Subscription }

// Receive is that of a Subscriber: it takes one frame of the broker.
func (s *clientSubscriber) Receive(ctx context.Context, take func(Record)) error {
	b, err := s.sub.NextBatch(ctx)
	if err != nil {
		var gap *client.GapError
		if errors.As(err, &gap) {
			return &GapError{gap.Shard, uint64(gap.From), uint64(gap.To)}
		}
		return err
	}
	for offset, payload := range b.All() {
		take(Record{Shard: b.Shard, Offset: uint64(offset), HasOffset: b.HasOffset, Payload: payload})
	}
	b.Release()
	return nil
}

// Close is that of a Subscriber.
func (s *clientSubscriber) Close() error { return s.sub.Close() }

// Close is that of a Stream.
func (s *clientStream) Close(ctx context.Context) error {
	s.mu.Lock()
	clients := append(append([]*client.Client{}, s.readers...), s.others...)
	if s.writer != nil {
		clients = append(clients, s.writer)
	}
	s.writer, s.readers, s.others = nil, nil, nil
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(func() { _ = c.Close() }) // every answer that counts was taken before
	}
	closing.Wait()
	if !s.made {
		return nil
	}
	if err := s.broker.control.remove(ctx, s.name); err != nil {
		return fmt.Errorf("stream %s cannot be removed: %w", s.name, err)
	}
	return nil
}
