package faultfs

import "felix/wal"

// Backend passes calls on to another backend and lets Fail turn them into errors. It is for faults in front of a real
// disk, the ring's completions included.
type Backend struct {
	wal.Backend
	// Fail is asked before each call, with the number of calls so far, on the lane's goroutine. A write that fails
	// writes its first part.
	Fail  func(call int, sync bool) error
	calls int
}

// Write implements wal.Backend.
func (b *Backend) Write(f wal.File, bufs [][]byte, off int64, sync bool) error {
	b.calls++
	if err := b.Fail(b.calls, sync); err != nil {
		if len(bufs) > 1 {
			_ = b.Backend.Write(f, bufs[:1], off, false)
		}
		return err
	}
	return b.Backend.Write(f, bufs, off, sync)
}

// Sync implements wal.Backend.
func (b *Backend) Sync(f wal.File) error {
	b.calls++
	if err := b.Fail(b.calls, true); err != nil {
		return err
	}
	return b.Backend.Sync(f)
}
