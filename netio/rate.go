package netio

import (
	"math"
	"sync/atomic"
	"time"
)

// A bucket is a token bucket, counted as time: taking from it moves the moment at which it is full again. Its users say what a token costs
// and how much may be missing. It may be used from any goroutine; goroutines may bring times in the wrong order. The zero value is full.
type bucket struct {
	full atomic.Int64 // when it is full again, on the group's clock in nanoseconds; in the past when it is
}

// missing returns for how long the bucket will not be full.
func (b *bucket) missing(now time.Duration) time.Duration {
	return max(time.Duration(b.full.Load())-now, 0)
}

// take takes cost out, of which what goes beyond most missing in all is forgiven. When more than limit is missing before, it takes nothing
// and returns how long that will be so.
func (b *bucket) take(now, cost, limit, most time.Duration) (wait time.Duration) {
	for {
		full := b.full.Load()
		missing := max(time.Duration(full)-now, 0)
		if missing > limit {
			return missing - limit
		}
		if b.full.CompareAndSwap(full, max(full, int64(now+min(missing+cost, most)))) {
			return 0
		}
	}
}

// noLimit is a limit of bucket.take that nothing is beyond.
const noLimit = time.Duration(math.MaxInt64)

// A requestRate bounds the requests of a connection that are no publishes: each makes the broker look something up, register
// or read, whatever it costs the client to ask.
type requestRate struct{ bucket bucket }

// requestBurst is how long a connection may save requests up, and so how many it may send at once: two seconds' worth.
const requestBurst = 2 * time.Second

// take takes a request out. When there is none it takes nothing and returns how long the next one takes to come.
func (r *requestRate) take(now time.Duration, perSecond int) (wait time.Duration) {
	step := time.Second / time.Duration(perSecond)
	return r.bucket.take(now, step, requestBurst-step, requestBurst)
}
