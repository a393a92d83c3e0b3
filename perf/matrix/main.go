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
	"strings"
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
	twice            bool
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
	flags.BoolVar(&o.twice, "twice", false, "makes two sessions at once, run by run in turn, the second in the directory of the first with -2 behind it, and holds it against the first")
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
	case o.twice && (o.against != "" || o.read != "" || o.readme != "" || o.one != ""):
		return o, errors.New("-twice makes two sessions and holds one against the other; leave -against, -read, -readme and -one out")
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
	var books []*book
	if o.read != "" {
		s, err := session.Read(o.read)
		if err != nil {
			return fmt.Errorf("-read: %w", err)
		}
		if err := render(o.read, s); err != nil {
			return err
		}
		books = []*book{{dir: o.read, session: s}}
	} else if books, err = measure(ctx, o, progress); books == nil {
		return err
	}
	last := books[len(books)-1]
	if o.twice {
		before, o.against = books[0].session, books[0].dir
	}
	var text strings.Builder
	if o.against != "" {
		for _, t := range last.session.AgainstTables(before, filepath.Base(o.against)) {
			text.WriteString(t.Markdown())
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(last.dir, session.AgainstFile), []byte(text.String()), 0o644))
	} else {
		tables := last.session.Tables()
		for _, t := range tables[:min(2, len(tables))] { // what is lost and what is missed
			text.WriteString(t.Markdown())
		}
	}
	_, failed := io.WriteString(out, text.String())
	return errors.Join(err, failed) // err is of pairs that were given up
}

// measure makes a session, or two. Pairs that were given up are an error beside the books, which lack them; after any other there are none.
func measure(ctx context.Context, o options, progress io.Writer) (books []*book, err error) {
	root, err := session.ModuleRoot(ctx)
	if err != nil {
		return nil, err
	}
	if o.dir == "" {
		if o.dir, err = freeDir(filepath.Join(root, "perf", "results", session.DirName(time.Now(), session.Commit(ctx, root)))); err != nil {
			return nil, err
		}
	}
	books = []*book{newBook(o.dir)}
	if o.twice {
		second, err := freeDir(o.dir + "-2")
		if err != nil {
			return nil, err
		}
		books = append(books, newBook(second))
	}
	work, err := os.MkdirTemp("", "felix-matrix-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	b := &bench{options: o, root: root, work: work, progress: progress, books: books}
	b.once, b.sample = b.oneRun, b.ceilings
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	err = b.do(ctx)
	if err != nil && (books[len(books)-1].session.Peers == nil || ctx.Err() != nil) {
		return nil, err
	}
	for _, k := range books {
		fmt.Fprintf(progress, "a session is in %s; %s is the page\n", k.dir, filepath.Join(k.dir, session.PageFile))
	}
	return books, err
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
