package perf

import (
	"crypto/x509"
	"runtime"
	"strings"
	"testing"
	"time"

	"felix"
	"felix/perf/load"
)

// benchStream is the stream that startBroker makes.
const benchStream = "bench"

// startBroker starts an embedded broker with its defaults and a stream of 48 shards.
func startBroker(b *testing.B, config felix.Config, onSlow felix.Policy) (*felix.Broker, *x509.CertPool) {
	b.Helper()
	return startStream(b, config, felix.StreamConfig{Name: benchStream, Shards: shards, OnSlow: onSlow})
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

// loadResult is a report with what else was counted between the first and the last sample of the measured time.
type loadResult struct {
	*load.Report
	allocsPerRecord float64     // of the whole process: broker, client and QUIC library
	log             logCounters // what the lanes did
	took            time.Duration
	records         int64
}

// moment is what is counted beside the report.
type moment struct {
	at      time.Time
	mallocs uint64
	log     logCounters
	records uint64
}

func momentOf(broker *felix.Broker) moment {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return moment{time.Now(), memory.Mallocs, countLog(broker), broker.Stats().PublishRecords}
}

// runLoad drives an embedded broker with connections QUIC connections to each of its cores. A run whose counts do not agree fails.
func runLoad(b *testing.B, broker *felix.Broker, generator string, connections int, c load.Config) loadResult {
	b.Helper()
	var err error
	if c.Target, err = (load.Cell{Generator: generator}).NewTarget(load.FelixConfig{Broker: broker, Connections: connections}); err != nil {
		b.Fatal(err)
	}
	c.Warmup = time.Second
	var first, last moment
	c.Progress = func(p load.Progress) {
		if p.Phase == load.Measuring {
			last = momentOf(broker)
			if first.at.IsZero() {
				first = last
			}
		}
	}
	report, err := load.Run(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if report.Void {
		b.Fatalf("void: %s", strings.Join(report.Runs[0].VoidReasons, "; "))
	}
	records := int64(last.records - first.records)
	return loadResult{report, float64(last.mallocs-first.mallocs) / float64(max(records, 1)), last.log.since(first.log), last.at.Sub(first.at), records}
}
