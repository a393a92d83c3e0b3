package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"felix"
	"felix/client"
	"felix/client/clienttest"
)

// durable creates a stream that is kept in the log.
func durable(t *testing.T, b *clienttest.Broker, name string, shards int) {
	t.Helper()
	check(t, b.CreateStream(within(t), felix.StreamConfig{Name: name, Shards: uint32(shards), Durable: true}))
}

// Every shard starts at its own record of the time: one that has newer records at the first of them, one that has none behind its newest.
func TestBrokerFromTime(t *testing.T) {
	b := clienttest.Run(t, cores(2))
	durable(t, b, "orders", 3)
	c, ctx := b.Client(), within(t)
	publish := func(shard uint32, text string) {
		t.Helper()
		_, err := c.Publish(ctx, "orders", []byte(text), client.ToShard(shard))
		check(t, err)
	}
	publish(0, "old 0")
	publish(1, "old 1")
	at := time.Now()
	publish(0, "new 0")
	publish(0, "newer 0")

	if o, ok, err := c.OffsetForTime(ctx, "orders", 0, at); err != nil || !ok || o != 1 {
		t.Errorf("shard 0: %d, %v, %v", o, ok, err)
	}
	if o, ok, err := c.OffsetForTime(ctx, "orders", 0, time.Unix(0, 0)); err != nil || !ok || o != 0 {
		t.Errorf("shard 0 from the beginning: %d, %v, %v", o, ok, err)
	}
	for shard := range uint32(2) {
		if o, ok, err := c.OffsetForTime(ctx, "orders", 1+shard, at); err != nil || ok {
			t.Errorf("shard %d: %d, %v, %v", 1+shard, o, ok, err)
		}
	}

	sub, err := c.Subscribe(ctx, "orders", client.FromTime(at))
	check(t, err)
	defer sub.Close()
	publish(1, "late 1")
	publish(2, "late 2")
	want := map[string]client.Offset{"new 0": 1, "newer 0": 2, "late 1": 1, "late 2": 0}
	for len(want) > 0 {
		m, err := sub.Next(ctx)
		check(t, err)
		if o, ok := want[string(m.Data)]; !ok || o != m.Offset {
			t.Fatalf("%q at offset %d of shard %d, want %v", m.Data, m.Offset, m.Shard, want)
		}
		delete(want, string(m.Data))
	}

	one, err := c.Subscribe(ctx, "orders", client.Shard(0), client.FromTime(time.Now().Add(-time.Hour)))
	check(t, err)
	defer one.Close()
	if m, err := one.Next(ctx); err != nil || string(m.Data) != "old 0" {
		t.Errorf("%q, %v", m.Data, err)
	}
	// An offset of a shard's own beats the time.
	both, err := c.Subscribe(ctx, "orders", client.Shard(0), client.FromTime(at), client.FromOffsets(map[uint32]client.Offset{0: 2}))
	check(t, err)
	defer both.Close()
	if m, err := both.Next(ctx); err != nil || m.Offset != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestBrokerFromTimeInMemory(t *testing.T) {
	b := clienttest.Run(t)
	b.Stream("orders", 2)
	c, ctx := b.Client(), within(t)
	if _, err := c.Subscribe(ctx, "orders", client.FromTime(time.Now())); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("subscribe: %v", err)
	}
	if _, _, err := c.OffsetForTime(ctx, "orders", 0, time.Now()); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("offset for time: %v", err)
	}
	if _, err := c.ReadPage(ctx, "orders", 0, 0, client.ReadOptions{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Subscribe(ctx, "orders", client.FromTime(time.Time{})); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("zero time: %v", err)
	}
}

// Pages hold every record once, within their bounds, whatever the batches are.
func TestBrokerReadPage(t *testing.T) {
	b := clienttest.Run(t)
	durable(t, b, "orders", 2)
	c, ctx := b.Client(), within(t)
	if p, err := c.ReadPage(ctx, "orders", 1, 0, client.ReadOptions{}); err != nil || len(p.Records) != 0 || p.Next != 0 {
		t.Errorf("an empty shard: %+v, %v", p, err)
	}
	began := time.Now()
	const batches, each = 20, 7
	for i := range batches {
		var batch [][]byte
		for j := range each {
			batch = append(batch, fmt.Appendf(nil, "record %d", i*each+j))
		}
		_, err := c.PublishBatch(ctx, "orders", batch, client.ToShard(1))
		check(t, err)
	}
	for _, o := range []client.ReadOptions{{}, {MaxRecords: 5}, {MaxBytes: 64}, {MaxBytes: 1}, {MaxRecords: 1000, MaxBytes: 100, To: 33}} {
		end := client.Offset(batches * each)
		if o.To > 0 {
			end = o.To
		}
		next := client.Offset(0)
		for next < end {
			p, err := c.ReadPage(ctx, "orders", 1, next, o)
			check(t, err)
			if n := len(p.Records); n == 0 || o.MaxRecords > 0 && n > o.MaxRecords || p.Next != next+client.Offset(n) {
				t.Fatalf("%+v from %d: %d records, next %d", o, next, n, p.Next)
			}
			for _, r := range p.Records {
				if r.Offset != next || string(r.Data) != fmt.Sprintf("record %d", next) || r.Time.Before(began.Add(-time.Minute)) || r.Time.After(time.Now().Add(time.Minute)) {
					t.Fatalf("%+v: %d %q %v where %d is due", o, r.Offset, r.Data, r.Time, next)
				}
				next++
			}
		}
		if next != end {
			t.Errorf("%+v: read to %d, want %d", o, next, end)
		}
		if p, err := c.ReadPage(ctx, "orders", 1, next, o); err != nil || len(p.Records) > 0 && o.To > 0 {
			t.Errorf("%+v: at the end %+v, %v", o, p, err)
		}
	}
	var cursor *client.CursorError
	if _, err := c.ReadPage(ctx, "orders", 1, 1000, client.ReadOptions{}); !errors.As(err, &cursor) || !cursor.InFuture || cursor.Available != batches*each || cursor.Op != "read" {
		t.Errorf("in the future: %v", err)
	}
	if _, err := c.ReadPage(ctx, "orders", 2, 0, client.ReadOptions{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no such shard: %v", err)
	}
	closed := b.Client()
	check(t, closed.Close())
	if _, err := closed.ReadPage(ctx, "orders", 0, 0, client.ReadOptions{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
