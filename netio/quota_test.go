package netio

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/fanout"
	"felix/netio/wire"
)

// clock is a clock that the test moves.
type clock struct{ at time.Duration }

func (c *clock) now() time.Duration { return c.at }

// A tenant gets its burst and then its rate; a batch that is larger goes through, with an overdraft that is bounded.
func TestQuotaRates(t *testing.T) {
	c := &clock{at: time.Hour}
	q := newQuota(Quota{MsgsPerSec: 10}, time.Second, c.now)
	got := 0
	for range 100 {
		if q.try(0, 1) <= 0 {
			got++
		}
	}
	if got != 10 {
		t.Errorf("%d records at once, want the burst of 10", got)
	}
	for range 100 {
		c.at += 50 * time.Millisecond
		if q.try(0, 1) <= 0 {
			got++
		}
	}
	if got != 60 {
		t.Errorf("%d records in 5 s, want 10 and 50", got)
	}
	c.at += time.Minute
	if empty := q.try(0, 1_000_000); empty > 0 {
		t.Errorf("a large batch waits for %v", empty)
	}
	if empty := q.try(0, 1); empty <= maxOverdraft-time.Millisecond || empty > maxOverdraft+time.Millisecond {
		t.Errorf("after a large batch nothing goes through for %v, want %v", empty, maxOverdraft)
	}
	c.at += maxOverdraft + time.Millisecond
	if empty := q.try(0, 1); empty > 0 {
		t.Errorf("after the overdraft it waits for %v", empty)
	}
}

// Readers go on in order, as many as there is room for, and all of them when another quota is in force.
func TestQuotaWaitsInOrder(t *testing.T) {
	var at atomic.Int64 // the clock; the queue looks at it every few milliseconds
	q := newQuota(Quota{BytesPerSec: 1000}, time.Millisecond, func() time.Duration { return time.Duration(at.Load()) })
	q.overdraw(20, 0) // 20 ms
	ctx, cancel := context.WithCancel(t.Context())
	order := make(chan int)
	wait := func(i int, ctx context.Context, stop chan struct{}) {
		queued := q.waiting.Load()
		go func() {
			waited, err := q.wait(ctx, stop, 20)
			if !waited {
				t.Errorf("%d did not wait", i)
			}
			if err != nil {
				i = -i
			}
			order <- i
		}()
		waitFor(t, "it to be queued", func() bool { return q.waiting.Load() == queued+1 })
	}
	for i := range 3 {
		wait(i+1, ctx, nil)
	}
	for i := range 3 {
		at.Add(int64(20 * time.Millisecond)) // for one of them
		if got := <-order; got != i+1 {
			t.Fatalf("%d goes on, want %d", got, i+1)
		}
		if n := q.waiting.Load(); n != int32(2-i) {
			t.Fatalf("%d wait, want %d", n, 2-i)
		}
	}
	stop := make(chan struct{})
	wait(1, ctx, nil)
	wait(2, t.Context(), stop)
	wait(3, t.Context(), nil)
	cancel()
	if got := <-order; got != -1 {
		t.Fatalf("%d, want the one whose context ended", got)
	}
	close(stop)
	if got := <-order; got != 2 {
		t.Fatalf("%d, want the one that was stopped", got)
	}
	waitFor(t, "the last to be alone", func() bool { return q.waiting.Load() == 1 })
	q.retire()
	if got := <-order; got != 3 {
		t.Fatalf("%d, want the last", got)
	}
	if n := q.waiting.Load(); n != 0 {
		t.Fatalf("%d wait, want none", n)
	}
	if waited, err := q.wait(t.Context(), nil, 20); waited || err != nil {
		t.Errorf("a retired quota holds somebody back: %v", err)
	}
}

// Whoever goes on is not counted any more, also while others are still being let go.
func TestQuotaCountsOutFirst(t *testing.T) {
	const n = 1000
	var at atomic.Int64
	q := newQuota(Quota{MsgsPerSec: 100}, 10*time.Millisecond, func() time.Duration { return time.Duration(at.Load()) })
	q.overdraw(0, 2) // 10 ms until it lets one through
	var most atomic.Int32
	most.Store(n - 1)
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			if waited, err := q.wait(t.Context(), nil, 0); !waited || err != nil {
				t.Errorf("waited %v, %v", waited, err)
			}
			if waiting := q.waiting.Load(); waiting > most.Load() {
				t.Errorf("one goes on and %d wait", waiting)
			}
		})
	}
	waitFor(t, "all to wait", func() bool { return q.waiting.Load() == n })
	at.Store(int64(15 * time.Millisecond)) // for one of them
	waitFor(t, "one to go on", func() bool { return q.waiting.Load() == n-1 })
	most.Store(0)
	q.retire()
	wait.Wait()
}

func TestQuotaAllocs(t *testing.T) {
	c := &clock{at: time.Hour}
	q := newQuota(Quota{BytesPerSec: 1 << 40, MsgsPerSec: 1 << 40}, time.Second, c.now)
	st := &stream{account: &account{}}
	if n := testing.AllocsPerRun(1000, func() {
		q.try(100, 1)
		q.roomy()
		st.meterAcked(100, 1)
		st.meterUnacked(100, 1, false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// quotaOf starts a broker whose tenant t1 may publish a record per second, and has published one.
func quotaOf(t *testing.T, q Quota, change func(*Config)) *fixture {
	f := start(t, fixtureOptions{change: func(c *Config) {
		c.Quotas = QuotaConfig{Tenants: map[string]Quota{"t1": q}, Burst: time.Millisecond}
		if change != nil {
			change(c)
		}
	}})
	f.createStream("updates", 1, fanout.DropNew)
	return f
}

func TestQuotaRefusesAckedPublishes(t *testing.T) {
	f := quotaOf(t, Quota{MsgsPerSec: 1}, nil)
	k := f.connect().authed()
	all := wire.AppendPublish(nil, batch(1, "updates", "", "a", "b", "c")) // in one write, so that no second passes in between
	all = wire.AppendPublish(all, batch(2, "updates", "", "x"))
	all = wire.AppendMessage(all, &wire.PublishBatch{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}, Count: 1, Records: wire.AppendRecord(nil, nil), RequestID: 3, HasRequestID: true, Ack: wire.AckPerBatch})
	all = wire.AppendPublish(all, idempotent(4, 7, 0))
	all = wire.AppendPublish(all, idempotent(5, 7, 1)) // goes with the one before
	k.raw(all)
	if a := k.ack(); a.Failed {
		t.Fatalf("ack %+v", a)
	}
	if a := k.ack(); !a.Failed || a.Code != wire.CodeOverloaded || a.Retry != wire.RetryAfter || a.Reason != wire.ReasonTenantQuota || a.RetryAfterMillis == 0 || a.RetryAfterMillis > 3000 {
		t.Fatalf("ack %+v", a)
	}
	for id := uint64(3); id < 6; id++ {
		if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != id || e.Reason != wire.ReasonTenantQuota || e.RetryAfterMillis == 0 {
			t.Fatalf("%+v", e)
		}
	}
	if err := f.server.SetQuota("t1", Quota{}); err != nil {
		t.Fatal(err)
	}
	k.publish(idempotent(6, 7, 2))
	if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != 6 || e.Reason != wire.ReasonTenantQuota {
		t.Fatalf("%+v, want the refusal of the batch before", e)
	}
	for sequence := range uint64(3) {
		if sequence == 1 { // the one behind it cannot pass
			k.publish(idempotent(20, 7, 2))
			if e, ok := k.message().(*wire.PublishError); !ok || e.RequestID != 20 || e.Reason != wire.ReasonTenantQuota {
				t.Fatalf("%+v", e)
			}
		}
		k.publish(idempotent(7+sequence, 7, sequence))
		if m, ok := k.message().(*wire.PublishOK); !ok || m.Offset != wire.Offset(3+sequence) {
			t.Fatalf("%+v", m)
		}
	}
	if s := f.server.Stats(); len(s.Tenants) != 1 || s.Tenants[0].QuotaRefused != 4 || s.PublishRefused != 6 {
		t.Errorf("stats %+v", s)
	}
	if q, from := f.server.Quota("t1"); q != (Quota{}) || from != QuotaSet {
		t.Errorf("quota %+v from %s", q, from)
	}
	f.server.UnsetQuota("t1")
	if q, from := f.server.Quota("t1"); q.MsgsPerSec != 1 || from != QuotaConfigured {
		t.Errorf("quota %+v from %s", q, from)
	}
}

// Publishes without ack wait in front of the broker: nothing is lost or overtaken, nothing is held for them, and other tenants go on.
func TestQuotaParksReaders(t *testing.T) {
	f := quotaOf(t, Quota{MsgsPerSec: 1}, nil)
	p := f.connect()
	k := p.authed()
	payloads := func(n int) (list []string) {
		for i := range n {
			list = append(list, strings.Repeat(fmt.Sprintf("%d ", i), 1+i*i*200))
		}
		return list
	}(30)
	var all []byte
	for i, payload := range payloads {
		b := plain("updates", "", payload)
		if i%7 == 3 { // some in JSON
			all = wire.AppendMessage(all, &wire.PublishBatch{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}, Count: 1, Records: b.Records})
			continue
		}
		all = wire.AppendPublish(all, b)
	}
	wrote := make(chan error, 1)
	go func() { _, err := k.s.Write(all); k.s.Close(); wrote <- err }()
	waitFor(t, "the reader to park", func() bool {
		s := f.server.Stats()
		return s.PublishRecords >= 1 && s.IngressBytes == 0 && len(s.Tenants) == 1 && s.Tenants[0].QuotaWaited > 0
	})
	// Another stream of the connection, whose acked publishes are refused and not held up; and another tenant.
	other := p.authed()
	other.publish(batch(1, "updates", "", "x"))
	other.ack()
	other = p.open()
	a := auth()
	a.TenantID = "t2"
	other.send(a)
	other.message()
	b := batch(2, "updates", "", "x")
	b.Tenant = []byte("t2")
	other.publish(b)
	if a := other.ack(); a.Code != wire.CodeNotFound {
		t.Fatalf("ack %+v", a)
	}
	if n := f.server.Stats().PublishRecords; n >= uint64(len(payloads)) {
		t.Fatalf("%d records went through", n)
	}
	if err := f.server.SetQuota("t1", Quota{BytesPerSec: 16 << 20}); err != nil { // a few waits more
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	sub := p.authed()
	sub.send(subscribeTo("updates", 0, wire.StartPosition{Kind: wire.StartEarliest}))
	sub.message()
	e := p.acceptEvents()
	for i := 0; i < len(payloads); {
		ev := e.next()
		for r := range ev.All() {
			if string(r.Payload) == "x" {
				continue // the acked one, where there was room
			}
			if i == len(payloads) || string(r.Payload) != payloads[i] {
				t.Fatalf("record %d has %d bytes, want payload %d", r.Offset, len(r.Payload), i)
			}
			i++
		}
	}
	waitFor(t, "the books to balance", func() bool { return f.server.Stats().IngressBytes == 0 })
}

// What was read is published when the broker drains.
func TestQuotaDrain(t *testing.T) {
	f := quotaOf(t, Quota{MsgsPerSec: 1}, nil)
	k := f.connect().authed()
	var all []byte
	for range 10 {
		all = wire.AppendPublish(all, plain("updates", "", "x", "y"))
	}
	k.raw(all)
	waitFor(t, "the reader to park", func() bool { s := f.server.Stats(); return len(s.Tenants) == 1 && s.Tenants[0].QuotaWaited > 0 })
	if err := f.server.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := f.server.Stats(); s.PublishRecords != 20 {
		t.Errorf("%d of 20 records were published", s.PublishRecords)
	}
}

func TestQuotaSheds(t *testing.T) {
	f := quotaOf(t, Quota{MsgsPerSec: 1}, func(c *Config) { c.Limits.ShedUnacked = true })
	k := f.connect().authed()
	var all []byte
	for range 3 {
		all = wire.AppendPublish(all, plain("updates", "", "a", "b", "c"))
	}
	k.raw(all)
	// The dropped ones are counted by the reader, the other one by its loop.
	waitFor(t, "two to be dropped and one to be published", func() bool { s := f.server.Stats(); return s.PublishShed == 2 && s.PublishRecords == 3 })
	s := f.server.Stats()
	if frames, records := f.catalog.Resolve([]byte("t1"), []byte("default"), []byte("updates")).Shed(); frames != 2 || records != 6 || s.PublishRecords != 3 || s.Tenants[0].QuotaShed != 2 {
		t.Errorf("%d frames with %d records dropped; stats %+v", frames, records, s)
	}
}

func TestQuotaConfig(t *testing.T) {
	err := QuotaConfig{
		Default: Quota{BytesPerSec: -1}, Burst: time.Microsecond,
		Tenants: map[string]Quota{"a": {MsgsPerSec: MaxQuota + 1}, "b c": {}},
	}.Validate()
	for _, part := range []string{"burst", "quota is -1", `tenant "a"`, `"b c"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not tell of %s", err, part)
		}
	}
}
