package felix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestJournalOnAFullDisk fills a small disk behind the journal's back. What it has allocated still takes commands; then they are
// refused and nothing is lost; with room again they go on without a restart. A start does not need room.
func TestJournalOnAFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	path := filepath.Join(root, "catalog.journal")
	j, _, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(root, "foreign")
	if err := os.WriteFile(foreign, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	var want []string
	record := func() string { return fmt.Sprintf(`{"n":%d,"text":%q}`, len(want), strings.Repeat("x", 200)) }
	for ; err == nil && len(want) < 10000; want = append(want, record()) {
		if err = j.Append([]byte(record())); err != nil {
			break
		}
	}
	if !outOfSpace(err) || len(want) < 100 || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "free space") {
		t.Fatalf("after %d records: %v", len(want), err)
	}
	if err := j.compact([][]byte{[]byte("{}")}); err != nil {
		t.Errorf("a journal that cannot be compacted for want of room: %v", err)
	}
	j.close()
	j, records, err := openJournal(path)
	if err != nil || len(records) != len(want) || string(records[len(want)-1]) != want[len(want)-1] {
		t.Fatalf("a start with 0 bytes free has %d of %d records: %v", len(records), len(want), err)
	}
	if err := j.Append([]byte(record())); !outOfSpace(err) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	want = append(want, record())
	if err := j.Append([]byte(want[len(want)-1])); err != nil {
		t.Errorf("with room again: %v", err)
	}
	j.close()
	j, records, err = openJournal(path)
	if err != nil || len(records) != len(want) || string(records[len(want)-1]) != want[len(want)-1] {
		t.Fatalf("%d of %d records: %v", len(records), len(want), err)
	}
	j.close()
}
