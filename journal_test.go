package felix

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJournalKeepsRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.journal")
	var want []string
	for round := range 3 {
		j, records, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s", records); got != fmt.Sprintf("%s", want) {
			t.Fatalf("round %d: records %s, want %s", round, got, want)
		}
		for i := range 3 {
			record := fmt.Sprintf(`{"op":"x","n":%d}`, 10*round+i)
			if err := j.Append([]byte(record)); err != nil {
				t.Fatal(err)
			}
			want = append(want, record)
		}
		j.close()
	}
}

// Cut at every byte: what was synced before the last line stays, and the last line is there or not.
func TestJournalCutAnywhere(t *testing.T) {
	var content []byte
	var ends []int
	for i := range 4 {
		content = appendJournalLine(content, fmt.Appendf(nil, `{"n":%d}`, i))
		ends = append(ends, len(content))
	}
	path := filepath.Join(t.TempDir(), "catalog.journal")
	for cut := range len(content) + 1 {
		if err := os.WriteFile(path, content[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, records, err := openJournal(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := 0
		for _, end := range ends {
			if end <= cut {
				want++
			}
		}
		if len(records) != want {
			t.Fatalf("cut at %d: %d records, want %d", cut, len(records), want)
		}
		if err := j.Append([]byte("{}")); err != nil {
			t.Fatal(err)
		}
		j.close()
		j, records, err = openJournal(path)
		if err != nil || len(records) != want+1 {
			t.Fatalf("cut at %d, then appended: %d records, %v", cut, len(records), err)
		}
		j.close()
	}
}

func TestJournalDamageRefusesTheStart(t *testing.T) {
	var content []byte
	for i := range 4 {
		content = appendJournalLine(content, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	path := filepath.Join(t.TempDir(), "catalog.journal")
	last := bytes.LastIndexByte(content[:len(content)-1], '\n')
	for at := range last {
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "backup") {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, damaged) {
			t.Fatal("a damaged journal was changed")
		}
	}
}

func TestJournalCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.journal")
	j, _, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := j.Append([]byte(`{"op":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.compact([][]byte{[]byte(`{"all":1}`)}); err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]byte(`{"op":"y"}`)); err != nil {
		t.Fatal(err)
	}
	j.close()
	_, records, err := openJournal(path)
	if err != nil || len(records) != 2 || string(records[0]) != `{"all":1}` || string(records[1]) != `{"op":"y"}` {
		t.Fatalf("after compaction: %s, %v", records, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("00000000 \n"))
	f.Add(appendJournalLine(appendJournalLine(nil, []byte(`{"a":1}`)), []byte(`{"b":2}`)))
	f.Fuzz(func(t *testing.T, content []byte) {
		records, whole, err := parseJournal(content)
		if err != nil {
			return
		}
		var again []byte
		for _, record := range records {
			again = appendJournalLine(again, record)
		}
		if whole > len(content) || !bytes.EqualFold(again, content[:whole]) {
			t.Fatalf("%d records of %q append to %q", len(records), content[:whole], again)
		}
	})
}
