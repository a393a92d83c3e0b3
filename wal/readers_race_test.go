package wal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// TestReadersInTinySegments has readers of every kind stand in segments that are filled, sealed, moved out of, freed and
// recycled within a few groups, on 1, 2 and 8 processors. No read gives an error, and every record that is given is the right
// one. The disk is in memory, so that thousands of segments pass in seconds.
func TestReadersInTinySegments(t *testing.T) {
	rounds := 2000
	if wal.RaceEnabled || testing.Short() {
		rounds = 600
	}
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			readersInTinySegments(t, rounds)
		})
	}
}

func readersInTinySegments(t *testing.T, rounds int) {
	const shards, quiet = 4, 3 // the quiet shard's batches are moved again and again
	d := faultfs.New(16 << 20)
	opts := diskOptions(d)
	opts.SpareSegments, opts.SparseShare, opts.IndexCache, opts.ZeroAhead = 2, 40, 1, 16<<10
	opts.MarkAfter, opts.SyncInterval = 2*time.Millisecond, time.Millisecond
	var clock atomic.Int64
	opts.Now = func() time.Time { return time.UnixMicro(clock.Add(50)) } // the lane, the keeper and the owner ask
	o := openOwner(t, "l", opts)
	for shard := range uint64(shards) {
		o.mustPublish(shard, 1, 50)
	}
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	errs := make(chan error, 16)
	var readers sync.WaitGroup
	var given atomic.Int64
	for i := range 6 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(rounds)))
			if err := followAtRandom(o.lane, uint64(i%shards), rng, &given, stop); err != nil {
				errs <- fmt.Errorf("reader %d: %w", i, err)
			}
		})
	}
	readers.Go(func() {
		if err := lookAround(o.lane, shards, &clock, stop); err != nil {
			errs <- err
		}
	})
	rng := rand.New(rand.NewPCG(uint64(rounds), 7))
	for i := range rounds {
		shard := uint64(rng.IntN(shards - 1))
		if i%100 == 99 {
			shard = quiet
		}
		mode := wal.None
		if i%10 == 0 {
			mode = wal.OnCommit
		}
		if err := o.publish(shard, 1+rng.IntN(4), 20+rng.IntN(3000), mode); err != nil {
			t.Fatal(err)
		}
		if end, _ := o.lane.End(shard); shard != quiet && end > 40 && rng.IntN(8) == 0 {
			if err := o.lane.SetStart(shard, end-wire.Offset(20+rng.IntN(20)), wal.None, 0); err != nil && err != wal.ErrBusy {
				t.Fatal(err)
			}
		}
		select {
		case err := <-errs:
			t.Fatalf("round %d: %v", i, err)
		default:
		}
	}
	end()
	readers.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	s := o.lane.StatsOffCore()
	o.mustClose()
	t.Logf("%d records given; %d segments filled, %d freed, %d recycled, %d batches moved", given.Load(), s.Rolls, s.Released, s.Recycled, s.MovedBatches)
	if given.Load() == 0 || s.Released == 0 || s.MovedBatches == 0 {
		t.Error("nothing was tested")
	}
}

// followAtRandom reads the shard to its end and again from its start, in portions and up to places that it draws.
func followAtRandom(l *wal.Lane, shard uint64, rng *rand.Rand, given *atomic.Int64, stop chan struct{}) error {
	r := l.NewReaderOffCore(shard, 0)
	defer r.Close()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		start, end, _ := l.RangeOffCore(shard)
		lim := wal.Limits{Bytes: 1 + rng.IntN(20000), Records: 1 + rng.IntN(30)}
		if rng.IntN(2) == 0 && end > r.Offset() {
			lim.To = r.Offset() + 1 + wire.Offset(rng.Int64N(int64(end-r.Offset())))
		}
		batches, err := r.Read(lim)
		var trimmed *wal.TrimmedError
		if errors.As(err, &trimmed) {
			r.Seek(trimmed.Start)
			continue
		}
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			if r.Offset() < end && lim.To == 0 {
				return fmt.Errorf("shard %d: nothing at %d of [%d, %d)", shard, r.Offset(), start, end)
			}
			r.Seek(start)
			runtime.Gosched() // at the end there is nothing to do but wait for the owner
		}
		for _, b := range batches {
			off := b.Base
			for p := range wire.AllRecords(b.Records) {
				if !sameTail(p, shard, off) {
					return fmt.Errorf("shard %d: offset %d holds another payload", shard, off)
				}
				off++
				given.Add(1)
			}
			if off != b.End() {
				return fmt.Errorf("shard %d: batch at %d gives %d records of %d", shard, b.Base, off-b.Base, b.Count)
			}
		}
	}
}

// lookAround asks for offsets by time and for retention's starts.
func lookAround(l *wal.Lane, shards uint64, clock *atomic.Int64, stop chan struct{}) error {
	for shard := uint64(0); ; shard = (shard + 1) % shards {
		select {
		case <-stop:
			return nil
		default:
		}
		now := clock.Load()
		before, _, _ := l.RangeOffCore(shard)
		at, err := l.OffsetForTimeOffCore(shard, now-2000)
		_, end, _ := l.RangeOffCore(shard)
		if err != nil || at < before || at > end {
			return fmt.Errorf("shard %d: the offset for a time is %d of [%d, %d): %w", shard, at, before, end, err)
		}
		to, err := l.RetentionStartOffCore(shard, wal.Retention{MaxBytes: 20000, MaxAge: 10 * time.Millisecond}, time.UnixMicro(now))
		if _, end, _ = l.RangeOffCore(shard); err != nil || to < before || to > end {
			return fmt.Errorf("shard %d: retention would start at %d of [%d, %d): %w", shard, to, before, end, err)
		}
	}
}
