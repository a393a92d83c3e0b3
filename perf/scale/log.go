package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"felix/client"
	"felix/perf/load"
	"felix/perf/session"
	"felix/wal"

	"github.com/dustin/go-humanize"
)

// What fills a log.
const (
	logStream   = "log" // first use makes it, with the shards that the environment says
	logShards   = 48
	fillRecord  = 4 << 10
	fillBatch   = 64
	fillers     = 8
	fillWindow  = 8         // batches in flight of each
	growth      = 400 << 20 // bytes that a load adds in a second at most, for the check of the disk
	diskReserve = 2 << 30
	maxFailures = 1000 // of batches: two lost connections' worth with every one under way, and more
)

var logCells = []string{"on_commit-256B-1", "on_commit-256B-64"}

func estimateLog(o *options) time.Duration {
	runs := int64(len(logCells) * (o.runs + 1))
	return seconds(o.logBytes+runs*o.smallLog(), fillPerSecond) + time.Duration(len(logCells))*o.of(2) + time.Duration(runs)*overhead
}

// check refuses a log that the disk has no room for.
func (b *bench) check() error {
	for _, p := range b.parts {
		if p.name != "log" {
			continue
		}
		grown := int64((b.duration + b.warmup + overhead).Seconds() * growth)
		need := b.logBytes + b.logBytes/8 + b.smallLog() + int64(len(logCells)*(b.runs+1)+1)*grown + diskReserve
		free, err := (wal.OSFS{}).Free(b.work)
		if err != nil {
			return err
		}
		if free < need {
			return fmt.Errorf("the directory for temporary files has %d MiB free, and logs of %d and %d MiB with what is published to them need %d: "+
				"name another one with TMPDIR, give a smaller -log-bytes, or leave the part log out", free>>20, b.logBytes>>20, b.smallLog()>>20, need>>20)
		}
	}
	return nil
}

// withLog starts a broker on a log.
func (b *bench) withLog(ctx context.Context, dir string, do func(p *broker) error) error {
	return b.with(ctx, load.ProcessConfig{DataDir: dir, Env: []string{fmt.Sprintf("FELIX_DEV_SHARDS=%d", logShards)}}, do)
}

// measureLog publishes to a stream with much behind it.
func measureLog(ctx context.Context, b *bench) error {
	small, large := filepath.Join(b.work, "small"), filepath.Join(b.work, "large")
	fillNew := func(dir string, bytes int64) error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return b.withLog(ctx, dir, func(p *broker) error { return fill(ctx, p.felix, bytes) })
	}
	defer os.RemoveAll(small)
	defer os.RemoveAll(large)
	begun := time.Now()
	if err := fillNew(large, b.logBytes); err != nil {
		return fmt.Errorf("fill the log: %w", err)
	}
	b.sayf("  a log of %d MiB was filled in %v", b.logBytes>>20, time.Since(begun).Round(time.Second))
	sizes := []string{humanize.IBytes(uint64(b.smallLog())), humanize.IBytes(uint64(b.logBytes))}
	for _, cell := range logCells {
		once := func(dir string, prepare func() error) func(ctx context.Context) (Sample, error) {
			return func(ctx context.Context) (s Sample, err error) {
				if err := prepare(); err != nil {
					return s, err
				}
				bytes, err := bytesIn(dir)
				if err != nil {
					return s, err
				}
				err = b.withLog(ctx, dir, func(p *broker) error {
					s, err = b.publish(ctx, p, cell, func(c *load.Config, _ *load.FelixConfig, _ *string) {
						c.Stream, c.Shards, c.Durability = logStream, 0, ""
					})
					return err
				})
				if s.Figures != nil {
					s.Figures[logBytes] = float64(bytes)
				}
				return s, err
			}
		}
		series, err := b.inTurn(ctx, b.runs,
			variant{cell + ", " + sizes[0], once(small, func() error { return fillNew(small, b.smallLog()) })},
			variant{cell + ", " + sizes[1], once(large, func() error { return nil })})
		if err != nil {
			return err
		}
		b.costRows(cell, "of log", sizes, series, cpuPerMillion, func(s *Series) string {
			values := s.values(logBytes)
			if len(values) == 0 {
				return ""
			}
			return fmt.Sprintf("the larger log grew from %s to %s bytes on disk, the smaller is new for each run",
				session.Number(values[0]), session.Number(values[len(values)-1]))
		})
	}
	return nil
}

// fill publishes records to the stream until their payloads are as many bytes. It returns when all are acknowledged. Batches whose outcome is
// not known are published again: what the log holds need not be exact.
func fill(ctx context.Context, f load.FelixConfig, bytes int64) (err error) {
	c, err := client.Dial(ctx, f.Addr, client.WithCAFile(f.CAFile), client.WithServerName("localhost"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	records := make([][]byte, fillBatch)
	for i := range records {
		records[i] = make([]byte, fillRecord)
		for j := range records[i] {
			records[i][j] = byte(i*31 + j*7)
		}
	}
	batches := (bytes + fillBatch*fillRecord - 1) / (fillBatch * fillRecord)
	var next, failures atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for range fillers {
		working.Go(func() {
			out, err := c.Publisher(logStream)
			if err != nil {
				cancel(err)
				return
			}
			var flying []flight
			publish := func(batch int64) {
				flying = append(flying, flight{batch, out.PublishBatchAsync(ctx, records, client.Key(fmt.Sprint(batch)))})
			}
			wait := func(most int) {
				for len(flying) > most && ctx.Err() == nil {
					first := flying[0]
					flying = flying[1:]
					if _, err := first.future.Wait(ctx); err != nil {
						if failures.Add(1) > maxFailures {
							cancel(err)
							return
						}
						publish(first.batch)
					}
				}
			}
			for i := next.Add(1); i <= batches && ctx.Err() == nil; i = next.Add(1) {
				publish(i)
				wait(fillWindow - 1)
			}
			wait(0)
		})
	}
	working.Wait()
	return context.Cause(ctx)
}

// A flight is a batch that has no answer yet.
type flight struct {
	batch  int64
	future *client.Future
}

// bytesIn is what the files below a directory take.
func bytesIn(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
