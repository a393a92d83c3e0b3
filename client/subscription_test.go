package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"felix/netio/wire"
)

func fill(t testing.TB, c *Client, stream string, n int, opts ...PublishOption) {
	t.Helper()
	for i := range n {
		_, err := c.Publish(within(t), stream, fmt.Appendf(nil, "r%d", i), opts...)
		check(t, err)
	}
}

// take reads n records and checks that the offsets of one shard rise by one from first.
func take(t testing.TB, sub *Subscription, first Offset, n int) {
	t.Helper()
	ctx := within(t)
	for i := range n {
		m, err := sub.Next(ctx)
		check(t, err)
		if !m.HasOffset || m.Offset != first+Offset(i) || string(m.Data) != fmt.Sprintf("r%d", m.Offset) {
			t.Fatalf("record %d: offset %d, %q", i, m.Offset, m.Data)
		}
	}
}

// Conformance: pubsub.roundtrip, pubsub.order, pubsub.offsets_are_contiguous, pubsub.start_earliest, pubsub.resume_from_offset.
func TestSubscribeStarts(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	fill(t, c, "orders", 20)
	b.trim("orders", 0, 5)

	earliest, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	take(t, earliest, 5, 15)
	check(t, earliest.Close())

	middle, err := c.Subscribe(ctx, "orders", Shard(0), FromOffset(12), QueueCapacity(100))
	check(t, err)
	take(t, middle, 12, 8)
	if p := middle.Positions(); len(p) != 1 || p[0] != 20 {
		t.Fatalf("positions %v", p)
	}

	latest, err := c.Subscribe(ctx, "orders")
	check(t, err)
	for i := range 5 {
		_, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "r%d", 20+i))
		check(t, err)
	}
	take(t, latest, 20, 5)
	take(t, middle, 20, 5)
}

// Conformance: error.bad_offset_is_typed.
func TestSubscribeBadOffset(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	fill(t, c, "orders", 10)
	b.trim("orders", 0, 4)
	for _, tt := range []struct {
		offset   Offset
		expected CursorError
	}{
		{1, CursorError{Op: "subscribe", Stream: "orders", Requested: 1, Available: 4}},
		{11, CursorError{Op: "subscribe", Stream: "orders", Requested: 11, Available: 10, InFuture: true}},
	} {
		_, err := c.Subscribe(ctx, "orders", FromOffset(tt.offset))
		var cursor *CursorError
		if !errors.As(err, &cursor) || *cursor != tt.expected {
			t.Errorf("offset %d: %v", tt.offset, err)
		}
	}
}

func TestSubscribeRefused(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	c := b.dial()
	ctx := within(t)
	if _, err := c.Subscribe(ctx, "nowhere"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown stream: %v", err)
	}
	if _, err := c.Subscribe(ctx, "orders", FromOffset(3)); !errors.Is(err, ErrInvalid) {
		t.Errorf("an offset for four shards: %v", err)
	}
	if _, err := c.Subscribe(ctx, "orders", Shard(4)); !errors.Is(err, ErrInvalid) {
		t.Errorf("shard 4 of 4: %v", err)
	}
	if _, err := c.Subscribe(ctx, "orders", QueueCapacity(0)); !errors.Is(err, ErrInvalid) {
		t.Errorf("queue of 0: %v", err)
	}
	// A shard that is refused fails all of them.
	b.mu.Lock()
	b.onAsk = func(m wire.Message) wire.Message {
		if s, ok := m.(*wire.Subscribe); ok && s.Shard == 2 {
			return wire.NewError(wire.CodeForbidden, "not this one")
		}
		return nil
	}
	b.mu.Unlock()
	if _, err := c.Subscribe(ctx, "orders"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a refused shard: %v", err)
	}
}

// Conformance: sharded.delivers_every_shard, sharded.reports_the_shard_count, sharded.resumes_per_shard.
func TestSubscribeAllShards(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 8)
	c := b.dial()
	ctx := within(t)
	if n, err := c.StreamShards(ctx, "orders"); err != nil || n != 8 {
		t.Fatalf("%d shards, %v", n, err)
	}
	if n, err := c.StreamShards(ctx, "nowhere"); err != nil || n != 0 {
		t.Fatalf("%d shards of an unknown stream, %v", n, err)
	}
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	const total = 400
	want := make(map[string]int)
	for i := range total {
		key := fmt.Sprintf("k%d", i%40)
		_, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "%s/%d", key, i), Key(key))
		check(t, err)
		want[fmt.Sprintf("%s/%d", key, i)]++
	}
	next := make(map[uint32]Offset)
	for i := range total / 2 {
		readOne(t, ctx, sub, next, want, i)
	}
	positions := sub.Positions()
	for shard, offset := range next {
		if positions[shard] != offset {
			t.Fatalf("shard %d: position %d, want %d", shard, positions[shard], offset)
		}
	}
	check(t, sub.Close())
	again, err := c.Subscribe(ctx, "orders", FromOffsets(positions))
	check(t, err)
	for i := range total / 2 {
		readOne(t, ctx, again, next, want, i)
	}
	if len(want) != 0 {
		t.Fatalf("%d records were not delivered", len(want))
	}
}

func readOne(t *testing.T, ctx context.Context, sub *Subscription, next map[uint32]Offset, want map[string]int, i int) {
	t.Helper()
	m, err := sub.Next(ctx)
	check(t, err)
	if m.Offset != next[m.Shard] {
		t.Fatalf("record %d: shard %d has offset %d, want %d", i, m.Shard, m.Offset, next[m.Shard])
	}
	next[m.Shard]++
	if want[string(m.Data)] != 1 {
		t.Fatalf("record %q was not due", m.Data)
	}
	delete(want, string(m.Data))
}

// Messages stay as they are, whatever is read after them.
func TestMessagesAreTheCallers(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 3000
	for i := range n {
		p.PublishAsync(ctx, bytes.Repeat([]byte{byte(i)}, 1+i%700))
	}
	p.PublishAsync(ctx, bytes.Repeat([]byte{9}, 2<<20))
	check(t, p.Flush(ctx))
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	var kept [][]byte
	for range n {
		m, err := sub.Next(ctx)
		check(t, err)
		kept = append(kept, m.Data)
	}
	m, err := sub.Next(ctx)
	check(t, err)
	if !bytes.Equal(m.Data, bytes.Repeat([]byte{9}, 2<<20)) {
		t.Fatal("the large record differs")
	}
	for i, data := range kept {
		if !bytes.Equal(data, bytes.Repeat([]byte{byte(i)}, 1+i%700)) {
			t.Fatalf("record %d has changed", i)
		}
		_ = append(data, 1, 2, 3) // must not reach the next one
	}
	for i, data := range kept {
		if !bytes.Equal(data, bytes.Repeat([]byte{byte(i)}, 1+i%700)) {
			t.Fatalf("record %d was overwritten by an append to another", i)
		}
	}
}

func TestNextBatch(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 20000
	for i := range n {
		p.PublishAsync(ctx, fmt.Appendf(nil, "r%d", i))
	}
	check(t, p.Flush(ctx))
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	m, err := sub.Next(ctx) // both ways on one subscription
	check(t, err)
	next := m.Offset + 1
	for next < n {
		batch, err := sub.NextBatch(ctx)
		check(t, err)
		if batch.Offset != next || batch.Count == 0 {
			t.Fatalf("batch of %d at %d, want %d", batch.Count, batch.Offset, next)
		}
		count := 0
		for offset, data := range batch.All() {
			if string(data) != fmt.Sprintf("r%d", offset) || offset != next {
				t.Fatalf("offset %d holds %q", offset, data)
			}
			next++
			count++
		}
		if count != batch.Count {
			t.Fatalf("%d records in a batch of %d", count, batch.Count)
		}
		batch.Release()
	}
}

func TestGap(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	fill(t, c, "orders", 4)
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	take(t, sub, 0, 4)
	// Records 4 to 9 come and go before they are delivered.
	b.mu.Lock()
	s := b.streams["orders"].shards[0]
	s.base, s.records = 10, nil
	b.mu.Unlock()
	_, err = c.Publish(ctx, "orders", []byte("r10"))
	check(t, err)
	_, err = sub.Next(ctx)
	var gap *GapError
	if !errors.As(err, &gap) || *gap != (GapError{Stream: "orders", From: 4, To: 10}) {
		t.Fatalf("%v", err)
	}
	take(t, sub, 10, 1)
}

// Conformance: client.subscription_ends_cleanly.
func TestStreamDeleted(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	fill(t, c, "orders", 3)
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	take(t, sub, 0, 3)
	b.delete("orders")
	for range 2 {
		if _, err := sub.Next(ctx); !errors.Is(err, ErrStreamDeleted) {
			t.Fatalf("%v", err)
		}
	}
}

func TestAll(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	fill(t, c, "orders", 10)
	sub, err := c.Subscribe(within(t), "orders", FromEarliest())
	check(t, err)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var got []Offset
	for m, err := range sub.All(ctx) {
		check(t, err)
		if got = append(got, m.Offset); len(got) == 10 {
			cancel()
		}
	}
	if !slices.Equal(got, []Offset{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Fatalf("%v", got)
	}
}

// Conformance: reconnect.subscription_resumes_at_the_next_offset.
func TestSubscriptionResumes(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ctx := within(t)
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	next := make(map[uint32]Offset)
	want := make(map[string]int)
	for round := range 5 {
		for i := range 40 {
			key := fmt.Sprintf("k%d", i)
			data := fmt.Sprintf("%d/%d", round, i)
			_, err := c.Publish(ctx, "orders", []byte(data), Key(key), AtLeastOnce())
			check(t, err)
			want[data]++
		}
		for i := range 20 {
			readOne(t, ctx, sub, next, want, i)
		}
		b.dropConnections()
		for i := range 20 {
			readOne(t, ctx, sub, next, want, i)
		}
	}
	if len(want) != 0 {
		t.Fatalf("%d records missing", len(want))
	}
}

// What is gone when a subscription comes back is a gap, and the subscription goes on.
func TestSubscriptionResumesBehindAGap(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ctx := within(t)
	fill(t, c, "orders", 10)
	sub, err := c.Subscribe(ctx, "orders", FromEarliest())
	check(t, err)
	take(t, sub, 0, 10)
	b.mu.Lock()
	s := b.streams["orders"].shards[0]
	s.base, s.records = 14, [][]byte{[]byte("r14")}
	b.mu.Unlock()
	b.dropConnections()
	_, err = sub.Next(ctx)
	var gap *GapError
	if !errors.As(err, &gap) || *gap != (GapError{Stream: "orders", From: 10, To: 14}) {
		t.Fatalf("%v", err)
	}
	take(t, sub, 14, 1)
}

// Conformance: client.close_is_idempotent.
func TestSubscriptionClose(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 3)
	c := b.dial()
	sub, err := c.Subscribe(within(t), "orders")
	check(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := sub.Next(context.Background())
		result <- err
	}()
	check(t, sub.Close())
	check(t, sub.Close())
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Fatalf("%v", err)
	}
	for range sub.All(context.Background()) {
		t.Fatal("a record after Close")
	}
}

func TestEventStreamEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		last wire.Message
		is   error
	}{
		"fin":     {nil, io.EOF},
		"revoked": {wire.NewError(wire.CodeRevoked, "credential revoked"), ErrUnauthenticated},
		"uncoded": {&wire.Error{Message: "old broker"}, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			var d delivery
			next, known := Offset(0), true
			var err error = io.EOF
			if tt.last != nil {
				h, body, _, _, _ := wire.SplitFrame(wire.AppendMessage(nil, tt.last), wire.MaxFrameBytes)
				err = parseEvents(&d, h, body, &next, &known)
			}
			c := newClient(defaultConfig())
			x := &shardSub{sub: &Subscription{client: c, topic: c.topicFor("default", "orders"), stream: "orders"}, known: true}
			x.sub.shards = []*shardSub{x}
			_, end := x.classify(err)
			if !errors.Is(end, tt.is) {
				t.Fatalf("%v", end)
			}
		})
	}
}
