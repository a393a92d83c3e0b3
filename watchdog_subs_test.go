package felix

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"felix/netio"
)

// What the watchdog found is told in /ready for as long as it is so, and bounded.
func TestSubscriberWarnings(t *testing.T) {
	w := &subscriberWatch{}
	for i := range maxToldSubscribers + 5 {
		s := netio.StalledSubscriber{Peer: "127.0.0.1:1", State: "live", Depth: 3, New: i == 0}
		s.SubscriberID, s.Stream = uint64(i), "orders"
		w.stalled = append(w.stalled, s)
	}
	list := w.warnings()
	if len(list) != maxToldSubscribers+1 || !strings.Contains(list[0], "orders") || list[maxToldSubscribers] != "5 further subscribers do not move" {
		t.Errorf("%q", list)
	}
	w.stalled = nil
	if list := w.warnings(); len(list) != 0 || len((*subscriberWatch)(nil).warnings()) != 0 {
		t.Errorf("%q", list)
	}
}

// The looks of the watchdog go on beside those at the cores.
func TestWatchdogAlsoLooks(t *testing.T) {
	b, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	looked := make(chan struct{}, 1)
	w := startWatchdog(b.sight, b.log, func() {
		select {
		case looked <- struct{}{}:
		default:
		}
	})
	defer w.stop()
	select {
	case <-looked:
	case <-time.After(30 * time.Second):
		t.Fatal("no look in 30 s")
	}
}

func TestSubscriptionMetrics(t *testing.T) {
	b, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var text strings.Builder
	b.WriteMetrics(&text)
	for _, state := range []string{"joining", "live", "catching_up", "blocked", "blocked_by_peer", "ended"} {
		if line := fmt.Sprintf("felix_subscriptions_by_state{state=%q} 0\n", state); !strings.Contains(text.String(), line) {
			t.Errorf("no line %s", line)
		}
	}
	for _, line := range []string{"felix_sub_lag_records_max 0\n", "felix_sub_watchdog_stalls_total 0\n", "felix_sub_lagged_total 0\n"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no line %s", line)
		}
	}
}
