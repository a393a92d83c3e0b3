package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"felix/client"
)

// A pump publishes numbered records to one stream as fast as it may, until it is stopped. Every ack is checked.
type pump struct {
	acked atomic.Uint64 // records; the first so many offsets hold them

	cancel context.CancelFunc
	wait   sync.WaitGroup
	err    error // of the publisher; set before wait is done
}

// pumpWindow bounds the batches that are on their way.
const pumpWindow = 128

// startPump publishes batches of batch records of size bytes. most bounds the records, 0 means none; the pump then waits for stop.
func startPump(ctx context.Context, c *client.Client, stream string, batch, size int, most uint64) (*pump, error) {
	publisher, err := c.Publisher(stream, client.Idempotent()) // what is refused where nobody has time is sent again in its place
	if err != nil {
		return nil, err
	}
	p := &pump{}
	ctx, p.cancel = context.WithCancel(ctx)
	type sent struct {
		future *client.Future
		first  uint64
	}
	window := make(chan sent, pumpWindow)
	p.wait.Go(func() {
		defer close(window)
		records := make([][]byte, batch)
		for next := uint64(0); ctx.Err() == nil && (most == 0 || next < most); next += uint64(batch) {
			for i := range records { // the publisher may hold on to the last ones
				records[i] = make([]byte, max(size, 8))
				putNumber(records[i], next+uint64(i))
			}
			window <- sent{publisher.PublishBatchAsync(context.WithoutCancel(ctx), records), next} // it is drained to its end
		}
	})
	p.wait.Go(func() {
		for s := range window {
			ack, err := s.future.Wait(context.WithoutCancel(ctx))
			if err == nil && (!ack.HasOffset || uint64(ack.Offset) != s.first) {
				err = fmt.Errorf("record %d was acknowledged at offset %d", s.first, ack.Offset)
			}
			if err != nil {
				if p.err == nil {
					p.err = fmt.Errorf("publish record %d: %w", s.first, err)
				}
				p.cancel()
				continue
			}
			p.acked.Store(s.first + uint64(batch))
		}
	})
	return p, nil
}

// stop ends the pump and returns how many records were acknowledged.
func (p *pump) stop() (records uint64, err error) {
	p.cancel()
	p.wait.Wait()
	return p.acked.Load(), p.err
}

// finish waits until a pump with a bound is through.
func (p *pump) finish() (records uint64, err error) {
	p.wait.Wait()
	p.cancel()
	return p.acked.Load(), p.err
}
