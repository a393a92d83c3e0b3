package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestColdStart starts on 256 MiB of log. What is asserted is what was read, not how long it took.
func TestColdStart(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 64 << 20
	}
	r, err := measure(t.Context(), t.TempDir(), size)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(size/(recordBytes+4)) / batchRecords * batchRecords; r.records < want || r.logBytes < size {
		t.Errorf("%d records in %d bytes of log, want at least %d in %d", r.records, r.logBytes, want, size)
	}
	// Of the sealed segments a start reads footers only; the active one and the next it looks through.
	if open := int64(2 * 64 << 20); r.scanned > open+4<<20 {
		t.Errorf("a start reads %d MiB of %d", r.scanned>>20, r.logBytes>>20)
	}
	if r.scanSegment < size || r.scanSegment > size+size/8 {
		t.Errorf("the scan of %d bytes in one segment read %d", size, r.scanSegment)
	}
	if r.ready <= 0 || r.scanTook <= 0 || r.first <= 0 || r.last <= 0 {
		t.Errorf("not measured: %+v", r)
	}
	t.Logf("%+v", *r)
}

func TestPrint(t *testing.T) {
	r := result{records: 3, logBytes: 10 << 30, segments: 160, scanned: 64 << 20, scanSegment: 1 << 30, scanTook: 250 * time.Millisecond, ready: 301 * time.Millisecond,
		first: 1234 * time.Microsecond, last: 567 * time.Microsecond}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{"10240 MiB in 160 segments", "301ms after the start of the process, 64 MiB of the log read", "1.234ms, the oldest record; 567µs, the newest", "1024 MiB of one segment in 250ms from the page cache, 4.0 GiB/s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"256MiB": 256 << 20, "10GiB": 10 << 30, "1 GiB": 1 << 30, "10": 0, "GiB": 0, "-1GiB": 0, "0MiB": 0, "1TiB": 0} {
		if n, err := parseBytes(text); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v; want %d", text, n, err, want)
		}
	}
}
