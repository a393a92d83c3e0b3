package felix

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"felix/client"
)

// TestIdempotentPublisherThroughAFullQueue has batches refused for want of a slot while many are on their way. The client sends them
// again, and the log has each once and in order.
func TestIdempotentPublisherThroughAFullQueue(t *testing.T) {
	b := mustStart(t, Config{Cores: 2, Limits: Limits{Slots: 1, QueueWait: time.Millisecond}})
	ctx := testContext(t)
	if err := b.CreateStream(ctx, StreamConfig{Name: "orders", Durable: true}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b, client.WithReconnect(client.ReconnectPolicy{Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond}))
	p, err := c.Publisher("orders", client.Idempotent())
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for b.Stats().PublishRefused == 0 || sent < 100 {
		var round []*client.Future
		for range 50 {
			round = append(round, p.PublishAsync(ctx, fmt.Appendf(nil, "record %d", sent+len(round))))
		}
		for _, f := range round {
			ack, err := f.Wait(ctx)
			if err != nil || ack.Offset != client.Offset(sent) {
				t.Fatalf("record %d: offset %d, %v; %+v", sent, ack.Offset, err, b.Stats().Stats)
			}
			sent++
		}
	}
	wantRecords(t, ctx, c, "orders", sent)
	if s := b.Stats(); s.PublishRecords != uint64(sent) || s.WaitersAdmitted != s.SlotsFreedWhileWaiting || s.SlotsInUse != 0 || s.SlotsWaiting != 0 {
		t.Errorf("%d sent; %+v", sent, s.Stats)
	}
}

// wantRecords reads a stream of one shard from its start: it has "record 0", "record 1", ... and no more.
func wantRecords(t *testing.T, ctx context.Context, c *client.Client, stream string, n int) {
	t.Helper()
	sub, err := c.Subscribe(ctx, stream, client.Shard(0), client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for i := range n {
		m, err := sub.Next(ctx)
		if err != nil || string(m.Data) != fmt.Sprintf("record %d", i) || m.Offset != client.Offset(i) {
			t.Fatalf("record %d: %q at %d, %v", i, m.Data, m.Offset, err)
		}
	}
}

// TestClientWaitsForItsQuota publishes beyond a quota: the client waits as long as it is told and everything arrives once.
func TestClientWaitsForItsQuota(t *testing.T) {
	const perSec = 25
	b := mustStart(t, Config{Admin: "127.0.0.1:0", Quotas: QuotaConfig{Default: Quota{MsgsPerSec: perSec}, Burst: time.Millisecond}})
	ctx := testContext(t)
	if err := b.CreateStream(ctx, StreamConfig{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b, client.WithReconnect(client.ReconnectPolicy{Backoff: time.Millisecond, MaxBackoff: time.Millisecond}))
	began := time.Now()
	n := 0
	for n < 10 || b.Stats().PublishRefused == 0 { // on a busy machine a publish may take as long as the quota asks for
		// The client sends a publish at most 5 times: its own backoff of 1 ms would give up.
		if _, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "record %d", n)); err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
		n++
	}
	if took, least := time.Since(began), time.Duration(n-1)*time.Second/perSec-time.Millisecond; took < least {
		t.Errorf("%d records within %v, the quota allows them in %v", n, took, least)
	}
	wantRecords(t, ctx, c, "orders", n)
	s := b.Stats()
	if len(s.Tenants) != 1 || s.Tenants[0].Tenant != DefaultName || s.Tenants[0].QuotaRefused == 0 || s.PublishRecords != uint64(n) {
		t.Errorf("tenants %+v, %d records", s.Tenants, s.PublishRecords)
	}
	_, text := get(t, b, "/metrics")
	if want := fmt.Sprintf("felix_tenant_publish_throttled_total{tenant=\"default\",action=\"refused\"} %d\n", s.Tenants[0].QuotaRefused); !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s", want)
	}
	if status, body := get(t, b, "/v1/tenants/default/quota"); status != 200 || !strings.Contains(body, `"msgs_per_sec":25,"from":"default"`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestIdempotentPublisherKeepsItsOrderUnderAQuota has most batches refused, some with others behind them on the way.
func TestIdempotentPublisherKeepsItsOrderUnderAQuota(t *testing.T) {
	b := mustStart(t, Config{Quotas: QuotaConfig{Tenants: map[string]Quota{DefaultName: {MsgsPerSec: 500}}, Burst: time.Millisecond}})
	ctx := testContext(t)
	if err := b.CreateStream(ctx, StreamConfig{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b, client.WithReconnect(client.ReconnectPolicy{Backoff: time.Millisecond, MaxBackoff: time.Millisecond}))
	p, err := c.Publisher("orders", client.Idempotent())
	if err != nil {
		t.Fatal(err)
	}
	var sent []*client.Future
	for i := range 100 {
		sent = append(sent, p.PublishAsync(ctx, fmt.Appendf(nil, "record %d", i)))
	}
	for i, f := range sent {
		if ack, err := f.Wait(ctx); err != nil || ack.Offset != client.Offset(i) {
			t.Fatalf("record %d: offset %d, %v", i, ack.Offset, err)
		}
	}
	wantRecords(t, ctx, c, "orders", len(sent))
	if s := b.Stats(); s.PublishRefused == 0 || s.PublishRecords != uint64(len(sent)) {
		t.Errorf("%d refused, %d records", s.PublishRefused, s.PublishRecords)
	}
}

// TestClientWaitsForItsRequests asks for more than a connection may in a second: the client waits as long as it is told.
func TestClientWaitsForItsRequests(t *testing.T) {
	b := mustStart(t, Config{Limits: Limits{Requests: 10}}) // and 20 saved up
	ctx := testContext(t)
	c := mustDial(t, b, client.WithReconnect(client.ReconnectPolicy{Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond}))
	var names []string
	for len(names) < 15 || b.Stats().RequestsRefused == 0 { // a slow machine may ask for no more than it may
		name := fmt.Sprintf("orders-%d", len(names))
		names = append(names, name)
		if err := b.CreateStream(ctx, StreamConfig{Name: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Publish(ctx, name, []byte("record 0")); err != nil {
			t.Fatalf("publish to %s: %v", name, err)
		}
	}
	for _, name := range names[:5] {
		wantRecords(t, ctx, c, name, 1)
	}
}
