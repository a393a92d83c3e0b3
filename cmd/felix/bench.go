package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"felix"
	"felix/perf/load"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	load.Config
	scenario                   load.Scenario
	generator                  string
	connections                int
	data, profile              string
	warmup                     time.Duration
	size, keys                 int
	acks, durability           string
	sizeGiven, keysGiven, warm bool
}

func (a *app) benchCommand() *cobra.Command {
	var smoke bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a broker: rates, latencies, what both sides spend, every count checked",
		Long: "Bench drives a broker and reports what it did. Without --server and --stream it starts one in a process of its own, on free\n" +
			"ports, with the settings of the environment, and ends it afterwards. A stream is made for the run and removed.\n\n" +
			"Without --rate each publisher sends as fast as its window allows: a closed loop, which saturates, and whose latencies are\n" +
			"those under saturation. With --rate batches are due at times that are fixed beforehand, and latencies are given from\n" +
			"then (corrected for coordinated omission) and from when a batch was really sent.\n\n" +
			"A run whose counts do not agree is void: it says why, and the command ends with 1.",
		Example:     "  felix bench pub --batch 64\n  felix bench e2e --rate 20000 --durability on_commit\n  felix bench fanout --subscribers 50 --slow 10 --durability on_commit -o json\n  felix bench --smoke",
		Annotations: map[string]string{outputs: "table json"},
		Args:        unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !smoke {
				return cmd.Help()
			}
			return a.benchSmoke(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&smoke, "smoke", false, "run each scenario for a moment and check that the ratios between them are sane")
	for _, s := range []struct {
		scenario    load.Scenario
		short, long string
	}{
		{load.Pub, "Measure publishing", "Pub publishes and waits for the answers: 64 publishers with 64 batches in flight each, unless told otherwise."},
		{load.E2E, "Measure from publisher to subscriber", "E2e publishes, subscribes to every shard, and measures how long each record takes: 8 publishers with 8 batches in flight each\nand one subscriber, unless told otherwise. A payload of 16 bytes or more holds the times."},
		{load.FanOut, "Measure delivery to many subscribers", "Fanout delivers every record to many subscribers: one publisher with 16 batches of 64 records in flight, one shard and 10\nsubscribers, unless told otherwise."},
	} {
		cmd.AddCommand(a.benchScenario(s.scenario, s.short, s.long))
	}
	return cmd
}

// benchScenario is one of the commands below bench.
func (a *app) benchScenario(scenario load.Scenario, short, long string) *cobra.Command {
	o := benchOptions{scenario: scenario}
	cmd := &cobra.Command{
		Use:         string(scenario),
		Short:       short,
		Long:        long,
		Args:        withArgs(0, 0, "no arguments"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"publishers", "in-flight", "batch", "shards", "subscribers", "runs", "duration"} {
				// Zero stands for the default in package load, and is a mistake here.
				if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s") {
					return usage(cmd, fmt.Sprintf("%s is 0; give at least 1, or leave it out", name))
				}
			}
			if f := cmd.Flags().Lookup("rate"); f.Changed && o.Rate == 0 {
				return usage(cmd, "rate is 0; give records per second, or leave it out for a closed loop")
			}
			o.sizeGiven, o.keysGiven, o.warm = cmd.Flags().Changed("size"), cmd.Flags().Changed("keys"), cmd.Flags().Changed("warmup")
			return a.bench(cmd, &o)
		},
	}
	defaults := load.Config{Scenario: scenario}.WithDefaults()
	f := cmd.Flags()
	f.SortFlags = false
	f.Float64Var(&o.Rate, "rate", 0, "records due per second, all publishers together; without it a closed loop")
	f.IntVar(&o.Publishers, "publishers", 0, fmt.Sprintf("publishers (default %d)", defaults.Publishers))
	f.IntVar(&o.InFlight, "in-flight", 0, fmt.Sprintf("batches of a publisher that are not answered (default %d)", defaults.InFlight))
	f.IntVar(&o.size, "size", 0, fmt.Sprintf("bytes of a payload (default %d)", defaults.Size))
	f.IntVar(&o.Batch, "batch", 0, fmt.Sprintf("records that are published together (default %d)", defaults.Batch))
	f.IntVar(&o.keys, "keys", 0, fmt.Sprintf("keys that a publisher uses in turn; 0: none, and all records on shard 0 (default %d)", max(defaults.Keys, 0)))
	f.IntVar(&o.Shards, "shards", 0, fmt.Sprintf("shards of the stream that is made (default %d)", defaults.Shards))
	f.StringVar(&o.durability, "durability", "", "promise of the stream that is made: memory, on_commit, periodic or none (default memory)")
	f.StringVar(&o.acks, "acks", "", "what publishers wait for, as in felix pub: none, each or batch (default batch)")
	if scenario != load.Pub {
		f.IntVar(&o.Subscribers, "subscribers", 0, fmt.Sprintf("subscribers of the whole stream (default %d)", defaults.Subscribers))
		f.IntVar(&o.Slow, "slow", 0, "how many of the subscribers do not read")
	}
	f.DurationVar(&o.Duration, "duration", 0, fmt.Sprintf("measured time (default %v)", defaults.Duration))
	f.DurationVar(&o.warmup, "warmup", 0, fmt.Sprintf("time before it that is not measured (default %v)", defaults.Warmup))
	f.IntVar(&o.Runs, "runs", 0, "runs that count, with their medians; of several, one more comes first and does not (default 1)")
	f.Uint64Var(&o.Seed, "seed", 0, "the same seed makes the same payloads and keys")
	f.StringVar(&o.Stream, "stream", "", "an existing stream to use, as it is")
	f.StringVar(&o.generator, "generator", load.GeneratorClient, "what publishes: client, or lean, which builds frames and does nothing else")
	f.IntVar(&o.connections, "connections", 0, "QUIC connections of the publishers to each core of the broker (default 1)")
	f.StringVar(&o.data, "data", "", "directory for the data of the broker that is started (default a temporary one)")
	f.StringVar(&o.profile, "profile", "", "directory that gets CPU, allocation, mutex and block profiles of the broker")
	_ = cmd.RegisterFlagCompletionFunc("stream", func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return a.completeStream(cmd, nil, toComplete)
	})
	return cmd
}

// config is what the flags amount to.
func (o *benchOptions) config() load.Config {
	c := o.Config
	c.Scenario, c.Acks, c.Durability, c.Size, c.Keys, c.Warmup = o.scenario, load.Acks(o.acks), load.Durability(o.durability), o.size, o.keys, o.warmup
	if o.sizeGiven && o.size == 0 {
		c.Size = load.NoPayload
	}
	if o.sizeGiven && o.size < 0 {
		c.Size = min(o.size, load.NoPayload-1) // -1 is no size either
	}
	if o.keysGiven && o.keys == 0 {
		c.Keys = load.NoKeys
	}
	if o.keysGiven && o.keys < 0 {
		c.Keys = min(o.keys, load.NoKeys-1)
	}
	if o.warm && o.warmup == 0 {
		c.Warmup = load.NoWarmup
	}
	return c
}

// bench runs the load and prints the report.
func (a *app) bench(cmd *cobra.Command, o *benchOptions) (err error) {
	ctx := cmd.Context()
	c := o.config()
	if o.generator != load.GeneratorClient && o.generator != load.GeneratorLean {
		return usage(cmd, fmt.Sprintf("generator %q is none of client, lean", o.generator))
	}
	if o.connections < 0 || o.connections > 64 {
		return usage(cmd, fmt.Sprintf("connections is %d; give a number from 1 to 64", o.connections))
	}
	// Before a broker is started: against a target that is never driven.
	c.Target, _ = load.NewClientTarget(load.FelixConfig{Addr: "127.0.0.1:0"})
	if err := c.Validate(); err != nil {
		return usage(cmd, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	broker, err := a.benchBroker(cmd, o)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := broker.stop(); err == nil && stopErr != nil {
			err = brokerEnded(stopErr)
		}
	}()
	config := broker.felix
	config.Connections = o.connections
	if c.Target, err = load.NewTarget(o.generator, config); err != nil {
		return err
	}
	view := newBenchView(a, c, broker)
	if err := view.header(ctx, o); err != nil {
		return err
	}
	c.Progress = view.live
	var profiling sync.WaitGroup
	var profileErr error
	if o.profile != "" {
		c.Progress = func(p load.Progress) {
			if p.Phase == load.Measuring && p.Run == 1 && p.Elapsed < p.Total/4 && !view.profiled {
				view.profiled = true
				took := p.Total - p.Elapsed
				profiling.Go(func() { profileErr = load.Profile(ctx, config.Admin, o.profile, min(took, time.Minute)) })
			}
			view.live(p)
		}
	}
	report, err := load.Run(ctx, c)
	profiling.Wait()
	view.clear()
	if err != nil {
		return explainBench(cmd, err, o.Stream)
	}
	if a.output == "json" {
		err = a.printJSON(report)
	} else {
		err = view.final(report)
	}
	if err != nil {
		return err
	}
	if profileErr != nil && ctx.Err() == nil {
		return &problem{exitFailure, "the broker was not profiled", strings.ReplaceAll(profileErr.Error(), "\n", "; "), cmd.CommandPath() + " again, with go in the PATH and a broker that has an admin listener"}
	}
	return verdictOf(ctx, cmd, report)
}

// verdictOf is the error that a void or interrupted report ends the command with.
func verdictOf(ctx context.Context, cmd *cobra.Command, report *load.Report) error {
	var reasons []string
	for _, r := range report.Runs {
		reasons = append(reasons, r.VoidReasons...)
	}
	switch {
	case ctx.Err() != nil:
		return &problem{exitFailure, "interrupted", "a signal ended the measurement before its time; what is printed is what there was", cmd.CommandPath() + " again, to start over"}
	case report.Void:
		return &problem{exitFailure, "the run is void", strings.Join(reasons, "; "), cmd.CommandPath() + " again, with a broker that nobody else uses and, if records were missing, a lower --rate"}
	}
	return nil
}

// explainBench makes three lines of what kept a run from starting.
func explainBench(cmd *cobra.Command, err error, stream string) error {
	switch {
	case errors.Is(err, load.ErrInvalid):
		return usage(cmd, strings.ReplaceAll(err.Error(), "\n", "; "))
	case errors.Is(err, load.ErrNoStream):
		return &problem{exitNotFound, fmt.Sprintf("there is no stream %q to measure", stream), err.Error(), "felix stream ls, or the same command without --stream, which makes one"}
	}
	return err
}

// brokerEnded is the problem of a broker that was started for a run and did not end well.
func brokerEnded(err error) error {
	return &problem{exitFailure, "the broker that was started for this run did not end well", strings.ReplaceAll(err.Error(), "\n", "; "), "felix bench again, and report it with this output and felix version"}
}

// benchBroker is the broker of a run.
type benchBroker struct {
	felix     load.FelixConfig
	what      string        // for the header
	process   *load.Process // nil when it was there before
	dir       string        // where its data is; "" when that is not known
	maxPacket int           // bytes; 0 when that is not known
}

func (b *benchBroker) stop() error {
	if b.process == nil {
		return nil
	}
	return b.process.Stop()
}

// benchBroker finds the broker that the flags name, or starts one.
func (a *app) benchBroker(cmd *cobra.Command, o *benchOptions) (*benchBroker, error) {
	if a.server == "" && o.Stream == "" {
		return a.startBenchBroker(cmd.Context(), o)
	}
	if o.data != "" {
		return nil, usage(cmd, "--data is for a broker that is started, and --server or --stream names one that runs; leave one of them out")
	}
	c := load.FelixConfig{Addr: a.server, Admin: a.admin, CAFile: a.ca, Tenant: a.tenant, Namespace: a.namespace, Token: a.token}
	if note, ok := a.development(); ok {
		c.Addr, c.Owners = note.Listen, max(len(note.Ports), 1)
		if c.CAFile == "" {
			c.CAFile = note.CAFile
		}
		if c.Admin == "" {
			c.Admin = note.Admin
		}
	}
	if c.Admin != "" {
		admin, err := a.adminClient(cmd)
		if err != nil {
			return nil, err
		}
		admin.close()
	} else if o.Stream == "" {
		return nil, &problem{
			exitUsage, "a stream is to be made for the run, which the admin listener does", "--admin is not given, FELIX_ADMIN is not set, and --stream names none that exists",
			cmd.CommandPath() + " --admin HOST:PORT, or with --stream NAME",
		}
	}
	if o.profile != "" && c.Admin == "" {
		return nil, usage(cmd, "--profile asks the admin listener, and there is none; give --admin")
	}
	// One connection in front makes three lines of what keeps others from being made.
	probe, err := a.dial(cmd.Context())
	if err != nil {
		return nil, err
	}
	return &benchBroker{felix: c, what: c.Addr + ", which was running"}, probe.Close()
}

// startBenchBroker starts this program again, as a broker.
func (a *app) startBenchBroker(ctx context.Context, o *benchOptions) (*benchBroker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := load.ProcessConfig{Command: []string{program, benchBrokerName}, DataDir: o.data}
	if o.profile != "" {
		c.Args = append(c.Args, "--profile-rates")
	}
	for _, entry := range a.environ {
		if strings.HasPrefix(entry, "FELIX_") {
			c.Env = append(c.Env, entry)
		}
	}
	process, err := load.StartProcess(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &problem{exitFailure, "the broker for this run did not start", strings.ReplaceAll(err.Error(), "\n", "; "), "felix bench --server HOST:PORT --admin HOST:PORT, with a broker that runs; or again, once that is mended"}
	}
	b := &benchBroker{felix: process.Felix(), what: fmt.Sprintf("started for this run, process %d", process.PID), process: process, dir: o.data}
	b.felix.Tenant, b.felix.Namespace, b.felix.Token = a.tenant, a.namespace, a.token
	if settled, err := felix.LoadSettings(felix.SettingsInput{Environ: c.Env}); err == nil {
		if b.maxPacket = settled.Config.MaxPacketBytes; b.maxPacket == 0 {
			b.maxPacket = felix.MaxPacketBytes
		}
	}
	if b.dir == "" {
		b.dir = os.TempDir()
	}
	return b, nil
}
