package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"felix/perf/load"
	"felix/perf/stats"
	"felix/perf/take"
)

// A part is measured and judged by itself.
type part struct {
	name, what string
	estimate   func(o *options) time.Duration
	measure    func(ctx context.Context, b *bench) error
}

// maxVoids is how many runs of a part are made again because they are void. Brief ones are then twice as long: on a machine that is busy
// with something else a moment may have nothing to report.
const (
	maxVoids      = 2
	maxBriefVoids = 7
)

// overhead is what starting, ending and connecting takes in a run, about.
const overhead = 500 * time.Millisecond

// run is what one run of a load takes, about.
func (o *options) run() time.Duration { return o.duration + o.warmup + overhead }

// of is how long runs of n variants take.
func (o *options) of(n int) time.Duration { return time.Duration(n*(o.runs+1)) * o.run() }

// A bench is where everything is measured.
type bench struct {
	options
	work           string // temporary
	felixd, server string // programs
	progress       io.Writer
	begun          time.Time
	part           string // that is measured
	cpus           *take.CPUs
	notes          []string // for readers of the report
	report         Report
}

// sayf tells how far it is.
func (b *bench) sayf(format string, args ...any) {
	fmt.Fprintf(b.progress, "%5s  %s\n", time.Since(b.begun).Round(time.Second), fmt.Sprintf(format, args...))
}

// A variant is one of those that are run in turn.
type variant struct {
	name string
	once func(ctx context.Context) (Sample, error)
}

// inTurn makes runs of every variant: one each that does not count, then A B C C B A ... The series are those of the variants, in their order,
// and are in the report as well. A run that fails is void.
func (b *bench) inTurn(ctx context.Context, runs int, variants ...variant) ([]*Series, error) {
	series, places := make([]*Series, len(variants)), make([]int, len(variants))
	for i, v := range variants {
		places[i] = i
		series[i] = &Series{Part: b.part, Variant: v.name}
		b.report.Series = append(b.report.Series, series[i])
	}
	voids, most := 0, maxVoids
	if b.brief {
		most = maxBriefVoids
		defer func(was time.Duration) { b.duration = was }(b.duration)
	}
	for round := range runs + 1 {
		for _, i := range stats.InTurn(places, round) {
			for {
				var s Sample
				err := b.cpus.Probe(ctx, func() (err error) { s, err = variants[i].once(ctx); return err })
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if err != nil { // the other parts are worth going on for
					s = Sample{Void: err.Error()}
				}
				s.Discarded = round == 0
				b.sayf("  %d/%d %s: %s", round, runs, variants[i].name, s)
				if s.Void != "" && voids < most {
					voids++
					if b.brief {
						b.duration *= 2
					}
					continue // once more
				}
				series[i].Samples = append(series[i].Samples, s)
				break
			}
		}
	}
	return series, nil
}

// A broker is one that runs, with what was put beside the load.
type broker struct {
	*load.Process
	felix load.FelixConfig
}

// with starts a broker, lets do use it, and stops it.
func (b *bench) with(ctx context.Context, c load.ProcessConfig, do func(p *broker) error) (err error) {
	if len(c.Command) == 0 {
		c.Command = []string{b.felixd}
	}
	// All connections come from one address.
	c.Env = append(c.Env, "FELIX_MAX_CONNECTIONS_PER_IP=0")
	p, err := load.StartProcess(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	return do(&broker{p, p.Felix()})
}

// publish drives a broker with a cell of perf/load, which change may change.
func (b *bench) publish(ctx context.Context, p *broker, cell string, change func(c *load.Config, f *load.FelixConfig, generator *string)) (Sample, error) {
	found, err := load.FindCell(cell)
	if err != nil {
		return Sample{}, err
	}
	c, f, generator := found.Config, p.felix, found.Generator
	if change != nil {
		change(&c, &f, &generator)
	}
	if c.Target, err = load.NewTarget(generator, f); err != nil {
		return Sample{}, err
	}
	c.Duration, c.Warmup = b.duration, b.warmup
	before, err := c.Target.Counters(ctx)
	if err != nil {
		return Sample{}, err
	}
	report, err := load.Run(ctx, c)
	if err != nil {
		return Sample{}, err
	}
	after, err := c.Target.Counters(ctx)
	if err != nil {
		return Sample{}, err
	}
	b.report.Machine.SocketBytes = max(b.report.Machine.SocketBytes, report.Machine.SocketBytes)
	s := Sample{Report: report, Figures: map[Figure]float64{ackedRate: report.AckedPerSec}}
	if report.Void {
		s.Void = strings.Join(report.Runs[0].VoidReasons, "; ")
	}
	if v := report.BrokerCPUSecPerMillion; v != nil {
		s.Figures[cpuPerMillion] = *v
	}
	if v := report.BrokerCPUCores; v != nil {
		s.Figures[brokerCores] = *v
	}
	if records := after[load.AppendedRecords] - before[load.AppendedRecords]; records > 0 {
		s.Figures[packetsPerRecord] = (after[load.Packets] - before[load.Packets]) / records
	}
	return s, nil
}
