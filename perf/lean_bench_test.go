package perf

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"felix"
	"felix/perf/ceiling"
)

// startBroker starts an embedded broker with its defaults and a stream of 48 shards.
func startBroker(b *testing.B, config felix.Config, onSlow felix.Policy) (*felix.Broker, *x509.CertPool) {
	b.Helper()
	return startStream(b, config, felix.StreamConfig{Name: "bench", Shards: 48, OnSlow: onSlow})
}

func startStream(b *testing.B, config felix.Config, stream felix.StreamConfig) (*felix.Broker, *x509.CertPool) {
	b.Helper()
	broker, err := felix.Start(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := broker.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := broker.CreateStream(b.Context(), stream); err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(broker.CertificatePEM()) {
		b.Fatal("no certificate")
	}
	return broker, pool
}

func BenchmarkLean(b *testing.B) {
	for _, shape := range []struct{ size, batch int }{{256, 1}, {256, 64}, {4096, 64}} {
		b.Run(fmt.Sprintf("%dB/batch=%d", shape.size, shape.batch), func(b *testing.B) {
			for b.Loop() {
				l, err := ceiling.Loop(b.Context(), ceiling.LoopConfig{Duration: time.Second})
				if err != nil {
					b.Fatal(err)
				}
				broker, roots := startBroker(b, felix.Config{}, felix.DropNew)
				r, err := Lean(b.Context(), LeanConfig{
					Addr: broker.Addr(), Roots: roots, Stream: "bench", Streams: 16, InFlight: 128, Keys: 48,
					RecordBytes: shape.size, Batch: shape.batch, Warmup: time.Second, Duration: 2 * time.Second,
				})
				if err != nil {
					b.Fatal(err)
				}
				if got := broker.Stats().PublishRecords; got != uint64(r.Records) {
					b.Fatalf("broker appended %d records, %d were acknowledged", got, r.Records)
				}
				b.ReportMetric(r.RecordsPerSecond, "records/s")
				b.ReportMetric(r.RecordsPerSecond*float64(shape.size)/1e6, "MB/s")
				b.ReportMetric(r.RecordsPerSecond/l, "xL")
			}
		})
	}
}

func BenchmarkLone(b *testing.B) {
	for b.Loop() {
		const rounds = 5000
		echo, err := ceiling.Echo(b.Context(), 256, rounds)
		if err != nil {
			b.Fatal(err)
		}
		broker, roots := startBroker(b, felix.Config{}, felix.DropNew)
		took, err := Lone(b.Context(), LeanConfig{Addr: broker.Addr(), Roots: roots, Stream: "bench", RecordBytes: 256}, rounds)
		if err != nil {
			b.Fatal(err)
		}
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		b.ReportMetric(float64(p50.Nanoseconds())/1e3, "p50-us")
		b.ReportMetric(float64(p99.Nanoseconds())/1e3, "p99-us")
		b.ReportMetric(float64(p50)/float64(echo.P50), "xE")
		b.ReportMetric(float64(echo.P50.Nanoseconds())/1e3, "echo-us")
	}
}
