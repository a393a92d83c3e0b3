package perf

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"felix"
	"felix/perf/ceiling"
	"felix/perf/load"
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
					l, err := ceiling.OneProcess.Loop(b.Context(), ceiling.LoopConfig{Duration: time.Second})
					if err != nil {
						b.Fatal(err)
					}
					broker, _ := startBroker(b, config, felix.DropNew)
					r := publishLoad(b, broker, shape.size, shape.batch)
					b.ReportMetric(r.AckedPerSec, "records/s")
					b.ReportMetric(r.PayloadMBPerSec, "MB/s")
					b.ReportMetric(r.AckedPerSec/l, "xL")
					b.ReportMetric(r.allocsPerRecord, "allocs/record")
				}
			})
		}
	}
}

// publishLoad runs the load for two seconds, after one that is not counted.
func publishLoad(b *testing.B, broker *felix.Broker, size, batch int) loadResult {
	b.Helper()
	return runLoad(b, broker, load.GeneratorClient, 1, load.Config{
		Scenario: load.Pub, Stream: benchStream, Publishers: publishers, InFlight: inFlight, Size: size, Batch: batch, Keys: shards, Duration: 2 * time.Second,
	})
}

// BenchmarkLonePublish is the latency of one publish at a time through the public client, beside the bare echo.
func BenchmarkLonePublish(b *testing.B) {
	for b.Loop() {
		lone(b, load.GeneratorClient)
	}
}

// lone reports one publish at a time beside the echo.
func lone(b *testing.B, generator string) {
	const rounds = 5000
	echo, err := ceiling.OneProcess.Echo(b.Context(), 256, rounds)
	if err != nil {
		b.Fatal(err)
	}
	broker, _ := startBroker(b, felix.Config{}, felix.DropNew)
	r := lonePublishes(b, broker, generator)
	b.ReportMetric(r.Ack.P50, "p50-us")
	b.ReportMetric(r.Ack.P99, "p99-us")
	b.ReportMetric(r.Ack.P50*1e3/float64(echo.P50), "xE")
	b.ReportMetric(float64(echo.P50.Nanoseconds())/1e3, "echo-us")
}

// lonePublishes publishes 256 bytes at a time.
func lonePublishes(b *testing.B, broker *felix.Broker, generator string) loadResult {
	b.Helper()
	return runLoad(b, broker, generator, 1, load.Config{Scenario: load.Pub, Stream: benchStream, Publishers: 1, Acks: load.AcksEach, Keys: load.NoKeys, Duration: 2 * time.Second})
}

// BenchmarkFanOut delivers batches of 64 to n subscribers of one shard, lossless, and counts every record.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 10} {
		for _, size := range []int{256, 4096} {
			b.Run(fmt.Sprintf("subscribers=%d/%dB", n, size), func(b *testing.B) {
				for b.Loop() {
					broker, _ := startBroker(b, felix.Config{}, felix.Block)
					r := runLoad(b, broker, load.GeneratorClient, 1, load.Config{Scenario: load.FanOut, Subscribers: n, Size: size, Duration: 2 * time.Second})
					b.ReportMetric(*r.DeliveredPerSec, "deliveries/s")
					b.ReportMetric(r.PayloadMBPerSec, "MB/s")
				}
			})
		}
	}
}
