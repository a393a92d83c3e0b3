package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"felix/perf/load"
)

// Names in a results directory.
const (
	CellsFile   = "cells.json"
	PeersFile   = "peers.json"
	RawDir      = "raw"
	ChartsDir   = "charts"
	ReportFile  = "report.md"
	PageFile    = "report.html"
	AgainstFile = "against.md" // how it stands to an earlier session, where that was asked
)

// A Session is what a results directory holds. Either part may be missing.
type Session struct {
	Cells *Cells
	Peers *Peers
}

// Cells is one run of perf/matrix.
type Cells struct {
	Machine  load.Machine `json:"machine"`
	Command  string       `json:"command"`
	Disk     string       `json:"disk"` // file system under the logs
	Ceilings Ceilings     `json:"ceilings"`
	Idle     *Idle        `json:"idle"`
	Cells    []Cell       `json:"cells"`
	Notes    []string     `json:"notes"`
}

// A Cell is one load on felix.
type Cell struct {
	Name   string       `json:"name"`
	Group  string       `json:"group"`
	Figure Figure       `json:"figure"` // what its spread is of, and what two sessions compare
	Report *load.Report `json:"report"`
	// Against is the cell whose runs were made in turn with those of this one, run i of both in pair i; "" for none.
	Against string `json:"against,omitempty"`
}

// Idle is a broker with nothing to do.
type Idle struct {
	CPUPercent float64 `json:"cpu_percent"` // of one CPU
	RSSMB      float64 `json:"rss_mb"`      // 10^6 bytes
}

// Ceilings are the samples of what the machine can do without a broker; package ceiling has the probes. An empty one was not measured.
type Ceilings struct {
	// Server and client in a process each, as broker and generator are in the cells. Sessions of before 2026-12 have none.
	LoopPerSec   []float64 `json:"loop_two_processes_per_sec"`    // L
	EchoP50us    []float64 `json:"echo_two_processes_p50_us"`     // E
	SinkMBPerSec []float64 `json:"sink_two_processes_mb_per_sec"` // S, 10^6 bytes
	// The same in one process.
	LoopInOnePerSec   []float64 `json:"loop_per_sec"`
	EchoInOneP50us    []float64 `json:"echo_p50_us"`
	SinkInOneMBPerSec []float64 `json:"sink_mb_per_sec"`

	DiskP50us     []float64 `json:"disk_p50_us"`      // D
	DiskMBPerSec  []float64 `json:"disk_mb_per_sec"`  // Z, 10^6 bytes
	FioMBPerSec   []float64 `json:"fio_mb_per_sec"`   // fio, 1 MiB + fdatasync into blocks written before
	FioSmallP50us []float64 `json:"fio_small_p50_us"` // fio, mean time of 4 KiB + fdatasync
	LineNs        []float64 `json:"cache_line_ns"`    // a cache line to another CPU and back; no ceiling
}

// L, E and S are the medians that shares and targets are of: those with two processes, and those in one process of a session that has no
// others. D and Z have one form. 0 means not measured.
func (c *Ceilings) L() float64 { return Median(either(c.LoopPerSec, c.LoopInOnePerSec)) }
func (c *Ceilings) E() float64 { return Median(either(c.EchoP50us, c.EchoInOneP50us)) }
func (c *Ceilings) S() float64 { return Median(either(c.SinkMBPerSec, c.SinkInOneMBPerSec)) }
func (c *Ceilings) D() float64 { return Median(c.DiskP50us) }
func (c *Ceilings) Z() float64 { return Median(c.DiskMBPerSec) }

func either(two, one []float64) []float64 {
	if len(two) > 0 {
		return two
	}
	return one
}

// inOneOnly says that a session has L, E and S in one process only.
func (c *Ceilings) inOneOnly() bool { return len(c.LoopPerSec) == 0 && len(c.LoopInOnePerSec) > 0 }

// Peers is one run of perf/peers.
type Peers struct {
	Machine load.Machine `json:"machine"`
	Command string       `json:"command"`
	Peer    string       `json:"peer"` // name and version
	Setup   []string     `json:"setup"`
	Rounds  int          `json:"rounds"` // that were made and count
	Pairs   []Pair       `json:"pairs"`  // that have a run of both sides that counts
	Notes   []string     `json:"notes"`  // pairs that were given up, and why
}

// A Figure is a number of a report by its place in the JSON.
type Figure string

const (
	AckedPerSec     Figure = "acked_per_sec"
	DeliveredPerSec Figure = "delivered_per_sec"
	AckP50          Figure = "ack_us.p50"
	E2EP50          Figure = "e2e_us.p50"
)

// Of returns the figure, and false when it was not measured.
func (g Figure) Of(f *load.Figures) (float64, bool) {
	switch {
	case g == AckedPerSec:
		return f.AckedPerSec, f.AckedPerSec > 0
	case g == DeliveredPerSec && f.DeliveredPerSec != nil:
		return *f.DeliveredPerSec, *f.DeliveredPerSec > 0
	case g == AckP50 && f.Ack != nil:
		return f.Ack.P50, f.Ack.P50 > 0
	case g == E2EP50 && f.E2E != nil:
		return f.E2E.P50, f.E2E.P50 > 0
	}
	return 0, false
}

// Less reports whether less is better.
func (g Figure) Less() bool { return g == AckP50 || g == E2EP50 }

// Counted returns the runs of a report that count.
func Counted(r *load.Report) (runs []*load.Figures) {
	for i := range r.Runs {
		if !r.Runs[i].Discarded {
			runs = append(runs, &r.Runs[i].Figures)
		}
	}
	return runs
}

// sample is a figure of the runs that count and have it.
func sample(r *load.Report, g Figure) (values []float64) {
	for _, f := range Counted(r) {
		if v, ok := g.Of(f); ok {
			values = append(values, v)
		}
	}
	return values
}

// Spread is (max - min) / median of a figure over the runs that count. It is false with fewer than two.
func Spread(r *load.Report, g Figure) (float64, bool) {
	return SpreadOf(sample(r, g))
}

// SpreadOf is (max - min) / median. It is false with fewer than two values.
func SpreadOf(values []float64) (float64, bool) {
	if len(values) < 2 {
		return 0, false
	}
	return (slices.Max(values) - slices.Min(values)) / Median(values), true
}

// Median is that of at least one value; of none it is 0.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Void says why the runs of a report mean nothing, "" when they do mean something. The one that was discarded does not matter.
func Void(r *load.Report) string {
	for _, run := range r.Runs {
		if run.Void && !run.Discarded {
			return strings.Join(run.VoidReasons, "; ")
		}
	}
	return ""
}

// Read reads a results directory. It is an error when neither part is there.
func Read(dir string) (s Session, err error) {
	var cells Cells
	switch err := readJSON(filepath.Join(dir, CellsFile), &cells); {
	case err == nil:
		s.Cells = &cells
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	var peers Peers
	switch err := readJSON(filepath.Join(dir, PeersFile), &peers); {
	case err == nil:
		s.Peers = &peers
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	if s.Cells == nil && s.Peers == nil {
		return s, fmt.Errorf("%s holds neither %s nor %s; name a directory that perf/matrix or perf/peers wrote", dir, CellsFile, PeersFile)
	}
	return s, s.check(dir)
}

// check finds cells and pairs without a report, which no code here expects.
func (s Session) check(dir string) error {
	if s.Cells != nil {
		for _, c := range s.Cells.Cells {
			if c.Report == nil {
				return fmt.Errorf("%s: cell %q has no report", filepath.Join(dir, CellsFile), c.Name)
			}
		}
	}
	if s.Peers != nil {
		for _, p := range s.Peers.Pairs {
			if p.Felix == nil || p.Peer == nil {
				return fmt.Errorf("%s: pair %q lacks the report of a side", filepath.Join(dir, PeersFile), p.Name)
			}
		}
	}
	return nil
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// WriteJSON writes v to a file, of which the directory is made.
func WriteJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Commit is that of the work tree at dir, with -dirty behind it when code or dependencies differ from it; "" where git does not tell.
func Commit(ctx context.Context, dir string) string {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return ""
	}
	if changes, err := git("status", "--porcelain", "--", "*.go", "go.mod"); err != nil || changes != "" {
		commit += "-dirty"
	}
	return commit
}

// DirName is the name of a results directory: date and commit.
func DirName(now time.Time, commit string) string {
	if commit == "" {
		commit = "unknown"
	}
	name, dirty, _ := strings.Cut(commit, "-")
	name = name[:min(len(name), 7)]
	if dirty != "" {
		name += "-" + dirty
	}
	return now.UTC().Format(time.DateOnly) + "-" + name
}

// ModuleRoot is the directory of felix' go.mod, above the working directory.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil {
		return "", fmt.Errorf("this is not within a Go module; run it in the tree of felix: %w", err)
	}
	if path != "felix" {
		return "", fmt.Errorf("this is within the module %s; run it in the tree of felix", path)
	}
	return dir, nil
}
