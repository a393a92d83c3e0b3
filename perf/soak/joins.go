package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"felix"
	"felix/client"
)

type joinOptions struct {
	n, workers int
	durable    bool
	history    int // records before the tail at which a join begins, at most
	seed       uint64
}

func prepareJoins(flags *flag.FlagSet) func(context.Context, *report) error {
	var o joinOptions
	flags.IntVar(&o.n, "n", 100_000, "joins, half of them of a durable stream and half of one in memory")
	flags.IntVar(&o.workers, "workers", 8, "joins at a time")
	flags.IntVar(&o.history, "history", 5000, "records of history a join begins at, at most")
	flags.Uint64Var(&o.seed, "seed", 1, "of the starts")
	return func(ctx context.Context, r *report) error {
		half := o
		half.n = o.n / 2
		for _, half.durable = range []bool{false, true} {
			if err := joins(ctx, r, half); err != nil {
				return err
			}
		}
		return nil
	}
}

// joinBeyond is how far behind the tail of its start a join is followed: into what was published after it had begun.
const joinBeyond = 64

// joins has subscribers begin in the history of a stream that is published to at full rate, and follows each into the present.
func joins(ctx context.Context, r *report, o joinOptions) (err error) {
	b, err := startBench(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	slow, kind := felix.Block, "in memory"
	if o.durable {
		slow, kind = felix.CatchUp, "durable"
	}
	if err := b.stream(ctx, "joins", o.durable, slow); err != nil {
		return err
	}
	pc, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer pc.Close()
	p, err := startPump(ctx, pc, "joins", 16, 128, 0)
	if err != nil {
		return err
	}
	begun := time.Now()
	var left, records, tooOld atomic.Int64
	left.Store(int64(o.n))
	group := newCrew(ctx)
	for worker := range o.workers {
		group.do(func(ctx context.Context) error {
			c, err := b.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			rng := rand.New(rand.NewPCG(o.seed, uint64(worker)))
			for left.Add(-1) >= 0 {
				n, err := join(ctx, c, p, rng, o.history)
				for errors.As(err, new(*client.CursorError)) { // the ring was faster: begin again
					tooOld.Add(1)
					n, err = join(ctx, c, p, rng, o.history)
				}
				if err != nil {
					return err
				}
				records.Add(int64(n))
			}
			return nil
		})
	}
	err = group.wait()
	published, failed := p.stop()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	s := b.broker.Stats()
	r.say("%s: %d joins, %d records read, %d starts too old, %d published; %.0f joins/s, %.0f records/s published",
		kind, o.n, records.Load(), tooOld.Load(), published, float64(o.n)/took, float64(published)/took)
	if s.EventsDropped != 0 || s.PublishRecords != published {
		return fmt.Errorf("%s: the broker counts %d records dropped and %d published, not 0 and %d", kind, s.EventsDropped, s.PublishRecords, published)
	}
	return nil
}

// join subscribes somewhere in the last records and reads until it is past the tail that it found.
func join(ctx context.Context, c *client.Client, p *pump, rng *rand.Rand, history int) (read int, err error) {
	tail := client.Offset(p.acked.Load())
	start := tail - client.Offset(rng.Uint64N(min(uint64(tail), uint64(history))+1))
	sub, err := c.Subscribe(ctx, "joins", client.FromOffset(start))
	if err != nil {
		return 0, err
	}
	defer sub.Close()
	for next := start; next < tail+joinBeyond; next++ {
		m, err := sub.Next(ctx)
		if err == nil {
			err = checkRecord(m, next)
		}
		if err != nil {
			return read, fmt.Errorf("a subscriber that began at %d, with the tail at %d: %w", start, tail, err)
		}
		read++
	}
	return read, nil
}
