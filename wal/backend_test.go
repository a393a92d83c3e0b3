package wal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestBackendsWriteTheSame(t *testing.T) {
	for _, kind := range []BackendKind{BackendSync, BackendURing} {
		var lines []string
		b := newBackend(kind, func(line string) { lines = append(lines, line) })
		if b.Name() == "sync" && kind == BackendURing {
			t.Logf("no io_uring here: %v", lines)
			if len(lines) != 1 || !strings.Contains(lines[0], "io_uring") {
				t.Errorf("the fallback is announced as %q", lines)
			}
		}
		f, err := OSFS{}.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i, size := range []int{1, 5000, 1 << 20, 4096} {
			parts := [][]byte{bytes.Repeat([]byte{byte(i)}, 96), bytes.Repeat([]byte{byte(i + 100)}, size), make([]byte, 4096)}
			if err := b.Write(f, parts, int64(len(want)), i%2 == 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, bytes.Join(parts, nil)...)
		}
		if err := b.Sync(f); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: what was written reads back as something else: %v", b.Name(), err)
		}
		f.Close()
		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		if err != nil {
			t.Skip("no /dev/full")
		}
		for _, sync := range []bool{false, true} {
			if err := b.Write(&osFile{full}, [][]byte{{1}}, 0, sync); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: write to a full device, sync %v: %v", b.Name(), sync, err)
			}
		}
		full.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAdvance(t *testing.T) {
	bufs := [][]byte{[]byte("abc"), []byte("de"), []byte("fgh")}
	for n := range 9 {
		if got := string(bytes.Join(advance(bufs, n), nil)); got != "abcdefgh"[n:] {
			t.Errorf("after %d bytes %q is left", n, got)
		}
	}
}
