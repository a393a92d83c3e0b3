package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each of these tests; it is far beyond what a loaded machine needs.
const patience = 10 * time.Minute

// soak runs a load as the command would.
func soak(t *testing.T, load func(ctx context.Context, r *report) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := load(ctx, &report{out: logWriter{t}}); err != nil {
		t.Fatal(err)
	}
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// short is less for runs that have no time.
func short(n, less int) int {
	if testing.Short() {
		return less
	}
	return n
}

func TestJoinsInMemory(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return joins(ctx, r, joinOptions{n: short(1000, 100), workers: 4, history: 2000, seed: 1})
	})
}

func TestJoinsDurable(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return joins(ctx, r, joinOptions{n: short(1000, 100), workers: 4, history: 2000, seed: 2, durable: true})
	})
}

func TestStalledSubscribersInMemory(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return slow(ctx, r, slowOptions{subs: short(50, 10), stalled: short(10, 2), size: 64 << 10})
	})
}

func TestStalledSubscribersDurable(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return slow(ctx, r, slowOptions{subs: short(50, 10), stalled: short(10, 2), size: 64 << 10, durable: true})
	})
}

func TestFiveHundredSubscribersOfOneShard(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return fanout(ctx, r, fanoutOptions{subs: 500, clients: 5, records: short(2000, 200), size: 256})
	})
}

func TestChurn(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return churn(ctx, r, churnOptions{n: short(1000, 100), workers: 8, seed: 1})
	})
}

func TestMutatedFrames(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return mutate(ctx, r, mutateOptions{n: short(20_000, 4000), growth: 64 << 20, seed: 1})
	})
}

func TestOverload(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return overload(ctx, r, overloadOptions{publishers: 4, inFlight: 16, size: 1 << 10, times: 10, duration: time.Second, budget: 256 << 20, resident: 320 << 20})
	})
}

func TestTenants(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return tenants(ctx, r, tenantOptions{publishers: 8, size: 256, share: 0.5, duration: time.Second})
	})
}

func TestFloods(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return floods(ctx, r, floodOptions{firstPackets: 2000, handshakes: 100, duration: time.Second, seed: 1})
	})
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "name one of these"},
		{"jump", "name one of these"},
		{"joins now", `joins takes no argument "now"`},
		{"joins -n x", "invalid value"},
	} {
		var out strings.Builder
		if err := run(t.Context(), strings.Fields(tt.args), &out); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("soak %s: %v", tt.args, err)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"joins", "-n", "20", "-workers", "2"}, &out); err != nil || !strings.Contains(out.String(), "joins: ok") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestStallPairs(t *testing.T) {
	soak(t, func(ctx context.Context, r *report) error {
		return stall(ctx, r, stallOptions{healthy: 4, stalled: 2, pairs: 2, rate: 500, size: 1 << 10, duration: 200 * time.Millisecond})
	})
}
