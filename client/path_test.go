package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"felix"
	"felix/client"
	"felix/client/clienttest"
	"felix/netio/faultnet"
)

// Tests over a bad network to a real broker. What a dropped, reset or stalled link does is tested against a fake broker, in link_test.go.

// A badPath is a broker behind a proxy. The broker has a shared port only, so that nothing leads around the proxy.
type badPath struct {
	*faultnet.Proxy
	t      *testing.T
	broker *clienttest.Broker
}

func newBadPath(t *testing.T, configure ...func(*felix.Config)) *badPath {
	t.Helper()
	b := clienttest.Run(t, append([]func(*felix.Config){cores(1)}, configure...)...)
	upstream := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.Addr().Port())
	p, err := faultnet.New(faultnet.Config{Upstream: upstream, Rand: rand.NewPCG(1, 2)})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return &badPath{p, t, b}
}

// dial connects a client through the proxy. It is closed with the test, before the proxy.
func (p *badPath) dial(opts ...client.Option) *client.Client {
	p.t.Helper()
	c, err := client.Dial(within(p.t), p.Addr().String(), append([]client.Option{
		client.WithCAFile(p.broker.CAFile()), client.WithReconnect(client.ReconnectPolicy{Backoff: 10 * time.Millisecond}),
	}, opts...)...)
	check(p.t, err)
	p.t.Cleanup(func() { check(p.t, c.Close()) })
	return c
}

// streams makes a stream of each kind and returns their names. Neither drops anything.
func (p *badPath) streams() []string {
	p.t.Helper()
	for _, s := range []felix.StreamConfig{{Name: "memory", OnSlow: felix.Block}, {Name: "durable", Durable: true}} {
		s.Tenant, s.Namespace = felix.DefaultName, felix.DefaultName
		check(p.t, p.broker.CreateStream(within(p.t), s))
	}
	return []string{"memory", "durable"}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A ledger holds what was acknowledged of a stream with one shard, by offset.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	at map[client.Offset]string
}

func newLedger(t *testing.T) *ledger { return &ledger{t: t, at: make(map[client.Offset]string)} }

// keep takes the outcome of a publish down, which must have succeeded.
func (l *ledger) keep(record string, ack client.Ack, err error) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch other, twice := l.at[ack.Offset]; {
	case err != nil || !ack.HasOffset:
		l.t.Errorf("publish %q: %+v, %v", record, ack, err)
	case twice:
		l.t.Errorf("%q and %q are both acknowledged at offset %d", record, other, ack.Offset)
	default:
		l.at[ack.Offset] = record
	}
}

// publish publishes n records named after who, pipelined, and keeps their outcomes.
func (l *ledger) publish(p *client.Publisher, who string, n int) {
	l.t.Helper()
	ctx := within(l.t)
	futures := make([]*client.Future, n)
	for i := range futures {
		futures[i] = p.PublishAsync(ctx, fmt.Appendf(nil, "%s %d", who, i))
	}
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		l.keep(fmt.Sprintf("%s %d", who, i), ack, err)
	}
}

// read reads the offsets from..to-1, which must hold what was acknowledged there.
func (l *ledger) read(sub *client.Subscription, from, to client.Offset) {
	l.t.Helper()
	ctx := within(l.t)
	got := make(map[client.Offset]string)
	for want := from; want < to; want++ {
		m, err := sub.Next(ctx)
		if err != nil || m.Offset != want {
			l.t.Fatalf("offset %d, %v; want offset %d", m.Offset, err, want)
		}
		got[want] = string(m.Data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for offset, record := range got {
		if acked, ok := l.at[offset]; ok && acked != record {
			l.t.Errorf("offset %d holds %q, acknowledged was %q", offset, record, acked)
		}
	}
}

// Whatever a path does to single datagrams, each record is stored and delivered once, where its ack says.
func TestPathFaults(t *testing.T) {
	const publishers, each = 3, 200
	const p = 0.05
	for _, tt := range []struct {
		name   string
		faults faultnet.Faults
		struck func(c faultnet.Counts) uint64
	}{
		{"loss", faultnet.Faults{Loss: p}, func(c faultnet.Counts) uint64 { return c.Lost }},
		{"duplication", faultnet.Faults{Duplicate: p}, func(c faultnet.Counts) uint64 { return c.Duplicated }},
		{"reordering", faultnet.Faults{Reorder: p}, func(c faultnet.Counts) uint64 { return c.Reordered }},
		{"corruption", faultnet.Faults{Corrupt: p}, func(c faultnet.Counts) uint64 { return c.Corrupted }},
		{"all", faultnet.Faults{Loss: p, Duplicate: p, Reorder: p, Corrupt: p, Delay: time.Millisecond}, func(c faultnet.Counts) uint64 {
			return min(c.Lost, c.Duplicated, c.Reordered, c.Corrupted, c.Delayed)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := newBadPath(t)
			for i, stream := range path.streams() {
				path.Set(tt.faults)
				publisher, subscriber := path.dial(), path.dial()
				sub, err := subscriber.Subscribe(within(t), stream, client.FromEarliest())
				check(t, err)
				ledger := newLedger(t)
				var wg sync.WaitGroup
				for i := range publishers {
					p, err := publisher.Publisher(stream, client.Idempotent())
					check(t, err)
					wg.Go(func() { ledger.publish(p, fmt.Sprint(stream, " publisher ", i), each) })
				}
				ledger.read(sub, 0, publishers*each)
				wg.Wait()
				if got := path.broker.Stats().PublishRecords; got != uint64(i+1)*publishers*each {
					t.Errorf("%s: the broker holds %d records, %d were published", stream, got, (i+1)*publishers*each)
				}
				again, err := subscriber.Subscribe(within(t), stream, client.FromEarliest())
				check(t, err)
				ledger.read(again, 0, publishers*each) // now that every ack is known
				path.Set(faultnet.Faults{})
			}
			s := path.Stats()
			if tt.struck(s.Up) == 0 || tt.struck(s.Down) == 0 {
				t.Errorf("the path was too good: %+v", s)
			}
		})
	}
}

// A path that is dead one way for 2 s costs no connection and no record.
func TestPathBlockedOneWay(t *testing.T) {
	for _, tt := range []struct {
		direction faultnet.Direction
		blocked   func(s faultnet.Stats) uint64
	}{
		{faultnet.Up, func(s faultnet.Stats) uint64 { return s.Up.Blocked }},
		{faultnet.Down, func(s faultnet.Stats) uint64 { return s.Down.Blocked }},
	} {
		t.Run(tt.direction.String(), func(t *testing.T) {
			t.Parallel()
			path := newBadPath(t)
			for _, stream := range path.streams() {
				publisher, subscriber := path.dial(), path.dial()
				sub, err := subscriber.Subscribe(within(t), stream, client.FromEarliest())
				check(t, err)
				p, err := publisher.Publisher(stream)
				check(t, err)
				ledger := newLedger(t)
				ledger.publish(p, "before", 10)
				ledger.read(sub, 0, 10)
				accepted := path.broker.Stats().ConnectionsAccepted

				before := tt.blocked(path.Stats())
				over := path.BlockFor(2*time.Second, tt.direction)
				ledger.publish(p, "during", 10) // ends when the path is back
				if tt.blocked(path.Stats()) == before {
					t.Error("the block struck nothing")
				}
				<-over
				ledger.publish(p, "after", 10)
				ledger.read(sub, 10, 30)
				if now := path.broker.Stats().ConnectionsAccepted; now != accepted {
					t.Errorf("%d connections were accepted during the block", now-accepted)
				}
			}
		})
	}
}

// A path that is dead for longer than both sides wait for each other costs the connections, and nothing else: what was pending is
// resolved, idempotent publishes are stored once, and the subscription goes on where it was.
func TestPathDead(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the idle timeout of 6 s")
	}
	path := newBadPath(t)
	for _, stream := range path.streams() {
		t.Run(stream, func(t *testing.T) {
			publisher, subscriber := path.dial(), path.dial()
			sub, err := subscriber.Subscribe(within(t), stream, client.FromEarliest())
			check(t, err)
			once, err := publisher.Publisher(stream, client.Idempotent())
			check(t, err)
			plain, err := publisher.Publisher(stream)
			check(t, err)
			ledger := newLedger(t)
			ledger.publish(once, "before", 10)
			ack, err := plain.Publish(within(t), []byte("plain before"))
			ledger.keep("plain before", ack, err)
			ledger.read(sub, 0, 11)
			stats := path.broker.Stats()

			path.Block()
			var wg sync.WaitGroup
			wg.Go(func() { ledger.publish(once, "during", 10) })
			ctx := within(t)
			var futures []*client.Future
			for range 10 {
				futures = append(futures, plain.PublishAsync(ctx, []byte("plain during")))
			}
			for i, f := range futures {
				if _, err := f.Wait(ctx); !errors.Is(err, client.ErrOutcomeUnknown) {
					t.Errorf("plain publish %d on a dead path: %v", i, err)
				}
			}
			dials := path.Stats().Up.Initials
			eventually(t, "the client to dial anew", func() bool { return path.Stats().Up.Initials > dials })
			eventually(t, "the broker to give the connections up", func() bool { return path.broker.Stats().Connections == 0 })
			path.Unblock()
			wg.Wait()
			ledger.publish(once, "after", 10)
			ledger.read(sub, 11, 31)
			now := path.broker.Stats()
			if now.ConnectionsAccepted < stats.ConnectionsAccepted+2 {
				t.Errorf("%d connections were accepted by now, %d before", now.ConnectionsAccepted, stats.ConnectionsAccepted)
			}
			if n := now.PublishRecords - stats.PublishRecords; n != 20 {
				t.Errorf("%d records were stored since the path died, want 20", n)
			}
		})
	}
}

// Paths that carry no more than QUIC demands, and packets of exactly the size that fits.
func TestPathSizeCaps(t *testing.T) {
	for _, cap := range []int{1200, 1280, 1452} {
		t.Run(fmt.Sprint(cap), func(t *testing.T) {
			path := newBadPath(t, func(c *felix.Config) { c.MaxPacketBytes = cap })
			path.Set(faultnet.Faults{MaxBytes: cap})
			for _, stream := range path.streams() {
				c := path.dial(client.WithMaxPacketBytes(cap))
				sub, err := c.Subscribe(within(t), stream, client.FromEarliest())
				check(t, err)
				ledger := newLedger(t)
				for i, size := range []int{0, 1, cap - 100, cap, 10_000, 300_000} {
					record := fmt.Sprint(i, strings.Repeat("x", size))
					ack, err := c.Publish(within(t), stream, []byte(record))
					ledger.keep(record, ack, err)
				}
				ledger.read(sub, 0, 6)
			}
			if s := path.Stats(); s.Up.TooLarge+s.Down.TooLarge > 0 {
				t.Errorf("%d and %d packets were too large for a path of %d bytes", s.Up.TooLarge, s.Down.TooLarge, cap)
			}
		})
	}
}

// anyAddress makes a broker listen as one for other machines does: it names no ports of its cores, and finds out what the path carries.
func anyAddress(c *felix.Config) { c.Listen, c.Auth = "0.0.0.0:0", felix.AuthAny }

// The broker finds out by itself what the path carries: its probes are lost, and nothing else.
func TestPathSizeIsDiscovered(t *testing.T) {
	path := newBadPath(t, anyAddress)
	path.Set(faultnet.Faults{MaxBytes: 1300})
	for _, stream := range path.streams() {
		c := path.dial(client.WithMaxPacketBytes(1280))
		sub, err := c.Subscribe(within(t), stream, client.FromEarliest())
		check(t, err)
		ledger := newLedger(t)
		record := strings.Repeat("x", 100_000)
		for range 20 {
			ack, err := c.Publish(within(t), stream, []byte(record))
			ledger.keep(record, ack, err)
		}
		ledger.read(sub, 0, 20)
	}
	if s := path.Stats(); s.Up.TooLarge > 0 || s.Down.TooLarge == 0 {
		t.Errorf("too large were %d packets of the client and %d of the broker, want none and its probes", s.Up.TooLarge, s.Down.TooLarge)
	}
}

// A NAT that forgets gives clients new ports. Their connections go on, each on its core, for what the broker sends and for what it is sent.
func TestPathRebinds(t *testing.T) {
	path := newBadPath(t, anyAddress, cores(2))
	const clients = 4 // of which some are hashed to the other core by their new port
	for _, stream := range path.streams() {
		var subs []*client.Subscription
		var publishers []*client.Publisher
		ledger := newLedger(t)
		for range clients {
			c := path.dial()
			sub, err := c.Subscribe(within(t), stream, client.FromEarliest())
			check(t, err)
			p, err := c.Publisher(stream)
			check(t, err)
			subs, publishers = append(subs, sub), append(publishers, p)
		}
		next := client.Offset(0)
		round := func(name string) {
			t.Helper()
			for i, p := range publishers {
				ledger.publish(p, fmt.Sprint(name, i), 10)
			}
			for _, sub := range subs {
				ledger.read(sub, next, next+10*clients)
			}
			next += 10 * clients
		}
		round("before")
		accepted := fmt.Sprint(path.broker.Stats().ConnectionsPerCore)
		for i := range 3 {
			sockets := path.Stats().Sockets
			n, err := path.Rebind()
			check(t, err)
			if n < clients || path.Stats().Sockets != sockets+uint64(n) {
				t.Fatalf("%d clients were rebound, want %d: %+v", n, clients, path.Stats())
			}
			round(fmt.Sprint("rebound ", i))
		}
		if now := fmt.Sprint(path.broker.Stats().ConnectionsPerCore); now != accepted {
			t.Errorf("connections accepted per core: %s before the rebinds, %s behind them", accepted, now)
		}
	}
}
