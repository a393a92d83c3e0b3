package perf

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix"
	"felix/client"
	"felix/perf/ceiling"
)

// The shape that DESIGN's targets are stated for.
const (
	publishers = 64
	inFlight   = 64
	shards     = 48
)

// BenchmarkPublish is the headline: 64 publishers with 64 acked batches in flight each, keys over 48 shards, through
// the public client, beside the bare loop measured just before it. broker=pinned has a thread and a CPU per core.
func BenchmarkPublish(b *testing.B) {
	for _, shape := range []struct{ size, batch int }{{256, 1}, {256, 64}, {4096, 64}} {
		for mode, config := range map[string]felix.Config{"free": {}, "pinned": {CoreShards: runtime.NumCPU()}} {
			b.Run(fmt.Sprintf("%dB/batch=%d/broker=%s", shape.size, shape.batch, mode), func(b *testing.B) {
				for b.Loop() {
					l, err := ceiling.Loop(b.Context(), ceiling.LoopConfig{Duration: time.Second})
					if err != nil {
						b.Fatal(err)
					}
					broker, roots := startBroker(b, config, felix.DropNew)
					r, err := publishLoad(b.Context(), broker, roots, shape.size, shape.batch)
					if err != nil {
						b.Fatal(err)
					}
					if got := broker.Stats().PublishRecords; got != uint64(r.acked) {
						b.Fatalf("broker appended %d records, %d were acknowledged", got, r.acked)
					}
					b.ReportMetric(r.perSecond, "records/s")
					b.ReportMetric(r.perSecond*float64(shape.size)/1e6, "MB/s")
					b.ReportMetric(r.perSecond/l, "xL")
					b.ReportMetric(r.allocsPerRecord, "allocs/record")
				}
			})
		}
	}
}

type loadResult struct {
	perSecond       float64
	acked           int64
	allocsPerRecord float64     // of the whole process: broker, client and QUIC library
	log             logCounters // what the lanes did in the counted time
	took            time.Duration
	records         int64 // in the counted time
}

// publishLoad runs the load for three seconds, of which the first is not counted.
func publishLoad(ctx context.Context, broker *felix.Broker, roots *x509.CertPool, size, batch int) (loadResult, error) {
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithRootCAs(roots), client.WithServerName("localhost"))
	if err != nil {
		return loadResult{}, err
	}
	defer c.Close()
	var (
		acked atomic.Int64
		stop  atomic.Bool
		wait  sync.WaitGroup
		fails = make(chan error, publishers)
	)
	for i := range publishers {
		p, err := c.Publisher("bench")
		if err != nil {
			return loadResult{}, err
		}
		wait.Go(func() {
			if err := publishUntil(ctx, p, i, size, batch, &stop, &acked); err != nil {
				fails <- err
				stop.Store(true)
			}
		})
	}
	err = pause(ctx, time.Second)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	logBefore := countLog(broker)
	// Counted at the broker: an answer that its publisher has not come to yet is a record that was acknowledged.
	answered := func() int64 { return int64(broker.Stats().PublishAcked) * int64(batch) }
	from, start := answered(), time.Now()
	if err == nil {
		err = pause(ctx, 2*time.Second)
	}
	records := answered() - from
	took := time.Since(start)
	log := countLog(broker).since(logBefore)
	runtime.ReadMemStats(&after)
	stop.Store(true)
	wait.Wait()
	if failure := first(fails); failure != nil {
		return loadResult{}, failure
	}
	return loadResult{
		perSecond:       float64(records) / took.Seconds(),
		acked:           acked.Load(),
		allocsPerRecord: float64(after.Mallocs-before.Mallocs) / float64(max(records, 1)),
		log:             log,
		took:            took,
		records:         records,
	}, err
}

// publishUntil keeps inFlight batches unanswered and waits for all of them at the end.
func publishUntil(ctx context.Context, p *client.Publisher, id, size, batch int, stop *atomic.Bool, acked *atomic.Int64) error {
	keys := make([]client.PublishOption, shards)
	for i := range keys {
		keys[i] = client.Key(fmt.Sprintf("key-%d-%d", id, i))
	}
	payloads := make([][]byte, batch)
	for i := range payloads {
		payloads[i] = make([]byte, size)
	}
	var pending [inFlight]*client.Future
	for n := 0; ; n++ {
		slot := &pending[n%inFlight]
		if *slot != nil {
			if _, err := (*slot).Wait(ctx); err != nil {
				return err
			}
			*slot = nil
			acked.Add(int64(batch))
		}
		if stop.Load() {
			if n%inFlight == 0 && !slices.ContainsFunc(pending[:], func(f *client.Future) bool { return f != nil }) {
				return p.Close(ctx)
			}
			continue
		}
		if batch == 1 {
			*slot = p.PublishAsync(ctx, payloads[0], keys[n%shards])
		} else {
			*slot = p.PublishBatchAsync(ctx, payloads, keys[n%shards])
		}
	}
}

// BenchmarkLonePublish is the latency of one publish at a time through the public client, beside the bare echo.
func BenchmarkLonePublish(b *testing.B) {
	const rounds = 5000
	for b.Loop() {
		echo, err := ceiling.Echo(b.Context(), 256, rounds)
		if err != nil {
			b.Fatal(err)
		}
		broker, roots := startBroker(b, felix.Config{}, felix.DropNew)
		took, err := lonePublishes(b.Context(), broker, roots, rounds)
		if err != nil {
			b.Fatal(err)
		}
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		b.ReportMetric(float64(p50.Nanoseconds())/1e3, "p50-us")
		b.ReportMetric(float64(p99.Nanoseconds())/1e3, "p99-us")
		b.ReportMetric(float64(p50)/float64(echo.P50), "xE")
	}
}

// lonePublishes publishes 256 bytes at a time and returns how long each took, sorted, after a tenth of the rounds as warm-up.
func lonePublishes(ctx context.Context, broker *felix.Broker, roots *x509.CertPool, rounds int) ([]time.Duration, error) {
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithRootCAs(roots), client.WithServerName("localhost"))
	if err != nil {
		return nil, err
	}
	payload := make([]byte, 256)
	took := make([]time.Duration, 0, rounds)
	for i := range rounds + rounds/10 {
		start := time.Now()
		ack, err := c.Publish(ctx, "bench", payload)
		if err != nil || ack.Offset != client.Offset(i) {
			return nil, errors.Join(fmt.Errorf("ack %+v, %w, want offset %d", ack, err, i), c.Close())
		}
		if i >= rounds/10 {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	return took, c.Close()
}

// BenchmarkFanOut delivers batches of 64 to n subscribers of one shard, lossless, and counts every record.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 10} {
		for _, size := range []int{256, 4096} {
			b.Run(fmt.Sprintf("subscribers=%d/%dB", n, size), func(b *testing.B) {
				for b.Loop() {
					broker, roots := startBroker(b, felix.Config{}, felix.Block)
					perSecond, err := fanOut(b.Context(), broker, roots, n, size)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(perSecond, "deliveries/s")
					b.ReportMetric(perSecond*float64(size)/1e6, "MB/s")
				}
			})
		}
	}
}

func fanOut(ctx context.Context, broker *felix.Broker, roots *x509.CertPool, subscribers, size int) (perSecond float64, err error) {
	const batch = 64
	batches := 200_000 * 256 / (size * batch) / subscribers * 4
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithRootCAs(roots), client.WithServerName("localhost"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var wait sync.WaitGroup
	fails := make(chan error, subscribers+1)
	for range subscribers {
		sub, err := c.Subscribe(ctx, "bench", client.Shard(0), client.FromEarliest())
		if err != nil {
			return 0, err
		}
		wait.Go(func() {
			defer sub.Close()
			for next := client.Offset(0); next < client.Offset(batches*batch); next++ {
				m, err := sub.Next(ctx)
				if err != nil || m.Offset != next || len(m.Data) != size {
					fails <- fmt.Errorf("record at %d with %d bytes, %w, want offset %d", m.Offset, len(m.Data), err, next)
					return
				}
			}
		})
	}
	p, err := c.Publisher("bench")
	if err != nil {
		return 0, err
	}
	payloads := make([][]byte, batch)
	for i := range payloads {
		payloads[i] = make([]byte, size)
	}
	start := time.Now()
	for range batches {
		p.PublishBatchAsync(ctx, payloads)
	}
	if err := p.Flush(ctx); err != nil {
		return 0, err
	}
	wait.Wait()
	took := time.Since(start)
	if failure := first(fails); failure != nil {
		return 0, failure
	}
	return float64(batches*batch*subscribers) / took.Seconds(), p.Close(ctx)
}
