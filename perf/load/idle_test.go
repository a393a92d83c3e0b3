package load

import (
	"os"
	"strings"
	"testing"
	"time"

	"felix"
)

// TestIdle wants streams, connections and subscribers that are there until they are closed.
func TestIdle(t *testing.T) {
	b := startBroker(t, felix.Config{})
	remote := FelixConfig{Addr: b.Addr().String(), Admin: b.AdminAddr().String(), CAFile: b.CAFile()}
	if err := MakeStreams(t.Context(), remote, 40, 256); err != nil {
		t.Fatal(err)
	}
	if err := MakeStreams(t.Context(), remote, 3, NoPayload); err != nil { // they are there
		t.Fatal(err)
	}
	if n, records := b.Catalog().Counts().Streams, b.Stats().PublishRecords; n != 40 || records != 40 {
		t.Errorf("%d streams and %d records, want 40 of both", n, records)
	}
	idle, err := OpenIdle(t.Context(), remote, 30)
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Stats(); s.Connections < 30 || s.Streams < 30 || s.Unauthenticated != 0 {
		t.Errorf("%d connections, %d of them unauthenticated, with %d streams; want 30 at least", s.Connections, s.Unauthenticated, s.Streams)
	}
	if n := idle.Lost(); n != 0 {
		t.Errorf("%d connections were lost", n)
	}
	idle.Close()
	if n := idle.Lost(); n != 30 {
		t.Errorf("%d of 30 connections have ended", n)
	}
	audience, err := OpenAudience(t.Context(), remote, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer audience.Close()
	if err := audience.Subscribe(t.Context(), "idle-1", 20); err != nil {
		t.Fatal(err)
	}
	// The last may still be joining when it is registered.
	tick, deadline := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for b.SubscriptionStates()["live"] != 20 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("subscriptions %v, want 20 live", b.SubscriptionStates())
		}
	}
	if err := audience.Subscribe(t.Context(), "idle 1", 20); err == nil || !strings.Contains(err.Error(), "of 20: ") {
		t.Errorf("subscribers of no stream: %v", err)
	}
	for want, err := range map[string]error{
		"-1 idle streams; give 0 to":       MakeStreams(t.Context(), remote, -1, 0),
		"4097 idle connections; give 0 to": second(OpenIdle(t.Context(), remote, 4097)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func second(_ *Idle, err error) error { return err }

func TestFootprint(t *testing.T) {
	b := startBroker(t, felix.Config{})
	m, err := FootprintOf(t.Context(), b.AdminAddr().String(), os.Getpid())
	if err != nil || m.HeapLive <= 0 || m.HeapInUse < m.HeapLive || m.Stacks <= 0 || m.RSS <= 0 {
		t.Errorf("%+v %v", m, err)
	}
	if m.Held() != m.HeapInUse+m.Stacks || m.Minus(m) != (Footprint{}) {
		t.Errorf("%+v: %d held, %+v", m, m.Held(), m.Minus(m))
	}
	m, err = parseFootprint("heap profile\n# HeapAlloc = 5\n# HeapInuse = 7\n# Stack = 3 / 4\n")
	if err != nil || m != (Footprint{HeapInUse: 7, HeapLive: 5, Stacks: 3}) {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := parseFootprint("\n# HeapAlloc = 5\n# Stack = 3 / 4\n"); err == nil || !strings.Contains(err.Error(), "HeapInuse") {
		t.Errorf("a profile without a line: %v", err)
	}
}
