package wal

import "testing"

func TestSyncShare(t *testing.T) {
	var s syncShare
	var syncs, bytes uint64
	step := func(n, each uint64) int64 {
		syncs, bytes = syncs+n, bytes+n*each
		s.update(syncs, bytes)
		return s.bytes
	}
	if got := step(syncShareOver-1, 1000); got != 0 {
		t.Fatalf("known after %d syncs: %d", syncShareOver-1, got)
	}
	if got := step(1, 1000); got != 1000 {
		t.Fatalf("%d bytes a sync, want 1000", got)
	}
	if got := step(syncShareOver, 300<<10); got != 300<<10 {
		t.Fatalf("%d bytes a sync, want 300 KiB", got)
	}
	// Without syncs, as under periodic, it is what has gathered.
	bytes += syncShareOver * zeroUpTo
	if s.update(syncs, bytes); s.bytes != syncShareOver*zeroUpTo {
		t.Fatalf("%d bytes without a sync, want %d", s.bytes, syncShareOver*zeroUpTo)
	}
	if got := step(syncShareOver, 100); got != 100 {
		t.Fatalf("%d bytes a sync, want 100", got)
	}
}
