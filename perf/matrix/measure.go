package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
)

// maxVoids is how many runs of a cell are made again because they are void.
const maxVoids = 2

// A bench is where a session is made.
type bench struct {
	options
	root     string // of the module
	work     string // temporary
	felixd   string // the program
	progress io.Writer
	once     func(ctx context.Context, c cell) (*load.Report, error) // a run on a fresh broker
	session  session.Session
}

// do makes the whole session and leaves it in o.dir.
func (b *bench) do(ctx context.Context) error {
	cells := &session.Cells{Machine: load.ThisMachine(), Command: "go run ./perf/matrix " + strings.Join(b.args, " "), Disk: diskOf(b.work)}
	cells.Command = strings.TrimSpace(cells.Command)
	if commit := session.Commit(ctx, b.root); commit != "" {
		cells.Machine.Commit = commit
	}
	b.session.Cells = cells
	if b.brief {
		cells.Notes = append(cells.Notes, "brief: every run is too short to say anything")
	}
	if err := b.ceilings(ctx, &cells.Ceilings); err != nil {
		return err
	}
	half := (len(b.cells) + 1) / 2
	var inTurn []cell
	for i, c := range b.cells {
		if i == half && !b.brief {
			if err := b.ceilings(ctx, &cells.Ceilings); err != nil {
				return err
			}
		}
		fmt.Fprintf(b.progress, "cell %d of %d: %s\n", i+1, len(b.cells), c.Name)
		if c.group == slowReader && !b.brief {
			inTurn = append(inTurn, c)
			fmt.Fprintln(b.progress, "  later, in turn with what it is compared to")
			continue
		}
		reports, err := b.cell(ctx, c)
		if err != nil {
			return err
		}
		if err := b.add(reports, c); err != nil {
			return err
		}
	}
	if len(inTurn) > 0 {
		fmt.Fprintln(b.progress, "with and without subscribers that do not read, in turn")
		reports, err := b.cell(ctx, inTurn...)
		if err != nil {
			return err
		}
		if err := b.add(reports, inTurn...); err != nil {
			return err
		}
	}
	if !b.brief {
		if err := b.ceilings(ctx, &cells.Ceilings); err != nil {
			return err
		}
	}
	var err error
	if cells.Idle, err = b.idle(ctx); err != nil {
		return err
	}
	if err := b.write(); err != nil || !b.peers {
		return err
	}
	if err := b.runPeers(ctx); err != nil {
		return err
	}
	return b.write()
}

// write leaves what there is in the results directory, charts and page included.
func (b *bench) write() error {
	if err := session.WriteJSON(filepath.Join(b.dir, session.CellsFile), b.session.Cells); err != nil {
		return err
	}
	return render(b.dir, b.session)
}

// add takes the reports of cells into the session and writes it.
func (b *bench) add(reports []*load.Report, of ...cell) error {
	cells := b.session.Cells
	for i, c := range of {
		cells.Cells = append(cells.Cells, session.Cell{Name: c.Name, Group: c.group, Figure: c.figure, Report: reports[i]})
		cells.Machine.SocketBytes = max(cells.Machine.SocketBytes, reports[i].Machine.SocketBytes)
	}
	return b.write()
}

// minInTurn is how many runs cells have that are compared with each other: with fewer the interval of their difference is too wide.
const minInTurn = 10

// cell makes all runs of a cell, or of two in turn, A B, A B B A ..., and returns a report of each.
func (b *bench) cell(ctx context.Context, of ...cell) ([]*load.Report, error) {
	order := make([]int, b.runs+1)
	switch {
	case b.brief:
		order = order[:1]
	case len(of) == 2:
		order = []int{0, 1}
		for _, second := range stats.Interleave(max(b.runs, minInTurn)) {
			i := 0
			if second {
				i = 1
			}
			order = append(order, i)
		}
	}
	reports := make([][]*load.Report, len(of))
	voids := make([]int, len(of))
	for _, i := range order {
		c := of[i]
		for {
			report, err := b.once(ctx, c)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("cell %s: %w", c.Name, err)
			}
			file := fmt.Sprintf("cell-%s-%d.json", c.Name, len(reports[i])+voids[i])
			if err := session.WriteJSON(filepath.Join(b.dir, session.RawDir, file), report); err != nil {
				return nil, err
			}
			value, _ := c.figure.Of(&report.Figures)
			fmt.Fprintf(b.progress, "  %s %s\n", c.figure, session.Number(value))
			if report.Void && voids[i] < maxVoids && !b.brief {
				voids[i]++
				fmt.Fprintf(b.progress, "  void, once more: %s\n", session.Void(report))
				continue
			}
			reports[i] = append(reports[i], report)
			break
		}
	}
	var joined []*load.Report
	for _, r := range reports {
		joined = append(joined, load.Join(r...))
	}
	return joined, nil
}

// oneRun starts a broker, drives it and ends it.
func (b *bench) oneRun(ctx context.Context, c cell) (report *load.Report, err error) {
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{b.felixd}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	config := c.Config
	if config.Target, err = c.NewTarget(process.Felix()); err != nil {
		return nil, err
	}
	config.Duration, config.Warmup = b.duration, b.warmup
	return load.Run(ctx, config)
}

// ceilings adds a sample of each.
func (b *bench) ceilings(ctx context.Context, c *session.Ceilings) error {
	fmt.Fprintln(b.progress, "ceilings")
	long, rounds, disk := 2*time.Second, 10_000, ceiling.DiskConfig{Dir: b.work}
	if b.brief {
		long, rounds = 200*time.Millisecond, 200
		disk = ceiling.DiskConfig{Dir: b.work, FileBytes: 8 << 20, SmallRounds: 50, LargeRounds: 5}
	}
	for _, form := range []struct {
		ceiling.Form
		loop, echo, sink *[]float64
	}{
		{ceiling.OneProcess, &c.LoopInOnePerSec, &c.EchoInOneP50us, &c.SinkInOneMBPerSec},
		{ceiling.TwoProcesses, &c.LoopPerSec, &c.EchoP50us, &c.SinkMBPerSec},
	} {
		loop, err := form.Loop(ctx, ceiling.LoopConfig{Duration: long, Warmup: long / 4})
		if err != nil {
			return fmt.Errorf("ceiling L: %w", err)
		}
		echo, err := form.Echo(ctx, 256, rounds)
		if err != nil {
			return fmt.Errorf("ceiling E: %w", err)
		}
		sink, err := form.Sink(ctx, 1, long)
		if err != nil {
			return fmt.Errorf("ceiling S: %w", err)
		}
		*form.loop = append(*form.loop, loop)
		*form.echo = append(*form.echo, float64(echo.P50)/1e3)
		*form.sink = append(*form.sink, sink/1e6)
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
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{b.felixd}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	target, err := load.NewClientTarget(process.Felix())
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before, err := target.Counters(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := pause(ctx, watch); err != nil {
		return nil, err
	}
	took := time.Since(start).Seconds()
	after, err := target.Counters(ctx)
	if err != nil {
		return nil, err
	}
	return &session.Idle{CPUPercent: (after[load.CPUSeconds] - before[load.CPUSeconds]) / took * 100, RSSMB: after[load.RSSBytes] / 1e6}, nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runPeers runs perf/peers, which leaves its part in the results directory.
func (b *bench) runPeers(ctx context.Context) error {
	fmt.Fprintln(b.progress, "peers")
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return err
	}
	module := filepath.Join(b.root, "perf", "peers")
	program := filepath.Join(b.work, "peers")
	if err := load.Build(ctx, module, program, "."); err != nil {
		return fmt.Errorf("perf/peers: %w; the cells are kept, and -peers=false leaves it out", err)
	}
	args := []string{"-o", dir}
	if b.brief {
		args = append(args, "-rounds", "1", "-duration", b.duration.String(), "-warmup", b.warmup.String())
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = module, b.progress
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its broker
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("perf/peers: %w; the cells are kept, and -peers=false leaves it out", err)
	}
	read, err := session.Read(dir)
	b.session.Peers = read.Peers
	return err
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
