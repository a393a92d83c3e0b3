package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"felix"
)

// benchBrokerName is the hidden command that felix bench starts itself with.
const benchBrokerName = "bench-broker"

// What --profile-rates takes: one in so many contended locks, and waits of so many nanoseconds.
const (
	mutexFraction = 100
	blockRate     = 10_000
)

// benchBrokerCommand is a broker as felixd runs one, but for its banner, its log and its note for the tools.
func (a *app) benchBrokerCommand() *cobra.Command {
	var listen, admin, data, readyFile string
	var rates bool
	cmd := &cobra.Command{
		Use:    benchBrokerName,
		Hidden: true,
		Args:   withArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settled, err := felix.LoadSettings(felix.SettingsInput{
				Flags: map[string]string{"listen": listen, "admin": admin, "data": data}, Environ: a.environ,
			})
			if err != nil {
				return err
			}
			if err := a.restart(settled.Config.TimerSlack); err != nil {
				fmt.Fprintf(a.stderr, "felix: the broker goes on with the timer slack that it has: %v\n", err)
			}
			if rates {
				runtime.SetMutexProfileFraction(mutexFraction)
				runtime.SetBlockProfileRate(blockRate)
			}
			return a.runBenchBroker(cmd.Context(), settled.Config, readyFile)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "")
	f.StringVar(&admin, "admin", "127.0.0.1:0", "") // of the broker; hides the global flag
	f.StringVar(&data, "data", "", "")
	f.StringVar(&readyFile, "ready-file", "", "")
	f.BoolVar(&rates, "profile-rates", false, "")
	return cmd
}

// runBenchBroker runs a broker until ctx ends.
func (a *app) runBenchBroker(ctx context.Context, config felix.Config, readyFile string) error {
	broker, err := felix.Start(ctx, config)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(a.environ, func(entry string) bool { return strings.HasPrefix(entry, "GOMEMLIMIT=") }) {
		debug.SetMemoryLimit(broker.MemoryBudget())
	}
	if err := broker.Ready().WriteFile(readyFile); err != nil {
		_ = broker.Close()
		return fmt.Errorf("the ready file %q: %w", readyFile, err)
	}
	<-ctx.Done()
	ctx = context.WithoutCancel(ctx)
	_ = broker.Drain(ctx) // the run is over; what was still open is nobody's
	return broker.Close()
}
