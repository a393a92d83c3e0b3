package interop

import (
	"context"
	"slices"
	"testing"

	"felix/client"
)

// dial connects our own client to the broker's shared port.
func (b *broker) dial() *client.Client {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, b.Listen, client.WithTenant(tenant), client.WithCAFile(b.CAFile))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.t.Errorf("close of the Go client: %v", err)
		}
	})
	return c
}

// publishBatch is how many records our client publishes as one, where a test needs many of them stored and looks at nothing else.
const publishBatch = 1000

// publish publishes records with our own client, in large batches, and returns when all are acknowledged.
func (b *broker) publish(stream string, records [][]byte) {
	b.t.Helper()
	publishAll(b.t, b.dial(), stream, records)
}

func publishAll(t *testing.T, c *client.Client, stream string, records [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for batch := range slices.Chunk(records, publishBatch) {
		if _, err := c.PublishBatch(ctx, stream, batch); err != nil {
			t.Fatal(err)
		}
	}
}

// publishAsync publishes records one by one, with their keys if there are any, and returns when all are acknowledged.
func publishAsync(t *testing.T, c *client.Client, stream string, records, keys [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := c.Publisher(stream)
	if err != nil {
		t.Fatal(err)
	}
	futures := make([]*client.Future, len(records))
	for i, record := range records {
		if keys != nil {
			futures[i] = p.PublishAsync(ctx, record, client.Key(keys[i]))
		} else {
			futures[i] = p.PublishAsync(ctx, record)
		}
	}
	for i, future := range futures {
		if _, err := future.Wait(ctx); err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// subscribe subscribes with our own client, to all shards.
func subscribe(t *testing.T, c *client.Client, stream string, opts ...client.SubscribeOption) *client.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sub, err := c.Subscribe(ctx, stream, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			t.Errorf("close of the Go subscription: %v", err)
		}
	})
	return sub
}

// collect reads n records with our own client, in the form in which the published one gives them.
func collect(t *testing.T, sub *client.Subscription, n int) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := make([]event, 0, n)
	for len(events) < n {
		m, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(events), n, err)
		}
		offset := uint64(m.Offset)
		events = append(events, event{
			Kind: "record", Shard: m.Shard, Offset: &offset, Scope: [3]string{tenant, "default", m.Stream}, Payload: m.Data,
		})
	}
	return events
}
