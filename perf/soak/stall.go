package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"felix"
	"felix/client"
	"felix/perf/stats"
)

type stallOptions struct {
	healthy, stalled, pairs int
	rate, size              int // records a second, bytes of each
	duration                time.Duration
	bound                   float64 // of what the interval of a difference may reach, as a share; 0 means none
}

func prepareStall(flags *flag.FlagSet) func(context.Context, *report) error {
	var o stallOptions
	flags.IntVar(&o.healthy, "healthy", 40, "subscribers that read")
	flags.IntVar(&o.stalled, "stalled", 10, "subscribers that do not, in one half of each pair")
	flags.IntVar(&o.pairs, "pairs", 10, "interleaved pairs, at least 2")
	flags.IntVar(&o.rate, "rate", 2000, "records a second")
	flags.IntVar(&o.size, "size", 1<<10, "bytes of a record")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "of each half of a pair")
	flags.Float64Var(&o.bound, "bound", 0.05, "share by which the interval of a difference may reach away from 0")
	return func(ctx context.Context, r *report) error { return stall(ctx, r, o) }
}

// A stallFigure is what one half of a pair has measured.
type stallFigure struct {
	throughput float64 // records a second at all healthy subscribers together
	delivery   time.Duration
	ack        time.Duration
}

// stall publishes at a fixed rate to two streams in turn, which differ in nothing but subscribers that do not read, and holds what the
// healthy ones and the publisher see of one stream against the other.
func stall(ctx context.Context, r *report, o stallOptions) (err error) {
	if o.pairs < 2 {
		return fmt.Errorf("%d pairs have no interval; give at least 2", o.pairs)
	}
	b, err := startBench(ctx, func(c *felix.Config) { c.Limits.ConnectionsPerIP = -1 })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	var clients []*client.Client
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	dial := func() (*client.Client, error) {
		c, err := b.dial(ctx)
		if err == nil {
			clients = append(clients, c)
		}
		return c, err
	}
	reading, stop := context.WithCancel(ctx)
	readers := newCrew(ctx)
	end := func() error { stop(); return readers.wait() }
	defer end()
	streams := [2]*stallStream{}
	for i, name := range []string{"quiet", "stalled"} {
		s := &stallStream{name: name}
		streams[i] = s
		if err := b.stream(ctx, name, false, felix.DropNew); err != nil {
			return err
		}
		c, err := dial()
		if err != nil {
			return err
		}
		if s.publisher, err = c.Publisher(name); err != nil {
			return err
		}
		for range o.healthy {
			c, err := dial()
			if err != nil {
				return err
			}
			sub, err := c.Subscribe(ctx, name)
			if err != nil {
				return err
			}
			readers.do(func(context.Context) error { return s.follow(reading, sub) })
		}
		for range i * o.stalled {
			c, err := dial()
			if err != nil {
				return err
			}
			if _, err := c.Subscribe(ctx, name, client.QueueCapacity(stalledQueue)); err != nil {
				return err
			}
		}
	}
	// The stalled ones are stalled before anything is measured, and both streams have had the same.
	for _, s := range streams {
		s.batch = 64 << 10 / o.size
		if err := s.fill(readers.ctx, b, o, s == streams[1] && o.stalled > 0); err != nil {
			return err
		}
	}
	var differences [3][]float64
	for pair := range o.pairs {
		var figures [2]stallFigure
		for half := range 2 {
			i := (pair + half) % 2 // each is first in every second pair
			if figures[i], err = streams[i].measure(readers.ctx, o); err != nil {
				return err
			}
		}
		quiet, stalled := figures[0], figures[1]
		r.say("pair %d: %.0f and %.0f deliveries/s, p99 %v and %v, ack p50 %v and %v", pair+1, quiet.throughput, stalled.throughput,
			quiet.delivery.Round(time.Microsecond), stalled.delivery.Round(time.Microsecond), quiet.ack.Round(time.Microsecond), stalled.ack.Round(time.Microsecond))
		differences[0] = append(differences[0], 1-stalled.throughput/quiet.throughput)
		differences[1] = append(differences[1], float64(stalled.delivery)/float64(quiet.delivery)-1)
		differences[2] = append(differences[2], float64(stalled.ack)/float64(quiet.ack)-1)
	}
	if err := end(); err != nil {
		return err
	}
	if n := streams[0].missed.Load() + streams[1].missed.Load(); n > 0 {
		return fmt.Errorf("healthy subscribers missed %d records", n)
	}
	var problems []error
	for i, what := range []string{"healthy throughput lost", "healthy p99 gained", "ack p50 gained"} {
		low, high := stats.MeanInterval(differences[i])
		r.say("%s: %+.1f %% to %+.1f %%", what, 100*low, 100*high)
		if o.bound > 0 && high > o.bound {
			problems = append(problems, fmt.Errorf("%s: the interval reaches %.1f %%, more than %.1f %%", what, 100*high, 100*o.bound))
		}
	}
	return errors.Join(problems...)
}

// A stallStream is one stream with its publisher and what its healthy subscribers have seen.
type stallStream struct {
	name      string
	publisher *client.Publisher
	batch     int // records of a batch of fill
	published uint64

	received, missed atomic.Uint64
	measuring        atomic.Bool
	mu               sync.Mutex
	delays           []time.Duration // guarded by mu; of deliveries while measuring
}

// follow counts what a healthy subscriber gets. Behind a record's number is when it was published.
func (s *stallStream) follow(reading context.Context, sub *client.Subscription) error {
	for {
		m, err := sub.Next(reading)
		var gap *client.GapError
		switch {
		case reading.Err() != nil:
			return nil
		case errors.As(err, &gap):
			s.missed.Add(uint64(gap.To - gap.From))
			s.received.Add(uint64(gap.To - gap.From)) // nobody waits for them
			continue
		case err != nil:
			return fmt.Errorf("a healthy subscriber of %s: %w", s.name, err)
		}
		if s.measuring.Load() {
			delay := time.Duration(time.Now().UnixNano() - int64(binary.BigEndian.Uint64(m.Data[8:])))
			s.mu.Lock()
			s.delays = append(s.delays, delay)
			s.mu.Unlock()
		}
		s.received.Add(1)
	}
}

func (s *stallStream) record(size int) []byte {
	record := make([]byte, max(size, 16))
	putNumber(record, s.published)
	s.published++
	binary.BigEndian.PutUint64(record[8:], uint64(time.Now().UnixNano()))
	return record
}

// await waits until every healthy subscriber has everything.
func (s *stallStream) await(ctx context.Context, o stallOptions) error {
	return await(ctx, "the healthy subscribers", func() bool { return s.received.Load() >= s.published*uint64(o.healthy) })
}

// fillBytes is what every stream gets before it is measured, and more until the stalled subscribers lose records.
const fillBytes = 4 << 20

func (s *stallStream) fill(ctx context.Context, b *bench, o stallOptions, untilDrops bool) error {
	for written := 0; written < fillBytes || untilDrops && b.broker.Stats().EventsDropped == 0; written += s.batch * o.size {
		batch := make([][]byte, max(s.batch, 1))
		for i := range batch {
			batch[i] = s.record(o.size)
		}
		if _, err := s.publisher.PublishBatch(ctx, batch); err != nil {
			return err
		}
		if err := s.await(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// measure publishes at the rate for the duration.
func (s *stallStream) measure(ctx context.Context, o stallOptions) (f stallFigure, err error) {
	s.delays = s.delays[:0] // nobody measures
	s.measuring.Store(true)
	var acks []time.Duration
	type sent struct {
		future *client.Future
		at     time.Time
	}
	window := make(chan sent, 2*o.rate) // a publisher that is so far behind waits
	failed := make(chan error, 1)
	go func() {
		var first error
		for w := range window {
			_, err := w.future.Wait(ctx)
			acks = append(acks, time.Since(w.at))
			first = errors.Join(first, err)
		}
		failed <- first
	}()
	begun, before := time.Now(), s.received.Load()
	_, err = paced(ctx, o.rate, o.duration, func() error {
		at := time.Now()
		window <- sent{s.publisher.PublishAsync(ctx, s.record(o.size)), at}
		return nil
	})
	close(window)
	if err := errors.Join(err, <-failed, s.await(ctx, o)); err != nil {
		return f, err
	}
	f.throughput = float64(s.received.Load()-before) / time.Since(begun).Seconds()
	s.measuring.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.delays)
	slices.Sort(acks)
	if len(s.delays) == 0 || len(acks) == 0 {
		return f, errors.New("nothing was published within the duration; give a longer one, or a higher rate")
	}
	f.delivery, f.ack = s.delays[len(s.delays)*99/100], acks[len(acks)/2]
	return f, nil
}
