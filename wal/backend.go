package wal

import (
	"fmt"
	"time"
)

// Backend writes groups. One goroutine calls it, the lane's, which waits for the disk in it.
type Backend interface {
	// Write writes bufs one after the other at off of f, and with sync makes everything written to f before durable.
	// After an error nothing is known about what is on disk.
	Write(f File, bufs [][]byte, off int64, sync bool) error
	// Sync makes everything written to f durable.
	Sync(f File) error
	Name() string
	Close() error
}

// poller is a Backend whose waiting goroutine an owner that is awake can wake sooner than the system does.
type poller interface {
	// Poll wakes it if what it waits for has happened. Any goroutine may call it until Close.
	Poll()
}

// An expecter is a Backend that waits for the disk in one way or another by how many wait with it.
type expecter interface {
	// Expect says how many batches the group has that is written and synced next, and when that is. The goroutine that calls the Backend calls it.
	Expect(batches int, now time.Time)
}

// BackendKind chooses a Backend.
type BackendKind uint8

const (
	// BackendAuto takes the backend that measured faster where it runs.
	BackendAuto BackendKind = iota
	// BackendSync makes a write call and a sync call per group.
	BackendSync
	// BackendURing makes a write call and has the kernel's workers sync, so that nobody holds a processor meanwhile that others want.
	BackendURing
)

// ParseBackend reads storage_backend: auto, sync or io_uring.
func ParseBackend(s string) (BackendKind, error) {
	switch s {
	case "", "auto":
		return BackendAuto, nil
	case "sync":
		return BackendSync, nil
	case "io_uring":
		return BackendURing, nil
	}
	return 0, fmt.Errorf("wal: storage backend %q is not one of auto, sync, io_uring", s)
}

// syncBackend is the Backend of plain calls.
type syncBackend struct{}

func (syncBackend) Write(f File, bufs [][]byte, off int64, sync bool) error {
	if err := f.Writev(bufs, off); err != nil || !sync {
		return err
	}
	return f.Datasync()
}

func (syncBackend) Sync(f File) error { return f.Datasync() }
func (syncBackend) Name() string      { return "sync" }
func (syncBackend) Close() error      { return nil }

// newBackend opens the backend of the given kind. A ring that the kernel refuses falls back to sync with one line.
func newBackend(kind BackendKind, log func(string)) Backend {
	if kind == BackendSync {
		return syncBackend{}
	}
	b, err := newRingBackend()
	if err != nil {
		log(fmt.Sprintf("wal: io_uring is not available (%v), using write and fdatasync calls", err))
		return syncBackend{}
	}
	return b
}
