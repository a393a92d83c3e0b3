package wal

import (
	"errors"
	"sync/atomic"
	"testing"

	"felix/netio/wire"
)

// tightFS says that a given number of bytes is free.
type tightFS struct {
	OSFS
	free atomic.Int64
}

func (fs *tightFS) Free(string) (int64, error) { return fs.free.Load(), nil }

// TestFullDiskForOrdinarySegments has room for no more than what control records are given. Batches are refused.
func TestFullDiskForOrdinarySegments(t *testing.T) {
	fs := &tightFS{}
	fs.free.Store(1 << 30)
	opts := testOptions()
	opts.FS, opts.ReserveBytes, opts.SpareSegments = fs, 4096, -1
	r := openRig(t, t.TempDir(), opts)
	defer r.close()
	fs.free.Store(80 << 10)
	for n := 0; ; n++ {
		end, _ := r.lane.End(1)
		_, err := r.lane.Append(testBatch(1, end, 1, 10000), OnCommit, 1)
		r.lane.Commit()
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err != nil && err != ErrBusy || n > 10000 {
			t.Fatalf("try %d: %v", n, err)
		}
		r.until(func() bool { return r.lane.inFlight == 0 }) // what is in flight counts as taken
		if err == ErrBusy {
			r.wait()
		}
	}
	for range 100 {
		end, _ := r.lane.End(1)
		if _, err := r.lane.Append(testBatch(1, end, 1, 10000), OnCommit, 1); !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
	}
	if err := r.lane.Delete(1, OnCommit, 1); err != nil {
		t.Errorf("a delete on a full disk: %v", err)
	}
	// The reserve ends as well: a segment that is not there adds none to it.
	for at := wire.Offset(1); ; at++ {
		r.settle()
		err := r.lane.SetStart(2, at, OnCommit, 1)
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err != nil && err != ErrBusy || at > 1000 {
			t.Fatalf("start record %d: %v", at, err)
		}
	}
	fs.free.Store(1 << 30)
	for {
		_, err := r.append(testBatch(3, 0, 1, 1000), OnCommit)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		r.wait() // the lane says when there is room
	}
	r.settle()
}

// TestFullDiskForLargeBatches has room for small segments and for none that a large batch fits. The batch is refused and not told
// to wait, also when a small next segment stands ready: segments would be made and dropped for it for ever. It is taken once there
// is room.
func TestFullDiskForLargeBatches(t *testing.T) {
	fs := &tightFS{}
	fs.free.Store(1 << 30)
	opts := testOptions()
	opts.FS, opts.SegmentBytes, opts.ReserveBytes, opts.SpareSegments = fs, 256<<10, 4096, -1
	r := openRig(t, t.TempDir(), opts)
	defer r.close()
	fs.free.Store(100 << 10)
	large := func() error {
		end, _ := r.lane.End(1)
		_, err := r.lane.Append(&Batch{Kind: KindRecords, Shard: 1, Base: end, Count: 1, Records: wire.AppendRecord(nil, make([]byte, 180<<10))}, OnCommit, 1)
		r.lane.Commit()
		return err
	}
	// The first segments have room, and the one that stands ready.
	for {
		err := large()
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err != nil && err != ErrBusy {
			t.Fatal(err)
		}
		r.until(func() bool { return r.lane.inFlight == 0 })
		if err == ErrBusy {
			r.wait()
		}
	}
	for range 5 {
		// A small segment comes by itself, and takes what fits it.
		for r.lane.roomNext.Load() == 0 {
			r.wait()
		}
		for range 3 {
			if err := large(); !errors.Is(err, ErrDiskFull) {
				t.Fatalf("a large batch beside a small segment: %v", err)
			}
		}
		r.publish(2, 1, 40<<10, OnCommit)
	}
	fs.free.Store(1 << 30)
	for {
		err := large()
		if err == nil {
			break
		}
		if err != ErrBusy && !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		r.wait()
		r.until(func() bool { return true })
	}
}

// TestLargeBatchBehindUsedReserve has control records use the reserve of the active segment, so that it has less than no room for batches,
// while a next segment stands ready that is too small for a large one. Nobody counts on that one: it makes way as soon as there is room.
func TestLargeBatchBehindUsedReserve(t *testing.T) {
	fs := &tightFS{}
	fs.free.Store(1 << 30)
	opts := testOptions()
	opts.FS, opts.SegmentBytes, opts.ReserveBytes, opts.SpareSegments = fs, 256<<10, 4096, -1
	r := openRig(t, t.TempDir(), opts)
	defer r.close()
	fs.free.Store(100 << 10)
	r.publish(1, 1, 1000, OnCommit)
	// Small batches go on until the segments of ordinary size are used up and the next one is a small one.
	for next := int64(0); next == 0 || next > 64<<10; next = r.lane.roomNext.Load() {
		r.publish(1, 1, 4000, OnCommit)
	}
	for at := wire.Offset(1); r.lane.roomActive.Load() >= 0; at++ {
		if r.lane.roomActive.Load() > 2*blockSize {
			r.publish(1, 1, 4000, OnCommit)
			continue
		}
		if err := r.lane.SetStart(1, at, OnCommit, 0); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	if r.lane.promised.Load() != 0 || r.lane.roomNext.Load() == 0 {
		t.Fatalf("%d bytes are promised, %d of room next", r.lane.promised.Load(), r.lane.roomNext.Load())
	}
	fs.free.Store(1 << 30)
	end, _ := r.lane.End(1)
	large := Batch{Kind: KindRecords, Shard: 1, Base: end, Count: 1, Records: wire.AppendRecord(nil, make([]byte, 180<<10))}
	if _, err := r.append(&large, OnCommit); err != nil {
		t.Fatal(err)
	}
	r.settle()
}
