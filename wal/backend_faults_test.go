package wal

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eachBackend runs a test with both backends, each where it runs.
func eachBackend(t *testing.T, fn func(t *testing.T, b Backend)) {
	for _, kind := range []BackendKind{BackendSync, BackendURing} {
		b := newBackend(kind, func(string) {})
		name := b.Name()
		if kind == BackendURing && name == "sync" {
			t.Log("no io_uring here")
			continue
		}
		t.Run(name, func(t *testing.T) { fn(t, b) })
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestShortWriteOfAFullDisk writes beyond what a file system holds: the first part is taken, the rest is refused with the reason.
func TestShortWriteOfAFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
	eachBackend(t, func(t *testing.T, b Backend) {
		name := filepath.Join(root, "f")
		defer os.Remove(name)
		for _, sync := range []bool{false, true} {
			f, err := OSFS{}.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			parts := [][]byte{bytes.Repeat([]byte("a"), 4096), bytes.Repeat([]byte("b"), 1<<20), make([]byte, 4096)}
			if err := b.Write(f, parts, 0, sync); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("sync %v: %v, want ENOSPC", sync, err)
			}
			content, err := os.ReadFile(name)
			if err != nil || len(content) < 100<<10 || !bytes.HasPrefix(bytes.Join(parts, nil), content) {
				t.Errorf("sync %v: %d bytes are there: %v", sync, len(content), err)
			}
		}
	})
}

// TestFailingDisk has an ext4 stop under the backends, as after a failing disk: writes and syncs complete with EIO, each time.
func TestFailingDisk(t *testing.T) {
	eachBackend(t, func(t *testing.T, b Backend) {
		root, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
			t.Skipf("no ext4 can be made here: %v %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, root).CombinedOutput(); err != nil {
			t.Skipf("no file can be mounted here: %v %s", err, out)
		}
		defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
		f, err := OSFS{}.Create(filepath.Join(root, "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		block := [][]byte{make([]byte, 4096), make([]byte, 100)}
		if err := errors.Join(b.Write(f, block, 0, true), b.Sync(f)); err != nil {
			t.Fatal(err)
		}
		fd, _ := f.Fd()
		const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
		how := uint32(2)            // without flushing the log
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
			t.Skipf("the file system cannot be stopped: %v", errno)
		}
		for range 2 {
			for what, err := range map[string]error{
				"write": b.Write(f, block, 0, false), "write and sync": b.Write(f, block, 4096, true), "sync": b.Sync(f),
			} {
				if !errors.Is(err, syscall.EIO) {
					t.Errorf("%s on a disk that is gone: %v", what, err)
				}
			}
		}
	})
}
