package wal_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// TestBackendFaults fails each kind of call of each backend, in front of a real disk: the lane stops with the reason, nothing is
// acknowledged after it, readers stop at what was durable, and the next start has everything that was acknowledged and reads clean.
func TestBackendFaults(t *testing.T) {
	for _, kind := range []wal.BackendKind{wal.BackendSync, wal.BackendURing} {
		for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
			for _, call := range []string{"write", "write and sync", "the sync of a write", "sync"} {
				t.Run(fmt.Sprintf("%d/%v/%s", kind, fault, call), func(t *testing.T) { backendFault(t, kind, fault, call) })
			}
		}
	}
}

func backendFault(t *testing.T, kind wal.BackendKind, fault error, call string) {
	var armed bool // set before the group that meets it is handed over
	opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 1 << 20, Backend: kind, ZeroAhead: -1, MarkAfter: time.Hour, SyncInterval: time.Millisecond}
	failed := 0
	opts.WrapBackend = func(b wal.Backend) wal.Backend {
		return &faultfs.Backend{Backend: b, Whole: call == "the sync of a write", Fail: func(c faultfs.Call) error {
			if armed && c.Write == (call != "sync") && c.Sync == (call != "write") {
				failed++
				return fault
			}
			return nil
		}}
	}
	dir := t.TempDir()
	o := openOwner(t, dir, opts)
	o.mustPublish(1, 2, 3000)
	o.mustPublish(2, 2, 3000)
	armed = true
	mode := map[string]wal.Mode{"write": wal.None, "write and sync": wal.OnCommit, "the sync of a write": wal.OnCommit, "sync": wal.Periodic}[call]
	err := o.publish(1, 3, 3000, mode)
	if call == "sync" {
		if err != nil {
			t.Fatalf("a periodic publish counts once it is written: %v", err)
		}
		for deadline := time.After(30 * time.Second); o.lane.Err() == nil; {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatal("the lane does not sync")
			}
		}
		err = o.lane.Err()
	}
	if !errors.Is(err, wal.ErrPoisoned) || !errors.Is(err, fault) {
		t.Fatalf("the failing call: %v", err)
	}
	for shard := range uint64(3) {
		if err := o.publish(shard, 1, 100, wal.None); !errors.Is(err, wal.ErrPoisoned) {
			t.Errorf("an append after it: %v", err)
		}
	}
	for shard := uint64(1); shard <= 2; shard++ {
		if _, end, _ := o.lane.RangeOffCore(shard); end != 2 {
			t.Errorf("readers of shard %d see up to %d, durable are 2", shard, end)
		}
		if good, errs := readAll(t, o.lane, shard, 3000, wal.Limits{}); len(errs) > 0 || len(good) != 2 {
			t.Errorf("shard %d on a stopped lane: %v %v", shard, good, errs)
		}
	}
	if err := o.lane.Close(); !errors.Is(err, wal.ErrPoisoned) {
		t.Errorf("close: %v", err)
	}
	if failed != 1 {
		t.Errorf("%d calls failed: one was tried again", failed)
	}
	opts.WrapBackend = nil
	o = openOwner(t, dir, opts)
	defer o.mustClose()
	if len(o.rec.Damage) > 0 {
		t.Errorf("damage %v", o.rec.Damage)
	}
	for shard := uint64(1); shard <= 2; shard++ {
		// The refused batch was written in part, or whole where only the sync failed: then it may be there, as a whole.
		_, end, _ := o.lane.RangeOffCore(shard)
		if whole := wire.Offset(5); end != 2 && (shard != 1 || call == "write" || call == "write and sync" || end != whole) {
			t.Errorf("shard %d ends at %d", shard, end)
		}
		if _, errs := readAll(t, o.lane, shard, 3000, wal.Limits{}); len(errs) > 0 {
			t.Errorf("shard %d: %v", shard, errs)
		}
		o.mustPublish(shard, 1, 3000)
	}
}
