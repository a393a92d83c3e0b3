package netio

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// A Quota bounds what a tenant publishes to this broker, with and without ack. Zero fields bound nothing.
type Quota struct {
	BytesPerSec int64 // of the bodies of publish frames
	MsgsPerSec  int64 // records
}

// MaxQuota is the most a field of a Quota can be.
const MaxQuota = 1 << 40

func (q Quota) validate() error {
	if q.BytesPerSec < 0 || q.BytesPerSec > MaxQuota || q.MsgsPerSec < 0 || q.MsgsPerSec > MaxQuota {
		return fmt.Errorf("%d bytes and %d records per second; give numbers from 0 (no bound) to %d", q.BytesPerSec, q.MsgsPerSec, int64(MaxQuota))
	}
	return nil
}

// QuotaConfig is the quotas that a server starts with.
type QuotaConfig struct {
	// Default holds for tenants that are not in Tenants. The zero value bounds nothing.
	Default Quota
	// Tenants are the quotas of single tenants. A zero Quota there frees a tenant from Default.
	Tenants map[string]Quota
	// Burst is how much of a rate a tenant that was quiet may use at once, as the time in which the rate brings it: 1 s by
	// default, 1 ms to 1 h.
	Burst time.Duration
}

// maxOverdraft is how much of a rate a batch that is larger than the burst can use ahead of time.
const maxOverdraft = 5 * time.Second

// A rate is a bucket into which perSecond flow. It lets a batch through while it is not empty,
// whatever the size of the batch, which so goes through with an overdraft of at most maxOverdraft.
type rate struct {
	perSecond int64 // 0 bounds nothing
	bucket    bucket
}

// empty returns for how long the bucket lets nothing through; 0 or less when it does.
func (r *rate) empty(now, burst time.Duration) time.Duration {
	if r.perSecond == 0 {
		return 0
	}
	return r.bucket.missing(now) - (burst - 1)
}

// take takes n out, unless the bucket is empty and force is not set. Otherwise it returns for how long it will be.
func (r *rate) take(now, burst time.Duration, n int64, force bool) (empty time.Duration) {
	if r.perSecond == 0 {
		return 0
	}
	cost := burst + maxOverdraft
	if float64(n)/float64(r.perSecond) < cost.Seconds() {
		cost = time.Duration(float64(n) / float64(r.perSecond) * float64(time.Second))
	}
	limit := burst - 1
	if force {
		limit = noLimit
	}
	return r.bucket.take(now, cost, limit, burst+maxOverdraft)
}

// A quota is the buckets of a tenant, shared by its streams on all cores. Taking from them is an atomic each. Readers that wait for
// them stand in a queue, so that as many go on as there is room for.
type quota struct {
	limit       Quota
	burst       time.Duration
	now         func() time.Duration // the clock of the loops, for any goroutine
	bytes, msgs rate
	waiting     atomic.Int32 // length of queue; never counts one whose granted is closed

	mu      sync.Mutex
	queue   []*quotaWaiter // guarded by mu; oldest first
	timer   *time.Timer    // guarded by mu; nil before the first wait
	retired bool           // guarded by mu: another one is in force, nobody waits any more
}

type quotaWaiter struct {
	bytes   int64
	granted chan struct{} // closed when they have been taken
}

// newQuota returns full buckets, or nil when limit bounds nothing.
func newQuota(limit Quota, burst time.Duration, now func() time.Duration) *quota {
	if limit == (Quota{}) {
		return nil
	}
	q := &quota{limit: limit, burst: burst, now: now}
	q.bytes.perSecond, q.msgs.perSecond = limit.BytesPerSec, limit.MsgsPerSec
	return q
}

// try takes a batch out of both buckets, or nothing; then it returns for how long one of them lets nothing through.
func (q *quota) try(bytes, msgs int64) (empty time.Duration) {
	now := q.now()
	if empty := q.msgs.empty(now, q.burst); empty > 0 {
		return empty
	}
	if empty := q.bytes.take(now, q.burst, bytes, false); empty > 0 {
		return empty
	}
	q.msgs.take(now, q.burst, msgs, true) // another core may have been faster: an overdraft
	return 0
}

// overdraw takes what has to be taken, for what is let through already.
func (q *quota) overdraw(bytes, msgs int64) {
	now := q.now()
	q.bytes.take(now, q.burst, bytes, true)
	q.msgs.take(now, q.burst, msgs, true)
}

// roomy reports whether a full read of a stream, of many small publishes, is well within what is left.
func (q *quota) roomy() bool {
	now := q.now()
	left := func(r *rate, n int64) bool {
		return r.perSecond == 0 || r.bucket.missing(now) <= q.burst/2 && q.burst.Seconds()/2*float64(r.perSecond) >= float64(n)
	}
	return left(&q.bytes, 2*maxReadChunkBytes) && left(&q.msgs, 2*maxReadChunkBytes/16)
}

// wait takes bytes and one record when there is room, in order of arrival. It ends early, with nothing taken, when ctx does, with its
// error, or when stop is closed, without.
func (q *quota) wait(ctx context.Context, stop <-chan struct{}, bytes int64) (waited bool, err error) {
	if q.waiting.Load() == 0 && q.try(bytes, 1) <= 0 {
		return false, nil
	}
	w := &quotaWaiter{bytes: bytes, granted: make(chan struct{})}
	q.mu.Lock()
	if q.retired {
		q.mu.Unlock()
		return false, nil
	}
	q.queue = append(q.queue, w)
	q.serve()
	q.mu.Unlock()
	select {
	case <-w.granted:
		return true, nil
	case <-stop:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.queue {
		if q.queue[i] == w {
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			break
		}
	}
	q.serve()
	return true, err
}

// serve lets those at the front through as far as there is room, and looks again when there will be some. The caller holds mu.
func (q *quota) serve() {
	for len(q.queue) > 0 {
		if empty := q.try(q.queue[0].bytes, 1); empty > 0 {
			if q.timer == nil {
				q.timer = time.AfterFunc(empty, q.onTimer)
			} else {
				q.timer.Reset(empty)
			}
			break
		}
		w := q.queue[0]
		q.queue[0] = nil
		q.queue = q.queue[1:]
		q.waiting.Store(int32(len(q.queue))) // first, so that it does not find itself in the queue when it comes back
		close(w.granted)
	}
	if len(q.queue) == 0 {
		q.queue = nil
		if q.timer != nil {
			q.timer.Stop()
		}
	}
	q.waiting.Store(int32(len(q.queue)))
}

func (q *quota) onTimer() {
	q.mu.Lock()
	q.serve()
	q.mu.Unlock()
}

// retire lets everybody through who waits: another quota is in force.
func (q *quota) retire() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retired = true
	queue := q.queue
	q.queue = nil
	q.serve()
	for _, w := range queue {
		close(w.granted)
	}
}

// overQuota is the refusal of an acked publish.
func overQuota(q *quota, empty time.Duration) *refusal {
	return &refusal{
		code:    wire.CodeOverloaded,
		message: fmt.Sprintf("tenant quota of %d bytes and %d records per second (0: no bound) is used up; nothing was kept, try again later", q.limit.BytesPerSec, q.limit.MsgsPerSec),
		reason:  wire.ReasonTenantQuota,
		// Rounded up, so that whoever waits that long does not come too early.
		retryAfterMillis: uint64((empty + time.Millisecond - 1) / time.Millisecond),
	}
}
