package faultfs

import "felix/wal"

// A Call is one call of a Backend.
type Call struct {
	N     int // how many there were, this one included
	Write bool
	Sync  bool // with Write: the write is to be synced
}

// Backend passes calls on to another backend and lets Fail turn them into errors. It is for faults in front of a real
// disk, the ring's completions included.
type Backend struct {
	wal.Backend
	// Fail is asked before each call, on the lane's goroutine. A write that fails writes its first part.
	Fail func(Call) error
	// Whole has a write that fails be written as a whole, and not synced: it was the sync that failed.
	Whole bool
	calls int
}

// Write implements wal.Backend.
func (b *Backend) Write(f wal.File, bufs [][]byte, off int64, sync bool) error {
	b.calls++
	if err := b.Fail(Call{b.calls, true, sync}); err != nil {
		if !b.Whole {
			bufs = bufs[:len(bufs)/2]
		}
		if len(bufs) > 0 {
			_ = b.Backend.Write(f, bufs, off, false) // the call has failed already
		}
		return err
	}
	return b.Backend.Write(f, bufs, off, sync)
}

// Sync implements wal.Backend.
func (b *Backend) Sync(f wal.File) error {
	b.calls++
	if err := b.Fail(Call{b.calls, false, true}); err != nil {
		return err
	}
	return b.Backend.Sync(f)
}
