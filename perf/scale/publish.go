package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
)

// within is how much more the larger of two may cost.
const within = 1.10

// cell is the load of the parts that name no other: 256 B one by one, acked, in memory, 48 shards, 64 publishers of the client with 64 in flight.
const cell = "memory-256B-1"

// recordBytes is the size of the records that idle streams have.
const recordBytes = 256

// costRows compare what a record of a cell costs and how many there are with every size of something and with the smallest. cost is the
// figure to judge.
func (b *bench) costRows(cell, of string, sizes []string, series []*Series, cost Figure, detail func(s *Series) string) {
	for i, s := range series[1:] {
		what := fmt.Sprintf("with %s %s against %s", sizes[i+1], of, sizes[0])
		row := Row{What: cell + ", broker CPU per record " + what, Target: "within 10 % of the smallest"}
		if detail != nil {
			row.Detail = detail(s)
		}
		b.report.Rows = append(b.report.Rows,
			ratio(s, series[0], cost, row, within, true),
			ratio(s, series[0], ackedRate, Row{What: cell + ", acked rate " + what, Target: "within 10 % of the smallest"}, 1/within, false))
	}
}

func numbers(list []int) (words []string) {
	for _, n := range list {
		words = append(words, fmt.Sprint(n))
	}
	return words
}

func estimateStreams(o *options) time.Duration {
	whole := o.of(len(o.sizes.streams))
	for _, n := range o.sizes.streams {
		whole += time.Duration(o.runs+1) * seconds(int64(n), streamsPerSecond)
	}
	return whole
}

// measureStreams publishes to one stream beside others that idle.
func measureStreams(ctx context.Context, b *bench) error {
	var variants []variant
	for _, n := range b.sizes.streams {
		variants = append(variants, variant{fmt.Sprintf("%d streams", n), func(ctx context.Context) (s Sample, err error) {
			err = b.with(ctx, load.ProcessConfig{}, func(p *broker) error {
				if err := load.MakeStreams(ctx, p.felix, n-1, recordBytes); err != nil { // the load makes one more
					return err
				}
				s, err = b.publish(ctx, p, cell, nil)
				return err
			})
			return s, err
		}})
	}
	series, err := b.inTurn(ctx, b.runs, variants...)
	if err != nil {
		return err
	}
	b.costRows(cell, "streams", numbers(b.sizes.streams), series, cpuPerMillion, nil)
	return nil
}

func estimateConnections(o *options) time.Duration {
	whole := o.of(len(o.sizes.connections))
	for _, n := range o.sizes.connections {
		whole += time.Duration(o.runs+2)*seconds(int64(n), connectionsPerSecond) + o.idle + o.settle + overhead
	}
	return whole
}

// withIdle starts a broker with idle connections.
func (b *bench) withIdle(ctx context.Context, n int, do func(p *broker) (Sample, error)) (s Sample, err error) {
	err = b.with(ctx, load.ProcessConfig{}, func(p *broker) error {
		idle, err := load.OpenIdle(ctx, p.felix, n)
		if err != nil {
			return err
		}
		defer idle.Close()
		if s, err = do(p); err == nil && s.Void == "" && idle.Lost() > 0 {
			s.Void = fmt.Sprintf("%d of %d idle connections were lost", idle.Lost(), n)
		}
		return err
	})
	return s, err
}

// measureConnections publishes beside idle connections, and watches what those cost by themselves.
func measureConnections(ctx context.Context, b *bench) error {
	keepAlive := make(map[int]float64)
	for _, n := range b.sizes.connections {
		s, err := b.withIdle(ctx, n, func(p *broker) (Sample, error) { return b.watch(ctx, p) })
		if err != nil {
			return err
		}
		series := &Series{Part: b.part, Variant: fmt.Sprintf("%d idle connections, no load", n), Samples: []Sample{s}}
		b.report.Series = append(b.report.Series, series)
		keepAlive[n] = s.Figures[keepAliveCores]
		b.sayf("  %s: %s", series.Variant, s)
		b.report.Rows = append(b.report.Rows, value(series, keepAliveCores, Row{
			What: fmt.Sprintf("keep-alive of %d idle connections, no load", n), Unit: "cores",
			Detail: fmt.Sprintf("over %v; %s us per connection and second", b.idle, session.Number(keepAlive[n]/float64(n)*1e6)),
		}, noTarget))
	}
	var variants []variant
	for _, n := range b.sizes.connections {
		variants = append(variants, variant{fmt.Sprintf("%d idle connections", n), func(ctx context.Context) (Sample, error) {
			return b.withIdle(ctx, n, func(p *broker) (Sample, error) {
				s, err := b.publish(ctx, p, cell, nil)
				if cores := s.Figures[brokerCores]; cores > 0 {
					s.Figures[cpuNet] = s.Figures[cpuPerMillion] * (1 - keepAlive[n]/cores)
				}
				return s, err
			})
		}})
	}
	series, err := b.inTurn(ctx, b.runs, variants...)
	if err != nil {
		return err
	}
	b.costRows(cell, "idle connections", numbers(b.sizes.connections), series, cpuNet, func(s *Series) string {
		return fmt.Sprintf("without keep-alive; with it %s against %s; the generator holds the connections", session.Number(s.median(cpuPerMillion)),
			session.Number(series[0].median(cpuPerMillion)))
	})
	return nil
}

// watch is the CPU of a broker with nothing to do.
func (b *bench) watch(ctx context.Context, p *broker) (Sample, error) {
	if err := ceiling.Sleep(ctx, b.settle); err != nil {
		return Sample{}, err
	}
	cores, err := p.CPU(ctx, b.idle)
	return Sample{Figures: map[Figure]float64{keepAliveCores: cores}}, err
}

func estimateCores(o *options) time.Duration { return 2 * o.of(4) }

// wideCPUs is how many CPUs a machine must have for the rate to be judged: half of them are the generator's.
const wideCPUs = 4

// measureCores gives the broker one core and two, pinned and not.
func measureCores(ctx context.Context, b *bench) error {
	for _, cell := range []string{cell, "memory-256B-64"} {
		var variants []variant
		add := func(name string, c load.ProcessConfig) {
			variants = append(variants, variant{cell + ", " + name, func(ctx context.Context) (s Sample, err error) {
				err = b.with(ctx, c, func(p *broker) error {
					s, err = b.publish(ctx, p, cell, nil)
					return err
				})
				return s, err
			}})
		}
		for _, n := range []string{"1", "2"} {
			add("cores not pinned: "+n, load.ProcessConfig{Command: []string{b.server, "felix"}, Args: []string{"--cores", n}})
			add("cores pinned: "+n, load.ProcessConfig{Args: []string{"--core-shards", n, "--listeners", n}})
		}
		series, err := b.inTurn(ctx, b.runs, variants...)
		if err != nil {
			return err
		}
		for i, pinned := range []string{"not pinned", "pinned"} {
			one, two := series[i], series[i+2]
			b.report.Rows = append(b.report.Rows, ratio(two, one, cpuPerMillion, Row{
				What: fmt.Sprintf("%s, broker CPU per record with 2 cores against 1, %s", cell, pinned), Target: "records per CPU second >= 0.9 x, so at most 1.11 x the CPU",
			}, 1/0.9, true))
			rate := Row{What: fmt.Sprintf("%s, acked rate with 2 cores against 1, %s", cell, pinned)}
			bound := noTarget
			if runtime.NumCPU() >= wideCPUs {
				rate.Target, bound = ">= 1.8 x", 1.8
			} else {
				rate.Detail = fmt.Sprintf("judged on %d CPUs, and here are %d for broker and generator", wideCPUs, runtime.NumCPU())
			}
			b.report.Rows = append(b.report.Rows, ratio(two, one, ackedRate, rate, bound, false))
		}
	}
	return nil
}

func estimateRecord(o *options) time.Duration { return o.of(2) }

// measureRecord publishes over few connections and over many.
func measureRecord(ctx context.Context, b *bench) error {
	plain := func(c *load.Config, f *load.FelixConfig, generator *string) {
		*generator = load.GeneratorLean
		f.Plain, f.Connections = true, b.sizes.plain
		c.Publishers, c.InFlight = b.sizes.plain, 1
	}
	variants := make([]variant, 0, 2)
	add := func(name string, change func(*load.Config, *load.FelixConfig, *string)) {
		variants = append(variants, variant{name, func(ctx context.Context) (s Sample, err error) {
			err = b.with(ctx, load.ProcessConfig{}, func(p *broker) error {
				s, err = b.publish(ctx, p, cell, change)
				return err
			})
			return s, err
		}})
	}
	add("client", nil)
	add(fmt.Sprintf("%d plain connections", b.sizes.plain), plain)
	series, err := b.inTurn(ctx, b.runs, variants...)
	if err != nil {
		return err
	}
	packets := func(s *Series) string {
		return fmt.Sprintf("%s packets per record, both directions", session.Number(s.median(packetsPerRecord)))
	}
	b.report.Rows = append(b.report.Rows,
		value(series[0], cpuPerMillion, Row{What: "broker CPU per acked record, 64 publishers of the client", Target: "<= 1.5 us", Unit: "us", Detail: packets(series[0])}, 1.5),
		value(series[1], cpuPerMillion, Row{
			What: fmt.Sprintf("broker CPU per acked record, %d connections with one in flight each", b.sizes.plain), Target: "<= 9 us", Unit: "us", Detail: packets(series[1]),
		}, 9))
	return nil
}
