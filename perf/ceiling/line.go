package ceiling

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// lineLooks is how many trips are made between two looks at the clock, which takes about as long as a trip.
const lineLooks = 64

// Line measures how long a cache line takes from one CPU to another and back, in nanoseconds: the mean over d, with two threads that do
// nothing else. Where the CPUs are virtual it tells whether they share a cache now: 100 ns on one core complex of an EPYC and 450 ns on two.
// It is 0 on a single CPU.
func Line(ctx context.Context, d time.Duration) float64 {
	if min(runtime.GOMAXPROCS(0), runtime.NumCPU()) < 2 {
		return 0
	}
	var line struct {
		_    [128]byte
		ball atomic.Int64 // odd on its way there, even on its way back, negative at the end
		_    [128]byte
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for there := int64(1); ; there += 2 {
			for at := line.ball.Load(); at != there; at = line.ball.Load() {
				if at < 0 {
					return
				}
			}
			line.ball.Store(there + 1)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, trips := time.Now(), int64(0)
	for ctx.Err() == nil && time.Since(began) < d {
		for range lineLooks {
			line.ball.Store(2*trips + 1)
			trips++
			for line.ball.Load() != 2*trips {
			}
		}
	}
	took := time.Since(began)
	line.ball.Store(-1)
	<-done
	if trips == 0 {
		return 0
	}
	return float64(took.Nanoseconds()) / float64(trips)
}
