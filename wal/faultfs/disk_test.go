package faultfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"felix/wal"
)

func TestCrashKeepsWhatWasSyncedAndInventsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := New(1 << 20)
	f, err := d.Create("x/a")
	if err != nil {
		t.Fatal(err)
	}
	one, two := bytes.Repeat([]byte{1}, 10000), bytes.Repeat([]byte{2}, 10000)
	write := func(b []byte, off int64) {
		t.Helper()
		if err := f.Writev([][]byte{b[:5000], b[5000:]}, off); err != nil {
			t.Fatal(err)
		}
	}
	write(one, 0)
	if d.Crash(DropAll, rng).Get("x/a") != nil {
		t.Error("a name survives without a directory sync")
	}
	if d.Crash(KeepAll, rng).Get("x/a") == nil {
		t.Error("a name is lost where everything survives")
	}
	if err := errors.Join(f.Datasync(), d.SyncDir("x")); err != nil {
		t.Fatal(err)
	}
	write(two, 5000)
	if got := d.Crash(DropAll, rng).Get("x/a"); !bytes.Equal(got, one) {
		t.Error("what was synced changed")
	}
	if got := d.Crash(KeepAll, rng).Get("x/a"); !bytes.Equal(got[5000:], two) || !bytes.Equal(got[:5000], one[:5000]) {
		t.Error("what was written is not all there")
	}
	torn := map[int]bool{}
	for range 200 {
		for _, s := range []Survival{Torn512, Torn4K, Shuffled} {
			got := d.Crash(s, rng).Get("x/a")
			if !bytes.Equal(got[:5000], one[:5000]) {
				t.Fatal("bytes outside the write changed")
			}
			n := 0
			for i, b := range got[5000:] {
				switch {
				case b == 2:
					n++
				case b == 1 && i < 5000, b == 0 && i >= 5000:
				default:
					t.Fatalf("byte %d is %d", i, b)
				}
			}
			torn[n] = true
		}
	}
	if len(torn) < 5 {
		t.Errorf("only %d ways of tearing", len(torn))
	}
}

func TestFailedSyncLosesItsWrites(t *testing.T) {
	d := New(1 << 20)
	f, _ := d.Create("x/a")
	_ = d.SyncDir("x")
	fail := true
	d.Fail(func(op Op) error {
		if op.Kind == OpSync && fail {
			return syscall.EIO
		}
		return nil
	})
	_ = f.Writev([][]byte{[]byte("lost")}, 0)
	if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fail = false
	if err := f.Datasync(); err != nil {
		t.Fatal(err)
	}
	if got := d.Get("x/a"); string(got) != "lost" {
		t.Errorf("visible is %q", got)
	}
	if got := d.Crash(KeepAll, rand.New(rand.NewPCG(1, 1))).Get("x/a"); bytes.Contains(got, []byte("lost")) {
		t.Error("a write whose sync failed is on disk")
	}
}

func TestSpace(t *testing.T) {
	d := New(10000)
	f, _ := d.Create("x/a")
	if err := f.Allocate(8000); err != nil {
		t.Fatal(err)
	}
	if n, _ := d.Free("x"); n != 2000 {
		t.Errorf("%d free", n)
	}
	g, _ := d.Create("x/b")
	if err := g.Writev([][]byte{make([]byte, 3000)}, 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write beyond the capacity: %v", err)
	}
	if err := f.Writev([][]byte{make([]byte, 8000)}, 0); err != nil {
		t.Errorf("write into allocated blocks: %v", err)
	}
	if _, err := d.Lock("x/LOCK"); err != nil {
		t.Fatal(err)
	}
	var locked *wal.LockedError
	if _, err := d.Lock("x/LOCK"); !errors.As(err, &locked) {
		t.Errorf("second lock: %v", err)
	}
}
