package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"felix"
	"felix/affinity"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	os.Exit(run(process{
		args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stderr), signals: signals, exit: os.Exit, restart: affinity.RestartWithTimerSlack,
	}))
}

// process is what a run of the command has of its surroundings.
type process struct {
	args, environ  []string
	stdout, stderr io.Writer
	terminal       bool // stderr is one
	signals        <-chan os.Signal
	exit           func(code int)                       // ends the process at once
	restart        func(timerSlack time.Duration) error // is as affinity.RestartWithTimerSlack
}

// failure is an error that is not about usage: run exits with 1.
type failure struct{ error }

// run executes the command line and returns the exit code.
func run(p process) int {
	root := rootCommand(p)
	root.SetArgs(p.args)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	// A joined error has one sentence on each line.
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.stderr, "felixd: %s\n", line)
	}
	if errors.As(err, new(failure)) {
		return exitFailure
	}
	fmt.Fprintf(p.stderr, "felixd: felixd --help lists flags and commands\n")
	return exitUsage
}

// serve starts a broker, says so, and waits for a signal.
func serve(p process, settled *felix.Settled, readyFile string) error {
	log := newLogger(p.stderr, p.terminal)
	for _, warning := range settled.Warnings {
		log.Warn(warning)
	}
	config := settled.Config
	config.Logger = log
	if err := p.restart(config.TimerSlack); err != nil {
		log.Warn("the broker goes on with the timer slack that it has", "error", err)
	}
	if readyFile != "" {
		// One that is left from an earlier run would tell of a broker that is gone.
		if err := os.Remove(readyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failure{notWritable(readyFile, err)}
		}
	}
	broker, err := felix.Start(context.Background(), config)
	if err != nil {
		return failure{err}
	}
	if !slices.ContainsFunc(p.environ, func(entry string) bool { return strings.HasPrefix(entry, "GOMEMLIMIT=") }) {
		debug.SetMemoryLimit(broker.MemoryBudget())
	}

	ready := broker.Ready()
	if readyFile != "" {
		if err := ready.WriteFile(readyFile); err != nil {
			broker.Close()
			return failure{notWritable(readyFile, err)}
		}
	}
	forget, contextErr := felix.WriteContext(ready)
	if contextErr != nil {
		log.Warn("the felix command will not find this broker by itself: its context cannot be kept", "error", contextErr)
		forget = func() {}
	}
	defer forget()
	printBanner(p.stdout, broker, contextErr == nil)

	first := <-p.signals
	log.Info("draining: new streams are refused, what was accepted is finished; a second signal ends at once", "signal", first.String())
	finished := make(chan error, 1)
	go func() { finished <- shutDown(broker) }()
	select {
	case err := <-finished:
		if err != nil {
			return failure{err}
		}
		log.Info("drained")
		return nil
	case second := <-p.signals:
		log.Warn("ended by a second signal; what was still open is lost", "signal", second.String())
		forget()
		p.exit(exitFailure)
		return nil
	}
}

func notWritable(readyFile string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("the ready file %q cannot be written (%w); give a path in a directory that this user can write", readyFile, err)
}

// shutDown drains and closes the broker. Both are bounded by the broker's own settings.
func shutDown(broker *felix.Broker) error {
	err := broker.Drain(context.Background())
	return errors.Join(err, broker.Close())
}

// rootCommand is felixd with its flags and sub-commands.
func rootCommand(p process) *cobra.Command {
	var readyFile, configFile string
	root := &cobra.Command{
		Use:           "felixd",
		Short:         "Run a felix broker",
		Long:          "Felixd runs a broker. It needs no configuration: it then listens on loopback with a development\ncertificate and accepts any token.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       felix.Version(),
	}
	root.SetVersionTemplate("felixd {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if flag, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
			if near := felix.NearestSetting(flag); near != "" {
				return fmt.Errorf("%w; did you mean --%s?", err, near)
			}
		}
		return err
	})
	given := settingFlags(root)
	root.PersistentFlags().StringVar(&configFile, "config", "", "configuration file of flat YAML keys ("+felix.ConfigFileEnv+")")
	root.Flags().StringVar(&readyFile, "ready-file", "", "file that gets JSON {listen, ports, admin, ca_file, pid} once clients can connect")

	load := func() (*felix.Settled, error) {
		settled, err := felix.LoadSettings(felix.SettingsInput{Flags: given(), Environ: p.environ, File: configFile})
		if err != nil {
			return settled, failure{err}
		}
		return settled, nil
	}
	root.RunE = func(*cobra.Command, []string) error {
		settled, err := load()
		if err != nil {
			return err
		}
		return serve(p, settled, readyFile)
	}
	root.AddCommand(configCommand(p, load))
	return root
}

// settingFlags gives cmd a flag for each setting and returns a function that collects those that were set.
func settingFlags(cmd *cobra.Command) (given func() map[string]string) {
	flags := cmd.PersistentFlags()
	flags.SortFlags = false // the order of the table keeps together what belongs together
	cmd.Flags().SortFlags = false
	for _, s := range felix.Settings() {
		help := fmt.Sprintf("%s (%s; default %s; %s)", s.Help, s.Bounds, s.DefaultText(), s.Env[0])
		flags.String(s.Flag(), "", help)
		if s.Bool {
			flags.Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
	return func() map[string]string {
		values := map[string]string{}
		for _, s := range felix.Settings() {
			if f := flags.Lookup(s.Flag()); f.Changed {
				values[s.Key] = f.Value.String()
			}
		}
		return values
	}
}
