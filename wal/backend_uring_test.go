package wal

import (
	"errors"
	"syscall"
	"testing"
)

// A countedSync is a File of which only Datasync is called.
type countedSync struct {
	File
	err   error
	syncs int
}

func (f *countedSync) Datasync() error { f.syncs++; return f.err }

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
