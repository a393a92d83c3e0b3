// Backends compares how groups can be written to the log: it runs fio and wal's own benchmark of its backends on one disk,
// one after the other, and prints one table.
//
//	apt-get install fio
//	go run ./perf/backends            about two minutes; -dir chooses the disk, -time how long each row is measured
//
// All rows write groups of one size one after the other and make each durable before the next. Those of fio go into a
// file that was written before, as the log's segments are, and for comparison into one that grows. The backends do
// what they do in a broker besides: books, checksums, headers, zeroing ahead and segment changes; reader means that a
// reader follows the log. The mean is the time of a group, the reciprocal of the rate; fio knows no percentiles of a write
// together with its sync.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// sizes of groups, in KiB.
var sizes = []int{4, 64, 256, 1024}

// A row is one measurement. Figures that are not known are 0.
type row struct {
	kib      int
	what     string
	bytes    float64 // per second
	p50, p99 float64 // microseconds
	zeroed   float64 // percent of groups that went into blocks written before; -1 when nobody counts
}

func main() {
	dir := flag.String("dir", "", "directory on the disk to be measured (default the system's for temporary files)")
	duration := flag.Duration("time", 2*time.Second, "how long each row is measured")
	flag.Parse()
	if err := run(*dir, *duration, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "backends:", err)
		os.Exit(1)
	}
}

func run(dir string, d time.Duration, out io.Writer) (err error) {
	if _, err := exec.LookPath("fio"); err != nil {
		return errors.New("fio is not installed; apt-get install fio")
	}
	work, err := os.MkdirTemp(dir, "felix-backends-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	var rows []row
	for _, kib := range sizes {
		for _, engine := range []string{"psync", "io_uring"} {
			for _, appends := range []bool{false, true} {
				r, err := fio(work, kib, engine, appends, d)
				if err != nil {
					return err
				}
				rows = append(rows, r)
			}
		}
		own, err := backends(work, kib, d)
		if err != nil {
			return err
		}
		rows = append(rows, own...)
	}
	return printTable(out, rows)
}

// Sizes of fio's files: of one that is filled first and then written over and over, and of one that is not there at the start
// and never reaches it.
const (
	fileMiB = 256
	growMiB = 64 << 10
)

// fio writes and syncs, into blocks written before or at the end of a growing file.
func fio(dir string, kib int, engine string, appends bool, d time.Duration) (row, error) {
	name := filepath.Join(dir, "fio")
	defer os.Remove(name)
	args := []string{
		"--name=group", "--filename=" + name, "--rw=write", "--bs=" + strconv.Itoa(kib) + "k", "--fallocate=none",
		"--ioengine=" + engine, "--iodepth=1", "--fdatasync=1", "--time_based", fmt.Sprintf("--runtime=%dms", d.Milliseconds()),
		"--output-format=json",
	}
	what := "fio " + engine
	if appends {
		what += ", growing file"
		args = append(args, fmt.Sprintf("--size=%dm", growMiB))
	} else {
		args = append(args, "--overwrite=1", fmt.Sprintf("--size=%dm", fileMiB))
	}
	var stderr bytes.Buffer
	cmd := exec.Command("fio", args...)
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return row{}, fmt.Errorf("fio %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	rate, err := parseFio(text)
	if err != nil {
		return row{}, err
	}
	return row{kib: kib, what: what, bytes: rate, zeroed: -1}, nil
}

// parseFio returns the bytes per second of fio's only job.
func parseFio(text []byte) (float64, error) {
	var result struct {
		Jobs []struct {
			Error int
			Write struct {
				Bytes   int64 `json:"io_bytes"`
				Runtime int64 `json:"runtime"` // milliseconds
			}
		}
	}
	// What fio warns about stands before the JSON.
	start := bytes.IndexByte(text, '{')
	if start < 0 {
		return 0, fmt.Errorf("fio printed no JSON: %.200s", text)
	}
	if err := json.Unmarshal(text[start:], &result); err != nil {
		return 0, fmt.Errorf("fio's JSON: %w", err)
	}
	if len(result.Jobs) != 1 || result.Jobs[0].Error != 0 || result.Jobs[0].Write.Runtime <= 0 {
		return 0, fmt.Errorf("fio's jobs are %+v, want one that has written", result.Jobs)
	}
	w := result.Jobs[0].Write
	return float64(w.Bytes) / float64(w.Runtime) * 1000, nil
}

// backends runs wal's benchmark of one size.
func backends(dir string, kib int, d time.Duration) ([]row, error) {
	args := []string{"test", "felix/wal", "-run", "^$", "-bench", fmt.Sprintf("^BenchmarkGroup$/^%dKiB$", kib), "-benchtime", d.String()}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	rows, err := parseBenchmark(text)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("go %s ran no benchmark:\n%s", strings.Join(args, " "), text)
	}
	return rows, err
}

// parseBenchmark reads lines such as "BenchmarkGroup/4KiB/sync/reader=false-2  9  123 ns/op  40 MB/s  88 p50-us".
func parseBenchmark(text []byte) (rows []row, err error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkGroup/") {
			continue
		}
		parts := strings.Split(fields[0], "/")
		if len(parts) != 4 {
			return nil, fmt.Errorf("benchmark %s has other parts than size, backend and reader", fields[0])
		}
		r := row{what: "wal " + parts[2], zeroed: -1}
		if r.kib, err = strconv.Atoi(strings.TrimSuffix(parts[1], "KiB")); err != nil {
			return nil, fmt.Errorf("benchmark %s: %w", fields[0], err)
		}
		if strings.HasPrefix(parts[3], "reader=true") {
			r.what += ", reader"
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark %s: %w", fields[0], err)
			}
			switch fields[i+1] {
			case "MB/s":
				r.bytes = value * 1e6
			case "p50-us":
				r.p50 = value
			case "p99-us":
				r.p99 = value
			case "%zeroed":
				r.zeroed = value
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func printTable(out io.Writer, rows []row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "KiB\tMB/s\tmean us\tp50 us\tp99 us\t% zeroed\t  written by")
	figure := func(v float64) string {
		if v <= 0 {
			return "-"
		}
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	for _, r := range rows {
		mean := 0.0
		if r.bytes > 0 {
			mean = float64(r.kib) * 1024 / r.bytes * 1e6
		}
		zeroed := "-"
		if r.zeroed >= 0 {
			zeroed = strconv.FormatFloat(r.zeroed, 'f', 0, 64)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t  %s\n", r.kib, figure(r.bytes/1e6), figure(mean), figure(r.p50), figure(r.p99), zeroed, r.what)
	}
	return table.Flush()
}
