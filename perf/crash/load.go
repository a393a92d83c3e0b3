package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"felix/client"
	"felix/netio/wire"
)

// The load of one publisher.
const (
	window        = 8  // batches under way
	maxBatch      = 32 // records
	smallRecord   = 600
	largeRecord   = 200_000 // one in largeEvery batches has one
	largeEvery    = 100
	keysPerSender = 16
)

// settleTimeout bounds how long publishes wait for a broker that was started again.
const settleTimeout = 2 * time.Minute

// A flight is a batch under way.
type flight struct {
	future *client.Future
	first  uint32
	n      int
}

// A publisher sends batches and keeps the ledger's books. Its methods belong to one goroutine at a time.
type publisher struct {
	ledger  *ledger
	manner  manner
	id      uint32
	p       *client.Publisher
	rand    *rand.Rand
	keys    [][]byte
	pending []flight // oldest first

	mustAnswer bool // an unknown outcome is an error
}

func newPublisher(l *ledger, c *client.Client, stream string, m manner, source *rand.Rand) (*publisher, error) {
	var opts []client.PublishOption
	switch m {
	case idempotent:
		opts = append(opts, client.Idempotent())
	case atLeastOnce:
		opts = append(opts, client.AtLeastOnce())
	}
	p, err := c.Publisher(stream, opts...)
	if err != nil {
		return nil, err
	}
	pub := &publisher{ledger: l, manner: m, id: l.newSender(stream, m), p: p, rand: rand.New(rand.NewPCG(source.Uint64(), source.Uint64()))}
	for i := range keysPerSender {
		pub.keys = append(pub.keys, fmt.Appendf(nil, "key-%d-%d", pub.id, i))
	}
	return pub, nil
}

// send starts one batch, with any of the keys.
func (p *publisher) send(ctx context.Context) { p.sendTo(ctx, p.rand.IntN(len(p.keys))) }

// sendTo starts one batch with a key.
func (p *publisher) sendTo(ctx context.Context, key int) {
	n := 1
	if p.rand.IntN(3) > 0 {
		n += p.rand.IntN(maxBatch)
	}
	large := p.rand.IntN(largeEvery) == 0
	f := flight{n: n}
	batch := make([][]byte, n)
	for i := range batch {
		size := p.rand.IntN(smallRecord)
		if large && i == 0 {
			size = p.rand.IntN(largeRecord)
		}
		batch[i] = make([]byte, headerBytes+size)
		for at := headerBytes; at < len(batch[i]); at += 8 {
			batch[i][at] = byte(p.rand.Uint32())
		}
		number := p.ledger.send(p.id, batch[i])
		if i == 0 {
			f.first = number
		}
	}
	f.future = p.p.PublishBatchAsync(ctx, batch, client.Key(p.keys[key]))
	p.pending = append(p.pending, f)
}

// run publishes until stop ends, and calls acked for each batch that is acknowledged. What is under way then stays so. A
// publish that waits for room or for a connection ends with stop, and was then not sent.
func (p *publisher) run(ctx, stop context.Context, acked func()) error {
	for stop.Err() == nil {
		for len(p.pending) < window && stop.Err() == nil {
			p.send(stop)
		}
		select {
		case <-p.pending[0].future.Done():
			ok, err := p.reap(ctx)
			if err != nil {
				return err
			}
			if ok {
				acked()
			}
		case <-stop.Done():
		}
	}
	return nil
}

// settle waits for everything under way.
func (p *publisher) settle(ctx context.Context) error {
	for len(p.pending) > 0 {
		if _, err := p.reap(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reap waits for the oldest batch and books what came of it. ok says that it was acknowledged.
func (p *publisher) reap(ctx context.Context) (ok bool, err error) {
	f := p.pending[0]
	ack, err := f.future.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return false, fmt.Errorf("a publish of sender %d has no answer: %w", p.id, err)
	}
	p.pending = p.pending[1:]
	if err == nil {
		return true, p.ledger.ack(p.id, f.first, f.n, ack)
	}
	refusal := new(client.Error)
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown) || errors.Is(err, client.ErrClosed):
		if p.mustAnswer {
			return false, p.broken(ctx, f, err)
		}
	case errors.As(err, &refusal): // nothing was sent, or nothing applied
		p.ledger.refuse(p.id, f.first, f.n)
	default:
		return false, p.broken(ctx, f, err)
	}
	return false, nil
}

// broken says what became of everything under way when a batch failed as it may not: the oldest need not be the one that
// went wrong first.
func (p *publisher) broken(ctx context.Context, f flight, err error) error {
	lives := ""
	if p.mustAnswer {
		lives = ", which lives through the kill"
	}
	errs := []error{fmt.Errorf("record %d of sender %d%s: %w", f.first, p.id, lives, err)}
	for _, f := range p.pending {
		if _, err := f.future.Wait(ctx); err != nil {
			errs = append(errs, fmt.Errorf("record %d: %w", f.first, err))
		}
	}
	return errors.Join(errs...)
}

// A follower is a subscription to all shards of a stream that lives through the kills.
type follower struct {
	sub    *client.Subscription
	ledger *ledger
	stream string
	passes map[uint32]*pass

	records atomic.Int64
	ended   chan struct{}
	err     error // set before ended is closed; nil after close
}

func follow(ctx context.Context, l *ledger, c *client.Client, stream string) (*follower, error) {
	sub, err := c.Subscribe(ctx, stream, client.FromEarliest())
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", stream, err)
	}
	f := &follower{sub: sub, ledger: l, stream: stream, passes: make(map[uint32]*pass), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.err = f.run()
	}()
	return f, nil
}

func (f *follower) run() error {
	for {
		m, err := f.sub.Next(context.Background())
		if errors.Is(err, client.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the subscription of %s, which lives through the kill: %w", f.stream, err)
		}
		p := f.passes[m.Shard]
		if p == nil {
			p = f.ledger.newPass(place{f.stream, m.Shard}, seen)
			f.passes[m.Shard] = p
		}
		if err := p.record(m.Offset, m.Data); err != nil {
			return fmt.Errorf("subscription: %w", err)
		}
		f.records.Add(1)
	}
}

// close ends the subscription. It returns what was wrong with it.
func (f *follower) close() error {
	err := f.sub.Close()
	<-f.ended
	return errors.Join(err, f.err)
}

// verify reads every shard of a stream from the start to a marker that it publishes, and holds it against the ledger.
func verify(ctx context.Context, l *ledger, c *client.Client, stream string, shards uint32) error {
	var wait sync.WaitGroup
	errs := make([]error, shards)
	id := l.newSender(stream, plain)
	keys := make([][]byte, shards)
	for i, found := 0, uint32(0); found < shards; i++ {
		key := fmt.Appendf(nil, "marker-%d", i)
		if s := wire.ShardOf(wire.RoutingModulo, key, true, shards); keys[s] == nil {
			keys[s] = key
			found++
		}
	}
	for shard := range shards {
		wait.Go(func() { errs[shard] = verifyShard(ctx, l, c, place{stream, shard}, id, keys[shard]) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func verifyShard(ctx context.Context, l *ledger, c *client.Client, p place, id uint32, key []byte) error {
	marker := make([]byte, headerBytes)
	number := l.send(id, marker)
	ack, err := c.Publish(ctx, p.stream, marker, client.Key(key))
	if err != nil {
		return fmt.Errorf("%v: publish a marker: %w", p, err)
	}
	if !ack.HasOffset || ack.Shard != p.shard {
		return fmt.Errorf("%v: the marker's ack is %+v", p, ack)
	}
	if err := l.ack(id, number, 1, ack); err != nil {
		return err
	}
	sub, err := c.Subscribe(ctx, p.stream, client.Shard(p.shard), client.FromEarliest())
	if err != nil {
		return fmt.Errorf("%v: read back: %w", p, err)
	}
	defer sub.Close()
	reading := l.newPass(p, read)
	for reading.next <= ack.Offset {
		m, err := sub.Next(ctx)
		if err != nil {
			return fmt.Errorf("%v: read back at %d of %d: %w", p, reading.next, ack.Offset, err)
		}
		if err := reading.record(m.Offset, m.Data); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
	}
	return reading.finish()
}
