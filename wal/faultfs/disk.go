package faultfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"felix/wal"
)

const (
	blockSize  = 4096
	sectorSize = 512
)

type block [blockSize]byte

// OpKind names an operation that changes the disk, or a read.
type OpKind string

// The operations that OnOp and Fail see.
const (
	OpCreate   OpKind = "create"
	OpWrite    OpKind = "write"
	OpSync     OpKind = "sync"
	OpRename   OpKind = "rename"
	OpRemove   OpKind = "remove"
	OpSyncDir  OpKind = "syncdir"
	OpAllocate OpKind = "allocate"
	OpTruncate OpKind = "truncate"
	OpRead     OpKind = "read" // Fail only
)

// Op is one operation.
type Op struct {
	Kind OpKind
	Name string
	Off  int64
	Len  int
}

// Disk is a file system in memory. It implements wal.FS. Safe for concurrent use.
type Disk struct {
	mu       sync.Mutex
	live     map[string]*inode
	durable  map[string]*inode
	dirOps   []dirOp
	locks    map[string]bool
	capacity int64
	foreign  int64
	ops      int

	onOp func(Op)
	fail func(Op) error
	// NoAllocate makes Allocate answer wal.ErrNoAllocate.
	NoAllocate bool
}

// dirOp is an entry of the directory that changed: name now means ino, nil for none.
type dirOp struct {
	name string
	ino  *inode
	from string // of a rename: goes away in the same step
}

type inode struct {
	size      int64
	blocks    []*block // visible
	durSize   int64
	durBlocks []*block // on disk
	pending   []write
}

type write struct {
	off  int64
	data []byte
}

// New returns an empty disk that can hold capacity bytes.
func New(capacity int64) *Disk {
	return &Disk{live: map[string]*inode{}, durable: map[string]*inode{}, locks: map[string]bool{}, capacity: capacity}
}

// OnOp sets the function that is called after each operation, outside the disk's lock. Nil removes it.
func (d *Disk) OnOp(fn func(Op)) { d.mu.Lock(); d.onOp = fn; d.mu.Unlock() }

// Fail sets the function that is asked before each operation; what it returns is the operation's error, and a failing
// write leaves its first half. Nil removes it.
func (d *Disk) Fail(fn func(Op) error) { d.mu.Lock(); d.fail = fn; d.mu.Unlock() }

// SetCapacity changes how much the disk holds.
func (d *Disk) SetCapacity(n int64) { d.mu.Lock(); d.capacity = n; d.mu.Unlock() }

// Take makes a foreign file of n bytes; a negative n frees as much.
func (d *Disk) Take(n int64) { d.mu.Lock(); d.foreign += n; d.mu.Unlock() }

// Ops returns how many operations changed the disk so far.
func (d *Disk) Ops() int { d.mu.Lock(); defer d.mu.Unlock(); return d.ops }

// Names returns the names of all files, sorted.
func (d *Disk) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.live))
}

func (d *Disk) allowed(op Op) error {
	d.mu.Lock()
	fn := d.fail
	d.mu.Unlock()
	if fn == nil {
		return nil
	}
	if err := fn(op); err != nil {
		return &os.PathError{Op: string(op.Kind), Path: op.Name, Err: err}
	}
	return nil
}

func (d *Disk) did(op Op) {
	d.mu.Lock()
	d.ops++
	fn := d.onOp
	d.mu.Unlock()
	if fn != nil {
		fn(op)
	}
}

func notExist(op, name string) error {
	return &os.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Create implements wal.FS.
func (d *Disk) Create(name string) (wal.File, error) {
	op := Op{Kind: OpCreate, Name: name}
	if err := d.allowed(op); err != nil {
		return nil, err
	}
	d.mu.Lock()
	ino := &inode{}
	d.live[name] = ino
	d.dirOps = append(d.dirOps, dirOp{name: name, ino: ino})
	d.mu.Unlock()
	d.did(op)
	return &file{d, ino, name, false}, nil
}

// Open implements wal.FS.
func (d *Disk) Open(name string, readOnly bool) (wal.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := d.live[name]
	if ino == nil {
		return nil, notExist("open", name)
	}
	return &file{d, ino, name, readOnly}, nil
}

// Rename implements wal.FS.
func (d *Disk) Rename(from, to string) error {
	op := Op{Kind: OpRename, Name: from}
	if err := d.allowed(op); err != nil {
		return err
	}
	d.mu.Lock()
	ino := d.live[from]
	if ino == nil {
		d.mu.Unlock()
		return notExist("rename", from)
	}
	delete(d.live, from)
	d.live[to] = ino
	d.dirOps = append(d.dirOps, dirOp{name: to, ino: ino, from: from})
	d.mu.Unlock()
	d.did(op)
	return nil
}

// Remove implements wal.FS.
func (d *Disk) Remove(name string) error {
	op := Op{Kind: OpRemove, Name: name}
	if err := d.allowed(op); err != nil {
		return err
	}
	d.mu.Lock()
	if d.live[name] == nil {
		d.mu.Unlock()
		return notExist("remove", name)
	}
	delete(d.live, name)
	d.dirOps = append(d.dirOps, dirOp{name: name})
	d.mu.Unlock()
	d.did(op)
	return nil
}

// MkdirAll implements wal.FS; directories are only prefixes of names.
func (d *Disk) MkdirAll(string) error { return nil }

// ReadDir implements wal.FS.
func (d *Disk) ReadDir(dir string) ([]string, error) {
	if err := d.allowed(Op{Kind: OpRead, Name: dir}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.live {
		if path.Dir(name) == dir {
			names = append(names, strings.TrimPrefix(name, dir+"/"))
		}
	}
	sort.Strings(names)
	return names, nil
}

// SyncDir implements wal.FS. The whole name space is one directory to it.
func (d *Disk) SyncDir(dir string) error {
	op := Op{Kind: OpSyncDir, Name: dir}
	if err := d.allowed(op); err != nil {
		return err
	}
	d.mu.Lock()
	d.durable = maps.Clone(d.live)
	d.dirOps = nil
	d.mu.Unlock()
	d.did(op)
	return nil
}

// Free implements wal.FS.
func (d *Disk) Free(string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, d.capacity-d.used()), nil
}

func (d *Disk) used() int64 {
	n := d.foreign
	for _, ino := range d.live {
		n += ino.size
	}
	return n
}

// Lock implements wal.FS.
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[name] {
		return nil, &wal.LockedError{Name: name, Pid: fmt.Sprint(os.Getpid())}
	}
	d.locks[name] = true
	return &lock{d, name}, nil
}

type lock struct {
	d    *Disk
	name string
}

func (l *lock) Close() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	delete(l.d.locks, l.name)
	return nil
}

// Flip turns over one bit of a file, in what is visible and what is durable.
func (d *Disk) Flip(name string, at int64, bit uint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := d.live[name]
	for _, blocks := range []*[]*block{&ino.blocks, &ino.durBlocks} {
		i := int(at / blockSize)
		if i >= len(*blocks) {
			continue
		}
		c := block{}
		if (*blocks)[i] != nil {
			c = *(*blocks)[i]
		}
		c[at%blockSize] ^= 1 << bit
		(*blocks)[i] = &c
	}
}

// Put makes a file with the given content, durable.
func (d *Disk) Put(name string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := &inode{size: int64(len(content)), durSize: int64(len(content))}
	writeBlocks(&ino.blocks, 0, content)
	ino.durBlocks = slices.Clone(ino.blocks)
	d.live[name], d.durable[name] = ino, ino
}

// Get returns the visible content of a file, nil when there is none.
func (d *Disk) Get(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := d.live[name]
	if ino == nil {
		return nil
	}
	out := make([]byte, ino.size)
	readBlocks(ino.blocks, 0, out)
	return out
}

// errSpace is what a full disk answers.
var errSpace error = syscall.ENOSPC
