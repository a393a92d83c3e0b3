package faultfs

import (
	"io"
	"os"

	"felix/wal"
)

type file struct {
	d        *Disk
	ino      *inode
	name     string
	readOnly bool
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.d.allowed(Op{OpRead, f.name, off, len(p)}); err != nil {
		return 0, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off >= f.ino.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), f.ino.size-off))
	readBlocks(f.ino.blocks, off, p[:n])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Writev(bufs [][]byte, off int64) error {
	var data []byte
	for _, b := range bufs {
		data = append(data, b...)
	}
	op := Op{OpWrite, f.name, off, len(data)}
	if f.readOnly {
		return &os.PathError{Op: "write", Path: f.name, Err: os.ErrPermission}
	}
	err := f.d.allowed(op)
	if err != nil {
		data = data[:len(data)/2]
	}
	f.d.mu.Lock()
	if grow := off + int64(len(data)) - f.ino.size; err == nil && grow > 0 && f.d.used()+grow > f.d.capacity {
		f.d.mu.Unlock()
		return &os.PathError{Op: "write", Path: f.name, Err: errSpace}
	}
	f.ino.size = max(f.ino.size, off+int64(len(data)))
	writeBlocks(&f.ino.blocks, off, data)
	f.ino.pending = append(f.ino.pending, write{off, data})
	f.d.mu.Unlock()
	if err == nil {
		f.d.did(op)
	}
	return err
}

func (f *file) Datasync() error {
	op := Op{Kind: OpSync, Name: f.name}
	err := f.d.allowed(op)
	f.d.mu.Lock()
	if err == nil {
		for _, w := range f.ino.pending {
			writeBlocks(&f.ino.durBlocks, w.off, w.data)
		}
		f.ino.durSize = f.ino.size
	}
	// After a failure the kernel takes the pages for clean: they are never written, and the next sync succeeds.
	f.ino.pending = nil
	f.d.mu.Unlock()
	if err == nil {
		f.d.did(op)
	}
	return err
}

func (f *file) Allocate(size int64) error {
	if f.d.NoAllocate {
		return wal.ErrNoAllocate
	}
	return f.resize(Op{Kind: OpAllocate, Name: f.name, Off: size}, size, true)
}

func (f *file) Truncate(size int64) error {
	return f.resize(Op{Kind: OpTruncate, Name: f.name, Off: size}, size, false)
}

func (f *file) resize(op Op, size int64, grow bool) error {
	if err := f.d.allowed(op); err != nil {
		return err
	}
	f.d.mu.Lock()
	if grow && size < f.ino.size {
		size = f.ino.size
	}
	if size > f.ino.size && f.d.used()+size-f.ino.size > f.d.capacity {
		f.d.mu.Unlock()
		return &os.PathError{Op: string(op.Kind), Path: f.name, Err: errSpace}
	}
	f.ino.size = size
	f.d.mu.Unlock()
	f.d.did(op)
	return nil
}

func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.ino.size, nil
}

func (f *file) Fd() (int, bool) { return 0, false }
func (f *file) Close() error    { return nil }

func readBlocks(blocks []*block, off int64, p []byte) {
	for len(p) > 0 {
		i, in := int(off/blockSize), int(off%blockSize)
		n := min(len(p), blockSize-in)
		if i < len(blocks) && blocks[i] != nil {
			copy(p[:n], blocks[i][in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// writeBlocks never changes a block in place: crash images share them.
func writeBlocks(blocks *[]*block, off int64, p []byte) {
	for len(p) > 0 {
		i, in := int(off/blockSize), int(off%blockSize)
		n := min(len(p), blockSize-in)
		for len(*blocks) <= i {
			*blocks = append(*blocks, nil)
		}
		c := &block{}
		if old := (*blocks)[i]; old != nil && n < blockSize {
			*c = *old
		}
		copy(c[in:], p[:n])
		(*blocks)[i] = c
		p, off = p[n:], off+int64(n)
	}
}
