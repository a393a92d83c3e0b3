package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OSFS is the operating system's file system.
type OSFS struct{}

func (OSFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

func (OSFS) Open(name string, readOnly bool) (File, error) {
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	f, err := os.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

func (OSFS) Rename(from, to string) error { return os.Rename(from, to) }
func (OSFS) Remove(name string) error     { return os.Remove(name) }
func (OSFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o750) }

func (OSFS) ReadDir(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (OSFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (OSFS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 32)
		n, _ := f.ReadAt(pid, 0)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{name, strings.TrimSpace(string(pid[:n]))}
		}
		return nil, fmt.Errorf("wal: lock %s: %w", name, err)
	}
	// The pid only serves the error text above, so a disk too full to hold it is no reason not to start.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f *osFile) Writev(bufs [][]byte, off int64) error {
	// pwritev may stop short, and a vector has at most IOV_MAX parts; the lane uses three.
	fd := int(f.File.Fd())
	for {
		n, err := unix.Pwritev(fd, bufs, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		}
		off += int64(n)
		left := 0
		for _, b := range bufs {
			left += len(b)
		}
		if n == left {
			return nil
		}
		if n == 0 {
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: io.ErrShortWrite}
		}
		bufs = advance(bufs, n)
	}
}

// advance returns bufs without their first n bytes, leaving bufs itself as it was.
func advance(bufs [][]byte, n int) [][]byte {
	rest := make([][]byte, 0, len(bufs))
	for _, b := range bufs {
		k := min(n, len(b))
		n -= k
		if k < len(b) {
			rest = append(rest, b[k:])
		}
	}
	return rest
}

func (f *osFile) Datasync() error {
	for {
		err := unix.Fdatasync(int(f.File.Fd()))
		if err == unix.EINTR {
			continue // the call was interrupted before it began; a failed flush is never EINTR
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

func (f *osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(int(f.File.Fd()), 0, 0, size)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return ErrNoAllocate
		}
		return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Fd() (int, bool) { return int(f.File.Fd()), true }
