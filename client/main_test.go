package client

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is a context for one step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}
