package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
	"felix/perf/take"
)

func main() { load.Main("compare", run) }

// options are the flags.
type options struct {
	a, b             side
	cells            []load.Cell
	rounds           int
	duration, warmup time.Duration
	watch            bool // the CPUs
	json             string
}

const (
	minRounds = 3
	maxRounds = 200
)

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(out)
	a := flags.String("a", "", "side A: rev:REVISION or bin:FILE, and NAME=VALUE for its environment; empty means this tree")
	b := flags.String("b", "", "side B likewise")
	cells := flags.String("cells", "memory-256B-1,memory-256B-64,lone-memory,on_commit-256B-1", "cells to run, by name")
	flags.IntVar(&o.rounds, "rounds", 10, "runs of each side in each cell")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "measured time of a run")
	flags.DurationVar(&o.warmup, "warmup", time.Second, "time before it")
	flags.BoolVar(&o.watch, "watch", true, "makes a run again when the CPUs were far apart from each other, as the host of virtual ones may have them")
	flags.StringVar(&o.json, "json", "", "file that gets the figures of every run and the comparisons")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.a, err = parseSide(*a); err != nil {
		return o, fmt.Errorf("-a: %w", err)
	}
	if o.b, err = parseSide(*b); err != nil {
		return o, fmt.Errorf("-b: %w", err)
	}
	for name := range strings.SplitSeq(*cells, ",") {
		cell, err := load.FindCell(strings.TrimSpace(name))
		if err != nil {
			return o, fmt.Errorf("%w; go run ./perf/profile -list names them", err)
		}
		o.cells = append(o.cells, cell)
	}
	if o.rounds < minRounds || o.rounds > maxRounds {
		return o, fmt.Errorf("rounds is %d; give %d to %d: fewer show nothing", o.rounds, minRounds, maxRounds)
	}
	if o.duration < 10*time.Millisecond || o.warmup <= 0 {
		return o, fmt.Errorf("duration is %v and warmup %v; give more than 0", o.duration, o.warmup)
	}
	return o, nil
}

// run is the command.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "felix-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	builds := &builder{dir: work}
	defer func() { err = errors.Join(err, builds.close()) }()
	for _, s := range []*side{&o.a, &o.b} {
		if s.program, err = builds.build(ctx, *s); err != nil {
			return err
		}
	}
	result := result{A: o.a.text, B: o.b.text, Machine: load.ThisMachine(), Rounds: o.rounds, DurationSec: o.duration.Seconds()}
	var cpus *take.CPUs
	if o.watch {
		cpus = take.WatchCPUs(ctx, progress)
	}
	for _, cell := range o.cells {
		measured, err := measure(ctx, o, cpus, cell, oneRun, progress)
		if err != nil {
			return err
		}
		result.Cells = append(result.Cells, compareCell(cell.Name, measured))
	}
	result.Notes = cpus.Notes()
	if o.json != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return result.print(out)
}

// runner makes one run of a cell on a side.
type runner func(ctx context.Context, o options, cell load.Cell, s side) (*load.Report, error)

// oneRun starts a broker, drives it and ends it.
func oneRun(ctx context.Context, o options, cell load.Cell, s side) (report *load.Report, err error) {
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{s.program}, Env: s.env})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	c := cell.Config
	if c.Target, err = cell.NewTarget(process.Felix()); err != nil {
		return nil, err
	}
	c.Duration, c.Warmup = o.duration, o.warmup
	return load.Run(ctx, c)
}

// measure makes all runs of a cell, in turn, and returns those that count of A and of B.
func measure(ctx context.Context, o options, cpus *take.CPUs, cell load.Cell, once runner, progress io.Writer) (of [2][]load.Figures, err error) {
	maker := take.Maker{MaxVoids: o.rounds, CPUs: cpus, Progress: progress}
	sides := [2]side{o.a, o.b}
	var runs [2]take.Runs
	fmt.Fprintln(progress, cell.Name)
	for _, b := range slices.Concat([]bool{false, true}, stats.Interleave(o.rounds)) { // the first of each does not count
		i := 0
		if b {
			i = 1
		}
		run := func(ctx context.Context) (*load.Report, error) { return once(ctx, o, cell, sides[i]) }
		name := "AB"[i:i+1] + " "
		if err := maker.Run(ctx, &runs[i], name, session.AckedPerSec, run, func(int, *load.Report) error { return nil }); err != nil {
			return of, fmt.Errorf("cell %s, side %s: %w", cell.Name, sides[i].text, err)
		}
		report := runs[i].Counted[len(runs[i].Counted)-1]
		if report.Void {
			return of, fmt.Errorf("cell %s, side %s: %d runs were void, the last because %s", cell.Name, sides[i].text, o.rounds+1, session.Void(report))
		}
		if len(runs[i].Counted) > 1 {
			of[i] = append(of[i], report.Figures)
		}
	}
	return of, nil
}

// result is the JSON.
type result struct {
	A           string       `json:"a"`
	B           string       `json:"b"`
	Machine     load.Machine `json:"machine"`
	Rounds      int          `json:"rounds"`
	DurationSec float64      `json:"duration_sec"`
	Cells       []cellResult `json:"cells"`
	Notes       []string     `json:"notes"`
}

type cellResult struct {
	Cell    string         `json:"cell"`
	Figures []figure       `json:"figures"`
	RunsA   []load.Figures `json:"runs_a"`
	RunsB   []load.Figures `json:"runs_b"`
}

// figure is one comparison.
type figure struct {
	Name string `json:"name"`
	stats.Comparison
	Verdict stats.Verdict `json:"verdict"`
}

// compared are the figures that are compared, where a run has them, and whether less is faster.
var compared = []struct {
	name string
	less bool
	of   func(f load.Figures) *float64
}{
	{"acked_per_sec", false, func(f load.Figures) *float64 { return &f.AckedPerSec }},
	{"delivered_per_sec", false, func(f load.Figures) *float64 { return f.DeliveredPerSec }},
	{"ack_p50_us", true, func(f load.Figures) *float64 { return part(f.Ack, func(l *load.Latency) *float64 { return &l.P50 }) }},
	{"ack_p99_us", true, func(f load.Figures) *float64 { return part(f.Ack, func(l *load.Latency) *float64 { return &l.P99 }) }},
	{"e2e_p50_us", true, func(f load.Figures) *float64 { return part(f.E2E, func(l *load.Latency) *float64 { return &l.P50 }) }},
	{"e2e_p99_us", true, func(f load.Figures) *float64 { return part(f.E2E, func(l *load.Latency) *float64 { return &l.P99 }) }},
	{"broker_cpu_sec_per_million", true, func(f load.Figures) *float64 { return f.BrokerCPUSecPerMillion }},
}

func part(l *load.Latency, of func(*load.Latency) *float64) *float64 {
	if l == nil {
		return nil
	}
	return of(l)
}

// compareCell compares every figure that all runs of both sides have.
func compareCell(name string, of [2][]load.Figures) cellResult {
	r := cellResult{Cell: name, RunsA: of[0], RunsB: of[1]}
	for _, c := range compared {
		var samples [2][]float64
		for side, runs := range of {
			for _, f := range runs {
				if v := c.of(f); v != nil && *v > 0 {
					samples[side] = append(samples[side], *v)
				}
			}
		}
		if len(samples[0]) != len(of[0]) || len(samples[1]) != len(of[1]) {
			continue
		}
		if comparison, err := stats.Compare(samples[0], samples[1]); err == nil {
			r.Figures = append(r.Figures, figure{c.name, comparison, comparison.Verdict(c.less)})
		}
	}
	return r
}

// print writes the table.
func (r result) print(out io.Writer) error {
	fmt.Fprintf(out, "A: %s\nB: %s\n%d runs of %v s each, in turn\n\n", r.A, r.B, r.Rounds, r.DurationSec)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CELL\tFIGURE\tA\tB\tB AGAINST A\t95 % INTERVAL\tP\tB IS")
	for _, cell := range r.Cells {
		for _, f := range cell.Figures {
			fmt.Fprintf(table, "%s\t%s\t%.4g\t%.4g\t%+.1f %%\t%+.1f to %+.1f %%\t%.3f\t%s\n",
				cell.Cell, f.Name, f.MeanA, f.MeanB, f.Effect*100, f.Low*100, f.High*100, f.P, f.Verdict)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\n%s\n", note)
	}
	return nil
}
