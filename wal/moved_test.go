package wal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"felix/netio/wire"
)

// TestMovedBatchesWithoutFooter destroys the seals of the segments that hold moved batches. Those are then scanned, and the
// segments that the batches came from are gone: nothing but the scanned groups themselves says how far their shard reaches.
func TestMovedBatchesWithoutFooter(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes, opts.SpareSegments = 64<<10, -1
	r := openRig(t, dir, opts)
	r.publish(9, 2, 50, OnCommit) // quiet from here on
	r.publish(9, 3, 50, OnCommit)
	home := func() *segment {
		r.lane.idx.mu.RLock()
		defer r.lane.idx.mu.RUnlock()
		e, ok := r.lane.idx.shards[9].find(0)
		if !ok {
			t.Fatal("the quiet shard has no place")
		}
		return e.seg
	}
	first := home()
	busy := func() {
		r.publish(1, 2, 1000, OnCommit)
		end, _ := r.lane.End(1)
		if err := r.lane.SetStart(1, end-1, None, 0); err != nil && err != ErrBusy {
			t.Fatal(err)
		}
	}
	for deadline := time.After(time.Minute); home() == first; busy() {
		select {
		case <-deadline:
			t.Fatal("the quiet shard is not moved")
		default:
		}
	}
	// The segment that it was moved to is sealed, and another is opened by a checkpoint behind it.
	sealed := func(s *segment) bool {
		r.lane.idx.mu.RLock()
		defer r.lane.idx.mu.RUnlock()
		return s.sealed
	}
	for moved := home(); !sealed(moved); busy() {
	}
	r.close()

	if _, err := os.Stat(filepath.Join(dir, first.name)); !os.IsNotExist(err) {
		t.Fatalf("%s is still there: %v", first.name, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, blockSize), opts.SegmentBytes-blockSize); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}

	r = openRig(t, dir, opts)
	defer r.close()
	if len(r.rec.Damage) > 0 || len(r.rec.Notices) == 0 {
		t.Errorf("damage %v, notices %v", r.rec.Damage, r.rec.Notices)
	}
	reader := r.lane.NewReaderOffCore(9, 0)
	defer reader.Close()
	got, err := reader.Read(Limits{})
	if err != nil || len(got) != 2 {
		t.Fatalf("the quiet shard reads %v, %v", got, err)
	}
	next := wire.Offset(0)
	for _, b := range got {
		if b.Base != next || !bytes.Equal(b.Records, testBatch(9, b.Base, int(b.Count), 50).Records) {
			t.Errorf("%d records at %d, want %d", b.Count, b.Base, next)
		}
		next = b.End()
	}
	if next != 5 {
		t.Errorf("the quiet shard reads up to %d", next)
	}
}
