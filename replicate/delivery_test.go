package replicate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// A publisher appends batches of a shard, some of them at a time. Record n of publisher p is p, n.
type publisher struct {
	id    uint32
	shard *Shard
	sent  uint64
	done  completion
	base  wire.Offset // one past the last acknowledged record
}

func (p *publisher) run(t *testing.T, batches, inFlight int, size func() int) {
	p.done = make(completion, inFlight)
	post := func(a *Append) {
		n := size()
		a.Records = a.Records[:0]
		for range n {
			payload := binary.BigEndian.AppendUint32(nil, p.id)
			payload = binary.BigEndian.AppendUint64(payload, p.sent)
			a.Records = wire.AppendRecord(a.Records, payload)
			p.sent++
		}
		a.Count, a.Done = uint32(n), p.done
		if err := p.shard.host.loop.PostOffCore(core.Func(func(l *core.Loop) { p.shard.Append(l, a) })); err != nil {
			t.Error(err)
		}
	}
	open := 0
	for range min(inFlight, batches) {
		post(&Append{})
		batches--
		open++
	}
	for open > 0 {
		a := <-p.done
		open--
		if a.Outcome != Appended || a.Base < p.base {
			t.Errorf("publisher %d: %v at %d, after %d", p.id, a.Outcome, a.Base, p.base)
		}
		p.base = a.Base + wire.Offset(a.Count)
		if batches > 0 {
			post(a)
			batches--
			open++
		}
	}
}

// A reader is the writer side of a subscription.
type reader struct {
	fanout.Subscription
	shard *Shard
	from  wire.Offset
	tail  wire.Offset // when it joined
	next  wire.Offset // one past the last record read
	gaps  uint64
	seen  map[uint32]uint64 // next number of each publisher
	dst   []*fanout.Frame
}

// join subscribes on the shard's loop.
func (r *reader) join(t *testing.T, start func() wire.StartPosition) bool {
	failed := make(chan error, 1)
	err := r.shard.host.loop.PostOffCore(core.Func(func(l *core.Loop) {
		from, tail, err := r.shard.Topic().Subscribe(l, &r.Subscription, start())
		r.from, r.tail, r.next = from, tail, from
		failed <- err
	}))
	if err == nil {
		err = <-failed
	}
	if err == nil {
		err = r.shard.host.loop.PostOffCore(core.Func(func(l *core.Loop) { r.shard.Topic().Start(l, &r.Subscription) }))
	}
	if err != nil {
		t.Error(err)
		return false
	}
	r.seen = make(map[uint32]uint64)
	return true
}

// read takes once and checks what comes. It returns false when nothing was queued.
func (r *reader) read(t *testing.T, maxBytes int) bool {
	r.dst = r.Take(r.dst[:0], maxBytes)
	if r.WantsFeed() {
		if err := r.shard.host.loop.PostOffCore(core.Func(func(l *core.Loop) { r.shard.Topic().Feed(l, &r.Subscription) })); err != nil {
			t.Error(err)
		}
	}
	for frames := r.dst; len(frames) > 0; {
		b, n := fanout.Coalesce(frames)
		frames = frames[n:]
		for len(b) > 0 {
			h, body, rest, ok, err := wire.SplitFrame(b, 1<<30)
			var e wire.Events
			if err == nil && ok {
				err = e.Parse(h.Flags, body)
			}
			if err != nil || !ok {
				t.Errorf("frame: %v", err)
				return false
			}
			b = rest
			if e.Base < r.next {
				t.Errorf("offset %d again, after %d", e.Base, r.next)
			}
			gap := uint64(e.Base - r.next)
			r.gaps += gap
			for record := range e.All() {
				id, number := binary.BigEndian.Uint32(record.Payload), binary.BigEndian.Uint64(record.Payload[4:])
				if next, ok := r.seen[id]; ok && (number < next || number > next && r.gaps == 0) {
					t.Errorf("record %d of publisher %d, expected %d", number, id, next)
				}
				r.seen[id] = number + 1
			}
			r.next = e.Base + wire.Offset(e.Count)
		}
	}
	n := len(r.dst)
	fanout.ReleaseAll(r.dst)
	return n > 0
}

// leave unsubscribes and checks the books.
func (r *reader) leave(b *broker) {
	b.on(r.shard, func(l *core.Loop) { r.shard.Topic().Unsubscribe(l, &r.Subscription) })
	st := r.Stats()
	if offered := uint64(st.Next - st.From); offered != st.Taken+st.Dropped+st.Discarded {
		b.t.Errorf("offered %d, taken %d, dropped %d, discarded %d", offered, st.Taken, st.Dropped, st.Discarded)
	}
	if r.gaps > st.Dropped {
		b.t.Errorf("gaps of %d records, %d counted as dropped", r.gaps, st.Dropped)
	}
}

// Publishers, subscribers that come and go at random starts and read at random speeds, and every policy, on real loops: each subscriber
// sees contiguous offsets except for jumps that sum up to its counter, and the books balance.
func TestDeliveryWithEveryPolicy(t *testing.T) {
	for _, cores := range []int{1, 2, 4} {
		for _, policy := range []fanout.Policy{fanout.DropNew, fanout.DropOld, fanout.Block, fanout.CatchUp} {
			t.Run(fmt.Sprintf("cores=%d/%v", cores, policy), func(t *testing.T) {
				b := newBroker(t, options{cores: cores, host: HostConfig{Limits: fanout.Limits{RingRecords: 4000, LeastRecords: 100, RingBytes: 1 << 20}}})
				stream := b.stream(StreamConfig{Name: "s", Shards: 4})
				var publishers, readers sync.WaitGroup
				totals := make([]atomic.Uint64, len(stream.Shards))
				for i, s := range stream.Shards {
					for k := range 2 {
						p := &publisher{id: uint32(10*i + k), shard: s}
						rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
						publishers.Go(func() {
							p.run(t, 600, 1+rng.IntN(32), func() int { return 1 + rng.IntN(30)*rng.IntN(3) })
							totals[i].Add(p.sent)
						})
					}
				}
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				for i := range 12 {
					rng := rand.New(rand.NewPCG(uint64(i), 99))
					readers.Go(func() {
						for round := 0; ; round++ {
							r := &reader{shard: stream.Shards[i%len(stream.Shards)]}
							r.Policy, r.Capacity, r.QueueBytes = policy, 1+rng.IntN(60), 1<<(10+rng.IntN(10))
							ok := r.join(t, func() wire.StartPosition {
								start, end := r.shard.Bounds()
								return []wire.StartPosition{{}, {Kind: wire.StartEarliest},
									{Kind: wire.StartOffset, Offset: start + wire.Offset(rng.Uint64N(uint64(end-start)+1))}}[rng.IntN(3)]
							})
							if !ok {
								return
							}
							last := round >= 5
							for reads := 0; last || reads < 20+rng.IntN(50); {
								if r.read(t, 1<<(6+rng.IntN(12))) {
									reads++
									for range rng.IntN(4) {
										runtime.Gosched()
									}
									continue
								}
								if r.Wait(ctx) != nil { // everything is published
									break
								}
							}
							if ctx.Err() != nil {
								for {
									if r.read(t, 1<<20) {
										continue
									}
									live := make(chan bool, 1)
									b.on(r.shard, func(l *core.Loop) {
										live <- r.Stats().State == fanout.Live
									})
									if <-live && r.Stats().Depth == 0 {
										break
									}
								}
								st := r.Stats()
								if st.Next != wire.Offset(totals[i%len(stream.Shards)].Load()) {
									t.Errorf("offered up to %d of %d", st.Next, totals[i%len(stream.Shards)].Load())
								}
								if r.gaps+uint64(st.Next-r.next) != st.Dropped {
									t.Errorf("%v: gaps of %d and %d at the end, %d counted as dropped", policy, r.gaps, st.Next-r.next, st.Dropped)
								}
								if policy == fanout.Block && st.Dropped != 0 {
									t.Errorf("block dropped %d", st.Dropped)
								}
							}
							r.leave(b)
							if ctx.Err() != nil {
								return
							}
						}
					})
				}
				publishers.Wait()
				stop()
				readers.Wait()
				for i, s := range stream.Shards {
					b.on(s, func(*core.Loop) {
						st := s.Stats()
						check(t, "appended", st.Appended, wire.Offset(totals[i].Load()))
						check(t, "delivered", st.Delivered, st.Appended)
						check(t, "held", st.Held, 0)
						check(t, "subscriptions", st.Subscriptions, 0)
						books := s.Topic().Books()
						check(t, "books", books.Offered, books.Taken+books.Dropped+books.Discarded)
					})
				}
				if err := b.catalog.DeleteTenant(context.Background(), "t"); err != nil {
					t.Fatal(err)
				}
				check(t, "bytes held at the end", b.slabs.Held(), 0)
			})
		}
	}
}

// 2,000 subscribers join at random places in the history while publishers append as fast as they can: from the first record
// they asked for to well past the live edge at the time, nothing is missing and nothing comes twice.
func TestJoinsUnderFullRate(t *testing.T) {
	joins := 2000
	if testing.Short() || raceEnabled {
		joins = 400
	}
	for _, cores := range []int{1, 2} {
		t.Run(fmt.Sprintf("cores=%d", cores), func(t *testing.T) {
			b := newBroker(t, options{cores: cores, unowned: true})
			stream := b.stream(StreamConfig{Name: "s", Shards: uint32(cores), OnSlow: fanout.Block})
			var publishers, joiners sync.WaitGroup
			var stop atomic.Bool
			for i, s := range stream.Shards {
				p := &publisher{id: uint32(i), shard: s}
				publishers.Go(func() {
					for !stop.Load() {
						p.run(t, 200, 32, func() int { return 1 + int(p.sent%3) })
					}
				})
			}
			const goroutines = 4
			for i := range goroutines {
				rng := rand.New(rand.NewPCG(uint64(i), 5))
				joiners.Go(func() {
					for range joins / goroutines {
						r := &reader{shard: stream.Shards[i%cores]}
						r.Policy, r.Capacity = fanout.Block, 64
						if !r.join(t, func() wire.StartPosition {
							start, end := r.shard.Bounds()
							back := min(wire.Offset(rng.IntN(2000)), end-start)
							return wire.StartPosition{Kind: wire.StartOffset, Offset: end - back}
						}) {
							return
						}
						for r.next < r.tail+50 {
							if !r.read(t, 64<<10) {
								if err := r.Wait(t.Context()); err != nil {
									t.Error(err)
									return
								}
							}
						}
						r.leave(b)
						if st := r.Stats(); r.gaps != 0 || st.Dropped != 0 || r.from != st.From {
							t.Errorf("from %d to %d: gaps of %d, dropped %d", r.from, r.next, r.gaps, st.Dropped)
						}
					}
				})
			}
			joiners.Wait()
			stop.Store(true)
			publishers.Wait()
		})
	}
}
