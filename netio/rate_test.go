package netio

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
)

func TestRequestRate(t *testing.T) {
	var r requestRate
	const perSecond, burst = 100, 200
	now := time.Hour
	taken := func() (n int) {
		for r.take(now, perSecond) == 0 {
			n++
		}
		return n
	}
	if n := taken(); n != burst {
		t.Errorf("%d requests at once, want %d", n, burst)
	}
	if wait := r.take(now, perSecond); wait != 10*time.Millisecond {
		t.Errorf("the next one in %v", wait)
	}
	for _, tt := range []struct {
		pass time.Duration
		want int
	}{{10 * time.Millisecond, 1}, {9 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 100}, {time.Hour, burst}} {
		now += tt.pass
		if n := taken(); n != tt.want {
			t.Errorf("%d after %v, want %d", n, tt.pass, tt.want)
		}
	}
	now += time.Hour
	var n atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for r.take(now, perSecond) == 0 {
				n.Add(1)
			}
		})
	}
	wait.Wait()
	if n.Load() != burst {
		t.Errorf("%d requests of 8 goroutines at once, want %d", n.Load(), burst)
	}
}

// A connection that asks without end is refused, told when to ask again, and goes on; its publishes and other connections do not notice.
func TestRequestsPerConnection(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.Requests = 1 }})
	f.createStream("orders", 1, 0)
	p := f.connect()
	k := p.authed()
	ask := &wire.StreamShards{Scope: scopeOf("orders"), RequestID: 1}
	var refused *wire.Error
	for range 100 {
		k.send(ask)
		if e, ok := k.message().(*wire.Error); ok {
			refused = e
			break
		}
	}
	if refused == nil || refused.Code != wire.CodeLimitExceeded || refused.Retry != wire.RetryAfter || refused.RetryAfterMillis == 0 || refused.RetryAfterMillis > 1000 {
		t.Fatalf("%+v", refused)
	}
	k.publish(batch(1, "orders", "", "a"))
	if a := k.ack(); a.Failed {
		t.Fatalf("%+v", a)
	}
	if m, ok := f.connect().request(ask).(*wire.StreamShardsView); !ok || m.Shards != 1 {
		t.Fatalf("another connection: %#v", m)
	}
	if n := f.server.Stats().RequestsRefused; n == 0 {
		t.Error("none counted")
	}
}
