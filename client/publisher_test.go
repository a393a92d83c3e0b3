package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"felix/netio/wire"
)

func TestPublisherFlush(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 8)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 10000
	futures := make([]*Future, n)
	data := make([]byte, 0, 16)
	for i := range n {
		data = fmt.Appendf(data[:0], "%d", i) // the publisher copies
		futures[i] = p.PublishAsync(ctx, data, Key(fmt.Sprint(i%100)))
	}
	check(t, p.Flush(ctx))
	if got := b.published.Load(); got != n {
		t.Fatalf("%d records are stored after Flush", got)
	}
	last := make(map[uint32]Offset)
	for i, f := range futures {
		select {
		case <-f.Done():
		default:
			t.Fatalf("publish %d has not ended after Flush", i)
		}
		ack, err := f.Wait(ctx)
		check(t, err)
		if ack.Offset != last[ack.Shard] {
			t.Fatalf("publish %d: offset %d in shard %d, want %d", i, ack.Offset, ack.Shard, last[ack.Shard])
		}
		last[ack.Shard]++
	}
	for shard := range 8 {
		previous := make(map[int]int)
		for _, r := range b.records("orders", shard) {
			var i int
			fmt.Sscan(r, &i)
			if key := i % 100; previous[key] > i {
				t.Fatalf("key %d: record %d after %d", key, i, previous[key])
			} else {
				previous[key] = i
			}
		}
	}
	check(t, p.Close(ctx))
	if _, err := p.PublishAsync(ctx, nil).Wait(ctx); !errors.Is(err, ErrClosed) {
		t.Fatalf("publish after Close: %v", err)
	}
	if _, err := p.Publish(ctx, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("publish after Close: %v", err)
	}
}

// Every publish with a function has its call, with its own answer, and Flush waits for the last call to return.
func TestPublishFunc(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 8)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 5000
	acks := make([]Ack, n)
	var calls [n]atomic.Int32
	data := make([]byte, 0, 16)
	for i := range n {
		done := func(ack Ack, err error) {
			if err != nil {
				t.Errorf("publish %d: %v", i, err)
			}
			acks[i] = ack
			calls[i].Add(1)
		}
		data = fmt.Appendf(data[:0], "%d", i) // the publisher copies
		if key := Key(fmt.Sprint(i % 100)); i%10 == 0 {
			p.PublishBatchFunc(ctx, [][]byte{data}, done, key)
		} else {
			p.PublishFunc(ctx, data, done, key)
		}
	}
	check(t, p.Flush(ctx))
	for i, ack := range acks {
		if got := calls[i].Load(); got != 1 {
			t.Fatalf("publish %d has %d calls", i, got)
		}
		if got := b.records("orders", int(ack.Shard))[ack.Offset]; got != fmt.Sprint(i) {
			t.Fatalf("publish %d is said to be where %s is", i, got)
		}
	}

	entered, release := make(chan struct{}), make(chan struct{})
	var returned atomic.Bool
	p.PublishFunc(ctx, data, func(Ack, error) {
		close(entered)
		<-release
		returned.Store(true)
	})
	<-entered
	flushing := p.epoch.Load()
	flushed := make(chan bool)
	go func() {
		check(t, p.Flush(ctx))
		flushed <- returned.Load()
	}()
	eventually(t, "the flush to have begun", func() bool { return p.epoch.Load() != flushing })
	close(release)
	if !<-flushed {
		t.Fatal("Flush has returned before the function")
	}
}

// A publish that cannot start has its call before PublishFunc returns, and one without answer likewise.
func TestPublishFuncEndsAtOnce(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	b.refuse(func(f *fakePublish) fakeVerdict {
		return fakeVerdict{code: wire.CodeForbidden, retry: RetryFatal}
	})
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	now := func(ctx context.Context, opts ...PublishOption) (result error) {
		result = errors.New("not called")
		calls := 0
		p.PublishFunc(ctx, []byte("x"), func(_ Ack, err error) { result, calls = err, calls+1 }, opts...)
		if calls > 1 {
			t.Errorf("%d calls", calls)
		}
		return result
	}
	check(t, now(ctx, NoAck()))
	if err := now(ctx, InNamespace("elsewhere")); !errors.Is(err, ErrInvalid) {
		t.Errorf("in another namespace: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := now(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	refused := make(chan error, 1)
	p.PublishFunc(ctx, []byte("x"), func(_ Ack, err error) { refused <- err })
	if err := <-refused; !errors.Is(err, ErrForbidden) {
		t.Errorf("refused: %v", err)
	}
	check(t, p.Close(ctx))
	if err := now(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// No more than the granted window is out, whatever is queued. Batches are frames of their own.
func TestPublishWindow(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	b.set(func() { b.window = 8 })
	release := make(chan struct{})
	var arrived atomic.Int64
	b.refuse(func(*fakePublish) fakeVerdict { arrived.Add(1); return fakeVerdict{wait: release} })
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	var futures []*Future
	for i := range 100 {
		futures = append(futures, p.PublishBatchAsync(ctx, [][]byte{fmt.Append(nil, i)}))
	}
	s := c.entries[0].slots[0].current.Load()
	eventually(t, "the window is used", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.queue.unanswered() == 8
	})
	s.mu.Lock()
	if s.queue.count != 100 || s.queue.unanswered() != 8 {
		t.Errorf("%d held, %d unanswered", s.queue.count, s.queue.unanswered())
	}
	s.mu.Unlock()
	close(release)
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		check(t, err)
		if ack.Offset != Offset(i) {
			t.Fatalf("publish %d at %d", i, ack.Offset)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.heldBytes != 0 || s.queue.count != 0 {
		t.Fatalf("%d bytes, %d entries left", s.queue.heldBytes, s.queue.count)
	}
}

// A full queue makes publishes wait, until their context ends.
func TestPublishWaitsForRoom(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	release := make(chan struct{})
	b.refuse(func(*fakePublish) fakeVerdict { return fakeVerdict{wait: release} })
	c := b.dial()
	c.config.perStreamBytes = 64 << 10
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	data := make([]byte, 10<<10)
	var futures []*Future
	for range 6 {
		futures = append(futures, p.PublishAsync(ctx, data))
	}
	short, cancel := context.WithCancel(ctx)
	waiting := make(chan error, 1)
	go func() {
		_, err := p.PublishAsync(short, data).Wait(ctx)
		waiting <- err
	}()
	s := c.entries[0].slots[0].current.Load()
	waits := func(n int) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			count := 0
			for w := s.waiters.first; w != nil; w = w.next {
				count++
			}
			return count == n
		}
	}
	eventually(t, "a publish waits", waits(1))
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("%v", err)
	}
	const more = 20
	results := make(chan error, more)
	for range more {
		go func() {
			_, err := p.Publish(ctx, data)
			results <- err
		}()
	}
	eventually(t, "all wait", waits(more))
	close(release)
	for range more {
		check(t, <-results)
	}
	for _, f := range futures {
		_, err := f.Wait(ctx)
		check(t, err)
	}
	if got := b.published.Load(); got != 6+more {
		t.Fatalf("%d records stored", got)
	}
}

// Conformance: ack.none_does_not_wait_for_the_broker.
func TestNoAck(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders", NoAck())
	check(t, err)
	const n = 5000
	for i := range n {
		f := p.PublishAsync(ctx, bytes.Repeat([]byte{byte(i)}, 100), Key(fmt.Sprint(i%20)))
		if ack, err := f.Wait(ctx); err != nil || ack.HasOffset {
			t.Fatalf("%+v, %v", ack, err)
		}
	}
	check(t, p.Flush(ctx))
	if got := b.published.Load(); got != n {
		t.Fatalf("%d of %d records stored after Flush", got, n)
	}
	if got := b.finished.Load(); got == 0 {
		t.Fatal("no stream was finished")
	}
	// The publisher goes on with new streams.
	_, err = p.Publish(ctx, []byte("more"))
	check(t, err)
	_, err = c.Publish(ctx, "orders", []byte("more"), NoAck())
	check(t, err)
	check(t, c.Close())
	if got := b.published.Load(); got != n+2 {
		t.Fatalf("%d of %d records stored after Close", got, n+2)
	}
}

func TestIdempotent(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders", Idempotent())
	check(t, err)
	const n = 3000
	for i := range n {
		p.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint(i%16)))
	}
	check(t, p.Flush(ctx))
	checkOrder(t, b, 4, n)
	ack, err := p.PublishBatch(ctx, [][]byte{[]byte("a"), []byte("b")})
	check(t, err)
	if !ack.HasOffset {
		t.Fatal("no offset")
	}
	if _, err := p.Publish(ctx, nil, NoAck()); !errors.Is(err, ErrInvalid) {
		t.Fatalf("idempotent and unanswered: %v", err)
	}
}

// checkOrder checks that 0..n-1 are stored once, in order in every shard.
func checkOrder(t *testing.T, b *fakeBroker, shards, n int) {
	t.Helper()
	total := 0
	for shard := range shards {
		last := -1
		for _, r := range b.records("orders", shard) {
			var i int
			fmt.Sscan(r, &i)
			if i <= last {
				t.Fatalf("shard %d: record %d after %d", shard, i, last)
			}
			last = i
			total++
		}
	}
	if total != n {
		t.Fatalf("%d of %d records stored", total, n)
	}
}

// Conformance: retry.idempotent_producers_re_send_ambiguous_outcomes, ack.duplicate_reports_the_original_offset.
func TestIdempotentThroughFailures(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 2)
	var count atomic.Int64
	refuse := make(map[uint32]int)
	b.refuse(func(p *fakePublish) fakeVerdict {
		n := count.Add(1)
		b.mu.Lock()
		defer b.mu.Unlock()
		if refuse[p.shard] > 0 { // a refusal takes everything that was received behind it along
			refuse[p.shard]--
			return fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter}
		}
		switch {
		case n%701 == 0:
			return fakeVerdict{dropConn: true}
		case n%997 == 0:
			return fakeVerdict{reset: true}
		case n%311 == 0:
			return fakeVerdict{code: wire.CodeUnacknowledged, retry: wire.RetryOutcomeUnknown}
		}
		return fakeVerdict{}
	})
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6, MaxBackoff: 5e6}))
	ctx := within(t)
	p, err := c.Publisher("orders", Idempotent())
	check(t, err)
	const n = 3000
	var futures []*Future
	for i := range n {
		futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint(i%16))))
	}
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		if err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
		if got := b.records("orders", int(ack.Shard))[ack.Offset]; got != fmt.Sprint(i) {
			t.Fatalf("publish %d was acknowledged at the place of %s", i, got)
		}
	}
	checkOrder(t, b, 2, n)
}

func TestIdempotentStopsOnRefusal(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	b.refuse(func(p *fakePublish) fakeVerdict {
		if p.Sequence >= 3 {
			return fakeVerdict{refused: &wire.RefusalReason{Kind: wire.RefusalUnknownProducer}}
		}
		return fakeVerdict{}
	})
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders", Idempotent())
	check(t, err)
	for i := range 3 {
		_, err := p.Publish(ctx, fmt.Append(nil, i))
		check(t, err)
	}
	for range 2 {
		_, err = p.Publish(ctx, []byte("3"))
		var refused *ProducerError
		if !errors.As(err, &refused) || refused.Reason != "unknown_producer" || refused.Sequence != 3 || refused.Stream != "orders" {
			t.Fatalf("%v", err)
		}
	}
	if got := b.records("orders", 0); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Fatalf("%q", got)
	}
}

// A refusal at the door takes later batches with it; all are sent again in order.
func TestIdempotentOverload(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	var left atomic.Int64
	left.Store(100)
	b.refuse(func(p *fakePublish) fakeVerdict {
		if p.Sequence >= 10 && left.Add(-1) >= 0 {
			return fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter, retryAfter: 2}
		}
		return fakeVerdict{}
	})
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6, MaxBackoff: 2e6}))
	ctx := within(t)
	p, err := c.Publisher("orders", Idempotent())
	check(t, err)
	var futures []*Future
	for i := range 500 {
		futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, i)))
	}
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		check(t, err)
		if ack.Offset != Offset(i) {
			t.Fatalf("publish %d at %d", i, ack.Offset)
		}
	}
	checkOrder(t, b, 1, 500)
}
