package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"felix"
	"felix/client"
)

type slowOptions struct {
	subs, stalled int
	durable       bool
	size          int
	least         int // records published at least
}

func prepareSlow(flags *flag.FlagSet) func(context.Context, *report) error {
	var o slowOptions
	flags.IntVar(&o.subs, "subs", 50, "subscribers, each with a connection of its own")
	flags.IntVar(&o.stalled, "stalled", 10, "of them that do not read")
	flags.IntVar(&o.size, "size", 64<<10, "bytes of a record")
	flags.IntVar(&o.least, "n", 2000, "records published at least")
	return func(ctx context.Context, r *report) error {
		for _, o.durable = range []bool{false, true} {
			if err := slow(ctx, r, o); err != nil {
				return err
			}
		}
		return nil
	}
}

// slowBurst is how many records are published before the healthy subscribers must have them: less than their queues hold, so that they
// lose nothing however slow the machine is.
const slowBurst = 128

// stalledQueue is the queue that a stalled subscriber asks for, in frames.
const stalledQueue = 4

// slow publishes to subscribers of which some do not read, and then lets these read.
func slow(ctx context.Context, r *report, o slowOptions) (err error) {
	b, err := startBench(ctx, func(c *felix.Config) { c.Limits.ConnectionsPerIP = -1 })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	policy, kind := felix.DropNew, "in memory"
	if o.durable {
		policy, kind = felix.CatchUp, "durable"
	}
	if err := b.stream(ctx, "slow", o.durable, policy); err != nil {
		return err
	}
	subs := make([]*client.Subscription, o.subs)
	for i := range subs {
		c, err := b.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		var opts []client.SubscribeOption
		if i < o.stalled {
			opts = append(opts, client.QueueCapacity(stalledQueue))
		}
		if subs[i], err = c.Subscribe(ctx, "slow", opts...); err != nil {
			return err
		}
	}
	pc, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer pc.Close()
	publisher, err := pc.Publisher("slow", client.Idempotent()) // what is refused where nobody has time is sent again in its place
	if err != nil {
		return err
	}
	var published atomic.Uint64
	publish := func(n int) error {
		for range n {
			record := make([]byte, o.size)
			putNumber(record, published.Add(1)-1)
			publisher.PublishAsync(ctx, record)
		}
		return publisher.Flush(ctx)
	}

	// The healthy ones read as it comes; the goal is the number of records that each must have.
	healthy := newCrew(ctx)
	progress := make([]atomic.Uint64, o.subs)
	stop := make(chan struct{})
	reading, done := context.WithCancel(ctx)
	defer done()
	for i := o.stalled; i < o.subs; i++ {
		healthy.do(func(context.Context) error {
			for next := client.Offset(0); ; next++ {
				m, err := subs[i].Next(reading)
				if err != nil && isClosed(stop) {
					return nil
				}
				if err == nil {
					err = checkRecord(m, next)
				}
				if err != nil {
					return fmt.Errorf("healthy subscriber %d: %w", i, err)
				}
				progress[i].Store(uint64(next) + 1)
			}
		})
	}
	haveAll := func(from int) bool {
		for i := from; i < o.subs; i++ {
			if progress[i].Load() < published.Load() {
				return false
			}
		}
		return true
	}
	begun := time.Now()
	enough := func() bool {
		s := b.broker.Stats()
		states, behind := b.broker.SubscriptionStates(), int64(0)
		for _, state := range []string{"catching_up", "blocked_by_peer"} {
			behind += states[state]
		}
		return published.Load() >= uint64(o.least) && (o.stalled == 0 || s.EventsDropped > 0 || o.durable && behind >= int64(o.stalled))
	}
	for !enough() {
		if err := publish(slowBurst); err != nil {
			return err
		}
		if err := await(healthy.ctx, "the healthy subscribers", func() bool { return haveAll(o.stalled) }); err != nil {
			return err
		}
	}
	took := time.Since(begun)
	stalledUntil := published.Load()

	// Now the others read. In memory a gap shows with the record behind it, so records go on coming until all have the last one.
	late := newCrew(ctx)
	var missed, gaps atomic.Uint64
	for i := range o.stalled {
		late.do(func(context.Context) error {
			for next := client.Offset(0); ; {
				m, err := subs[i].Next(reading)
				var gap *client.GapError
				switch {
				case err != nil && isClosed(stop):
					return nil
				case errors.As(err, &gap) && !o.durable:
					if gap.From != next || gap.To <= gap.From {
						return fmt.Errorf("stalled subscriber %d: a gap from %d to %d where %d comes next", i, gap.From, gap.To, next)
					}
					missed.Add(uint64(gap.To - gap.From))
					gaps.Add(1)
					next = gap.To
					continue
				case err == nil:
					err = checkRecord(m, next)
				}
				if err != nil {
					return fmt.Errorf("stalled subscriber %d: %w", i, err)
				}
				next++
				progress[i].Store(uint64(next))
			}
		})
	}
	for {
		if err := publish(1); err != nil {
			return err
		}
		if err := await(healthy.ctx, "the healthy subscribers", func() bool { return haveAll(o.stalled) }); err != nil {
			return err
		}
		// A moment for those that were stalled; whoever does not have the last record then waits for one that shows a gap.
		moment, over := context.WithTimeout(late.ctx, time.Second)
		err := await(moment, "the stalled subscribers", func() bool { return haveAll(0) })
		over()
		if err == nil || late.ctx.Err() != nil {
			break
		}
	}
	close(stop)
	done()
	if err := errors.Join(late.wait(), healthy.wait()); err != nil {
		return err
	}
	s := b.broker.Stats()
	r.say("%s: %d subscribers, %d stalled: %d records of %d bytes published at %.0f/s, each at all healthy ones; stalled ones missed %d records in %d gaps, the broker dropped %d",
		kind, o.subs, o.stalled, stalledUntil, o.size, float64(stalledUntil)/took.Seconds(), missed.Load(), gaps.Load(), s.EventsDropped)
	switch {
	case o.durable && s.EventsDropped != 0:
		return fmt.Errorf("the broker dropped %d records of a durable stream", s.EventsDropped)
	case missed.Load() != s.EventsDropped:
		return fmt.Errorf("subscribers were told of %d records that they missed, the broker dropped %d", missed.Load(), s.EventsDropped)
	case !o.durable && o.stalled > 0 && missed.Load() == 0:
		return errors.New("nothing was dropped, so nothing was tested")
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
