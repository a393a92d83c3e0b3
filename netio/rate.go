package netio

import (
	"sync/atomic"
	"time"
)

// A requestRate is a token bucket for the requests of a connection that are no publishes: each makes the broker look something up, register
// or read, whatever it costs the client to ask. It holds the tokens of requestBurst. The zero value is full.
type requestRate struct {
	// full is when the bucket is full again, on the group's clock in nanoseconds. A request moves it by what one token takes to come back.
	full atomic.Int64
}

// requestBurst is how long a connection may save requests up, and so how many it may send at once: two seconds' worth.
const requestBurst = 2 * time.Second

// take takes a token. When there is none it takes nothing and returns how long the next one takes to come.
func (r *requestRate) take(now time.Duration, perSecond int) (wait time.Duration) {
	step := int64(time.Second) / int64(perSecond)
	for {
		full := r.full.Load()
		next := max(full, int64(now)) + step
		if wait := next - int64(now) - int64(requestBurst); wait > 0 {
			return time.Duration(wait)
		}
		if r.full.CompareAndSwap(full, next) {
			return 0
		}
	}
}
