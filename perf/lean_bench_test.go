package perf

import (
	"fmt"
	"testing"
	"time"

	"felix"
	"felix/perf/ceiling"
	"felix/perf/load"
)

// BenchmarkLean is BenchmarkPublish from the lean generator: what is left when the client is not the bottleneck.
func BenchmarkLean(b *testing.B) {
	for _, shape := range []struct{ size, batch int }{{256, 1}, {256, 64}, {4096, 64}} {
		b.Run(fmt.Sprintf("%dB/batch=%d", shape.size, shape.batch), func(b *testing.B) {
			for b.Loop() {
				l, err := ceiling.OneProcess.Loop(b.Context(), ceiling.LoopConfig{Duration: time.Second})
				if err != nil {
					b.Fatal(err)
				}
				broker, _ := startBroker(b, felix.Config{}, felix.DropNew)
				r := runLoad(b, broker, load.GeneratorLean, 1, load.Config{
					Scenario: load.Pub, Stream: benchStream, Publishers: 16, InFlight: 256, Size: shape.size, Batch: shape.batch, Keys: shards, Duration: 2 * time.Second,
				})
				b.ReportMetric(r.AckedPerSec, "records/s")
				b.ReportMetric(r.PayloadMBPerSec, "MB/s")
				b.ReportMetric(r.AckedPerSec/l, "xL")
			}
		})
	}
}

// BenchmarkLone is BenchmarkLonePublish from the lean generator.
func BenchmarkLone(b *testing.B) {
	for b.Loop() {
		lone(b, load.GeneratorLean)
	}
}
