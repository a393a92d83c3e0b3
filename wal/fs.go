package wal

import (
	"errors"
	"io"
)

// FS is the few file operations a lane needs. Names are paths as the caller of Open gave them, joined with a slash.
// faultfs has one in memory that loses power; OSFS is the real one. All methods may be called from any goroutine.
type FS interface {
	// Create makes or empties a file and opens it for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing; with readOnly, for reading.
	Open(name string, readOnly bool) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(dir string) error
	// ReadDir returns the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Free returns the bytes an unprivileged process may still allocate in dir's file system.
	Free(dir string) (int64, error)
	// Lock takes an exclusive lock on the file, making it if needed, and writes the holder's pid into it. A lock
	// held elsewhere gives a *LockedError. Close releases it.
	Lock(name string) (io.Closer, error)
}

// File is one open file. Reads may run beside one write.
type File interface {
	io.ReaderAt
	// Writev writes bufs one after the other at off. It returns nil only when all was written.
	Writev(bufs [][]byte, off int64) error
	// Datasync makes written data and the metadata needed to read it durable.
	Datasync() error
	// Allocate reserves blocks for [0, size) and sets the size. ErrNoAllocate says that the file system cannot.
	Allocate(size int64) error
	// Truncate sets the size.
	Truncate(size int64) error
	Size() (int64, error)
	// Fd returns the descriptor for io_uring; ok is false when the file has none.
	Fd() (fd int, ok bool)
	Close() error
}

// ErrNoAllocate is returned by File.Allocate where the file system has no preallocation.
var ErrNoAllocate = errors.New("wal: file system cannot preallocate")

// LockedError says who holds a lane's directory.
type LockedError struct {
	Name string
	Pid  string // as the holder wrote it; empty when unreadable
}

func (e *LockedError) Error() string {
	pid := e.Pid
	if pid == "" {
		pid = "unknown"
	}
	return "wal: " + e.Name + " is in use by process " + pid + "; stop it or choose another directory"
}
