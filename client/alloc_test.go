package client

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// The budgets of the hot paths (UX.md): what this package allocates per publish and per record, without the transport.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, ios := offline()
	defer c.Close()
	p, err := c.Publisher("orders")
	check(t, err)
	ctx := within(t)
	data := make([]byte, 256)
	// packed lets n publishes to shard 0 go into one frame, but for the first, which the writer may have taken.
	s, io := c.entries[0].slots[0].current.Load(), ios[0]
	packed := func(n int, start func()) {
		io.gate.Lock()
		start()
		for gathered := 0; gathered < n; runtime.Gosched() {
			s.mu.Lock()
			gathered = s.queue.publishes + s.queue.packedPublishes
			s.mu.Unlock()
		}
		io.gate.Unlock()
	}
	const callers, burst = 8, 64
	call, done := make(chan struct{}), make(chan struct{})
	defer close(call)
	for range callers {
		go func() {
			for range call {
				must(c.Publish(ctx, "orders", data))
				done <- struct{}{}
			}
		}()
	}
	var futures [burst]*Future
	answers := make(chan struct{}, burst)
	answered := func(ack Ack, err error) {
		must(ack, err)
		answers <- struct{}{}
	}
	batch := [][]byte{data, data, data}
	key := []byte("a key of more than thirty-two bytes, which no stack buffer holds")
	for _, tt := range []struct {
		name   string
		budget float64
		f      func()
	}{
		{"Publish", 0, func() { must(c.Publish(ctx, "orders", data)) }},
		{"Publish keyed", 0, func() { must(c.Publish(ctx, "orders", data, Key(key))) }},
		{"PublishBatch", 0, func() { must(c.PublishBatch(ctx, "orders", batch, Key("k1"))) }},
		{"Publisher.Publish", 0, func() { must(p.Publish(ctx, data, Key("k1"))) }},
		{"PublishAsync", 2, func() { must(p.PublishAsync(ctx, data, Key("k1")).Wait(ctx)) }},
		{"PublishAsync unacked", 1, func() { must(p.PublishAsync(ctx, data, NoAck()).Wait(ctx)) }},
		{"PublishFunc", 0, func() {
			p.PublishFunc(ctx, data, answered, Key("k1"))
			<-answers
		}},
		{"PublishBatchFunc", 0, func() {
			p.PublishBatchFunc(ctx, batch, answered)
			<-answers
		}},
		{"PublishFunc unacked", 0, func() {
			p.PublishFunc(ctx, data, answered, NoAck())
			<-answers
		}},
		{"PublishFunc packed", 0, func() {
			packed(burst, func() {
				for range burst {
					p.PublishFunc(ctx, data, answered)
				}
			})
			for range burst {
				<-answers
			}
		}},
		{"Publish packed", 0, func() {
			packed(callers, func() {
				for range callers {
					call <- struct{}{}
				}
			})
			for range callers {
				<-done
			}
		}},
		{"PublishAsync packed", 2 * burst, func() {
			packed(burst, func() {
				for i := range futures {
					futures[i] = p.PublishAsync(ctx, data)
				}
			})
			for _, f := range futures {
				must(f.Wait(ctx))
			}
		}},
		{"PublishAsync packed unacked", burst, func() {
			packed(0, func() {
				for range burst {
					must(p.PublishAsync(ctx, data, NoAck()).Wait(ctx))
				}
			})
			must(c.Publish(ctx, "orders", data)) // they are written
		}},
	} {
		for range 2000 {
			tt.f() // until buffers have grown
		}
		if n := testing.AllocsPerRun(2000, tt.f); n > tt.budget+0.05 {
			t.Errorf("%s allocates %.2f times, the budget is %v", tt.name, n, tt.budget)
		}
	}
	if io.mu.Lock(); io.frames > int(io.next)/2 {
		t.Errorf("%d records in %d frames: nothing was packed", io.next, io.frames)
	}
	io.mu.Unlock()
}

func must(_ Ack, err error) {
	if err != nil {
		panic(err)
	}
}

// A frameIO is an event stream that brings the same frames again and again.
type frameIO struct {
	b  []byte
	at int
}

func (f *frameIO) Read(b []byte) (int, error) {
	if f.b == nil {
		return 0, io.EOF
	}
	n := copy(b, f.b[f.at:])
	f.at = (f.at + n) % len(f.b)
	return n, nil
}

func (f *frameIO) CancelRead(quic.StreamErrorCode) {}

// offlineSubscription reads frames with records of 256 bytes; offsets do not count.
func offlineSubscription(c *Client, perFrame int) *Subscription {
	e := wire.Events{Flags: wire.FlagEventBatchShared, Count: uint32(perFrame)}
	for range perFrame {
		e.Records = wire.AppendRecord(e.Records, make([]byte, 256))
	}
	frame := wire.AppendEvents(nil, &e)
	s := &Subscription{client: c, topic: c.topicFor("default", "orders"), stream: "orders", queue: make(chan *delivery, subscriptionQueue), positions: make([]Offset, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	x := &shardSub{sub: s}
	s.shards = []*shardSub{x}
	x.reader = newEventReader(&frameIO{b: bytes.Repeat(frame, 1+(64<<10)/len(frame))})
	s.wg.Go(func() { x.deliver() })
	return s
}

func TestReceiveAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, _ := offline()
	defer c.Close()
	ctx := within(t)
	s := offlineSubscription(c, 64)
	defer s.Close()
	next := func() {
		if _, err := s.Next(ctx); err != nil {
			panic(err)
		}
	}
	for range 20000 {
		next()
	}
	if n := testing.AllocsPerRun(20000, next); n > 0.05 {
		t.Errorf("Next allocates %.3f times a record", n)
	}
	take := func() {
		b, err := s.NextBatch(ctx)
		if err != nil {
			panic(err)
		}
		b.Release()
	}
	for range 20000 {
		take()
	}
	if n := testing.AllocsPerRun(20000, take); n > 0.05 {
		t.Errorf("NextBatch allocates %.3f times a batch", n)
	}
}
