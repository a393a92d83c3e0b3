package wal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"felix/netio/wire"
	"felix/wal"
)

// TestFullTmpfs fills a real file system of 64 MiB, by the lane and by a foreign file.
func TestFullTmpfs(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
	opts := wal.Options{Lane: 1, Now: time.Now, MarkAfter: time.Hour}
	dir := filepath.Join(root, "lane")
	o := openOwner(t, dir, opts)
	var err error
	n := wire.Offset(0)
	for ; err == nil; n++ {
		err = o.publish(1, 1, 32<<10, wal.OnCommit)
	}
	n--
	if !errors.Is(err, wal.ErrDiskFull) || n < 500 {
		t.Fatalf("after %d records of 32 KiB: %v", n, err)
	}
	// The rest goes to somebody else.
	foreign := filepath.Join(root, "foreign")
	f, err := os.Create(foreign)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	for err = nil; err == nil; {
		_, err = f.Write(block[:1])
	}
	f.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	o.mustClose()
	o = openOwner(t, dir, opts)
	if end, _ := o.lane.End(1); end != n || len(o.rec.Damage) > 0 {
		t.Fatalf("a restart with nothing free has %d of %d records, %v", end, n, o.rec.Damage)
	}
	if _, errs := readAll(t, o.lane, 1, 32<<10, wal.Limits{}); len(errs) > 0 {
		t.Fatalf("reads on a full disk: %v", errs)
	}
	if err := o.do(func(token uint64) error { return o.lane.SetStart(1, n-10, wal.OnCommit, token) }); err != nil {
		t.Fatalf("retention on a full disk: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for {
		err := o.publish(1, 1, 32<<10, wal.OnCommit)
		if err == nil {
			break
		}
		if !errors.Is(err, wal.ErrDiskFull) {
			t.Fatal(err)
		}
		select {
		case <-o.notify:
		case <-deadline:
			t.Fatal("appends do not resume")
		}
	}
	o.mustClose()
}
