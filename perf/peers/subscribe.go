package main

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"felix/perf/load"
)

// Bounds of a subscriber: records that were not taken, and what nats.go keeps beyond them.
const (
	maxTaken        = 64 << 10
	maxPendingBytes = 256 << 20
)

// A subscriber gets every record of a stream, on a connection of its own.
type subscriber struct {
	sub *nats.Subscription

	mu      sync.Mutex
	ready   []*nats.Msg   // guarded by mu
	closed  bool          // guarded by mu
	more    chan struct{} // a token when ready is not empty
	room    sync.Cond     // of mu: ready has room, or closed
	waiting []*nats.Msg   // spare slice; owned by Receive
}

// Subscribe is that of a Stream.
func (s *stream) Subscribe(ctx context.Context, spec load.SubscriberSpec) (load.Subscriber, error) {
	if s.target.mode != core {
		return nil, errors.New("only core NATS has subscribers here")
	}
	nc, err := s.target.connect()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.own = append(s.own, nc)
	s.mu.Unlock()
	in := &subscriber{more: make(chan struct{}, 1)}
	in.room.L = &in.mu
	if in.sub, err = nc.Subscribe(s.name+".*", in.deliver); err != nil {
		return nil, err
	}
	if err := in.sub.SetPendingLimits(-1, maxPendingBytes); err != nil {
		return nil, err
	}
	return in, flush(ctx, nc)
}

// deliver is called by nats.go, one record after the other. It waits while there is no room.
func (s *subscriber) deliver(m *nats.Msg) {
	s.mu.Lock()
	for len(s.ready) >= maxTaken && !s.closed {
		s.room.Wait()
	}
	s.ready = append(s.ready, m)
	first := len(s.ready) == 1
	s.mu.Unlock()
	if first {
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// Receive is that of a Subscriber: it takes everything that is there.
func (s *subscriber) Receive(ctx context.Context, take func(load.Record)) error {
	select {
	case <-s.more:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	s.ready, s.waiting = s.waiting[:0], s.ready
	s.room.Signal()
	s.mu.Unlock()
	for i, m := range s.waiting {
		take(load.Record{Payload: m.Data})
		s.waiting[i] = nil
	}
	return nil
}

// Close is that of a Subscriber.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.room.Broadcast()
	s.mu.Unlock()
	return s.sub.Unsubscribe()
}
