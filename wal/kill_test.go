package wal_test

import (
	"sync"
	"syscall"
	"testing"

	"felix/wal"
	"felix/wal/faultfs"
)

// TestKillThenPowerCut kills the process at every operation, starts again on what the page cache holds, and cuts the power
// before anything else is written: what the second process showed to readers is still there in the third.
func TestKillThenPowerCut(t *testing.T) {
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	var fail error
	n := 0
	var mu sync.Mutex // the lane and the keeper both come here
	d.OnOp(func(op faultfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		if fail != nil {
			return
		}
		n++
		killed := d.Kill()
		opts := opts
		opts.FS = killed
		l, rec, err := wal.Open("l", opts)
		if err != nil {
			fail = err
			return
		}
		image := killed.Crash(faultfs.DropAll, nil)
		if err := l.Close(); err != nil {
			fail = err
		}
		opts.FS = image
		l, _, err = wal.Open("l", opts)
		if err != nil {
			fail = err
			return
		}
		for _, s := range rec.Shards {
			if end, _ := l.End(s.Shard); end < s.End {
				t.Errorf("at %v: shard %d was shown up to %d and ends at %d after the power cut", op, s.Shard, s.End, end)
			}
		}
		if err := l.Close(); err != nil {
			fail = err
		}
	})
	o := openOwner(t, "l", opts)
	for i := range 60 {
		if err := o.publish(uint64(i%2+1), 2, 700, []wal.Mode{wal.None, wal.Periodic, wal.OnCommit, wal.None}[i%4]); err != nil {
			t.Fatal(err)
		}
	}
	o.mustClose()
	mu.Lock()
	defer mu.Unlock()
	if fail != nil {
		t.Fatal(fail)
	}
	t.Logf("%d kills", n)
}

// TestKillBetweenRenameAndDirectorySync leaves a segment whose name a power cut can take back. The next process writes
// into it, so it has to make the name durable first.
func TestKillBetweenRenameAndDirectorySync(t *testing.T) {
	d := faultfs.New(8 << 20)
	var killed *faultfs.Disk
	d.OnOp(func(op faultfs.Op) {
		if op.Kind == faultfs.OpRename && killed == nil {
			killed = d.Kill()
		}
	})
	o := openOwner(t, "l", diskOptions(d))
	o.mustClose()
	opts := diskOptions(killed)
	killed.Fail(func(op faultfs.Op) error {
		if op.Kind == faultfs.OpCreate {
			return syscall.ENOSPC // no further segment, whose making would sync the directory
		}
		return nil
	})
	o = openOwner(t, "l", opts)
	o.mustPublish(1, 3, 100)
	image := killed.Crash(faultfs.DropAll, nil)
	o.mustClose()
	o = openOwner(t, "l", diskOptions(image))
	defer o.mustClose()
	if end, _ := o.lane.End(1); end != 3 {
		t.Errorf("%d of 3 acknowledged records are left", end)
	}
}
