package felix

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// clockSlew bounds how fast the broker's time follows the system's clock: it gains or loses at most one part in so many.
const clockSlew = 10

const (
	clockInterval = time.Second // how often the two are compared
	clockNotice   = time.Minute // a difference from which on it is said
)

// A brokerClock is the time that records are stamped with and that their age is measured by. It starts as the system's clock
// and passes as real time does, so that a step of the system's clock neither expires what is young nor keeps what is old; it
// follows a step slowly. A machine that was asleep is such a step, too. Any goroutine may ask it.
type brokerClock struct {
	wall    func() time.Time
	elapsed func() time.Duration // real time since the broker started; never goes back
	log     *slog.Logger
	started time.Time // of wall, without a monotonic reading

	offset   atomic.Int64 // nanoseconds that it has followed by
	compared atomic.Int64 // elapsed nanoseconds at the last comparison
	apart    atomic.Bool  // a difference was said
}

func newBrokerClock(wall func() time.Time, elapsed func() time.Duration, log *slog.Logger) *brokerClock {
	return &brokerClock{wall: wall, elapsed: elapsed, log: log, started: wall().Round(0)}
}

// now is the broker's time.
func (c *brokerClock) now() time.Time {
	elapsed := c.elapsed()
	if last := c.compared.Load(); int64(elapsed)-last >= int64(clockInterval) && c.compared.CompareAndSwap(last, int64(elapsed)) {
		c.follow(elapsed, elapsed-time.Duration(last))
	}
	return c.started.Add(elapsed + time.Duration(c.offset.Load()))
}

// follow brings the broker's time nearer to the system's, after the given time since it last did.
func (c *brokerClock) follow(elapsed, passed time.Duration) {
	most := passed / clockSlew
	difference := c.wall().Round(0).Sub(c.started.Add(elapsed + time.Duration(c.offset.Load())))
	c.offset.Add(int64(min(max(difference, -most), most)))
	if apart := difference.Abs() >= clockNotice; c.apart.Swap(apart) != apart && apart {
		direction := "ahead of"
		if difference < 0 {
			direction = "behind"
		}
		c.log.Warn(fmt.Sprintf("the system's clock is %v %s the broker's time, which follows by at most 1 s in %d s so that nothing expires early; restart the broker to take the system's time at once",
			difference.Abs().Round(time.Second), direction, clockSlew))
	}
}
