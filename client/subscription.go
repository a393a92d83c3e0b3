package client

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// A Msg is one record.
type Msg struct {
	Stream string
	Shard  uint32
	// Offset counts with HasOffset, which is false only for brokers that send none.
	Offset    Offset
	HasOffset bool
	// Data is the caller's, to keep and to change. It is a view of the memory that a read from the network brought, 4 KiB to 1 MiB: keeping
	// one record keeps all of it. Use bytes.Clone to keep few of many.
	Data []byte
}

// A Subscription delivers the records of one shard, or of all shards of a stream, in order per shard. Next, All and NextBatch are for one
// goroutine at a time; Close may be called from any. Records that are not read hold the broker back by flow control: about 16 reads wait
// here. A lost connection is made again and the subscription resumed at the next offset. An error that one shard cannot be resumed from
// ends the subscription as a whole.
type Subscription struct {
	client *Client
	topic  *topic
	stream string
	shards []*shardSub

	queue  chan *delivery
	ctx    context.Context // of the event streams; its cause is why the subscription ended early
	cancel context.CancelCauseFunc
	ended  atomic.Bool  // ctx has ended
	open   atomic.Int32 // shards that still deliver
	wg     sync.WaitGroup
	pool   chunkPool
	spare  sync.Pool // of *delivery

	// Owned by whoever reads.
	now       *delivery // nil before the first
	frame     int       // of now that is being read; behind it, the next is frame+1
	records   []byte    // of that frame that were not handed out
	offset    Offset    // of the first of them
	head      eventFrame
	finished  error // what Next returns for ever
	positions []Offset
}

// Next returns the next record, waiting for it until the context ends. A *GapError says that records were missed; the next call goes on
// behind the gap. All other errors are for ever: io.EOF when the broker has ended the subscription, ErrStreamDeleted, ErrClosed after Close,
// a *CursorError or *Error when it could not be resumed; the context's error is not. It does not allocate.
func (s *Subscription) Next(ctx context.Context) (Msg, error) {
	for len(s.records) == 0 {
		if err := s.advance(ctx); err != nil {
			return Msg{}, err
		}
	}
	s.now.kept = true
	records := s.records
	if s.head.timed {
		records = records[8:]
	}
	data, rest := wire.NextRecord(records)
	m := Msg{Stream: s.stream, Shard: s.shards[s.now.shard].shard, Offset: s.offset, HasOffset: s.head.hasOffset, Data: data}
	s.records = rest
	s.offset++
	s.positions[s.now.shard] = s.offset
	return m, nil
}

// advance makes the next frame with records the current one. The current one is used up.
func (s *Subscription) advance(ctx context.Context) error {
	for {
		if s.finished != nil {
			return s.finished
		}
		if s.ended.Load() {
			s.drop()
			s.finished = s.cause()
			return s.finished
		}
		if s.now == nil || s.frame+1 >= len(s.now.frames) {
			if err := s.receive(ctx); err != nil {
				return err
			}
			continue
		}
		next := &s.now.frames[s.frame+1]
		if next.gapTo > next.gapFrom {
			gap := &GapError{Stream: s.stream, Shard: s.shards[s.now.shard].shard, From: next.gapFrom, To: next.gapTo}
			s.positions[s.now.shard] = next.gapTo
			next.gapFrom, next.gapTo = 0, 0
			return gap
		}
		s.frame++
		if next.count > 0 {
			s.head, s.records, s.offset = *next, next.records, next.base
			return nil
		}
	}
}

// receive makes the next delivery the current one.
func (s *Subscription) receive(ctx context.Context) error {
	s.drop()
	var d *delivery
	select {
	case d = <-s.queue:
	default:
		select {
		case d = <-s.queue:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return nil // advance looks why
		}
	}
	if d.end != nil {
		s.finished = d.end
		s.stop(d.end)
		return d.end
	}
	s.now, s.frame = d, -1
	return nil
}

// drop forgets the current delivery.
func (s *Subscription) drop() {
	d := s.now
	s.now, s.records = nil, nil
	if d == nil {
		return
	}
	if d.kept {
		d.chunk = nil // messages hold it for as long as they live
	}
	s.release(d)
}

// release gives up one reference to a delivery. The last one gives its chunk back.
func (s *Subscription) release(d *delivery) {
	if d.refs.Add(-1) > 0 {
		return
	}
	if d.chunk != nil {
		d.chunk.release()
	}
	clear(d.frames)
	*d = delivery{frames: d.frames[:0]}
	s.spare.Put(d)
}

func (s *Subscription) cause() error {
	cause := context.Cause(s.ctx)
	var e *Error
	if errors.As(cause, &e) {
		return cause
	}
	return closedError("subscribe", s.stream)
}

// All ranges over the records until the context ends, the subscription is closed or the broker ends it. A *GapError comes with a zero Msg
// and the iteration goes on; any other error is the last.
func (s *Subscription) All(ctx context.Context) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		for {
			m, err := s.Next(ctx)
			var gap *GapError
			switch {
			case err == nil, errors.As(err, &gap):
				if !yield(m, err) {
					return
				}
			case err == io.EOF, errors.Is(err, ErrClosed), ctx.Err() != nil:
				return
			default:
				yield(Msg{}, err)
				return
			}
		}
	}
}

// A Batch is records of one shard that follow each other: what is left of one frame of the broker.
type Batch struct {
	Stream    string
	Shard     uint32
	Offset    Offset // of the first record
	HasOffset bool
	Count     int

	records []byte
	timed   bool
	from    *delivery
	sub     *Subscription
}

// NextBatch is Next for many records at once: it returns those that came together. Release the batch when its records are not needed any
// more, so that their memory is used again; a batch that is not released is left to the collector. It allocates only when memory is short.
func (s *Subscription) NextBatch(ctx context.Context) (Batch, error) {
	for len(s.records) == 0 {
		if err := s.advance(ctx); err != nil {
			return Batch{}, err
		}
	}
	d := s.now
	d.refs.Add(1)
	b := Batch{
		Stream: s.stream, Shard: s.shards[d.shard].shard, Offset: s.offset, HasOffset: s.head.hasOffset,
		Count: int(s.head.count) - int(s.offset-s.head.base), records: s.records, timed: s.head.timed, from: d, sub: s,
	}
	s.records = nil
	s.offset += Offset(b.Count)
	s.positions[d.shard] = s.offset
	return b, nil
}

// All ranges over the records with their offsets. They are views: they end with Release.
func (b *Batch) All() iter.Seq2[Offset, []byte] {
	return func(yield func(Offset, []byte) bool) {
		records := b.records
		for offset := b.Offset; len(records) > 0; offset++ {
			if b.timed {
				_ = binary.BigEndian.Uint64(records)
				records = records[8:]
			}
			var data []byte
			if data, records = wire.NextRecord(records); data == nil || !yield(offset, data) {
				return
			}
		}
	}
}

// Release gives the memory of the records back. It may be called once, from any goroutine.
func (b *Batch) Release() {
	if b.from != nil {
		d := b.from
		b.from, b.records = nil, nil
		b.sub.release(d)
	}
}

// Positions returns the offset to go on from in each shard: behind the last record handed out, or where the subscription started. With it
// and FromOffsets another subscription continues. Shards of brokers without offsets are left out. It may be called between calls of Next.
func (s *Subscription) Positions() map[uint32]Offset {
	positions := make(map[uint32]Offset, len(s.shards))
	for i, x := range s.shards {
		if x.offsets {
			positions[x.shard] = s.positions[i]
		}
	}
	return positions
}

// Close ends the subscription: a call of Next that waits returns ErrClosed, the broker is told, and all its goroutines have returned when
// Close does. Calling it again does nothing.
func (s *Subscription) Close() error {
	s.stop(closedError("subscribe", s.stream))
	s.wg.Wait()
	return nil
}

// stop ends the subscription early.
func (s *Subscription) stop(cause error) {
	s.cancel(cause)
	s.ended.Store(true)
	s.client.mu.Lock()
	delete(s.client.subs, s)
	s.client.mu.Unlock()
}

// push hands a delivery to the reader. It blocks while the queue is full and reports false when the subscription has ended.
func (s *Subscription) push(d *delivery) bool {
	select {
	case s.queue <- d:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func (s *Subscription) newDelivery(shard int) *delivery {
	d, _ := s.spare.Get().(*delivery)
	if d == nil {
		d = new(delivery)
	}
	d.shard = shard
	d.refs.Store(1)
	return d
}

// resumeWait is the least time between two tries to resume after the broker ended an event stream without a word (WIRE section 9).
const resumeWait = 250 * time.Millisecond
