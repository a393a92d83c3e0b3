package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"felix/perf/load"
)

type tenantOptions struct {
	publishers, size int // of both tenants together; one of them belongs to the small one
	share            float64
	duration         time.Duration
	times            float64 // the small one's p99 beside the large one, in multiples of that alone; 0 means no bound
}

func prepareTenants(flags *flag.FlagSet) func(context.Context, *report) error {
	var o tenantOptions
	flags.IntVar(&o.publishers, "publishers", 64, "of both tenants, one of them of the small one")
	flags.IntVar(&o.size, "size", 256, "bytes of a record")
	flags.Float64Var(&o.share, "share", 0.7, "of the saturated rate that both publish together, in an open loop")
	flags.DurationVar(&o.duration, "duration", 20*time.Second, "of each run")
	flags.Float64Var(&o.times, "times", 3, "the small tenant's p99 beside the large one, in multiples of its p99 alone, that is allowed; 0 means no bound")
	return func(ctx context.Context, r *report) error { return tenants(ctx, r, o) }
}

// tenants measures what a tenant with one publisher sees of one with all the others. The broker is a process of its own.
func tenants(ctx context.Context, r *report, o tenantOptions) (err error) {
	dir, err := os.MkdirTemp("", "felix-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDaemon(ctx, dir, "--auto-create-memory")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	others := o.publishers - 1
	saturated, err := d.publish(ctx, o, "large", others, 0)
	if err != nil {
		return fmt.Errorf("the saturated run: %w", err)
	}
	each := o.share * saturated.AckedPerSec / float64(o.publishers)
	r.say("saturated: %d publishers of one tenant, %.0f records/s", others, saturated.AckedPerSec)
	alone, err := d.publish(ctx, o, "small", 1, each)
	if err != nil {
		return fmt.Errorf("the small tenant alone: %w", err)
	}
	r.say("alone:     %.0f records/s due, ack p50 %.0f us, p99 %.0f us", each, alone.Ack.P50, alone.Ack.P99)
	var beside, large *load.Report
	both := newCrew(ctx)
	both.do(func(ctx context.Context) (err error) {
		beside, err = d.publish(ctx, o, "small", 1, each)
		return err
	})
	both.do(func(ctx context.Context) (err error) {
		large, err = d.publish(ctx, o, "large", others, each*float64(others))
		return err
	})
	if err := both.wait(); err != nil {
		return fmt.Errorf("both tenants: %w", err)
	}
	times := beside.Ack.P99 / alone.Ack.P99
	r.say("beside %d: %.0f records/s due, ack p50 %.0f us, p99 %.0f us, %.2f times that of alone; the large tenant p50 %.0f us, p99 %.0f us",
		others, each, beside.Ack.P50, beside.Ack.P99, times, large.Ack.P50, large.Ack.P99)
	if o.times > 0 && times > o.times {
		return fmt.Errorf("the small tenant's p99 is %.2f times that of alone, more than %.2f", times, o.times)
	}
	return nil
}

// publish runs publishers of a tenant, in a closed loop with rate 0. The counts of two that run beside each other cannot be told apart at the
// broker, so it is not asked.
func (d *daemon) publish(ctx context.Context, o tenantOptions, tenant string, publishers int, rate float64) (*load.Report, error) {
	target, err := load.NewClientTarget(load.FelixConfig{Addr: d.Listen, CAFile: d.CAFile, Tenant: tenant})
	if err != nil {
		return nil, err
	}
	report, err := load.Run(ctx, load.Config{Scenario: load.Pub, Target: target, Stream: "shared", Publishers: publishers, Size: o.size,
		Rate: rate, Duration: o.duration, Warmup: o.duration / 10})
	if err != nil {
		return nil, err
	}
	if report.Void {
		return nil, fmt.Errorf("tenant %s: void: %q", tenant, report.Runs[0].VoidReasons)
	}
	return report, nil
}
