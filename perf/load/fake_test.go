package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fake is the smallest target that works: a broker of one shard in memory, whose lies and delays tests choose. Fields are set before a
// run.
type Fake struct {
	lie struct {
		appended  int64           // added to what it says that it took
		lose      int             // record of this number is delivered to nobody; 0 for none
		twice     int             // record of this number is delivered twice
		silent    int             // the answer of batch number so is never given
		double    int             // the answer of batch number so is given twice
		refuse    int             // batch of this number is refused
		unknown   int             // batch of this number is kept, and its outcome is not known
		noCounts  bool            // it counts nothing
		gone      bool            // it cannot be asked
		restart   bool            // its counts begin anew at every question
		flush     error           // of Flush
		gap       bool            // what is lost is told as a GapError
		hold      <-chan struct{} // answers wait until it is closed
		openError error
	}
	buffers int64
	slow    func(batch int) // called before a batch is taken

	mu       sync.Mutex
	records  int64
	batches  int
	answered int64
	asks     int64
	subs     []*fakeSubscriber
	opened   int // publishers, subscribers and streams that are open
	specs    []StreamSpec
	removed  int
	keys     map[string]bool
	later    sync.WaitGroup
}

func (f *Fake) Info() Info {
	return Info{Broker: "fake", Generator: "fake", Receiver: "fake", BufferBytes: f.buffers}
}

func (f *Fake) Open(_ context.Context, spec StreamSpec) (Stream, error) {
	if spec.Existing == "nowhere" {
		return nil, ErrNoStream
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	f.opened++
	return fakeStream{f}, f.lie.openError
}

func (f *Fake) Counters(context.Context) (Counters, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks++
	switch {
	case f.lie.noCounts:
		return Counters{}, nil
	case f.lie.gone && f.asks > 1:
		return nil, errors.New("connection refused")
	}
	c := Counters{StartTime: 1, AppendedRecords: float64(f.records), AckedBatches: float64(f.answered), CPUSeconds: float64(f.asks) / 100, RSSBytes: 5e6, Syncs: float64(f.batches)}
	if f.records > 0 {
		c[AppendedRecords] += float64(f.lie.appended)
	}
	if f.lie.restart {
		c[StartTime] = float64(f.asks)
	}
	return c, nil
}

type fakeStream struct{ f *Fake }

func (s fakeStream) Name() string { return "fake" }

func (s fakeStream) Close(context.Context) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.opened--
	s.f.removed++
	return nil
}

func (s fakeStream) Publisher(_ context.Context, spec PublisherSpec) (Publisher, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.opened++
	if s.f.keys == nil {
		s.f.keys = map[string]bool{}
	}
	for _, key := range spec.Keys {
		s.f.keys[key] = true
	}
	return &fakePublisher{s.f, spec}, nil
}

type fakePublisher struct {
	f    *Fake
	spec PublisherSpec
}

func (p *fakePublisher) Publish(ctx context.Context, token, key int, records [][]byte) {
	f := p.f
	f.mu.Lock()
	f.batches++
	number := f.batches
	f.mu.Unlock()
	if f.slow != nil {
		f.slow(number)
	}
	outcome := Outcome{Fate: Acked}
	if p.spec.Acks == AcksNone {
		outcome.Fate = Sent
	}
	switch number {
	case f.lie.refuse:
		p.spec.Sink.Settle(token, Outcome{Refused, errors.New("too many")}, time.Now())
		return
	case f.lie.unknown:
		outcome = Outcome{Unknown, errors.New("the answer was lost")}
	}
	f.mu.Lock()
	for _, record := range records {
		f.records++
		for _, s := range f.subs {
			s.deliver(uint64(f.records-1), slices.Clone(record), int(f.records))
		}
	}
	if number != f.lie.silent && outcome.Fate == Acked {
		f.answered++
	}
	f.mu.Unlock()
	answer := func() {
		if number != f.lie.silent {
			p.spec.Sink.Settle(token, outcome, time.Now())
		}
		if number == f.lie.double {
			p.spec.Sink.Settle(token, outcome, time.Now())
		}
	}
	if f.lie.hold == nil {
		answer()
		return
	}
	f.later.Go(func() {
		<-f.lie.hold
		answer()
	})
}

func (p *fakePublisher) Push(context.Context)        {}
func (p *fakePublisher) Flush(context.Context) error { return p.f.lie.flush }

func (p *fakePublisher) Close() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.opened--
	return nil
}

func (s fakeStream) Subscribe(_ context.Context, spec SubscriberSpec) (Subscriber, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.opened++
	sub := &fakeSubscriber{f: s.f, spec: spec, wake: make(chan struct{}, 1)}
	s.f.subs = append(s.f.subs, sub)
	return sub, nil
}

type fakeSubscriber struct {
	f      *Fake
	spec   SubscriberSpec
	wake   chan struct{}
	reads  atomic.Int64
	queue  []Record // guarded by f.mu
	gapped []*GapError
}

// deliver is called with f.mu held.
func (s *fakeSubscriber) deliver(offset uint64, payload []byte, number int) {
	r := Record{Offset: offset, HasOffset: true, Payload: payload}
	switch number {
	case s.f.lie.lose:
		if s.f.lie.gap {
			s.gapped = append(s.gapped, &GapError{0, offset, offset + 1})
		}
		return
	case s.f.lie.twice:
		s.queue = append(s.queue, r)
	}
	s.queue = append(s.queue, r)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fakeSubscriber) Receive(ctx context.Context, take func(Record)) error {
	s.reads.Add(1)
	for {
		s.f.mu.Lock()
		queue, gapped := s.queue, s.gapped
		s.queue = nil
		if len(gapped) > 0 && (len(queue) == 0 || queue[0].Offset > gapped[0].From) {
			s.queue, s.gapped = queue, gapped[1:]
			s.f.mu.Unlock()
			return gapped[0]
		}
		s.f.mu.Unlock()
		for _, r := range queue {
			take(r)
		}
		if len(queue) > 0 {
			return nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fakeSubscriber) Close() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.opened--
	return nil
}
