package wal

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

// maxOpenSegments bounds the sealed segment files of a lane that are open; the one read longest ago is closed for the next.
// A lane of many segments must not use up the process's descriptors.
const maxOpenSegments = 64

// filePool keeps track of a lane's open files.
type filePool struct {
	fs       FS
	readOnly bool
	mu       sync.Mutex
	open     []*pooledFile // sealed ones that are open, the longest unused first
}

// pooledFile is a File that the pool may close between uses and opens again by name. Pinned ones, those that are written,
// stay open.
type pooledFile struct {
	pool   *filePool
	name   string // path; final when the file is unpinned
	mu     sync.Mutex
	f      File // nil while closed
	users  int
	pinned bool
	closed bool
}

func (p *filePool) adopt(name string, f File, pinned bool) *pooledFile {
	return &pooledFile{pool: p, name: name, f: f, pinned: pinned}
}

// opened counts the files that are open and may be closed between uses.
func (p *filePool) opened() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.open {
		f.mu.Lock()
		if f.f != nil && !f.pinned {
			n++
		}
		f.mu.Unlock()
	}
	return n
}

// pin opens the file for good.
func (f *pooledFile) pin() error {
	if _, err := f.acquire(); err != nil {
		return err
	}
	f.mu.Lock()
	f.pinned = true
	f.users--
	f.mu.Unlock()
	return nil
}

// unpin lets the pool close the file.
func (f *pooledFile) unpin() {
	f.mu.Lock()
	f.pinned = false
	f.mu.Unlock()
	f.pool.touch(f)
}

func (f *pooledFile) acquire() (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, &os.PathError{Op: "use", Path: f.name, Err: os.ErrClosed}
	}
	if f.f == nil {
		h, err := f.pool.fs.Open(f.name, f.pool.readOnly)
		if err != nil {
			return nil, fmt.Errorf("wal: open segment again: %w", err)
		}
		f.f = h
	}
	f.users++
	return f.f, nil
}

func (f *pooledFile) release() {
	f.mu.Lock()
	f.users--
	pinned := f.pinned
	f.mu.Unlock()
	if !pinned {
		f.pool.touch(f)
	}
}

// touch makes f the last to be closed and closes the first ones when there are too many.
func (p *filePool) touch(f *pooledFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.open); n > 0 && p.open[n-1] == f {
		return
	}
	if i := slices.Index(p.open, f); i >= 0 {
		p.open = slices.Delete(p.open, i, i+1)
	}
	p.open = append(p.open, f)
	for i := 0; i < len(p.open)-1 && len(p.open) > maxOpenSegments; {
		if p.open[i].tryShut() {
			p.open = slices.Delete(p.open, i, i+1)
			continue
		}
		i++ // in use; it is over the bound for as long as its read takes
	}
}

func (f *pooledFile) tryShut() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.users > 0 {
		return false
	}
	if f.f != nil && !f.pinned {
		f.f.Close()
		f.f = nil
	}
	return true
}

func (f *pooledFile) ReadAt(b []byte, off int64) (int, error) {
	h, err := f.acquire()
	if err != nil {
		return 0, err
	}
	defer f.release()
	return h.ReadAt(b, off)
}

func (f *pooledFile) Writev(bufs [][]byte, off int64) error {
	return f.with(func(h File) error { return h.Writev(bufs, off) })
}

func (f *pooledFile) Datasync() error { return f.with(File.Datasync) }

func (f *pooledFile) Allocate(size int64) error {
	return f.with(func(h File) error { return h.Allocate(size) })
}

func (f *pooledFile) Truncate(size int64) error {
	return f.with(func(h File) error { return h.Truncate(size) })
}

func (f *pooledFile) Size() (n int64, err error) {
	err = f.with(func(h File) error { n, err = h.Size(); return err })
	return n, err
}

func (f *pooledFile) with(fn func(File) error) error {
	h, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	return fn(h)
}

// Fd is asked for pinned files only, whose descriptor stays.
func (f *pooledFile) Fd() (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil || !f.pinned {
		return 0, false
	}
	return f.f.Fd()
}

func (f *pooledFile) Close() error {
	f.pool.mu.Lock()
	if i := slices.Index(f.pool.open, f); i >= 0 {
		f.pool.open = slices.Delete(f.pool.open, i, i+1)
	}
	f.pool.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}
