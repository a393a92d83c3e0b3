package wal_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"felix/wal"
	"felix/wal/faultfs"
)

func TestWithoutPreallocation(t *testing.T) {
	d := faultfs.New(8 << 20)
	d.NoAllocate = true
	opts := diskOptions(d)
	opts.ZeroAhead = 32 << 10
	o := openOwner(t, "l", opts)
	for range 100 {
		o.mustPublish(1, 2, 1000)
	}
	o.mustClose()
	lines := 0
	for len(o.log) > 0 {
		if strings.Contains(<-o.log, "cannot preallocate") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines about preallocation", lines)
	}
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	if good, errs := readAll(t, o.lane, 1, 1000, wal.Limits{}); len(errs) > 0 || offsetsAre(good, 0, 200) != nil {
		t.Errorf("%d records, %v", len(good), errs)
	}
}

func TestZerosStayAheadOfTheGroups(t *testing.T) {
	d := faultfs.New(32 << 20)
	opts := diskOptions(d)
	opts.SegmentBytes, opts.ZeroAhead, opts.ZeroRate = 1<<20, 256<<10, 1<<40
	o := openOwner(t, "l", opts)
	for o.lane.StatsOffCore().ZeroedBytes < 200<<10 {
		select {
		case <-o.notify:
		case <-time.After(time.Millisecond):
		}
	}
	for range 1500 {
		o.mustPublish(1, 2, 1000)
	}
	s := o.lane.StatsOffCore()
	if s.ZeroedGroups == 0 || s.ZeroedBytes == 0 {
		t.Errorf("%d of %d groups in zeroed blocks, %d bytes zeroed", s.ZeroedGroups, s.Groups, s.ZeroedBytes)
	}
	o.mustClose()
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	if good, errs := readAll(t, o.lane, 1, 1000, wal.Limits{}); len(errs) > 0 || offsetsAre(good, 0, 3000) != nil || len(o.rec.Damage) > 0 {
		t.Errorf("%d records, %v %v", len(good), errs, o.rec.Damage)
	}
}

// Large groups are not preceded by as many zeros.
func TestZerosRestWhileGroupsAreLarge(t *testing.T) {
	d := faultfs.New(128 << 20)
	opts := diskOptions(d)
	opts.SegmentBytes, opts.MaxGroupBytes, opts.ZeroAhead, opts.ZeroRate = 16<<20, 1<<20, 4<<20, 1<<40
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	publish := func() uint64 {
		for range 40 {
			o.mustPublish(1, 200, 1000)
		}
		return o.lane.StatsOffCore().ZeroedBytes
	}
	before := publish()
	if grown := publish() - before; grown > 1<<20 { // a chunk that had begun
		t.Errorf("%d bytes zeroed beside 8 MB of log in groups of 200 KB", grown)
	}
}

func TestSegmentsFitASmallDisk(t *testing.T) {
	d := faultfs.New(64 << 20)
	opts := diskOptions(d)
	opts.SegmentBytes, opts.MaxGroupBytes = 256<<20, 0
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	o.mustPublish(1, 10, 1000)
	if size := len(d.Get("l/0000000000000001.seg")); size > 8<<20 {
		t.Errorf("the first segment takes %d bytes of 64 MiB", size)
	}
}

func TestForgedGroupInAPayloadIsNotTaken(t *testing.T) {
	// A payload that holds the block of a real group, salt and all, as only a reader of the disk could make it, must not
	// be taken for a group while the log around it is intact.
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	o.mustPublish(1, 1, 100)
	content := d.Get("l/0000000000000001.seg")
	block := content[3*4096 : 4*4096]
	payload := append(make([]byte, 8192), block...)
	for i := range 8 {
		copy(payload[i*900:], block)
	}
	base, _ := o.lane.End(2)
	rec := append([]byte{0, 0, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	err := o.do(func(token uint64) error {
		_, err := o.lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: 2, Base: base, Count: 1, Records: rec}, wal.OnCommit, token)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o.mustPublish(1, 1, 100)
	o.mustClose()
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	if _, end, _ := o.lane.RangeOffCore(1); end != 2 || len(o.rec.Damage) > 0 || o.rec.Cut != nil {
		t.Errorf("end %d, %v, %v", end, o.rec.Damage, o.rec.Cut)
	}
}

// TestManyDeadSegmentsTakeOneSync deletes a shard of many segments: the next segment does not wait for as many syncs of the directory.
func TestManyDeadSegmentsTakeOneSync(t *testing.T) {
	d := faultfs.New(16 << 20)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	for range 100 {
		o.mustPublish(1, 1, 8000)
	}
	segments := o.lane.StatsOffCore().Segments
	if segments < 10 {
		t.Fatalf("%d segments", segments)
	}
	var syncs, gone atomic.Int64
	done := make(chan struct{}, 1)
	d.OnOp(func(op faultfs.Op) {
		switch op.Kind {
		case faultfs.OpSyncDir:
			if syncs.Add(1); gone.Load() >= int64(segments-2) {
				select {
				case done <- struct{}{}:
				default:
				}
			}
		case faultfs.OpRename, faultfs.OpRemove:
			gone.Add(1)
		}
	})
	if err := o.do(func(token uint64) error { return o.lane.Delete(1, wal.OnCommit, token) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%d of %d segments are gone", gone.Load(), segments)
	}
	if n := syncs.Load(); n > 3 {
		t.Errorf("%d segments went with %d syncs of the directory", gone.Load(), n)
	}
}
