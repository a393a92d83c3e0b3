package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/take"

	"github.com/dustin/go-humanize"
)

func main() { load.Main("scale", run) }

// Names of the files that are left.
const (
	jsonFile     = "scale.json"
	markdownFile = "scale.md"
)

// sizes are how many of everything there are. Those of a list grow.
type sizes struct {
	streams, connections                              []int
	idleConnections, idleStreams, subscribers, shared int // of which memory is measured; shared are the subscribers' connections
	plain                                             int // publishing connections
}

var (
	fullSizes  = sizes{[]int{1, 100, 10_000}, []int{1, 100, 1000}, 1000, 10_000, 1000, 16, 256}
	briefSizes = sizes{[]int{1, 5, 20}, []int{1, 3, 10}, 20, 40, 20, 2, 8}
)

// options are the flags.
type options struct {
	dir              string
	parts            []part
	runs             int
	duration, warmup time.Duration
	idle, settle     time.Duration // settle is waited before memory or idle CPU is read
	logBytes         int64
	brief            bool
	sizes            sizes
	command          string
}

const (
	maxRuns     = 50
	maxLogBytes = 1 << 40
	minLogBytes = 8 << 20
	// maxSmallLog bounds the smaller log, which is a twentieth of the larger.
	maxSmallLog = 1 << 30
)

func (o *options) smallLog() int64 { return min(o.logBytes/20, maxSmallLog) }

// memoryRuns is how often memory is measured: it spreads less than speed does.
func (o *options) memoryRuns() int { return min(o.runs, 3) }

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.dir, "o", "", "directory that gets "+jsonFile+" and "+markdownFile)
	only := flags.String("only", "", "parts to run, a regular expression on their names; empty means all")
	list := flags.Bool("list", false, "names the parts")
	flags.IntVar(&o.runs, "runs", 5, "runs of a variant that count, each on a fresh broker, after one that does not")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "measured time of a run")
	flags.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before it")
	flags.DurationVar(&o.idle, "idle", 20*time.Second, "how long a broker with idle connections is watched")
	logBytes := flags.String("log-bytes", "20GiB", "payload bytes in the larger log; the smaller has a twentieth, at most 1 GiB")
	flags.BoolVar(&o.brief, "brief", false, "two moments of everything with small numbers, to see that it works")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = session.CommandLine("go run ./perf/scale -o DIR", flags, "o") // before -brief sets what was not given
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.sizes, o.settle = fullSizes, 2*time.Second
	if o.brief {
		o.sizes, o.settle = briefSizes, 50*time.Millisecond
		for name, value := range map[string]string{"runs": "2", "duration": "100ms", "warmup": "20ms", "idle": "200ms", "log-bytes": "8MiB"} {
			if !given[name] {
				if err := flags.Set(name, value); err != nil {
					return o, err
				}
			}
		}
	}
	if o.logBytes, err = parseBytes(*logBytes); err != nil {
		return o, err
	}
	expression, err := regexp.Compile(*only)
	if err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	for _, p := range parts {
		if expression.MatchString(p.name) {
			o.parts = append(o.parts, p)
		}
	}
	if *list {
		for _, p := range o.parts {
			fmt.Fprintf(out, "%-18s %s\n", p.name, p.what)
		}
		return o, flag.ErrHelp
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	case len(o.parts) == 0:
		return o, fmt.Errorf("no part is called %q; -list names them", *only)
	case o.dir == "":
		return o, errors.New("-o is missing; say where the report goes")
	case o.runs < 1 || o.runs > maxRuns:
		return o, fmt.Errorf("runs is %d; give 1 to %d", o.runs, maxRuns)
	case o.duration < 10*time.Millisecond || o.warmup <= 0 || o.idle < 10*time.Millisecond:
		return o, fmt.Errorf("duration is %v, warmup %v and idle %v; give more than 0", o.duration, o.warmup, o.idle)
	}
	return o, nil
}

// parseBytes reads the size of a log, as 512MiB or 20GiB.
func parseBytes(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n < minLogBytes || n > maxLogBytes {
		return 0, fmt.Errorf("log-bytes is %q; give 8MiB to 1024GiB", text)
	}
	return int64(n), nil
}

// run is the command.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	root, err := session.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "felix-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &bench{options: o, work: work, progress: progress, begun: time.Now()}
	b.report = Report{Machine: load.ThisMachine(), Command: o.command, Runs: o.runs, DurationSec: o.duration.Seconds()}
	if commit := session.Commit(ctx, root); commit != "" {
		b.report.Machine.Commit = commit
	}
	if o.brief {
		b.notes = append(b.notes, "brief: every run is too short and every number too small to say anything")
	}
	var whole time.Duration
	for _, p := range o.parts {
		whole += p.estimate(&o)
	}
	b.sayf("%d parts, about %v", len(o.parts), whole.Round(time.Second))
	if err := b.check(); err != nil { // before anything has taken time
		return err
	}
	b.felixd, b.server = filepath.Join(work, "felixd"), filepath.Join(work, "server")
	for program, name := range map[string]string{b.felixd: "./cmd/felixd", b.server: "./perf/scale/server"} {
		if err := load.Build(ctx, root, program, name); err != nil {
			return err
		}
	}
	if !o.brief {
		b.cpus = take.WatchCPUs(ctx, progress)
	}
	for i, p := range o.parts {
		b.sayf("part %d of %d: %s, about %v", i+1, len(o.parts), p.name, p.estimate(&o).Round(time.Second))
		b.part = p.name
		if err := p.measure(ctx, b); err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		if err := b.write(); err != nil { // what there is stays when a later part fails
			return err
		}
	}
	b.sayf("done after %v; %s and %s are in %s", time.Since(b.begun).Round(time.Second), jsonFile, markdownFile, o.dir)
	_, err = io.WriteString(out, b.report.Markdown())
	return err
}

// write leaves the report.
func (b *bench) write() error {
	b.report.Notes = slices.Concat(b.notes, b.cpus.Notes())
	if err := session.WriteJSON(filepath.Join(b.dir, jsonFile), &b.report); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, markdownFile), []byte(b.report.Markdown()), 0o644)
}
