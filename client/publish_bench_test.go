package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// publishers runs n goroutines that each keep inFlight publishes out, b.N in all, keyed over the shards.
func publishers(b *testing.B, c *Client, n, inFlight int, data []byte, batch int, opts ...PublishOption) {
	b.Helper()
	p, err := c.Publisher("orders", opts...)
	check(b, err)
	ctx := context.Background()
	records := make([][]byte, batch)
	for i := range records {
		records[i] = data
	}
	b.SetBytes(int64(len(data) * batch))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() {
			key := fmt.Sprintf("k%d", g)
			ring := make([]*Future, inFlight)
			for i := g; i < b.N; i += n {
				at := i / n % inFlight
				if f := ring[at]; f != nil {
					if _, err := f.Wait(ctx); err != nil {
						b.Error(err)
						return
					}
				}
				if batch == 1 {
					ring[at] = p.PublishAsync(ctx, data, Key(key))
				} else {
					ring[at] = p.PublishBatchAsync(ctx, records, Key(key))
				}
			}
		})
	}
	wg.Wait()
	check(b, p.Flush(ctx))
	b.StopTimer()
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkPublishOffline is the cost of this package alone: the streams answer at once.
func BenchmarkPublishOffline(b *testing.B) {
	for _, tt := range []struct {
		name  string
		batch int
		opts  []PublishOption
	}{{"acked/batch=1", 1, nil}, {"acked/batch=64", 64, nil}, {"unacked/batch=1", 1, []PublishOption{NoAck()}}} {
		b.Run(tt.name, func(b *testing.B) {
			c, _ := offline()
			defer c.Close()
			publishers(b, c, 64, 64, make([]byte, 256), tt.batch, tt.opts...)
		})
	}
}

// BenchmarkPublishSync is a goroutine hop to the writer, one to the reader and one back, per record.
func BenchmarkPublishSync(b *testing.B) {
	c, _ := offline()
	defer c.Close()
	data := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		must(c.Publish(context.Background(), "orders", data))
	}
}

// BenchmarkPublish is the way to a fake broker over QUIC and back; the broker parses, copies and stores.
func BenchmarkPublish(b *testing.B) {
	for _, tt := range []struct {
		name  string
		batch int
		opts  []PublishOption
	}{{"acked/batch=1", 1, nil}, {"acked/batch=64", 64, nil}, {"unacked/batch=1", 1, []PublishOption{NoAck()}}, {"idempotent/batch=1", 1, []PublishOption{Idempotent()}}} {
		b.Run(tt.name, func(b *testing.B) {
			f := newFakeBroker(b)
			f.discard.Store(true)
			f.stream("orders", 48)
			publishers(b, f.dial(), 64, 64, make([]byte, 256), tt.batch, tt.opts...)
		})
	}
}

// BenchmarkLonePublish is one record at a time, over QUIC.
func BenchmarkLonePublish(b *testing.B) {
	f := newFakeBroker(b)
	f.discard.Store(true)
	f.stream("orders", 1)
	c := f.dial()
	data := make([]byte, 256)
	must(c.Publish(context.Background(), "orders", data))
	b.ReportAllocs()
	for b.Loop() {
		must(c.Publish(context.Background(), "orders", data))
	}
}

// BenchmarkReceive is the cost of this package alone: the event stream is memory.
func BenchmarkReceive(b *testing.B) {
	for _, perFrame := range []int{1, 64} {
		b.Run(fmt.Sprintf("next/records=%d", perFrame), func(b *testing.B) {
			c, _ := offline()
			defer c.Close()
			s := offlineSubscription(c, perFrame)
			defer s.Close()
			b.SetBytes(256)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("batch/records=%d", perFrame), func(b *testing.B) {
			c, _ := offline()
			defer c.Close()
			s := offlineSubscription(c, perFrame)
			defer s.Close()
			b.SetBytes(256)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; {
				batch, err := s.NextBatch(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				for range batch.All() {
					i++
				}
				batch.Release()
			}
		})
	}
}
