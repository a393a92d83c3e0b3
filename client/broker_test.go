package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix"
	"felix/client"
	"felix/client/clienttest"
)

// Tests against a real broker. Those against a fake one, which can be made to fail, are in the package itself.

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cores(n int) func(*felix.Config) { return func(c *felix.Config) { c.Cores = n } }

// Every acknowledged record arrives once, in order per key, at the offset of its ack; over the owners' own ports.
// Conformance: pubsub.roundtrip, pubsub.order, sharded.delivers_every_shard, client.concurrent_calls.
func TestBrokerDeliversEverythingOnce(t *testing.T) {
	for name, opts := range map[string][]client.PublishOption{"plain": nil, "idempotent": {client.Idempotent()}, "at least once": {client.AtLeastOnce()}} {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/cores=%d", name, n), func(t *testing.T) {
				b := clienttest.Run(t, cores(n))
				b.Stream("orders", 8)
				publisher, subscriber := b.Client(), b.Client(client.WithConnections(2))
				ctx := within(t)
				sub, err := subscriber.Subscribe(ctx, "orders")
				check(t, err)
				p, err := publisher.Publisher("orders", opts...)
				check(t, err)
				const keys, each = 20, 200
				type place struct {
					shard  uint32
					offset client.Offset
				}
				var mu sync.Mutex
				placed := make(map[place]string)
				var wg sync.WaitGroup
				for k := range keys {
					wg.Go(func() {
						key := fmt.Sprintf("k%d", k)
						var futures []*client.Future
						for i := range each {
							futures = append(futures, p.PublishAsync(ctx, fmt.Appendf(nil, "%s/%d", key, i), client.Key(key)))
						}
						for i, f := range futures {
							ack, err := f.Wait(ctx)
							if err != nil || !ack.HasOffset {
								t.Errorf("%s/%d: %+v, %v", key, i, ack, err)
								return
							}
							mu.Lock()
							placed[place{ack.Shard, ack.Offset}] = fmt.Sprintf("%s/%d", key, i)
							mu.Unlock()
						}
					})
				}
				next := make(map[uint32]client.Offset)
				last := make(map[string]int)
				var got []client.Msg
				for range keys * each {
					m, err := sub.Next(ctx)
					check(t, err)
					if m.Offset != next[m.Shard] {
						t.Fatalf("shard %d: offset %d, want %d", m.Shard, m.Offset, next[m.Shard])
					}
					next[m.Shard]++
					got = append(got, m)
				}
				wg.Wait()
				for _, m := range got {
					if want := placed[place{m.Shard, m.Offset}]; want != string(m.Data) {
						t.Fatalf("shard %d offset %d: %q, acknowledged was %q", m.Shard, m.Offset, m.Data, want)
					}
					var k, i int
					fmt.Sscanf(string(m.Data), "k%d/%d", &k, &i)
					key := fmt.Sprint(k)
					if last[key] != i {
						t.Fatalf("key %s: record %d where %d was due", key, i, last[key])
					}
					last[key]++
				}
				stats := b.Stats()
				if stats.PublishRecords != keys*each {
					t.Fatalf("the broker counts %d records, %d were acknowledged", stats.PublishRecords, keys*each)
				}
				for core, accepted := range stats.ConnectionsPerCore {
					if accepted == 0 {
						t.Errorf("core %d was never connected to", core)
					}
				}
			})
		}
	}
}

// Records that share frames keep the order of each key, whatever they are mixed with, and every ack names the place of its own record.
func TestBrokerPacks(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("cores=%d", n), func(t *testing.T) {
			b := clienttest.Run(t, cores(n))
			b.Stream("orders", 8)
			c := b.Client(client.WithPublishStreams(2))
			ctx := within(t)
			sub, err := b.Client().Subscribe(ctx, "orders", client.FromEarliest())
			check(t, err)
			const goroutines, keys, each = 8, 12, 100 // per goroutine and key
			type place struct {
				shard  uint32
				offset client.Offset
			}
			var mu sync.Mutex
			placed := make(map[place]string)
			var unacked atomic.Int64
			keep := func(record string, ack client.Ack, err error) {
				if err != nil || !ack.HasOffset {
					t.Errorf("%s: %+v, %v", record, ack, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				placed[place{ack.Shard, ack.Offset}] = record
			}
			large := strings.Repeat("x", 5000) // too large to be packed
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					p, err := c.Publisher("orders")
					if err != nil {
						t.Error(err)
						return
					}
					futures := make(map[string]*client.Future)
					for i := range each {
						for k := range keys {
							key := client.Key(fmt.Sprint("k", k))
							record := fmt.Sprintf("%d/%d/%d ", g, k, i)
							switch (g + k + i) % 16 {
							case 0:
								p.PublishAsync(ctx, []byte(record), key, client.NoAck())
								unacked.Add(1)
							case 1:
								record += large
								futures[record] = p.PublishAsync(ctx, []byte(record), key)
							case 2:
								futures[record] = p.PublishBatchAsync(ctx, [][]byte{[]byte(record)}, key)
							case 3:
								if i%10 == 0 {
									ack, err := p.Publish(ctx, []byte(record), key)
									keep(record, ack, err)
									break
								}
								fallthrough
							default:
								futures[record] = p.PublishAsync(ctx, []byte(record), key)
							}
						}
					}
					for record, f := range futures {
						ack, err := f.Wait(ctx)
						keep(record, ack, err)
					}
				})
			}
			const total = goroutines * keys * each
			next := make(map[uint32]client.Offset)
			last := make(map[[2]int]int)
			got := make(map[place]string, total)
			for range total {
				m, err := sub.Next(ctx)
				check(t, err)
				if m.Offset != next[m.Shard] {
					t.Fatalf("shard %d: offset %d, want %d", m.Shard, m.Offset, next[m.Shard])
				}
				next[m.Shard]++
				got[place{m.Shard, m.Offset}] = string(m.Data)
				var g, k, i int
				if n, err := fmt.Sscanf(string(m.Data), "%d/%d/%d ", &g, &k, &i); n != 3 {
					t.Fatalf("record %.20q: %v", m.Data, err)
				}
				if last[[2]int{g, k}] != i {
					t.Fatalf("goroutine %d, key %d: record %d where %d was due", g, k, i, last[[2]int{g, k}])
				}
				last[[2]int{g, k}]++
			}
			wg.Wait()
			for at, record := range placed {
				if got[at] != record {
					t.Fatalf("%.20q was acknowledged at shard %d, offset %d, where %.20q is", record, at.shard, at.offset, got[at])
				}
			}
			if n := int(unacked.Load()); n == 0 || len(placed) != total-n {
				t.Errorf("%d publishes have an ack, want %d without %d", len(placed), total, n)
			}
			stats := b.Stats()
			if stats.PublishRecords != total {
				t.Errorf("the broker counts %d records, %d were published", stats.PublishRecords, total)
			}
			if stats.PublishFrames >= total {
				t.Errorf("%d records came in %d frames: none were packed", total, stats.PublishFrames)
			}
		})
	}
}

// Conformance: ack.none_does_not_wait_for_the_broker.
func TestBrokerHasReadUnackedAfterFlush(t *testing.T) {
	b := clienttest.Run(t, cores(2))
	b.Stream("orders", 4)
	c := b.Client()
	ctx := within(t)
	p, err := c.Publisher("orders", client.NoAck())
	check(t, err)
	const n = 20000
	data := make([]byte, 500)
	for i := range n {
		if _, err := p.PublishAsync(ctx, data, client.Key(fmt.Sprint(i%100))).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			check(t, p.Flush(ctx))
			if got := b.Stats().PublishRecords; got != n/2+1 {
				t.Fatalf("%d of %d records after Flush", got, n/2+1)
			}
		}
	}
	check(t, c.Close())
	if got := b.Stats().PublishRecords; got != n {
		t.Fatalf("%d of %d records after Close", got, n)
	}
}

func TestBrokerRefuses(t *testing.T) {
	b := clienttest.Run(t, func(c *felix.Config) { c.AutoCreate = felix.Off })
	b.Stream("orders", 3)
	c := b.Client()
	ctx := within(t)
	// Conformance: error.unknown_stream_is_typed, sharded.reports_the_shard_count.
	if _, err := c.Publish(ctx, "nowhere", nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("publish: %v", err)
	}
	if _, err := c.Subscribe(ctx, "nowhere"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("subscribe: %v", err)
	}
	if _, err := c.Subscribe(ctx, "nowhere", client.Shard(0)); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("subscribe to a shard: %v", err)
	}
	if n, err := c.StreamShards(ctx, "nowhere"); n != 0 || err != nil {
		t.Errorf("shards: %d, %v", n, err)
	}
	if owners, err := c.ShardOwners(ctx, "orders"); len(owners) != 3 || err != nil {
		t.Errorf("owners: %v, %v", owners, err)
	}
	if _, err := c.Topology(ctx); err != nil {
		t.Errorf("topology: %v", err)
	}
	// Conformance: error.bad_offset_is_typed.
	var cursor *client.CursorError
	if _, err := c.Subscribe(ctx, "orders", client.Shard(1), client.FromOffset(7)); !errors.As(err, &cursor) || !cursor.InFuture || cursor.Available != 0 {
		t.Errorf("future offset: %v", err)
	}
	if _, err := c.Publish(ctx, "orders", nil, client.ToShard(3)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("shard 3 of 3: %v", err)
	}
	ack, err := c.Publish(ctx, "orders", []byte("x"), client.ToShard(2))
	if err != nil || ack.Shard != 2 {
		t.Errorf("to shard 2: %+v, %v", ack, err)
	}
	if _, err := c.Publish(ctx, "orders", nil, client.InNamespace("elsewhere")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("other namespace: %v", err)
	}
}

// Conformance: client.subscription_ends_cleanly.
func TestBrokerDeletesStream(t *testing.T) {
	b := clienttest.Run(t)
	b.Stream("orders", 2)
	c := b.Client()
	ctx := within(t)
	sub, err := c.Subscribe(ctx, "orders")
	check(t, err)
	check(t, b.Catalog().DeleteStream(ctx, felix.DefaultName, felix.DefaultName, "orders"))
	if _, err := sub.Next(ctx); !errors.Is(err, client.ErrStreamDeleted) {
		t.Fatalf("%v", err)
	}
}

// A subscriber that does not read is passed over where the stream says so, and told which records it missed.
func TestBrokerGap(t *testing.T) {
	b := clienttest.Run(t)
	check(t, b.CreateStream(within(t), felix.StreamConfig{Tenant: felix.DefaultName, Namespace: felix.DefaultName, Name: "orders", OnSlow: felix.DropNew}))
	c := b.Client()
	ctx := within(t)
	sub, err := c.Subscribe(ctx, "orders", client.QueueCapacity(1))
	check(t, err)
	p, err := b.Client().Publisher("orders")
	check(t, err)
	// More than all buffers on the way: the broker's queue, the stream's window, the subscription's queue.
	const n, size = 600, 64 << 10
	data := make([]byte, size)
	for range n {
		p.PublishAsync(ctx, data)
	}
	check(t, p.Flush(ctx))
	go func() { // until the subscriber has caught up, something has to come behind the gap
		for ctx.Err() == nil {
			if _, err := p.Publish(ctx, data); err != nil {
				return
			}
		}
	}()
	next, missed := client.Offset(0), client.Offset(0)
	for missed == 0 || next < n {
		m, err := sub.Next(ctx)
		var gap *client.GapError
		switch {
		case errors.As(err, &gap):
			if gap.From != next || gap.To <= gap.From {
				t.Fatalf("gap %d to %d behind offset %d", gap.From, gap.To, next)
			}
			missed += gap.To - gap.From
			next = gap.To
		case err != nil:
			t.Fatal(err)
		case m.Offset != next:
			t.Fatalf("offset %d, want %d, and no gap was reported", m.Offset, next)
		default:
			next++
		}
	}
	check(t, p.Close(ctx))
}

// A broker that comes back at its address is found again. Subscriptions of durable streams go on; in-memory streams have lost their records,
// which is said. Conformance: reconnect.subscription_resumes_at_the_next_offset.
func TestBrokerRestarts(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			dir := t.TempDir()
			start := func(listen string) *felix.Broker {
				b, err := felix.Start(within(t), felix.Config{DataDir: dir, Listen: listen, AutoCreateMemory: !durable})
				check(t, err)
				return b
			}
			first := start("127.0.0.1:0")
			listen := first.Addr().String()
			c, err := client.Dial(within(t), listen, client.WithCAFile(first.CAFile()), client.WithReconnect(client.ReconnectPolicy{Backoff: 10 * time.Millisecond}))
			check(t, err)
			defer c.Close()
			ctx := within(t)
			for range 5 {
				_, err = c.Publish(ctx, "orders", []byte("before"))
				check(t, err)
			}
			sub, err := c.Subscribe(ctx, "orders")
			check(t, err)
			fresh, err := c.Subscribe(ctx, "other")
			check(t, err)
			check(t, first.Close())
			second := start(listen)
			defer second.Close()
			ack, err := c.Publish(ctx, "orders", []byte("after"), client.AtLeastOnce())
			check(t, err)
			m, err := sub.Next(ctx)
			var cursor *client.CursorError
			switch {
			case !durable && ack.Offset != 0 || durable && ack.Offset != 5:
				t.Errorf("offset %d on the new broker", ack.Offset)
			case durable && (err != nil || m.Offset != 5 || string(m.Data) != "after"):
				t.Errorf("%+v, %v", m, err)
			case !durable && (!errors.As(err, &cursor) || !cursor.InFuture || cursor.Requested != 5):
				t.Errorf("%v", err)
			}
			// Where nothing was lost, nothing is said.
			_, err = c.Publish(ctx, "other", []byte("hello"), client.AtLeastOnce())
			check(t, err)
			m, err = fresh.Next(ctx)
			check(t, err)
			if string(m.Data) != "hello" {
				t.Fatalf("%q", m.Data)
			}
		})
	}
}
