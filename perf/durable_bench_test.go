package perf

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"felix"
	"felix/client"
	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/wal"
)

// logCounters are the sums of what the lanes of a broker count.
type logCounters struct {
	batches, groups, syncs, zeroedGroups, logBytes, zeroedBytes uint64
}

func countLog(broker *felix.Broker) (c logCounters) {
	for _, lane := range broker.Stats().Lanes {
		c.batches += lane.Batches
		c.groups += lane.Groups
		c.syncs += lane.Syncs
		c.zeroedGroups += lane.ZeroedGroups
		c.logBytes += lane.LogBytes
		c.zeroedBytes += lane.ZeroedBytes
	}
	return c
}

func (c logCounters) since(before logCounters) logCounters {
	return logCounters{
		c.batches - before.batches, c.groups - before.groups, c.syncs - before.syncs, c.zeroedGroups - before.zeroedGroups,
		c.logBytes - before.logBytes, c.zeroedBytes - before.zeroedBytes,
	}
}

// report prints what the log did for n records of size bytes.
func (c logCounters) report(b *testing.B, took time.Duration, n int64, size int) {
	records, groups := float64(max(n, 1)), float64(max(c.groups, 1))
	b.ReportMetric(float64(c.syncs)/took.Seconds(), "syncs/s")
	b.ReportMetric(records/float64(max(c.syncs, 1)), "records/sync")
	b.ReportMetric(100*float64(c.zeroedGroups)/groups, "%zeroed")
	b.ReportMetric(float64(c.logBytes)/records, "log-B/record")
	b.ReportMetric(float64(c.logBytes)/records/float64(size), "xPayload")
	b.ReportMetric(float64(c.zeroedBytes)/records, "zeros-B/record")
}

// startDurable starts a broker on a data directory of its own, on the disk of the system's temporary directory, with a
// stream of 48 durable shards that are acknowledged when they are on disk.
func startDurable(b *testing.B, config felix.Config, shards uint32) (*felix.Broker, *x509.CertPool) {
	b.Helper()
	config.DataDir = b.TempDir()
	return startStream(b, config, felix.StreamConfig{Name: benchStream, Shards: shards, Durable: true, FsyncMode: felix.OnCommit, FsyncGiven: true})
}

func probeDisk(b *testing.B) ceiling.DiskResult {
	b.Helper()
	disk, err := ceiling.Disk(b.Context(), ceiling.DiskConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(disk.P50.Nanoseconds())/1e3, "D-us")
	return disk
}

// closeNow ends a broker before the cleanups do: the next one should have the machine for itself.
func closeNow(b *testing.B, broker *felix.Broker) {
	b.Helper()
	if err := broker.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDurable is the load of BenchmarkPublish on a durable stream, beside the same load in memory and what the disk
// can do, all measured in one run: D is write + fdatasync of 4 KiB, Z the bandwidth of 1 MiB groups.
func BenchmarkDurable(b *testing.B) {
	for _, shape := range []struct{ size, batch int }{{256, 1}, {256, 64}, {4096, 64}} {
		b.Run(fmt.Sprintf("%dB/batch=%d", shape.size, shape.batch), func(b *testing.B) {
			for b.Loop() {
				disk := probeDisk(b)
				memory, _ := startBroker(b, felix.Config{}, felix.DropNew)
				m := publishLoad(b, memory, shape.size, shape.batch)
				closeNow(b, memory)
				durable, _ := startDurable(b, felix.Config{}, shards)
				d := publishLoad(b, durable, shape.size, shape.batch)
				closeNow(b, durable)
				b.ReportMetric(d.AckedPerSec, "records/s")
				b.ReportMetric(m.AckedPerSec, "memory-records/s")
				b.ReportMetric(d.AckedPerSec/m.AckedPerSec, "xMemory")
				b.ReportMetric(d.PayloadMBPerSec, "MB/s")
				b.ReportMetric(d.PayloadMBPerSec*1e6/disk.BytesPerSecond, "xZ")
				d.log.report(b, d.took, d.records, shape.size)
			}
		})
	}
}

// BenchmarkDurableLone is one publish at a time on a durable stream, beside the same in memory: over is the difference of
// the medians in multiples of D.
func BenchmarkDurableLone(b *testing.B) {
	for b.Loop() {
		disk := probeDisk(b)
		memory, _ := startBroker(b, felix.Config{}, felix.DropNew)
		m := lonePublishes(b, memory, load.GeneratorClient)
		closeNow(b, memory)
		durable, _ := startDurable(b, felix.Config{}, shards)
		d := lonePublishes(b, durable, load.GeneratorClient)
		closeNow(b, durable)
		b.ReportMetric(d.Ack.P50, "p50-us")
		b.ReportMetric(d.Ack.P99, "p99-us")
		b.ReportMetric(m.Ack.P50, "memory-p50-us")
		b.ReportMetric((d.Ack.P50-m.Ack.P50)*1e3/float64(disk.P50), "over-xD")
		d.log.report(b, d.took, d.records, 256)
	}
}

// BenchmarkDurableWaiting is 64 publishers on 8 connections that each wait for the answer before they publish the next
// record of 1 KiB.
func BenchmarkDurableWaiting(b *testing.B) {
	const connections, size = 8, 1024
	waiting := func(broker *felix.Broker) loadResult {
		owners := max(1, len(broker.Ports())) // a client has its connections to each of them
		return runLoad(b, broker, load.GeneratorClient, max(1, connections/owners), load.Config{
			Scenario: load.Pub, Stream: benchStream, Publishers: publishers, InFlight: 1, Size: size, Keys: shards, Duration: 2 * time.Second,
		})
	}
	for b.Loop() {
		probeDisk(b)
		memory, _ := startBroker(b, felix.Config{}, felix.DropNew)
		m := waiting(memory)
		closeNow(b, memory)
		durable, _ := startDurable(b, felix.Config{}, shards)
		d := waiting(durable)
		closeNow(b, durable)
		b.ReportMetric(d.AckedPerSec, "records/s")
		b.ReportMetric(m.AckedPerSec, "memory-records/s")
		b.ReportMetric(d.AckedPerSec/m.AckedPerSec, "xMemory")
		b.ReportMetric(d.Ack.P50, "p50-us")
		b.ReportMetric(d.Ack.P99, "p99-us")
		b.ReportMetric(m.Ack.P50, "memory-p50-us")
		d.log.report(b, d.took, d.records, size)
	}
}

// catchUpBytes is what BenchmarkCatchUp writes and reads back.
func catchUpBytes(b *testing.B) int64 {
	text := os.Getenv("FELIX_CATCHUP_BYTES")
	if text == "" {
		return 256 << 20
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1<<20 {
		b.Fatalf("FELIX_CATCHUP_BYTES is %q; give a number of bytes from %d", text, 1<<20)
	}
	return n
}

// BenchmarkCatchUp fills one shard with records of 4 KiB, drops the log from the page cache and reads it from the
// earliest record on, through a subscription and with the log's own reader. File is a plain sequential read of the same
// segments, just as cold; sink is the bulk ceiling of the transport, which bounds what a subscription can get.
func BenchmarkCatchUp(b *testing.B) {
	const size, batch = 4096, 64
	bytes := catchUpBytes(b)
	batches := int(bytes / (size * batch))
	for b.Loop() {
		sink, err := ceiling.OneProcess.Sink(b.Context(), 1, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		broker, roots := startDurable(b, felix.Config{}, 1)
		if err := fill(b.Context(), broker, roots, size, batch, batches); err != nil {
			b.Fatal(err)
		}
		lane, segments, err := busiestLane(broker.DataDir())
		if err != nil {
			b.Fatal(err)
		}
		cold := func(read func() (float64, error)) float64 {
			if err := ceiling.DropCache(segments); err != nil {
				b.Fatal(err)
			}
			rate, err := read()
			if err != nil {
				b.Fatal(err)
			}
			return rate
		}
		plain := func() (float64, error) { return ceiling.ReadFiles(b.Context(), segments) }
		file := cold(plain)
		subscription := cold(func() (float64, error) { return catchUp(b.Context(), broker, roots, size, batches*batch) })
		warm, err := catchUp(b.Context(), broker, roots, size, batches*batch)
		if err != nil {
			b.Fatal(err)
		}
		closeNow(b, broker)
		reader := cold(func() (float64, error) { return readLane(lane, size, batches*batch) })
		file = max(file, cold(plain)) // what lies under a virtual disk may have learned the blocks meanwhile
		b.ReportMetric(file/1e6, "file-MB/s")
		b.ReportMetric(reader/1e6, "reader-MB/s")
		b.ReportMetric(reader/file, "reader-xFile")
		b.ReportMetric(subscription/1e6, "MB/s")
		b.ReportMetric(subscription/file, "xFile")
		b.ReportMetric(warm/1e6, "warm-MB/s")
		b.ReportMetric(sink/1e6, "sink-MB/s")
		b.ReportMetric(subscription/min(file, sink), "xBound")
	}
}

// fill publishes batches to the only shard and returns when all are acknowledged.
func fill(ctx context.Context, broker *felix.Broker, roots *x509.CertPool, size, batch, batches int) error {
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithRootCAs(roots), client.WithServerName("localhost"))
	if err != nil {
		return err
	}
	p, err := c.Publisher("bench")
	if err != nil {
		return errors.Join(err, c.Close())
	}
	payloads := make([][]byte, batch)
	for i := range payloads {
		payloads[i] = make([]byte, size)
	}
	var pending [inFlight]*client.Future
	for n := range batches + inFlight {
		slot := &pending[n%inFlight]
		if *slot != nil {
			if _, err := (*slot).Wait(ctx); err != nil {
				return errors.Join(err, c.Close())
			}
			*slot = nil
		}
		if n < batches {
			*slot = p.PublishBatchAsync(ctx, payloads)
		}
	}
	return c.Close()
}

// catchUp reads n records of the only shard from the earliest on and returns payload bytes per second.
func catchUp(ctx context.Context, broker *felix.Broker, roots *x509.CertPool, size, n int) (float64, error) {
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithRootCAs(roots), client.WithServerName("localhost"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	sub, err := c.Subscribe(ctx, "bench", client.Shard(0), client.FromEarliest())
	if err != nil {
		return 0, err
	}
	defer sub.Close()
	for next := client.Offset(0); next < client.Offset(n); {
		batch, err := sub.NextBatch(ctx)
		if err != nil {
			return 0, fmt.Errorf("at %d of %d: %w", next, n, err)
		}
		for offset, data := range batch.All() {
			if offset != next || len(data) != size {
				return 0, fmt.Errorf("record of %d bytes at %d, want %d at %d", len(data), offset, size, next)
			}
			next++
		}
		batch.Release()
	}
	return float64(n) * float64(size) / time.Since(start).Seconds(), nil
}

// busiestLane returns the lane with the most log and its segments in order.
func busiestLane(dataDir string) (lane string, segments []string, err error) {
	lanes, err := filepath.Glob(filepath.Join(dataDir, "lanes", "lane-*"))
	if err != nil {
		return "", nil, err
	}
	var most int64
	for _, dir := range lanes {
		info, err := wal.Inspect(nil, dir)
		if err != nil {
			return "", nil, err
		}
		var used int64
		var names []string
		for _, s := range info.Segments {
			used += s.UsedBytes
			names = append(names, filepath.Join(dir, s.Name))
		}
		if used > most {
			most, lane, segments = used, dir, names
		}
	}
	if lane == "" {
		return "", nil, fmt.Errorf("no lane in %s holds anything", dataDir)
	}
	return lane, segments, nil
}

// readLane reads the only shard of a lane that nobody else has open, and returns payload bytes per second.
func readLane(dir string, size, n int) (rate float64, err error) {
	info, err := wal.Inspect(nil, dir)
	if err != nil {
		return 0, err
	}
	lane, recovered, err := wal.Open(dir, wal.Options{Lane: info.Lane, Now: time.Now})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lane.Close()) }()
	if len(recovered.Shards) != 1 || uint64(recovered.Shards[0].End) != uint64(n) {
		return 0, fmt.Errorf("%s holds %+v, want one shard up to %d", dir, recovered.Shards, n)
	}
	reader := lane.NewReaderOffCore(recovered.Shards[0].Shard, 0)
	defer reader.Close()
	start := time.Now()
	for reader.Offset() < recovered.Shards[0].End {
		batches, err := reader.Read(wal.Limits{})
		if err != nil {
			return 0, err
		}
		if len(batches) == 0 {
			return 0, fmt.Errorf("%s: nothing at %d of %d", dir, reader.Offset(), n)
		}
	}
	return float64(n) * float64(size) / time.Since(start).Seconds(), nil
}
