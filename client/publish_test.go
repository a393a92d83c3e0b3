package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
)

// Conformance: ack.per_message_means_the_broker_accepted_it, ack.carries_the_offset.
func TestPublish(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	for i := range 10 {
		ack, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "r%d", i))
		check(t, err)
		if !ack.HasOffset || ack.Offset != Offset(i) || ack.Shard != 0 {
			t.Fatalf("publish %d: %+v", i, ack)
		}
	}
	ack, err := c.PublishBatch(ctx, "orders", [][]byte{[]byte("a"), nil, []byte("c")})
	check(t, err)
	if ack.Offset != 10 {
		t.Fatalf("batch at %d", ack.Offset)
	}
	want := []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "a", "", "c"}
	if got := b.records("orders", 0); !slices.Equal(got, want) {
		t.Fatalf("stored %q", got)
	}
}

// Conformance: client.concurrent_calls.
func TestPublishKeyedFromManyGoroutines(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 8)
	c := b.dial()
	ctx := within(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			key := fmt.Sprintf("k%d", g)
			for i := range 50 {
				ack, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "%s/%d", key, i), Key(key))
				if err != nil {
					t.Error(err)
					return
				}
				if want := wire.ShardOf(wire.RoutingModulo, []byte(key), true, 8); ack.Shard != want {
					t.Errorf("key %s went to shard %d, want %d", key, ack.Shard, want)
				}
			}
		})
	}
	wg.Wait()
	// Every key in order, and everything there once.
	seen := make(map[string]int)
	total := 0
	for shard := range 8 {
		for _, r := range b.records("orders", shard) {
			var key string
			var i int
			fmt.Sscanf(r, "k%s", &key)
			if n, err := fmt.Sscanf(r, "k%d/%d", new(int), &i); n != 2 || err != nil {
				t.Fatalf("record %q", r)
			}
			key = r[:len(r)-len(fmt.Sprintf("/%d", i))]
			if seen[key] != i {
				t.Fatalf("key %s: record %d where %d was due", key, i, seen[key])
			}
			seen[key]++
			total++
		}
	}
	if total != 16*50 {
		t.Fatalf("%d records", total)
	}
	if w := b.widths.Load(); w == 0 || w > 4 {
		t.Fatalf("%d widths were announced, at most one per publish stream is due", w)
	}
}

func TestPublishToShard(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 4)
	c := b.dial()
	ack, err := c.Publish(within(t), "orders", []byte("x"), ToShard(3), Key([]byte("k")))
	check(t, err)
	if ack.Shard != 3 || !ack.HasOffset {
		t.Fatalf("%+v", ack)
	}
	if got := b.records("orders", 3); !slices.Equal(got, []string{"x"}) {
		t.Fatalf("shard 3 has %q", got)
	}
	_, err = c.Publish(within(t), "orders", []byte("x"), ToShard(4))
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("shard 4 of 4: %v", err)
	}
}

// Conformance: error.unknown_stream_is_typed.
func TestPublishUnknownStream(t *testing.T) {
	b := newFakeBroker(t)
	c := b.dial()
	_, err := c.Publish(within(t), "nowhere", []byte("x"))
	var e *Error
	if !errors.Is(err, ErrNotFound) || !errors.As(err, &e) || e.Code != wire.CodeNotFound || errors.Is(err, ErrUnavailable) {
		t.Fatalf("%v", err)
	}
}

func TestPublishRefused(t *testing.T) {
	for _, tt := range []struct {
		verdict fakeVerdict
		is      error
		tries   int64
	}{
		// Conformance: retry.terminal_failures_are_not_retried, error.unauthorized_is_typed.
		{fakeVerdict{code: wire.CodeForbidden, retry: wire.RetryFatal}, ErrForbidden, 1},
		{fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter, reason: wire.ReasonPublishQueueFull}, ErrOverloaded, 3},
		// Conformance: error.shard_unavailable_is_retryable.
		{fakeVerdict{code: wire.CodeShardUnavailable, retry: wire.RetryRetry, reason: wire.ReasonFenced}, ErrUnavailable, 3},
		// Conformance: error.quorum_timeout_is_outcome_unknown, retry.ambiguous_outcomes_are_not_silently_retried.
		{fakeVerdict{code: wire.CodeQuorumTimeout, retry: wire.RetryOutcomeUnknown}, ErrOutcomeUnknown, 1},
		{fakeVerdict{code: wire.CodeInvalidRequest, retry: wire.RetryFatal}, ErrInvalid, 1},
	} {
		t.Run(tt.verdict.code.String(), func(t *testing.T) {
			b := newFakeBroker(t)
			b.stream("orders", 1)
			var tries atomic.Int64
			b.refuse(func(*fakePublish) fakeVerdict { tries.Add(1); return tt.verdict })
			c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6, MaxBackoff: 2e6, Attempts: 3}), WithPublishStreams(1))
			_, err := c.Publish(within(t), "orders", []byte("x"))
			var e *Error
			if !errors.Is(err, tt.is) || !errors.As(err, &e) || e.Code != tt.verdict.code || e.Reason != tt.verdict.reason || e.Stream != "orders" {
				t.Fatalf("%v", err)
			}
			if tries.Load() != tt.tries {
				t.Fatalf("tried %d times, want %d", tries.Load(), tt.tries)
			}
		})
	}
}

func TestPublishRetriesUntilItSucceeds(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	var tries atomic.Int64
	b.refuse(func(*fakePublish) fakeVerdict {
		if tries.Add(1) < 3 {
			return fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter, retryAfter: 1}
		}
		return fakeVerdict{}
	})
	c := b.dial(WithReconnect(ReconnectPolicy{Backoff: 1e6}))
	ack, err := c.Publish(within(t), "orders", []byte("x"))
	check(t, err)
	if tries.Load() != 3 || ack.Offset != 0 || !slices.Equal(b.records("orders", 0), []string{"x"}) {
		t.Fatalf("%d tries, %+v", tries.Load(), ack)
	}
}

func TestPublishStaleWidth(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 2)
	c := b.dial()
	ctx := within(t)
	_, err := c.Publish(ctx, "orders", []byte("x"), Key("k0"))
	check(t, err)
	b.mu.Lock()
	delete(b.streams, "orders")
	b.mu.Unlock()
	b.stream("orders", 12)
	ack, err := c.Publish(ctx, "orders", []byte("y"), Key("k0"))
	check(t, err)
	if want := wire.ShardOf(wire.RoutingModulo, []byte("k0"), true, 12); ack.Shard != want || !slices.Equal(b.records("orders", int(want)), []string{"y"}) {
		t.Fatalf("%+v, want shard %d", ack, want)
	}
}

func TestPublishOptionsRefused(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	ctx := within(t)
	for name, opts := range map[string][]PublishOption{
		"idempotent call":       {Idempotent()},
		"unanswered and resent": {NoAck(), AtLeastOnce()},
		"long key":              {Key(make([]byte, 1<<16))},
		"empty namespace":       {InNamespace("")},
		"zero option":           {{}},
	} {
		if _, err := c.Publish(ctx, "orders", nil, opts...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Publish(ctx, "", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no stream: %v", err)
	}
	if _, err := c.PublishBatch(ctx, "orders", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("empty batch: %v", err)
	}
	if _, err := c.Publish(ctx, "orders", make([]byte, wire.MaxFrameBytes)); !errors.Is(err, ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
	if b.published.Load() != 0 {
		t.Errorf("%d records were sent", b.published.Load())
	}
}

func TestPublishLargeRecord(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	c := b.dial()
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	_, err := c.Publish(within(t), "orders", data)
	check(t, err)
	if got := b.records("orders", 0); got[0] != string(data) {
		t.Fatal("stored something else")
	}
}

// A context that ends while the answer is out leaves the outcome open.
func TestPublishContextEnds(t *testing.T) {
	b := newFakeBroker(t)
	b.stream("orders", 1)
	arrived := make(chan struct{}, 1)
	b.refuse(func(*fakePublish) fakeVerdict {
		arrived <- struct{}{}
		return fakeVerdict{silent: true}
	})
	c := b.dial(WithCloseTimeout(time.Millisecond))
	ctx, cancel := context.WithCancel(within(t))
	go func() { <-arrived; cancel() }()
	_, err := c.Publish(ctx, "orders", []byte("x"))
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}
