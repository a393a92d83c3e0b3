package wal

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"felix/netio/wire"
)

// TestReadersBesideTheLane reads from several goroutines while the owner appends and retention frees, moves and recycles
// the segments that they stand in. Every record that is given is the right one.
func TestReadersBesideTheLane(t *testing.T) {
	for _, kind := range []BackendKind{BackendSync, BackendURing} {
		opts := testOptions()
		opts.SegmentBytes, opts.MaxGroupBytes, opts.SpareSegments, opts.SparseShare, opts.IndexCache = 64<<10, 16<<10, 2, 40, 2
		opts.Backend, opts.ZeroAhead = kind, 64<<10
		r := openRig(t, t.TempDir(), opts)
		for shard := range uint64(3) {
			r.publish(shard, 1, 50, OnCommit)
		}
		stop := make(chan struct{})
		errs := make(chan error, 8)
		var readers sync.WaitGroup
		for i := range 4 {
			readers.Add(1)
			go func() {
				defer readers.Done()
				if err := follow(r.lane, uint64(i%3), Limits{Bytes: 3000 * (i + 1)}, stop); err != nil {
					errs <- err
				}
			}()
		}
		rounds := 1500
		if raceEnabled {
			rounds = 500
		}
		for i := range rounds {
			shard := uint64(i % 3)
			if shard == 2 && i%30 != 2 {
				shard = 0 // a quiet one, whose batches have to be moved
			}
			r.publish(shard, 1+i%3, 50, []Mode{OnCommit, None, Periodic}[i%3])
			if i%20 == 0 {
				end, _ := r.lane.End(shard)
				if end > 60 && shard != 2 {
					if err := r.lane.SetStart(shard, end-60, None, 0); err != nil && err != ErrBusy {
						t.Fatal(err)
					}
				}
			}
		}
		close(stop)
		readers.Wait()
		select {
		case err := <-errs:
			t.Fatalf("backend %d: %v", kind, err)
		default:
		}
		s := r.lane.StatsOffCore()
		if s.Released == 0 || s.Recycled == 0 || s.MovedBatches == 0 {
			t.Errorf("%d segments released, %d recycled, %d batches moved", s.Released, s.Recycled, s.MovedBatches)
		}
		r.close()
	}
}

// follow reads the shard from its start to its end, again and again, until stop.
func follow(l *Lane, shard uint64, lim Limits, stop chan struct{}) error {
	reader := l.NewReaderOffCore(shard, 0)
	defer reader.Close()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		batches, err := reader.Read(lim)
		var trimmed *TrimmedError
		if errors.As(err, &trimmed) {
			reader.Seek(trimmed.Start)
			continue
		}
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			start, _, _ := l.RangeOffCore(shard)
			reader.Seek(start)
		}
		for _, b := range batches {
			off := b.Base
			for p := range wire.AllRecords(b.Records) {
				if want := testRecord(shard, off, len(p))[4:]; !bytes.Equal(p, want) {
					return fmt.Errorf("shard %d offset %d reads %q, want %q", shard, off, p, want)
				}
				off++
			}
			if off != b.End() {
				return fmt.Errorf("shard %d: batch at %d gives %d records of %d", shard, b.Base, off-b.Base, b.Count)
			}
		}
	}
}
