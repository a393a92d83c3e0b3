package client_test

import (
	"errors"
	"testing"

	"felix"
	"felix/client"
	"felix/client/clienttest"
	"felix/replicate"
)

// lagTail is how many records come at least after a subscription has lagged.
const lagTail = 128

// lag makes a subscription of a durable stream that drops and publishes until it has lagged: n records of size bytes.
func lag(t *testing.T, b *clienttest.Broker) (sub *client.Subscription, n client.Offset) {
	t.Helper()
	ctx := within(t)
	check(t, b.CreateStream(ctx, felix.StreamConfig{
		Tenant: felix.DefaultName, Namespace: felix.DefaultName, Name: "orders", Durable: true, OnSlow: felix.DropNew, OnSlowGiven: true,
	}))
	sub, err := b.Client().Subscribe(ctx, "orders", client.QueueCapacity(1))
	check(t, err)
	p, err := b.Client().Publisher("orders")
	check(t, err)
	data := make([]byte, 64<<10)
	for b.Stats().Lagged == 0 {
		for range 32 {
			p.PublishAsync(ctx, data)
			n++
		}
		check(t, p.Flush(ctx))
	}
	for range lagTail { // these come without it
		p.PublishAsync(ctx, data)
		n++
	}
	check(t, p.Close(ctx))
	return sub, n
}

// A subscriber of a durable stream that is told that it lagged goes on in the log: it misses nothing and hears of no gap.
func TestLaggedSubscriptionMissesNothing(t *testing.T) {
	b := clienttest.Run(t)
	sub, n := lag(t, b)
	ctx := within(t)
	for next := client.Offset(0); next < n; next++ {
		m, err := sub.Next(ctx)
		check(t, err)
		if m.Offset != next {
			t.Fatalf("offset %d where %d comes next", m.Offset, next)
		}
	}
	if s := b.Stats(); s.EventsDropped != 0 {
		t.Errorf("%d records dropped", s.EventsDropped)
	}
}

// What retention has taken when a subscriber that lagged comes back is one gap, told once.
func TestLaggedSubscriptionBehindRetention(t *testing.T) {
	b := clienttest.Run(t, func(c *felix.Config) { c.Log.SegmentBytes = 1 << 20 })
	sub, n := lag(t, b)
	ctx := within(t)
	prober := b.Client()
	retention := felix.Retention{MaxSizeBytes: 1 << 20}
	_, err := b.Catalog().PatchStream(ctx, felix.DefaultName, felix.DefaultName, "orders", replicate.Patch{Retention: &retention})
	check(t, err)
	for tooOld := false; !tooOld; { // retention is looked at once a second
		probe, err := prober.Subscribe(ctx, "orders", client.FromOffset(n-lagTail/2))
		if tooOld = errors.As(err, new(*client.CursorError)); !tooOld {
			check(t, err)
			check(t, probe.Close())
		}
	}
	next, gaps := client.Offset(0), 0
	for next < n {
		m, err := sub.Next(ctx)
		var gap *client.GapError
		switch {
		case errors.As(err, &gap):
			if gap.From != next || gap.To <= gap.From {
				t.Fatalf("gap %d to %d where %d comes next", gap.From, gap.To, next)
			}
			gaps++
			next = gap.To
		case err != nil:
			t.Fatal(err)
		case m.Offset != next:
			t.Fatalf("offset %d where %d comes next", m.Offset, next)
		default:
			next++
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps were told", gaps)
	}
}
