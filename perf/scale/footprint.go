package main

import (
	"context"
	"fmt"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
)

// Targets of memory.
const (
	mostAgainstBare       = 1.5
	mostStreamBytes       = 4 << 10
	mostSubscriberBytes   = 16 << 10
	warmConnections       = 8 // opened and closed before anything is counted
	estimateMemoryReading = time.Second
)

// footprints measures what n more of something hold: warm makes a few, grow the n.
func (b *bench) footprints(ctx context.Context, p *broker, n int, warm, grow func() error) (s Sample, err error) {
	if err := warm(); err != nil {
		return s, err
	}
	before, err := b.footprint(ctx, p)
	if err != nil {
		return s, err
	}
	if err := grow(); err != nil {
		return s, err
	}
	after, err := b.footprint(ctx, p)
	if err != nil {
		return s, err
	}
	d := after.Minus(before)
	each := func(bytes int64) float64 { return float64(bytes) / float64(n) }
	return Sample{Figures: map[Figure]float64{heldBytes: each(d.Held()), liveBytes: each(d.HeapLive + d.Stacks), rssBytes: each(d.RSS)}}, nil
}

// footprint waits until what has just happened is over, and reads.
func (b *bench) footprint(ctx context.Context, p *broker) (load.Footprint, error) {
	if err := ceiling.Sleep(ctx, b.settle); err != nil {
		return load.Footprint{}, err
	}
	return load.FootprintOf(ctx, p.Admin, p.PID)
}

// others tells the figures that are not judged.
func others(s *Series) string {
	return fmt.Sprintf("live %s, RSS %s bytes", session.Number(s.median(liveBytes)), session.Number(s.median(rssBytes)))
}

func (o *options) memoryOf(variants int, making time.Duration) time.Duration {
	return time.Duration(variants*(o.memoryRuns()+1)) * (making + 2*(o.settle+estimateMemoryReading) + overhead)
}

func estimateMemoryConnection(o *options) time.Duration {
	return o.memoryOf(2, seconds(int64(o.sizes.idleConnections), connectionsPerSecond))
}

// measureMemoryConnection opens idle connections to felix and to bare quic-go.
func measureMemoryConnection(ctx context.Context, b *bench) error {
	n := b.sizes.idleConnections
	once := func(c load.ProcessConfig) func(ctx context.Context) (Sample, error) {
		return func(ctx context.Context) (s Sample, err error) {
			err = b.with(ctx, c, func(p *broker) error {
				var idle *load.Idle
				defer func() {
					if idle != nil {
						idle.Close()
					}
				}()
				s, err = b.footprints(ctx, p, n, func() error {
					warm, err := load.OpenIdle(ctx, p.felix, warmConnections)
					if err == nil {
						warm.Close()
					}
					return err
				}, func() error {
					idle, err = load.OpenIdle(ctx, p.felix, n)
					return err
				})
				if err == nil && idle.Lost() > 0 {
					s.Void = fmt.Sprintf("%d of %d idle connections were lost", idle.Lost(), n)
				}
				return err
			})
			return s, err
		}
	}
	series, err := b.inTurn(ctx, b.memoryRuns(),
		variant{fmt.Sprintf("%d idle connections, felix", n), once(load.ProcessConfig{})},
		variant{fmt.Sprintf("%d idle connections, bare quic-go", n), once(load.ProcessConfig{Command: []string{b.server, "bare"}})})
	if err != nil {
		return err
	}
	felix, bare := series[0], series[1]
	what := fmt.Sprintf("of each of %d idle connections with a stream, felix against bare quic-go", n)
	rss := ratio(felix, bare, rssBytes, Row{What: "RSS " + what}, noTarget, true)
	b.report.Rows = append(b.report.Rows,
		ratio(felix, bare, heldBytes, Row{What: "heap and stacks " + what, Target: "<= 1.5 x", Detail: "bytes; felix: " + others(felix) + "; bare: " + others(bare)}, mostAgainstBare, true), rss)
	return nil
}

func estimateMemoryStream(o *options) time.Duration {
	return o.memoryOf(2, seconds(int64(o.sizes.idleStreams), streamsPerSecond))
}

// measureMemoryStream makes streams, with a record each and without.
func measureMemoryStream(ctx context.Context, b *bench) error {
	n := b.sizes.idleStreams
	once := func(size int) func(ctx context.Context) (Sample, error) {
		return func(ctx context.Context) (s Sample, err error) {
			err = b.with(ctx, load.ProcessConfig{}, func(p *broker) error {
				s, err = b.footprints(ctx, p, n-warmConnections,
					func() error { return load.MakeStreams(ctx, p.felix, warmConnections, recordBytes) },
					func() error { return load.MakeStreams(ctx, p.felix, n, size) })
				return err
			})
			return s, err
		}
	}
	series, err := b.inTurn(ctx, b.memoryRuns(),
		variant{fmt.Sprintf("%d streams with a record of %d bytes", n, recordBytes), once(recordBytes)},
		variant{fmt.Sprintf("%d streams without records", n), once(load.NoPayload)})
	if err != nil {
		return err
	}
	b.report.Rows = append(b.report.Rows,
		value(series[0], heldBytes, Row{
			What: fmt.Sprintf("heap and stacks of each of %d idle streams of one shard with a record of %d bytes", n, recordBytes), Target: "<= 4 KiB", Unit: "bytes", Detail: others(series[0]),
		}, mostStreamBytes),
		value(series[1], heldBytes, Row{What: "the same without records", Unit: "bytes", Detail: others(series[1])}, noTarget))
	return nil
}

func estimateMemorySubscriber(o *options) time.Duration {
	return o.memoryOf(1, seconds(int64(o.sizes.subscribers), connectionsPerSecond))
}

// measureMemorySubscriber subscribes to one stream over few connections.
func measureMemorySubscriber(ctx context.Context, b *bench) error {
	n, shared := b.sizes.subscribers, b.sizes.shared
	const stream = "idle-0"
	series, err := b.inTurn(ctx, b.memoryRuns(), variant{fmt.Sprintf("%d subscribers on %d connections", n, shared), func(ctx context.Context) (s Sample, err error) {
		err = b.with(ctx, load.ProcessConfig{}, func(p *broker) error {
			if err := load.MakeStreams(ctx, p.felix, 1, recordBytes); err != nil {
				return err
			}
			audience, err := load.OpenAudience(ctx, p.felix, shared)
			if err != nil {
				return err
			}
			defer audience.Close()
			s, err = b.footprints(ctx, p, n,
				func() error { return audience.Subscribe(ctx, stream, shared) }, // which opens the connections to the owner
				func() error { return audience.Subscribe(ctx, stream, n) })
			return err
		})
		return s, err
	}})
	if err != nil {
		return err
	}
	b.report.Rows = append(b.report.Rows, value(series[0], heldBytes, Row{
		What: fmt.Sprintf("heap and stacks of each of %d idle subscribers of one shard on %d connections", n, shared), Target: "<= 16 KiB", Unit: "bytes", Detail: others(series[0]),
	}, mostSubscriberBytes))
	return nil
}
