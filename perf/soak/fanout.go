package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"felix"
	"felix/client"
)

type fanoutOptions struct {
	subs, clients, records, size int
}

func prepareFanout(flags *flag.FlagSet) func(context.Context, *report) error {
	var o fanoutOptions
	flags.IntVar(&o.subs, "subs", 500, "subscribers of one shard")
	flags.IntVar(&o.clients, "clients", 10, "connections that they share")
	flags.IntVar(&o.records, "n", 100_000, "records")
	flags.IntVar(&o.size, "size", 256, "bytes of a record")
	return func(ctx context.Context, r *report) error { return fanout(ctx, r, o) }
}

// fanout publishes to many subscribers of one shard, which hold publishers back rather than lose records.
func fanout(ctx context.Context, r *report, o fanoutOptions) (err error) {
	b, err := startBench(ctx, func(c *felix.Config) { c.Delivery.MaxBlock = time.Minute })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	if err := b.stream(ctx, "fanout", false, felix.Block); err != nil {
		return err
	}
	group := newCrew(ctx)
	var clients []*client.Client
	for i := range o.subs {
		if i < o.clients {
			c, err := b.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			clients = append(clients, c)
		}
		sub, err := clients[i%len(clients)].Subscribe(ctx, "fanout")
		if err != nil {
			return err
		}
		group.do(func(ctx context.Context) error {
			for next := client.Offset(0); next < client.Offset(o.records); next++ {
				m, err := sub.Next(ctx)
				if err == nil {
					err = checkRecord(m, next)
				}
				if err != nil {
					return fmt.Errorf("subscriber %d: %w", i, err)
				}
			}
			return nil
		})
	}
	pc, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer pc.Close()
	begun := time.Now()
	p, err := startPump(group.ctx, pc, "fanout", 1, o.size, uint64(o.records))
	if err != nil {
		return err
	}
	err = group.wait()
	published, failed := p.finish()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	// A frame is counted when all queues have it; a subscriber may be faster.
	s, again := b.broker.Stats(), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for s.EventsQueued+s.EventsDropped < published*uint64(o.subs) {
		select {
		case <-again.C:
			s = b.broker.Stats()
		case <-ctx.Done():
			return fmt.Errorf("%d deliveries and %d drops were counted of %d records to %d subscribers", s.EventsQueued, s.EventsDropped, published, o.subs)
		}
	}
	r.say("%d subscribers: %d records at %.0f/s, %d deliveries; %d frames encoded %d times", o.subs, published,
		float64(published)/time.Since(begun).Seconds(), s.EventsQueued, s.FramesSealed, s.Encodes)
	switch {
	case s.EventsQueued != published*uint64(o.subs) || s.EventsDropped != 0:
		return fmt.Errorf("%d deliveries and %d drops of %d records to %d subscribers", s.EventsQueued, s.EventsDropped, published, o.subs)
	case s.Encodes != s.FramesSealed: // one layout
		return fmt.Errorf("%d frames were encoded %d times", s.FramesSealed, s.Encodes)
	}
	return nil
}
