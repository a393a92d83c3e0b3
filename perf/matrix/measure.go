package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/take"
)

// A bench is where a session is made.
type bench struct {
	options
	root         string // of the module
	work         string // temporary
	stockBuild   programs
	jumboBuild   programs
	peersProgram string
	peerPairs    int // of perf/peers
	progress     io.Writer
	once         func(ctx context.Context, c cell) (*load.Report, error) // a run on a fresh broker
	sample       func(ctx context.Context, c *session.Ceilings) error    // adds a sample of each ceiling
	cpus         *take.CPUs
	notes        []string // for readers of every book
	books        []*book  // one, or with -twice two
}

// programs are both ends as processes, of one build. The generator is this program, which runs a cell with -one.
type programs struct{ felixd, generator string }

// build builds what the session runs, before anything is measured.
func (b *bench) build(ctx context.Context) error {
	fmt.Fprintln(b.progress, "building")
	b.stockBuild = programs{filepath.Join(b.work, "felixd"), filepath.Join(b.work, "matrix")}
	b.jumboBuild = programs{filepath.Join(b.work, "felixd-jumbo"), filepath.Join(b.work, "matrix-jumbo")}
	if err := load.Build(ctx, b.root, b.stockBuild.felixd, "./cmd/felixd"); err != nil {
		return err
	}
	if slices.ContainsFunc(b.cells, func(c cell) bool { return c.apart }) {
		if err := load.Build(ctx, b.root, b.stockBuild.generator, "./perf/matrix"); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(b.cells, func(c cell) bool { return c.jumbo }) {
		for program, name := range map[string]string{b.jumboBuild.felixd: "./cmd/felixd", b.jumboBuild.generator: "./perf/matrix"} {
			if err := load.BuildJumbo(ctx, b.root, program, name); err != nil {
				return fmt.Errorf("%w; -jumbo=false leaves it out", err)
			}
		}
	}
	if !b.peers {
		return nil
	}
	b.peersProgram = filepath.Join(b.work, "peers")
	module := filepath.Join(b.root, "perf", "peers")
	if err := load.Build(ctx, module, b.peersProgram, "."); err != nil {
		return fmt.Errorf("perf/peers: %w; -peers=false leaves it out", err)
	}
	list, err := exec.CommandContext(ctx, b.peersProgram, "-list").CombinedOutput()
	if err != nil {
		return fmt.Errorf("perf/peers -list: %w\n%s", err, list)
	}
	b.peerPairs = bytes.Count(list, []byte("\n"))
	return nil
}

// What parts of a session take besides the measured times, about, on two CPUs.
const (
	perRun      = 600 * time.Millisecond // to start a broker, to wait for what is under way, and to end it
	perCeilings = 12 * time.Second       // the disk's, fio's, and the echo's rounds
	perIdle     = 12 * time.Second
)

// estimate is how long the session takes, about, when no run is void.
func (b *bench) estimate() (total time.Duration, runs int) {
	probes, _ := b.probeTimes()
	sample := perCeilings + 2*2*probes*5/4 // two forms of two probes with their warm-up
	first, last := b.rounds()
	for round := first; round <= last; round++ {
		if round > 0 {
			total += sample
		}
		for _, turn := range turns(b.cells) {
			for _, i := range b.order(turn, round) {
				total += max(b.warmup, b.settleOf(turn[i])) + b.duration + perRun
				runs++
			}
		}
	}
	total += perIdle
	if b.peers {
		n := 2 * (last + 1) * b.peerPairs // its round 0 is there in a brief session as well
		total += time.Duration(n) * (b.warmup + b.duration + perRun)
		runs += n
	}
	if b.twice {
		total, runs = 2*total, 2*runs
	}
	return total, runs
}

// settleOf is the warm-up that a cell needs.
func (b *bench) settleOf(c cell) time.Duration {
	if b.brief {
		return 0
	}
	return c.settle
}

// do makes the whole session, or both, and leaves each in its directory.
func (b *bench) do(ctx context.Context) error {
	total, runs := b.estimate()
	_, rounds := b.rounds()
	fmt.Fprintf(b.progress, "%d cells and %d pairs in %d rounds, %d runs: about %.0f minutes\n", len(b.cells), b.peerPairs, rounds, runs, math.Ceil(total.Minutes()))
	if b.brief {
		b.notes = append(b.notes, "brief: every run is too short to say anything")
	} else {
		b.cpus = take.WatchCPUs(ctx, b.progress)
	}
	if b.twice {
		b.notes = append(b.notes, fmt.Sprintf("two sessions were made at once, run by run in turn: %s and %s", filepath.Base(b.books[0].dir), filepath.Base(b.books[1].dir)))
	}
	for _, k := range b.books {
		cells := &session.Cells{Machine: load.ThisMachine(), Command: b.command, Disk: diskOf(b.work)}
		if commit := session.Commit(ctx, b.root); commit != "" {
			cells.Machine.Commit = commit
		}
		k.session.Cells = cells
	}
	if err := b.allRounds(ctx); err != nil {
		return err
	}
	for _, k := range b.books {
		var err error
		if k.session.Cells.Idle, err = b.idle(ctx); err != nil {
			return err
		}
	}
	if err := b.write(); err != nil || !b.peers {
		return err
	}
	return errors.Join(b.runPeers(ctx), b.write())
}

// write leaves what there is in the results directories, charts and page included.
func (b *bench) write() error {
	for _, k := range b.books {
		if err := errors.Join(session.WriteJSON(filepath.Join(k.dir, session.CellsFile), k.session.Cells), render(k.dir, k.session)); err != nil {
			return err
		}
	}
	return nil
}

// oneRun makes a run of a cell on a fresh broker.
func (b *bench) oneRun(ctx context.Context, c cell) (*load.Report, error) {
	warmup := max(b.warmup, b.settleOf(c))
	if !c.apart {
		return once(ctx, c, b.stockBuild.felixd, b.duration, warmup)
	}
	of := b.stockBuild
	if c.jumbo {
		of = b.jumboBuild
	}
	var out bytes.Buffer
	cmd := b.child(ctx, of.generator, "-one", c.Name, "-felixd", of.felixd, "-duration", b.duration.String(), "-warmup", warmup.String())
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	report := &load.Report{}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		return nil, fmt.Errorf("what the generator printed: %w", err)
	}
	return report, nil
}

// runOne makes a run of a cell and prints its report: the other end of oneRun.
func runOne(ctx context.Context, o options, out io.Writer) error {
	all := cells()
	i := slices.IndexFunc(all, func(c cell) bool { return c.Name == o.one })
	if i < 0 {
		return fmt.Errorf("no cell is called %q; -list names them", o.one)
	}
	report, err := once(ctx, all[i], o.felixd, o.duration, o.warmup)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(report)
}

// once starts a broker, drives it from this process and ends it.
func once(ctx context.Context, c cell, felixd string, duration, warmup time.Duration) (report *load.Report, err error) {
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{felixd}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	config := c.Config
	if config.Target, err = c.NewTarget(process.Felix()); err != nil {
		return nil, err
	}
	config.Duration, config.Warmup = duration, warmup
	return load.Run(ctx, config)
}

// child is a program that has brokers of its own: it is interrupted, so that it ends them, and does not outlive this process.
func (b *bench) child(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = b.progress
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// probeTimes are how long a probe of a ceiling runs, and how many rounds an echo has.
func (b *bench) probeTimes() (long time.Duration, rounds int) {
	if b.brief {
		return 200 * time.Millisecond, 200
	}
	return 2 * time.Second, 10_000
}

// ceilings adds a sample of each.
func (b *bench) ceilings(ctx context.Context, c *session.Ceilings) error {
	long, rounds := b.probeTimes()
	disk := ceiling.DiskConfig{Dir: b.work}
	if b.brief {
		disk = ceiling.DiskConfig{Dir: b.work, FileBytes: 8 << 20, SmallRounds: 50, LargeRounds: 5}
	}
	for _, form := range []struct {
		ceiling.Form
		loop, echo, sink *[]float64
	}{
		{ceiling.OneProcess, &c.LoopInOnePerSec, &c.EchoInOneP50us, &c.SinkInOneMBPerSec},
		{ceiling.TwoProcesses, &c.LoopPerSec, &c.EchoP50us, &c.SinkMBPerSec},
	} {
		var loop, sink float64
		var echo ceiling.EchoResult
		for _, probe := range []struct {
			name string
			run  func() error
		}{
			{"L", func() (err error) {
				loop, err = form.Loop(ctx, ceiling.LoopConfig{Duration: long, Warmup: long / 4})
				return err
			}},
			{"E", func() (err error) { echo, err = form.Echo(ctx, 256, rounds); return err }},
			{"S", func() (err error) { sink, err = form.Sink(ctx, 1, long); return err }},
		} {
			if err := b.cpus.Probe(ctx, probe.run); err != nil {
				return fmt.Errorf("ceiling %s: %w", probe.name, err)
			}
		}
		*form.loop = append(*form.loop, loop)
		*form.echo = append(*form.echo, float64(echo.P50)/1e3)
		*form.sink = append(*form.sink, sink/1e6)
	}
	if ns := ceiling.Line(ctx, long/10); ns > 0 {
		c.LineNs = append(c.LineNs, ns)
	}
	written, err := ceiling.Disk(ctx, disk)
	if err != nil {
		return fmt.Errorf("ceilings D and Z: %w", err)
	}
	c.DiskP50us = append(c.DiskP50us, float64(written.P50)/1e3)
	c.DiskMBPerSec = append(c.DiskMBPerSec, written.BytesPerSecond/1e6)
	for _, f := range []struct {
		kib  int
		note func(bytesPerSecond float64)
	}{
		{4, func(v float64) { c.FioSmallP50us = append(c.FioSmallP50us, 4096/v*1e6) }},
		{1024, func(v float64) { c.FioMBPerSec = append(c.FioMBPerSec, v/1e6) }},
	} {
		rate, installed, err := fio(ctx, b.work, f.kib, long/2)
		if err != nil {
			return err
		}
		if installed {
			f.note(rate)
		}
	}
	return nil
}

// idle looks at a broker that has nothing to do.
func (b *bench) idle(ctx context.Context) (idle *session.Idle, err error) {
	fmt.Fprintln(b.progress, "idle")
	settle, watch := time.Second, 10*time.Second
	if b.brief {
		settle, watch = 100*time.Millisecond, 500*time.Millisecond
	}
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{b.stockBuild.felixd}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	if err := ceiling.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	cores, err := process.CPU(ctx, watch)
	if err != nil {
		return nil, err
	}
	usage, err := load.ProcessUsage(process.PID)
	return &session.Idle{CPUPercent: cores * 100, RSSMB: usage[load.RSSBytes] / 1e6}, err
}

// runPeers runs perf/peers, which leaves its part in the results directories. What it left before it failed is taken all the same.
func (b *bench) runPeers(ctx context.Context) error {
	fmt.Fprintln(b.progress, "peers")
	_, rounds := b.rounds()
	args := []string{"-rounds", fmt.Sprint(rounds), "-duration", b.duration.String(), "-warmup", b.warmup.String(), fmt.Sprintf("-watch=%t", !b.brief)}
	for i, k := range b.books {
		dir, err := filepath.Abs(k.dir)
		if err != nil {
			return err
		}
		// A file of an earlier session in this directory would be taken for what this one left.
		if err := os.Remove(filepath.Join(dir, session.PeersFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		args = append(args, []string{"-o", "-second"}[i], dir)
	}
	cmd := b.child(ctx, b.peersProgram, args...)
	cmd.Dir = filepath.Join(b.root, "perf", "peers")
	failed := cmd.Run()
	if failed != nil {
		failed = fmt.Errorf("perf/peers: %w; the cells and what it measured are kept, and -peers=false leaves it out", failed)
	}
	for _, k := range b.books {
		if _, err := os.Stat(filepath.Join(k.dir, session.PeersFile)); err != nil && failed != nil {
			continue
		}
		read, err := session.Read(k.dir)
		if err != nil {
			return errors.Join(failed, err)
		}
		k.session.Peers = read.Peers
	}
	if left := b.books[0].session.Peers; failed != nil && left != nil && len(left.Notes) > 0 { // the same for every book
		failed = fmt.Errorf("%w: %s", failed, strings.Join(left.Notes, "; "))
	}
	return failed
}

// diskOf says what file system a directory is on, as far as the system tells.
func diskOf(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return ""
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs: the durable figures mean nothing", 0x794c7630: "overlayfs"}
	name := names[int64(s.Type)]
	if name == "" {
		name = fmt.Sprintf("file system %#x", s.Type)
	}
	return name
}
