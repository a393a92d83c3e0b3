package wal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"felix/wal"
)

// TestSegmentsOfAnotherLog puts segments of another log of the same lane id, and of an older copy of the log, in the place of its
// own and beside them. The start is refused with both files named, and nothing is changed.
func TestSegmentsOfAnotherLog(t *testing.T) {
	opts := wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 64 << 10, ZeroAhead: -1, SpareSegments: -1, MarkAfter: time.Hour}
	fill := func(dir string, records int) {
		t.Helper()
		o := openOwner(t, dir, opts)
		for range records {
			o.mustPublish(1, 1, 1000)
		}
		o.mustClose()
	}
	dir, other := t.TempDir(), t.TempDir()
	fill(dir, 60)
	older := filepath.Join(t.TempDir(), "lane")
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	fill(dir, 30)
	fill(other, 40)
	fill(other, 60)
	o, err := tryOpen(t, older, opts)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		o.mustPublish(2, 2, 1500) // what was restored went another way
	}
	o.mustClose()
	own := segments(t, dir)
	if len(own) < 6 {
		t.Fatalf("%d segments", len(own))
	}
	refused := func(what, from, name, as, want string) {
		t.Helper()
		target := filepath.Join(dir, as)
		kept, keptErr := os.ReadFile(target)
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			t.Fatal(err)
		}
		before := names(t, dir)
		o, err := tryOpen(t, dir, opts)
		if err == nil {
			o.mustClose()
			t.Fatalf("%s: the start is not refused, damage %v", what, o.rec.Damage)
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), as) || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := wal.Inspect(nil, dir); err == nil {
			t.Errorf("%s: offline it looks well", what)
		}
		if after := names(t, dir); after != before {
			t.Errorf("%s: files went from %s to %s", what, before, after)
		}
		if keptErr == nil {
			err = os.WriteFile(target, kept, 0o600)
		} else {
			err = os.Remove(target)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign := segments(t, other)
	for _, name := range []string{own[0], own[2], own[len(own)-2], own[len(own)-1], foreign[len(foreign)-1]} {
		refused("in the place of "+name, other, name, name, "are of two logs")
	}
	copied := segments(t, older)
	refused("of an older copy that went on", older, copied[len(copied)-3], copied[len(copied)-3], "from an older copy of the log")
	o = openOwner(t, dir, opts)
	defer o.mustClose()
	if good, errs := readAll(t, o.lane, 1, 1000, wal.Limits{}); len(errs) > 0 || offsetsAre(good, 0, 90) != nil || len(o.rec.Damage) > 0 {
		t.Errorf("after all that: %d records, %v %v", len(good), errs, o.rec.Damage)
	}
}

func segments(t *testing.T, dir string) (list []string) {
	t.Helper()
	for name := range strings.FieldsSeq(names(t, dir)) {
		if strings.HasSuffix(name, ".seg") {
			list = append(list, name)
		}
	}
	return list
}
