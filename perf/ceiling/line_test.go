package ceiling

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// A trip there and back takes a time that two CPUs can have, and the other thread ends with it.
func TestLine(t *testing.T) {
	ns := Line(t.Context(), 20*time.Millisecond)
	if min(runtime.GOMAXPROCS(0), runtime.NumCPU()) < 2 {
		if ns != 0 {
			t.Errorf("one CPU: %v ns", ns)
		}
		t.Skip("a trip between CPUs needs two")
	}
	if ns < 5 {
		t.Errorf("%v ns for a cache line to another CPU and back", ns)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ns := Line(ended, time.Hour); ns != 0 {
		t.Errorf("with a context that has ended: %v ns", ns)
	}
	t.Run("one processor", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		if ns := Line(t.Context(), time.Hour); ns != 0 {
			t.Errorf("%v ns", ns)
		}
	})
}
