package wal

import (
	"errors"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A countedSync is a File of which only Datasync is called.
type countedSync struct {
	File
	err   error
	syncs int
}

func (f *countedSync) Datasync() error { f.syncs++; return f.err }

// A callCount is a real file that counts the syncs made with a call.
type callCount struct {
	File
	calls int
}

func (f *callCount) Datasync() error { f.calls++; return f.File.Datasync() }

// Syncs that one batch after the other waits for are made with a call where a processor is spare, and no others.
func TestLoneSyncs(t *testing.T) {
	file, err := OSFS{}.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const never = -1
	for _, c := range []struct {
		name    string
		batches []int // that wait for each sync; never where nobody says
		spare   bool
		calls   int
	}{
		{"one after the other", []int{1, 1, 1, 1}, true, 3},
		{"no processor to spare", []int{1, 1, 1, 1}, false, 0},
		{"many", []int{2, 64, 3}, true, 0},
		{"the first of many", []int{1, 63, 1, 63}, true, 0},
		{"many, then one", []int{64, 1, 1}, true, 1},
		{"nobody says", []int{never, never, never}, true, 0},
		{"nobody says in between", []int{1, 1, never, 1}, true, 2},
	} {
		r, err := newRingBackend()
		if err != nil {
			t.Skipf("no io_uring here: %v", err)
		}
		now, used := time.Unix(1_800_000_000, 0), time.Duration(0)
		r.spare.cpu = func() time.Duration { return used }
		f := &callCount{File: file}
		for _, batches := range c.batches {
			now = now.Add(2 * spareLook)
			if !c.spare {
				used += time.Hour
			}
			if batches != never {
				r.Expect(batches, now)
			}
			if err := r.Write(f, [][]byte{make([]byte, 4096)}, 0, true); err != nil {
				t.Fatal(err)
			}
		}
		want := c.calls
		if runtime.GOMAXPROCS(0) == 1 {
			want = 0
		}
		if f.calls != want {
			t.Errorf("%s: %d of %d syncs were calls, want %d", c.name, f.calls, len(c.batches), want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A sync that the kernel never began is made with a call; one that failed is not tried again.
func TestSyncThatTheKernelCancelled(t *testing.T) {
	full := errors.New("full")
	for _, c := range []struct {
		name   string
		result int32
		then   error // of the call
		want   error
		calls  int
	}{
		{"done", 0, full, nil, 0},
		{"failed", -int32(syscall.EIO), nil, syscall.EIO, 0},
		{"cancelled", -int32(syscall.ECANCELED), nil, nil, 1},
		{"cancelled, then failed", -int32(syscall.ECANCELED), full, full, 1},
	} {
		f := &countedSync{err: c.then}
		if err := synced(f, c.result); !errors.Is(err, c.want) || f.syncs != c.calls {
			t.Errorf("%s: %v after %d calls, want %v after %d", c.name, err, f.syncs, c.want, c.calls)
		}
	}
}
