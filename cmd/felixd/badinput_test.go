package main

import (
	"bytes"
	"context"
	le "encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"felix/client"
)

// smallLog are arguments that make logs of many segments quickly.
var smallLog = []string{"--segment-bytes", "1 MiB", "--core-shards", "1"}

// makeLog makes a data directory with records in several segments.
func makeLog(t *testing.T, records int) (data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "data")
	d := start(t, nil, append(smallLog[:len(smallLog):len(smallLog)], "--data", data)...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f := &filler{t: t, ctx: ctx, c: d.dial(ctx), next: map[string]client.Offset{}}
	f.fill("orders", records)
	f.c.Close()
	d.signal(syscall.SIGTERM)
	if code := d.end(); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, d.stderr.String())
	}
	return data
}

// listing names every file of a directory with its size, and the checksum of its content where a start has nothing to write: it
// may prove the end of a log that is well before it finds what is wrong with another.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "LOCK" || e.Name() == "lock" {
			return err
		}
		content, err := os.ReadFile(path)
		if later := filepath.Base(path) > "0000000000000004"; later && filepath.Ext(path) == ".seg" {
			clear(content)
		}
		fmt.Fprintf(&list, "%s %d %08x\n", path, len(content), crc32.ChecksumIEEE(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// TestBadInput starts felixd on data directories that something was done to.
func TestBadInput(t *testing.T) {
	const records = 60 // of 64 KiB: about four segments
	good, other := makeLog(t, records), makeLog(t, records)
	lane := func(data string) string { return filepath.Join(data, "lanes", "lane-0") }
	segments, err := filepath.Glob(filepath.Join(lane(good), "*.seg"))
	if err != nil || len(segments) < 4 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	second := filepath.Base(segments[1])
	change := func(path string, fn func(content []byte) []byte) {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fn(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyFile := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		do   func(data string)
		file string   // named in the sentence, below data
		want []string // reason and remedy
	}{
		{"a newer format of a segment", func(data string) {
			change(filepath.Join(lane(data), second), func(c []byte) []byte {
				for _, at := range []int{0, 4096} {
					le.LittleEndian.PutUint16(c[at+8:], 2)
					le.LittleEndian.PutUint32(c[at+4:], crc32.Checksum(c[at+8:at+64], crc32.MakeTable(crc32.Castagnoli)))
				}
				return c
			})
		}, "lanes/lane-0/" + second, []string{"format version 2", "reads version 1", "start the version of felix that wrote it"}},
		{"a newer catalog", func(data string) {
			change(filepath.Join(data, "meta", "catalog.journal"), func(c []byte) []byte {
				line := []byte(`{"revision":99,"op":"fold_stream"}`)
				return fmt.Appendf(c, "%08x %s\n", crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli)), line)
			})
		}, "meta/catalog.journal", []string{"fold_stream", "restore the journal from a backup, or start the version that wrote it"}},
		{"a damaged catalog", func(data string) {
			change(filepath.Join(data, "meta", "catalog.journal"), func(c []byte) []byte { c[12] ^= 1; return c })
		}, "meta/catalog.journal", []string{"damaged in line 1", "restore it from a backup"}},
		{"a renamed segment", func(data string) {
			os.Rename(filepath.Join(lane(data), second), filepath.Join(lane(data), "00000000000000aa.seg"))
		}, "lanes/lane-0/00000000000000aa.seg", []string{"says inside that it is " + second, "rename it back"}},
		{"a segment of another log", func(data string) { copyFile(filepath.Join(lane(other), second), filepath.Join(lane(data), second)) },
			"lanes/lane-0/" + second, []string{"of two logs", "elsewhere"}},
		{"a lane that is copied to another's place", func(data string) {
			if err := os.CopyFS(filepath.Join(data, "lanes", "lane-1"), os.DirFS(lane(data))); err != nil {
				t.Fatal(err)
			}
		}, "lanes/lane-1/" + filepath.Base(segments[0]), []string{"belongs to lane 0", "opened as lane 1", "move it back"}},
		{"a damaged identity", func(data string) {
			change(filepath.Join(data, "meta", "node-id"), func([]byte) []byte { return []byte("x\n") })
		}, "meta/node-id", []string{"not 8 hexadecimal digits", "restore it"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(data, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			test.do(data)
			before := listing(t, data)
			sentence := refused(t, false, append(smallLog[:len(smallLog):len(smallLog)], "--data", data)...)
			for _, want := range append(test.want, filepath.Join(data, test.file)) {
				if !strings.Contains(sentence, want) {
					t.Errorf("%q is missing in %s", want, sentence)
				}
			}
			if after := listing(t, data); after != before {
				t.Errorf("files were changed:\n%sthen\n%s", before, after)
			}
		})
	}

	// These start, and say what they found.
	t.Run("foreign files", func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(data, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		foreign := []string{"notes.txt", "lanes/notes.txt", "lanes/lane-x", "lanes/lane-0/notes.txt", "lanes/lane-0/00000000000000aa.idx", "meta/notes.txt"}
		for _, name := range foreign {
			if err := os.WriteFile(filepath.Join(data, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, log := startFiller(t, data, records)
		f.verify("orders", 0)
		f.publish("orders")
		f.c.Close()
		for _, name := range foreign {
			if content, err := os.ReadFile(filepath.Join(data, name)); string(content) != "mine" {
				t.Errorf("%s: %q, %v", name, content, err)
			}
			if strings.HasPrefix(name, "lanes/lane-0/") {
				eventually(t, "the log to name "+name, func() bool { return strings.Count(log(), filepath.Join(data, name)+" is not a file of this lane") == 1 })
			}
		}
	})
	t.Run("a truncated segment", func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(data, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(lane(data), second), 300_000); err != nil {
			t.Fatal(err)
		}
		f, log := startFiller(t, data, records)
		for _, want := range []string{second, "300000 bytes and was 1048576", "shard 1024 offsets ["} {
			eventually(t, fmt.Sprintf("the log to have %q", want), func() bool { return strings.Contains(log(), want) })
		}
		lost := 0
		for at := client.Offset(0); at < records; at++ {
			page, err := f.c.ReadPage(f.ctx, "orders", 0, at, client.ReadOptions{MaxRecords: 1})
			switch {
			case err != nil:
				lost++
				if !strings.Contains(err.Error(), "damaged") {
					t.Errorf("record %d: %v", at, err)
				}
			case !bytes.Equal(page.Records[0].Data, record("orders", at)):
				t.Errorf("record %d is another", at)
			}
		}
		if lost < 3 || lost > 15 {
			t.Errorf("%d records are lost with 0.7 MiB", lost)
		}
		f.publish("orders")
		f.c.Close()
		if _, err := os.Stat(filepath.Join(lane(data), second)); err != nil {
			t.Error(err)
		}
	})
}

// startFiller starts felixd on a directory with records and returns a client of it, and its log, of which what is written last may come
// late.
func startFiller(t *testing.T, data string, records client.Offset) (*filler, func() string) {
	t.Helper()
	d := start(t, nil, append(smallLog[:len(smallLog):len(smallLog)], "--data", data)...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &filler{t: t, ctx: ctx, c: d.dial(ctx), next: map[string]client.Offset{"orders": records}}, d.stderr.String
}
