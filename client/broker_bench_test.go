package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"felix/client"
	"felix/client/clienttest"
)

// BenchmarkBroker has a real broker in the same process: 64 publishers with 64 publishes in flight each, keys over 48 shards, 256 bytes.
func BenchmarkBroker(b *testing.B) {
	for _, tt := range []struct {
		name  string
		batch int
		opts  []client.PublishOption
	}{
		{"acked/batch=1", 1, nil},
		{"acked/batch=64", 64, nil},
		{"unacked/batch=1", 1, []client.PublishOption{client.NoAck()}},
		{"idempotent/batch=1", 1, []client.PublishOption{client.Idempotent()}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			broker := clienttest.Run(b)
			broker.Stream("orders", 48)
			c := broker.Client()
			p, err := c.Publisher("orders", tt.opts...)
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			data := make([]byte, 256)
			records := make([][]byte, tt.batch)
			for i := range records {
				records[i] = data
			}
			b.SetBytes(int64(len(data) * tt.batch))
			b.ReportAllocs()
			b.ResetTimer()
			const publishers, inFlight = 64, 64
			var wg sync.WaitGroup
			for g := range publishers {
				wg.Go(func() {
					key := fmt.Sprintf("k%d", g)
					ring := make([]*client.Future, inFlight)
					for i := g; i < b.N; i += publishers {
						at := i / publishers % inFlight
						if f := ring[at]; f != nil {
							if _, err := f.Wait(ctx); err != nil {
								b.Error(err)
								return
							}
						}
						if tt.batch == 1 {
							ring[at] = p.PublishAsync(ctx, data, client.Key(key))
						} else {
							ring[at] = p.PublishBatchAsync(ctx, records, client.Key(key))
						}
					}
				})
			}
			wg.Wait()
			if err := p.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N*tt.batch)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkBrokerLone is one record of 256 bytes at a time.
func BenchmarkBrokerLone(b *testing.B) {
	broker := clienttest.Run(b)
	broker.Stream("orders", 1)
	c := broker.Client()
	ctx := context.Background()
	data := make([]byte, 256)
	publish := func() {
		if _, err := c.Publish(ctx, "orders", data); err != nil {
			b.Fatal(err)
		}
	}
	publish()
	b.ReportAllocs()
	for b.Loop() {
		publish()
	}
}

// BenchmarkBrokerFanOut delivers batches of 64 records to n subscribers of one shard on one connection, lossless. An op is one record to
// all of them.
func BenchmarkBrokerFanOut(b *testing.B) {
	for _, n := range []int{1, 10} {
		for _, size := range []int{256, 4096} {
			for _, batched := range []bool{false, true} {
				b.Run(fmt.Sprintf("subscribers=%d/%dB/batched=%v", n, size, batched), func(b *testing.B) {
					broker := clienttest.Run(b)
					broker.Stream("orders", 1)
					c := broker.Client()
					ctx := context.Background()
					var wg sync.WaitGroup
					for range n {
						sub, err := c.Subscribe(ctx, "orders", client.Shard(0))
						if err != nil {
							b.Fatal(err)
						}
						wg.Go(func() {
							defer sub.Close()
							for got := 0; got < b.N; {
								if !batched {
									if _, err := sub.Next(ctx); err != nil {
										b.Error(err)
										return
									}
									got++
									continue
								}
								batch, err := sub.NextBatch(ctx)
								if err != nil {
									b.Error(err)
									return
								}
								for range batch.All() {
									got++
								}
								batch.Release()
							}
						})
					}
					p, err := c.Publisher("orders")
					if err != nil {
						b.Fatal(err)
					}
					records := make([][]byte, 64)
					for i := range records {
						records[i] = make([]byte, size)
					}
					b.SetBytes(int64(n * size))
					b.ReportAllocs()
					b.ResetTimer()
					for i := 0; i < b.N; i += len(records) {
						p.PublishBatchAsync(ctx, records[:min(len(records), b.N-i)])
					}
					if err := p.Flush(ctx); err != nil {
						b.Fatal(err)
					}
					wg.Wait()
				})
			}
		}
	}
}
