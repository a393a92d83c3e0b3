package main

import (
	"strings"
	"testing"
)

func TestParseFio(t *testing.T) {
	const good = "fio: a warning\n" + `{"jobs":[{"error":0,"write":{"io_bytes":4096000,"runtime":2000}}]}`
	if rate, err := parseFio([]byte(good)); err != nil || rate != 2048000 {
		t.Errorf("rate %v, %v; want 2048000", rate, err)
	}
	for _, bad := range []string{"", "no JSON", `{"jobs":`, `{"jobs":[]}`, `{"jobs":[{"error":5,"write":{"io_bytes":1,"runtime":1}}]}`, `{"jobs":[{"write":{}}]}`} {
		if rate, err := parseFio([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, rate)
		}
	}
}

func TestTable(t *testing.T) {
	const text = `goos: linux
BenchmarkGroup/4KiB/sync/reader=false-2         	    9000	    100000 ns/op	  40.96 MB/s	        99.50 %zeroed	        88.00 p50-us	       134.0 p99-us	       0 B/op	       0 allocs/op
BenchmarkGroup/4KiB/io_uring/reader=true-2      	    9000	     80000 ns/op	  51.20 MB/s
BenchmarkOther/4KiB/sync/reader=false-2         	    9000	     80000 ns/op	  51.20 MB/s
PASS
`
	rows, err := parseBenchmark([]byte(text))
	if err != nil || len(rows) != 2 {
		t.Fatalf("rows %+v, %v", rows, err)
	}
	var out strings.Builder
	if err := printTable(&out, append(rows, row{kib: 64, what: "fio psync", bytes: 0, zeroed: -1})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  4    41      100      88     134       100  wal sync\n", "  4    51       80       -       -         -  wal io_uring, reader\n", " 64     -        -       -       -         -  fio psync\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no line %q:\n%s", want, out.String())
		}
	}
	if _, err := parseBenchmark([]byte("BenchmarkGroup/4KiB/sync-2 1 2 ns/op 3 MB/s")); err == nil {
		t.Error("a benchmark with other parts was taken")
	}
}
