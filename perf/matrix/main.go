package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
)

func main() {
	ceiling.ServeIfAsked()
	load.Main("matrix", run)
}

// options are the flags.
type options struct {
	cells            []cell
	runs             int
	duration, warmup time.Duration
	brief, peers     bool
	jumbo            bool
	one, felixd      string // a cell to run once, and the broker's program
	dir              string // "": perf/results/DATE-COMMIT
	against          string
	read, readme     string // results directories: no session is made
	command          string // that makes the same session again, anywhere
}

const (
	maxRuns = 100
	// What runs take with -brief, unless said otherwise.
	briefDuration = 300 * time.Millisecond
	briefWarmup   = 50 * time.Millisecond
)

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	flags.SetOutput(out)
	names := flags.String("cells", "", "cells to run, a regular expression on their names; empty means all")
	list := flags.Bool("list", false, "names the cells")
	flags.IntVar(&o.runs, "runs", 5, "rounds that count, with a run of every cell on a fresh broker in each, after one that does not")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "measured time of a run")
	flags.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before it")
	flags.BoolVar(&o.brief, "brief", false, "one run of a moment per cell, to see that everything works")
	flags.BoolVar(&o.peers, "peers", true, "runs perf/peers as well")
	flags.BoolVar(&o.jumbo, "jumbo", true, "runs the cells of the jumbo build as well, which needs bash; without it being said not with -brief")
	flags.StringVar(&o.one, "one", "", "cell to run once with the broker of -felixd, printing its report as JSON: what a session starts for the jumbo build")
	flags.StringVar(&o.felixd, "felixd", "", "the program of felixd for -one")
	flags.StringVar(&o.dir, "o", "", "results directory; empty means perf/results/DATE-COMMIT")
	flags.StringVar(&o.against, "against", "", "results directory of a session before, whose medians are compared")
	flags.StringVar(&o.read, "read", "", "results directory to print again instead of measuring")
	flags.StringVar(&o.readme, "readme", "", "results directory whose table goes into README.md")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = session.CommandLine("go run ./perf/matrix", flags, "o", "against", "list")
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.brief {
		if !given["duration"] {
			o.duration = briefDuration
		}
		if !given["warmup"] {
			o.warmup = briefWarmup
		}
		o.jumbo = o.jumbo && given["jumbo"]
	}
	expression, err := regexp.Compile(*names)
	if err != nil {
		return o, fmt.Errorf("-cells: %w", err)
	}
	for _, c := range cells() {
		if expression.MatchString(c.Name) && (o.jumbo || c.group != jumboGroup) {
			o.cells = append(o.cells, c)
		}
	}
	if *list {
		for _, c := range o.cells {
			fmt.Fprintf(out, "%-26s %s\n", c.Name, c.group)
		}
		return o, flag.ErrHelp
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	case len(o.cells) == 0:
		return o, fmt.Errorf("no cell is called %q; -list names them", *names)
	case o.runs < 1 || o.runs > maxRuns:
		return o, fmt.Errorf("runs is %d; give 1 to %d", o.runs, maxRuns)
	case o.duration < 10*time.Millisecond || o.warmup <= 0:
		return o, fmt.Errorf("duration is %v and warmup %v; give more than 0", o.duration, o.warmup)
	case (o.one != "") != (o.felixd != ""):
		return o, errors.New("-one runs a cell with the program of -felixd; give both")
	case o.read != "" && o.readme != "":
		return o, errors.New("-read prints a session and -readme puts its table into README.md; give one of them")
	case (o.read != "" || o.readme != "") && o.dir != "":
		return o, errors.New("-o is where a session goes, and -read and -readme make none; leave one of them out")
	}
	return o, nil
}

// run is the command.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.one != "" {
		return runOne(ctx, o, out)
	}
	if o.readme != "" {
		return writeReadme(o.readme, "README.md")
	}
	// What the session is to be held against is read first: a wrong name must not be noticed after half an hour.
	var before session.Session
	if o.against != "" {
		if before, err = session.Read(o.against); err != nil {
			return fmt.Errorf("-against: %w", err)
		}
	}
	var s session.Session
	if o.read != "" {
		if s, err = session.Read(o.read); err != nil {
			return fmt.Errorf("-read: %w", err)
		}
		if err := render(o.read, s); err != nil {
			return err
		}
	} else if s, err = measure(ctx, &o, progress); err != nil && s.Cells == nil {
		return err
	}
	tables := s.Tables()[:min(2, len(s.Tables()))] // what is lost and what is missed
	if o.against != "" {
		tables = s.AgainstTables(before, o.against)
	}
	for _, t := range tables {
		if _, failed := io.WriteString(out, t.Markdown()); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err // of pairs that were given up
}

// measure makes a session. When pairs were given up, there is an error and the session without them; otherwise one of both.
func measure(ctx context.Context, o *options, progress io.Writer) (s session.Session, err error) {
	root, err := session.ModuleRoot(ctx)
	if err != nil {
		return s, err
	}
	if o.dir == "" {
		if o.dir, err = freeDir(filepath.Join(root, "perf", "results", session.DirName(time.Now(), session.Commit(ctx, root)))); err != nil {
			return s, err
		}
	}
	work, err := os.MkdirTemp("", "felix-matrix-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(work)
	b := &bench{options: *o, root: root, work: work, progress: progress}
	b.once, b.sample = b.oneRun, b.ceilings
	if err := b.build(ctx); err != nil {
		return s, err
	}
	err = b.do(ctx)
	if err != nil && (b.session.Peers == nil || ctx.Err() != nil) {
		return s, err
	}
	fmt.Fprintf(progress, "the session is in %s; %s is the page\n", o.dir, filepath.Join(o.dir, session.PageFile))
	return b.session, err
}

// maxSessions is how many sessions of a day and commit find a name.
const maxSessions = 99

// freeDir is dir, or dir-2, dir-3 and so on when that is there.
func freeDir(dir string) (string, error) {
	for i := 1; i <= maxSessions; i++ {
		name := dir
		if i > 1 {
			name = fmt.Sprintf("%s-%d", dir, i)
		}
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s and %d more are there; say with -o where the session goes", dir, maxSessions-1)
}

// writeReadme puts the table of a session into a README.
func writeReadme(dir, file string) error {
	s, err := session.Read(dir)
	if err != nil {
		return fmt.Errorf("-readme: %w", err)
	}
	table, err := s.Readme(filepath.ToSlash(filepath.Clean(dir)))
	if err != nil {
		return fmt.Errorf("-readme: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("-readme: %w; run it where README.md is", err)
	}
	replaced, err := session.ReplaceReadme(string(text), table)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(replaced), 0o644)
}
