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
	"time"

	"felix/perf/load"
	"felix/perf/session"
)

func main() { load.Main("peers", run) }

// options are the flags.
type options struct {
	pairs            []pair
	rounds           int
	duration, warmup time.Duration
	dir, second      string // results directories; "" is none
	watch            bool   // the CPUs
	felix            string // the tree to build felixd from
	connections      int    // to NATS; 0: as many as the felix client has
	command          string // that makes the same runs again, anywhere
}

const (
	maxRounds      = 200
	maxConnections = 1024
)

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(out)
	names := flags.String("pairs", "", "pairs to run, a regular expression on their names; empty means all")
	list := flags.Bool("list", false, "names the pairs")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds that count, with a run of each side of every pair, after one that does not")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "measured time of a run")
	flags.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before it")
	flags.StringVar(&o.dir, "o", "", "directory that gets peers.json, peers.md and the report of every run, from perf/peers if it is relative; empty means none")
	flags.StringVar(&o.second, "second", "", "directory of a second result, measured at the same time, run by run in turn with the first")
	flags.BoolVar(&o.watch, "watch", true, "makes a run again when the CPUs were far apart from each other, as the host of virtual ones may have them")
	flags.StringVar(&o.felix, "felix", filepath.Join("..", ".."), "the tree to build felixd from")
	flags.IntVar(&o.connections, "connections", 0, "connections of the publishers to NATS; 0 means as many as those of felix")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = session.CommandLine("go run -C perf/peers .", flags, "o", "second", "felix", "list")
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	expression, err := regexp.Compile(*names)
	if err != nil {
		return o, fmt.Errorf("-pairs: %w", err)
	}
	for _, p := range pairs() {
		if expression.MatchString(p.Name) {
			o.pairs = append(o.pairs, p)
		}
	}
	if *list {
		for _, p := range o.pairs {
			fmt.Fprintf(out, "%-28s %s\n", p.Name, p.Promise)
		}
		return o, flag.ErrHelp
	}
	switch {
	case len(o.pairs) == 0:
		return o, fmt.Errorf("no pair is called %q; -list names them", *names)
	case o.second != "" && o.dir == "":
		return o, errors.New("-second is where a second result goes; say with -o where the first one goes")
	case o.rounds < 1 || o.rounds > maxRounds:
		return o, fmt.Errorf("rounds is %d; give 1 to %d", o.rounds, maxRounds)
	case o.duration < 10*time.Millisecond || o.warmup <= 0:
		return o, fmt.Errorf("duration is %v and warmup %v; give more than 0", o.duration, o.warmup)
	case o.connections < 0 || o.connections > maxConnections:
		return o, fmt.Errorf("connections is %d; give 0 to %d", o.connections, maxConnections)
	}
	return o, nil
}

// run is the command.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "felix-peers-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fmt.Fprintln(progress, "building nats-server and felixd")
	programs := programs{felixd: filepath.Join(work, "felixd")}
	if programs.nats, err = buildServer(ctx, work); err != nil {
		return fmt.Errorf("nats-server cannot be built; run this as go run -C perf/peers . with the module proxy in reach: %w", err)
	}
	if programs.version, err = serverVersion(ctx, programs.nats); err != nil {
		return err
	}
	if err := command(ctx, o.felix, "go", "build", "-o", programs.felixd, "./cmd/felixd"); err != nil {
		return err
	}
	commit := session.Commit(ctx, o.felix)
	var books []*book
	for _, dir := range []string{o.dir, o.second} {
		if dir == "" && len(books) > 0 {
			break
		}
		result := &session.Peers{Machine: load.ThisMachine(), Command: o.command, Peer: "nats-server " + programs.version, Setup: setup(o)}
		if commit != "" {
			result.Machine.Commit = commit
		}
		books = append(books, &book{dir: dir, result: result})
	}
	failed := o.measure(ctx, books, programs.oneRun, progress)
	last := books[len(books)-1].result
	if failed != nil && (ctx.Err() != nil || len(last.Pairs) == 0) {
		return failed
	}
	_, err = io.WriteString(out, session.Session{Peers: last}.Markdown(nil))
	return errors.Join(failed, err)
}

// setup says how the sides are set up, in all pairs.
func setup(o options) []string {
	connections := "as many connections to each as the felix client opens to the listening cores of the broker"
	if o.connections > 0 {
		connections = fmt.Sprintf("%d connections of publishers to NATS; to felix one per listening core", o.connections)
	}
	return []string{
		"both: one process with its defaults, TLS 1.3 on loopback, data in a directory for temporary files, the generator in a process of its own on the same CPUs",
		"transports differ: felix speaks QUIC over UDP in packets of 1,452 bytes, NATS TLS over TCP, whose packets on loopback have 64 KiB",
		connections,
		"nats-server: one node, no replicas; memory streams bounded to 65,536 records and 64 MiB each, as the rings of felix are",
		"answers: felix answers a batch, JetStream each record",
	}
}

// write leaves what there is in the results directories.
func write(books []*book) error {
	for _, k := range books {
		if k.dir == "" {
			continue
		}
		err := session.WriteJSON(filepath.Join(k.dir, session.PeersFile), k.result)
		if err == nil {
			err = os.WriteFile(filepath.Join(k.dir, "peers.md"), []byte(session.Session{Peers: k.result}.Markdown(nil)), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep leaves the report of a run in a results directory.
func keep(dir, pair, side string, number int, report *load.Report) error {
	if dir == "" {
		return nil
	}
	return session.WriteJSON(filepath.Join(dir, session.RawDir, fmt.Sprintf("pair-%s-%s-%d.json", pair, side, number)), report)
}

// programs are what was built.
type programs struct{ nats, version, felixd string }

// oneRun starts a broker, drives it and ends it.
func (s programs) oneRun(ctx context.Context, o options, p pair, peer bool) (report *load.Report, err error) {
	c := p.config
	c.Duration, c.Warmup = o.duration, o.warmup
	if peer {
		server, err := startServer(ctx, s.nats, p.syncAlways)
		if err != nil {
			return nil, err
		}
		server.version = s.version
		defer func() { err = errors.Join(err, server.stop()) }()
		connections := o.connections
		if connections == 0 {
			connections = felixOwners()
		}
		c.Target = newNATSTarget(server, p.mode, connections)
		return load.Run(ctx, c)
	}
	process, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{s.felixd}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	if c.Target, err = load.NewClientTarget(process.Felix()); err != nil {
		return nil, err
	}
	return load.Run(ctx, c)
}

// felixOwners is how many addresses a felix broker on this machine announces; its client has a connection to each.
func felixOwners() int {
	return min(load.ThisMachine().CPUs, 8)
}
