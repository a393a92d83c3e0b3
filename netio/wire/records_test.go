package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestRecords(t *testing.T) {
	records := recordsOf("hello", "", "x")
	size, err := CheckRecords(append(records, "tail"...), 3)
	if err != nil || size != len(records) {
		t.Fatalf("CheckRecords: %d, %v, want %d", size, err, len(records))
	}
	var got []string
	for p := range AllRecords(records) {
		if cap(p) != len(p) {
			t.Errorf("payload %q has %d bytes to spare", p, cap(p)-len(p))
		}
		got = append(got, string(p))
	}
	checkEqual(t, got, []string{"hello", "", "x"})
	for p := range AllRecords(records) {
		if string(p) != "hello" {
			t.Errorf("after break the range went on to %q", p)
		}
		break
	}
	if p, rest := NextRecord(nil); p != nil || rest != nil {
		t.Errorf("NextRecord(nil) = %v, %v", p, rest)
	}
	if p, rest := NextRecord(records[:8]); p != nil || rest != nil {
		t.Errorf("NextRecord of a record that is not whole = %v, %v", p, rest)
	}
	if p, rest := NextRecord(recordsOf("")); p == nil || len(rest) != 0 {
		t.Errorf("an empty record reads as the end")
	}
}

func TestCheckRecordsErrors(t *testing.T) {
	records := recordsOf("hello", "x")
	tests := []struct {
		name  string
		b     []byte
		count uint32
	}{
		{"one record too many", records, 3},
		{"declared count of 2^32-1", records, 1<<32 - 1},
		{"last payload cut", records[:len(records)-1], 2},
		{"count fits by size, second length cut", records[:9+3], 2},
		{"length of 2^32-1", bytes.Repeat([]byte{0xFF}, 64), 1},
		{"nothing there", nil, 1},
	}
	for _, tt := range tests {
		if n, err := CheckRecords(tt.b, tt.count); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
	}
	if n, err := CheckRecords(nil, 0); n != 0 || err != nil {
		t.Errorf("no records: %d, %v", n, err)
	}
}
