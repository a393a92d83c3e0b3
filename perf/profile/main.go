// Profile runs one cell of package load against a broker in a process of its own, and leaves CPU, allocation, mutex and block
// profiles of that broker with the top 20 of each as text.
//
//	go run ./perf/profile -cell memory-256B-1
//	go tool pprof -http=: perf-profiles/memory-256B-1/cpu.pprof
//
// BUILD.md says how to read them. It builds the broker from the tree that it is run in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"felix/perf/load"
)

func main() {
	load.Main("profile", func(ctx context.Context, args []string, out, _ io.Writer) error { return run(ctx, args, out) })
}

// run is the command.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("profile", flag.ContinueOnError)
	name := flags.String("cell", "", "cell to run")
	list := flags.Bool("list", false, "name the cells")
	dir := flags.String("out", "perf-profiles", "directory that gets a directory for the cell")
	took := flags.Duration("duration", 10*time.Second, "measured and profiled time, at most 1 minute")
	warmup := flags.Duration("warmup", 2*time.Second, "time before it")
	flags.SetOutput(out)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, c := range load.Cells() {
			fmt.Fprintln(out, c.Name)
		}
		return nil
	}
	cell, err := load.FindCell(*name)
	if err != nil {
		return err
	}
	if *took < time.Second || *took > time.Minute {
		return fmt.Errorf("duration is %v; give 1 s to 1 minute", *took)
	}
	return profile(ctx, cell, filepath.Join(*dir, cell.Name), *took, *warmup, out)
}

// profile builds a broker, drives it and profiles it over the measured time.
func profile(ctx context.Context, cell load.Cell, dir string, took, warmup time.Duration, out io.Writer) (err error) {
	work, err := os.MkdirTemp("", "felix-profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	program := filepath.Join(work, "felix")
	if err := load.Build(ctx, "", program, "felix/cmd/felix"); err != nil {
		return err
	}
	// The broker of felix bench is as felixd, and takes mutex and block profiles when it is told to.
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{program, "bench-broker"}, Args: []string{"--profile-rates"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	c := cell.Config
	if c.Target, err = cell.NewTarget(process.Felix()); err != nil {
		return err
	}
	c.Duration, c.Warmup = took, warmup
	if warmup == 0 {
		c.Warmup = load.NoWarmup
	}
	profiled := make(chan error, 1)
	started := false
	c.Progress = func(p load.Progress) {
		if p.Phase == load.Measuring && !started {
			started = true
			go func() { profiled <- load.Profile(ctx, process.Admin, dir, took) }()
		}
	}
	report, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	if !started {
		return errors.New("interrupted before anything was measured")
	}
	if err := <-profiled; err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %.0f records/s, %.1f MB/s", cell.Name, report.AckedPerSec, report.PayloadMBPerSec)
	if report.BrokerCPUCores != nil && report.BrokerCPUSecPerMillion != nil {
		fmt.Fprintf(out, ", broker %.2f cores, %.3g s per million records", *report.BrokerCPUCores, *report.BrokerCPUSecPerMillion)
	}
	fmt.Fprintf(out, "\nprofiles and their top 20 are in %s\n\n", dir)
	top, err := os.ReadFile(filepath.Join(dir, "cpu.txt"))
	if err != nil {
		return err
	}
	if _, err := out.Write(top); err != nil {
		return err
	}
	if report.Void {
		return fmt.Errorf("the run is void: %s", strings.Join(report.Runs[0].VoidReasons, "; "))
	}
	return nil
}
