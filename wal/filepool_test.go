package wal

import (
	"fmt"
	"os"
	"testing"
)

func TestFilePoolBoundsDescriptors(t *testing.T) {
	dir := t.TempDir()
	p := &filePool{fs: OSFS{}}
	var files []*pooledFile
	open := func() (n int) {
		for _, f := range files {
			f.mu.Lock()
			if f.f != nil {
				n++
			}
			f.mu.Unlock()
		}
		return n
	}
	for i := range 3 * maxOpenSegments {
		name := fmt.Sprintf("%s/%d", dir, i)
		if err := os.WriteFile(name, []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := p.fs.Open(name, true)
		if err != nil {
			t.Fatal(err)
		}
		f := p.adopt(name, h, i == 0)
		files = append(files, f)
		var b [1]byte
		if _, err := f.ReadAt(b[:], 0); err != nil {
			t.Fatal(err)
		}
		if n := open(); n > maxOpenSegments+1 {
			t.Fatalf("%d files are open", n)
		}
	}
	if _, ok := files[0].Fd(); !ok {
		t.Error("a pinned file was closed")
	}
	for i, f := range files {
		var b [1]byte
		if _, err := f.ReadAt(b[:], 0); err != nil || b[0] != byte(i) {
			t.Errorf("file %d reads %d, %v", i, b[0], err)
		}
		f.Close()
		if _, err := f.ReadAt(b[:], 0); err == nil {
			t.Error("a closed file reads")
		}
	}
	if n := open(); n != 0 {
		t.Errorf("%d files stay open", n)
	}
}
