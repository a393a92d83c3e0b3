package wal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"felix/netio/wire"
)

// slowBackend lets a test hold the disk.
type slowBackend struct {
	Backend
	gate  chan struct{}
	calls chan bool
}

func (s *slowBackend) Write(f File, bufs [][]byte, off int64, sync bool) error {
	s.calls <- sync
	<-s.gate
	return s.Backend.Write(f, bufs, off, sync)
}

func TestGroupIsWhatArrivedMeanwhile(t *testing.T) {
	slow := &slowBackend{gate: make(chan struct{}), calls: make(chan bool, 100)}
	opts := testOptions()
	opts.WrapBackend = func(b Backend) Backend { slow.Backend = b; return slow }
	r := openRig(t, t.TempDir(), opts)
	add := func(shard uint64, mode Mode) {
		base, _ := r.lane.End(shard)
		r.next++
		if _, err := r.lane.Append(testBatch(shard, base, 1, 10), mode, r.next); err != nil {
			t.Fatal(err)
		}
		r.lane.Commit()
	}
	add(1, OnCommit)
	<-slow.calls
	for i := range 50 {
		add(uint64(i%5), OnCommit)
	}
	if n := r.lane.Drain(r); n != 0 {
		t.Fatalf("%d completions while the disk works", n)
	}
	close(slow.gate)
	r.until(func() bool { return len(r.tokens) == 51 })
	if s := r.lane.StatsOffCore(); s.Syncs != 3 { // the checkpoint at open, the first group, the second
		t.Errorf("%d syncs for two groups", s.Syncs)
	}
	r.close()
}

// A tellingBackend notes what it is told to expect, and what it is asked to sync.
type tellingBackend struct {
	Backend
	told []string
}

func (b *tellingBackend) Expect(batches int, now time.Time) {
	b.told = append(b.told, fmt.Sprint(batches, !now.IsZero()))
}

func (b *tellingBackend) Write(f File, bufs [][]byte, off int64, sync bool) error {
	if sync {
		b.told = append(b.told, "sync")
	}
	return b.Backend.Write(f, bufs, off, sync)
}

// The backend knows right before each synced group how many batches wait for it, also where a segment is sealed first, and of no other sync.
func TestExpect(t *testing.T) {
	b := &tellingBackend{}
	opts := testOptions()
	opts.openBackend = func(kind BackendKind, log func(string)) Backend { b.Backend = newBackend(kind, log); return b }
	opts.WrapBackend = func(inner Backend) Backend { return struct{ Backend }{inner} } // as brokers do, to time it
	r := openRig(t, t.TempDir(), opts)
	r.publish(1, 1, 10, OnCommit)
	r.publish(1, 1, 10, None)
	for shard := range uint64(3) {
		base, _ := r.lane.End(shard)
		r.next++
		if _, err := r.lane.Append(testBatch(shard, base, 1, 10), OnCommit, r.next); err != nil {
			t.Fatal(err)
		}
	}
	r.until(func() bool { return len(r.tokens) == 5 })
	r.publish(1, 1, 600<<10, OnCommit)
	r.publish(1, 1, 600<<10, OnCommit) // into the next segment, after the seal of the first
	r.close()
	if got := strings.Join(b.told, ", "); got != "1 true, sync, 3 true, sync, 1 true, sync, sync, 1 true, sync, sync" { // the last is of Close
		t.Error(got)
	}
}

func TestBusyAndTooLarge(t *testing.T) {
	slow := &slowBackend{gate: make(chan struct{}), calls: make(chan bool, 100)}
	opts := testOptions()
	opts.Groups, opts.MaxGroupBytes, opts.MaxBatchBytes = 2, 10000, 100000
	opts.WrapBackend = func(b Backend) Backend { slow.Backend = b; return slow }
	r := openRig(t, t.TempDir(), opts)
	if _, err := r.lane.Append(testBatch(1, 0, 1, 200000), OnCommit, 1); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "100000") {
		t.Errorf("too large: %v", err)
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		base, _ := r.lane.End(1)
		_, err = r.lane.Append(testBatch(1, base, 1, 1000), OnCommit, uint64(n))
		r.lane.Commit()
	}
	if err != ErrBusy || n > 30 {
		t.Fatalf("after %d appends: %v", n, err)
	}
	end, _ := r.lane.End(1)
	close(slow.gate)
	r.until(func() bool { return len(r.tokens) == int(end) })
	r.publish(1, 1, 1000, OnCommit)
	r.close()
}

func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowBackend{gate: make(chan struct{}), calls: make(chan bool, 1000)}
		close(slow.gate)
		opts := testOptions()
		opts.SyncInterval = 250 * time.Millisecond
		opts.WrapBackend = func(b Backend) Backend { slow.Backend = b; return slow }
		r := openRig(t, t.TempDir(), opts)
		syncs := func() uint64 { return r.lane.StatsOffCore().Syncs }
		before := syncs()
		r.publish(1, 1, 10, None)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if syncs() != before {
			t.Error("a group without a promise was synced")
		}
		r.publish(2, 1, 10, Periodic)
		if syncs() != before {
			t.Error("a periodic group was synced at once")
		}
		<-time.After(249 * time.Millisecond)
		r.publish(2, 1, 10, Periodic)
		synctest.Wait()
		if syncs() != before {
			t.Error("synced before the interval was over")
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		if syncs() != before+1 {
			t.Errorf("%d syncs after the interval, want 1", syncs()-before)
		}
		r.publish(1, 1, 10, OnCommit)
		if syncs() != before+2 {
			t.Errorf("%d syncs after a commit, want 2", syncs()-before)
		}
		r.close()
	})
}

func TestIdleLaneMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := testOptions()
		opts.MarkAfter = time.Second
		r := openRig(t, t.TempDir(), opts)
		r.publish(1, 1, 10, OnCommit)
		<-time.After(2 * time.Second)
		synctest.Wait()
		if n := r.lane.StatsOffCore().Marks; n != 1 {
			t.Errorf("%d marks after one burst", n)
		}
		groups := r.lane.StatsOffCore().Groups
		<-time.After(time.Hour)
		synctest.Wait()
		if n := r.lane.StatsOffCore().Groups; n != groups {
			t.Errorf("an idle lane wrote %d groups", n-groups)
		}
		r.close()
	})
}

func TestOversizeBatchGetsItsSegment(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 64 << 10
	r := openRig(t, dir, opts)
	r.publish(1, 1, 10, OnCommit)
	r.publish(1, 1, 1<<20, OnCommit)
	r.publish(1, 1, 10, OnCommit)
	r.close()
	r = openRig(t, dir, opts)
	defer r.close()
	reader := r.lane.NewReaderOffCore(1, 0)
	defer reader.Close()
	got, err := reader.Read(Limits{Bytes: 1 << 30})
	if err != nil || len(got) != 3 || len(got[1].Records) != 1<<20+4 {
		t.Fatalf("%d batches, %v", len(got), err)
	}
}

func TestControlRecordsSurvive(t *testing.T) {
	dir := t.TempDir()
	r := openRig(t, dir, testOptions())
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		r.lane.Commit()
		r.until(func() bool { return r.lane.inFlight == 0 && (r.lane.open == nil || len(r.lane.open.dir) == 0) })
	}
	r.publish(1, 10, 10, OnCommit)
	r.publish(2, 10, 10, OnCommit)
	r.publish(3, 10, 10, OnCommit)
	do(r.lane.SetStart(1, 10, OnCommit, 0))  // an empty log keeps its next offset
	do(r.lane.SetStart(2, 100, OnCommit, 0)) // a start beyond the end moves both
	do(r.lane.Truncate(3, 4, OnCommit, 0))
	r.publish(4, 1, 10, OnCommit)
	do(r.lane.Delete(4, OnCommit, 0))
	b := &Batch{Kind: KindRegister, Slot: 0, Shard: 3, Base: 4, Term: 7, Index: 9, Records: []byte("vote")}
	if _, err := r.append(b, OnCommit); err != nil {
		t.Fatal(err)
	}
	r.until(func() bool { return r.lane.inFlight == 0 })
	for range 2 {
		r.close()
		r = openRig(t, dir, testOptions())
		want := map[uint64][2]wire.Offset{1: {10, 10}, 2: {100, 100}, 3: {0, 4}}
		if len(r.rec.Shards) != len(want) {
			t.Fatalf("shards %+v", r.rec.Shards)
		}
		for _, s := range r.rec.Shards {
			if got := [2]wire.Offset{s.Start, s.End}; got != want[s.Shard] {
				t.Errorf("shard %d has %v, want %v", s.Shard, got, want[s.Shard])
			}
		}
		if v, off, ok, err := r.lane.RegisterOffCore(3, 0); err != nil || !ok || off != 4 || !bytes.Equal(v, []byte("vote")) {
			t.Errorf("register %q at %d, %v %v", v, off, ok, err)
		}
	}
	r.close()
}

func TestOneQuietShardDoesNotPinTheDisk(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes, opts.SpareSegments = 64<<10, 2
	r := openRig(t, dir, opts)
	r.publish(9, 2, 50, OnCommit) // quiet from here on
	for range 400 {
		r.publish(1, 2, 1000, OnCommit)
		end, _ := r.lane.End(1)
		if err := r.lane.SetStart(1, end-1, None, 0); err != nil && err != ErrBusy {
			t.Fatal(err)
		}
	}
	for deadline := time.After(time.Minute); r.lane.StatsOffCore().Segments > 4; {
		r.publish(1, 1, 10, OnCommit)
		r.lane.keep.reclaim.Store(true)
		r.lane.keep.poke()
		select {
		case <-deadline:
			t.Fatalf("%d segments stay", r.lane.StatsOffCore().Segments)
		default:
		}
	}
	s := r.lane.StatsOffCore()
	if s.MovedBatches == 0 || s.Recycled == 0 {
		t.Errorf("%d batches moved, %d segments recycled", s.MovedBatches, s.Recycled)
	}
	for range 2 {
		reader := r.lane.NewReaderOffCore(9, 0)
		got, err := reader.Read(Limits{})
		if err != nil || len(got) != 1 || !bytes.Equal(got[0].Records, testBatch(9, 0, 2, 50).Records) {
			t.Errorf("the quiet shard reads %v, %v", got, err)
		}
		reader.Close()
		r.close()
		r = openRig(t, dir, opts)
	}
	r.close()
}

func TestNoAllocationOnTheOwnersPath(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	opts := testOptions()
	opts.SegmentBytes = 64 << 20
	r := openRig(t, t.TempDir(), opts)
	defer r.close()
	batch := testBatch(1, 0, 4, 256)
	sink := &countSink{}
	run := func() {
		for range 8 {
			batch.Base, _ = r.lane.End(1)
			if _, err := r.lane.Append(batch, None, 1); err != nil {
				t.Fatal(err)
			}
		}
		r.lane.Commit()
		for sink.n = 0; sink.n < 8; {
			if r.lane.Drain(sink) == 0 {
				<-r.notify
			}
		}
	}
	for range 20 {
		run()
	}
	// The index gets an entry per 256 KiB of log, so less than one allocation in ten rounds.
	if n := testing.AllocsPerRun(200, run); n > 0 {
		t.Errorf("%.1f allocations per round of 8 batches", n)
	}
}

type countSink struct{ n int }

func (c *countSink) OnDurable(uint64, wire.Offset, uint64, error) { c.n++ }

func TestOptionsReportEveryProblem(t *testing.T) {
	_, _, err := Open(t.TempDir(), Options{SegmentBytes: 1000, Groups: 1, IndexCache: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Now", "SegmentBytes 1000", "Groups 1", "IndexCache -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	for _, m := range []Mode{OnCommit, Periodic, None} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("mode %v parses as %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("always"); err == nil {
		t.Error("mode always was accepted")
	}
	for _, b := range []string{"auto", "sync", "io_uring"} {
		if _, err := ParseBackend(b); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseBackend("aio"); err == nil {
		t.Error("backend aio was accepted")
	}
}
