package wal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"felix/wal"
	"felix/wal/faultfs"
)

func TestFailedSyncPoisons(t *testing.T) {
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	o.mustPublish(1, 3, 100)
	// A periodic group that was written and not synced counts as done until the sync fails.
	opts.SyncInterval = time.Hour
	var fail atomic.Bool
	d.Fail(func(op faultfs.Op) error {
		if fail.Load() && op.Kind == faultfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	fail.Store(true)
	if err := o.publish(1, 2, 100, wal.None); err != nil {
		t.Fatalf("an unsynced group: %v", err)
	}
	if _, end, _ := o.lane.RangeOffCore(1); end != 5 {
		t.Fatalf("visible end %d before the failure, want 5", end)
	}
	if err := o.publish(1, 1, 100, wal.OnCommit); !errors.Is(err, wal.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("append over a failing sync: %v", err)
	}
	fail.Store(false)
	if err := o.publish(2, 1, 100, wal.OnCommit); !errors.Is(err, wal.ErrPoisoned) {
		t.Fatalf("append after a failed sync: %v", err)
	}
	if _, end, _ := o.lane.RangeOffCore(1); end != 3 {
		t.Fatalf("readers see up to %d, durable is 3", end)
	}
	if good, errs := readAll(t, o.lane, 1, 100, wal.Limits{}); len(errs) > 0 || len(good) != 3 {
		t.Fatalf("reads on a poisoned lane: %v %v", good, errs)
	}
	if err := o.lane.Close(); !errors.Is(err, wal.ErrPoisoned) {
		t.Fatalf("close: %v", err)
	}
	// The failed sync dropped the writes it covered; what was acknowledged before is there.
	o = openOwner(t, "l", diskOptions(d.Crash(faultfs.DropAll, nil)))
	defer o.mustClose()
	if _, end, _ := o.lane.RangeOffCore(1); end != 3 || len(o.rec.Damage) > 0 {
		t.Fatalf("end %d, damage %v", end, o.rec.Damage)
	}
	o.mustPublish(1, 1, 100)
}

func TestFailedWritePoisons(t *testing.T) {
	for _, kind := range []wal.BackendKind{wal.BackendSync, wal.BackendURing} {
		dir := t.TempDir()
		opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 1 << 20, Backend: kind, ZeroAhead: -1, MarkAfter: time.Hour}
		opts.WrapBackend = func(b wal.Backend) wal.Backend {
			return &faultfs.Backend{Backend: b, Fail: func(c faultfs.Call) error {
				if c.N == 3 {
					return syscall.EIO
				}
				return nil
			}}
		}
		o := openOwner(t, dir, opts)
		o.mustPublish(1, 1, 5000)
		o.mustPublish(1, 1, 5000)
		if err := o.publish(1, 1, 5000, wal.OnCommit); !errors.Is(err, wal.ErrPoisoned) {
			t.Fatalf("failing write: %v", err)
		}
		if err := o.lane.Close(); !errors.Is(err, wal.ErrPoisoned) {
			t.Fatalf("close: %v", err)
		}
		opts.WrapBackend = nil
		o = openOwner(t, dir, opts)
		if _, end, _ := o.lane.RangeOffCore(1); end != 2 || len(o.rec.Damage) > 0 || o.rec.Cut == nil {
			t.Errorf("end %d, want 2; damage %v, cut %v", end, o.rec.Damage, o.rec.Cut)
		}
		o.mustPublish(1, 1, 100)
		o.mustClose()
	}
}

func TestDiskFullRefusesThenResumes(t *testing.T) {
	const capacity = 2 << 20
	d := faultfs.New(capacity)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	var err error
	published := 0
	for range 10000 {
		if err = o.publish(1, 4, 1000, wal.OnCommit); err != nil {
			break
		}
		published += 4
	}
	if !errors.Is(err, wal.ErrDiskFull) {
		t.Fatalf("%d records and then %v, want ErrDiskFull", published, err)
	}
	if o.lane.Err() != nil {
		t.Fatalf("a full disk poisoned the lane: %v", o.lane.Err())
	}
	if good, errs := readAll(t, o.lane, 1, 1000, wal.Limits{}); len(errs) > 0 || len(good) != published {
		t.Fatalf("%d of %d records read back on a full disk: %v", len(good), published, errs)
	}
	// A foreign file takes the rest; a restart with nothing free works and serves.
	free, _ := d.Free("l")
	d.Take(free)
	o.mustClose()
	o = openOwner(t, "l", opts)
	if _, end, _ := o.lane.RangeOffCore(1); int(end) != published || len(o.rec.Damage) > 0 {
		t.Fatalf("end %d, want %d; %v", end, published, o.rec.Damage)
	}
	// Deleting still works, frees space, and appends go on by themselves.
	if err := o.do(func(token uint64) error { return o.lane.SetStart(1, 1000, wal.OnCommit, token) }); err != nil {
		t.Fatalf("retention on a full disk: %v", err)
	}
	d.Take(-free)
	deadline := time.After(time.Minute)
	for {
		err := o.publish(1, 1, 1000, wal.OnCommit)
		if err == nil {
			break
		}
		if !errors.Is(err, wal.ErrDiskFull) {
			t.Fatal(err)
		}
		select {
		case <-o.notify:
		case <-deadline:
			t.Fatal("appends do not resume once there is space")
		}
	}
	o.mustClose()
}

func TestSecondOpenerIsToldThePid(t *testing.T) {
	dir := t.TempDir()
	opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 1 << 20}
	o := openOwner(t, dir, opts)
	defer o.mustClose()
	_, err := tryOpen(t, dir, opts)
	var locked *wal.LockedError
	if !errors.As(err, &locked) || locked.Pid == "" || !strings.Contains(err.Error(), locked.Pid) {
		t.Fatalf("second opener: %v", err)
	}
}

func TestForeignFilesAndNames(t *testing.T) {
	dir := t.TempDir()
	opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 64 << 10, ZeroAhead: -1, SpareSegments: -1}
	o := openOwner(t, dir, opts)
	for range 100 {
		o.mustPublish(1, 2, 1000)
	}
	o.mustClose()
	foreign := []string{"notes.txt", "00000000000000ff.idx", "zz.seg"}
	for _, f := range foreign {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o = openOwner(t, dir, opts)
	if len(o.rec.Notices) != len(foreign) {
		t.Errorf("notices %q", o.rec.Notices)
	}
	o.mustClose()
	for _, f := range foreign {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Errorf("foreign file: %v", err)
		}
		os.Remove(filepath.Join(dir, f))
	}
	refused := func(what, want string, change, undo func() error) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		before := names(t, dir)
		if _, err := tryOpen(t, dir, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if got := names(t, dir); got != before {
			t.Errorf("%s: files went from %s to %s", what, before, got)
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := filepath.Join(dir, "0000000000000001.seg"), filepath.Join(dir, "0000000000000063.seg")
	refused("renamed segment", "rename it back", func() error { return os.Rename(first, second) }, func() error { return os.Rename(second, first) })
	content, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	refused("newer version", "format version 9", func() error { return os.WriteFile(first, wal.WithVersion(content, 9), 0o600) }, func() error { return os.WriteFile(first, content, 0o600) })
	opts.Lane = 2
	refused("another lane", "belongs to lane 1", func() error { return nil }, func() error { return nil })
	opts.Lane = 1
	o = openOwner(t, dir, opts)
	if len(o.rec.Damage) > 0 || len(o.rec.Notices) > 0 {
		t.Errorf("after all that: %v %v", o.rec.Damage, o.rec.Notices)
	}
	o.mustClose()
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := wal.OSFS{}.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func TestMissingAndTruncatedSegments(t *testing.T) {
	dir := t.TempDir()
	opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 64 << 10, ZeroAhead: -1, MarkAfter: time.Hour}
	o := openOwner(t, dir, opts)
	for range 60 {
		o.mustPublish(1, 2, 1000)
		o.mustPublish(2, 1, 100)
	}
	o.mustPublish(3, 1, 1000)
	o.mustClose()
	victim := filepath.Join(dir, "0000000000000002.seg")
	content, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		o := openOwner(t, dir, opts)
		if len(o.rec.Damage) == 0 {
			t.Fatalf("%s: no damage reported", what)
		}
		for shard, size := range map[uint64]int{1: 1000, 2: 100} {
			good, errs := readAll(t, o.lane, shard, size, wal.Limits{})
			_, end, _ := o.lane.RangeOffCore(shard)
			if len(errs) == 0 || len(good) == 0 || len(good) >= int(end) {
				t.Errorf("%s: shard %d: %d of %d read, errors %v", what, shard, len(good), end, errs)
			}
			var d *wal.DamageError
			if !errors.As(errs[0], &d) {
				t.Errorf("%s: %v is not a DamageError", what, errs[0])
			}
			o.mustPublish(shard, 1, size)
		}
		if good, errs := readAll(t, o.lane, 3, 1000, wal.Limits{}); len(good) == 0 || len(errs) > 0 {
			t.Errorf("%s: a healthy shard: %v %v", what, good, errs)
		}
		o.mustClose()
	}
	if err := os.Truncate(victim, 20000); err != nil {
		t.Fatal(err)
	}
	check("truncated")
	if err := os.Remove(victim); err != nil {
		t.Fatal(err)
	}
	check("missing")
	// The missing segment stays known over new segments and checkpoints, so that putting it back heals the lane.
	o = openOwner(t, dir, opts)
	for range 100 {
		o.mustPublish(3, 2, 1000)
	}
	o.mustClose()
	check("missing for longer")
	if err := os.WriteFile(victim, content, 0o600); err != nil {
		t.Fatal(err)
	}
	o = openOwner(t, dir, opts)
	if len(o.rec.Damage) > 0 {
		t.Errorf("restored, and still %v", o.rec.Damage)
	}
	o.mustClose()
}

func TestDirectoryWithoutRights(t *testing.T) {
	d := faultfs.New(1 << 20)
	d.Fail(func(op faultfs.Op) error {
		if op.Kind == faultfs.OpCreate {
			return fs.ErrPermission
		}
		return nil
	})
	if _, err := tryOpen(t, "l", diskOptions(d)); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), ".new") {
		t.Fatalf("open: %v", err)
	}
	d.Fail(nil)
	o := openOwner(t, "l", diskOptions(d))
	o.mustClose()
}
