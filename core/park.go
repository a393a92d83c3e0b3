package core

import (
	"math/bits"
	"runtime"
)

// main is the loop's goroutine. It owns the loop at first and whenever it gets the token.
func (l *Loop) main() {
	defer l.g.running.Done()
	if l.g.cfg.Pinned {
		// Never unlocked: the thread ends with the goroutine and its affinity with it.
		runtime.LockOSThread()
		cpu := l.g.cfg.CPUs[int(l.id)%len(l.g.cfg.CPUs)]
		if err := l.g.cfg.pin(cpu); err != nil {
			l.g.log.Error("core: pin failed; the core goes on unpinned", "core", l.id, "cpu", cpu, "err", err)
		}
	}
	for {
		if l.duty(0) {
			<-l.wake
		} else if l.stop.Load() {
			return
		}
	}
}

// duty runs passes as the owner of the loop. It returns true once the loop is parked and no longer owned,
// false when limit passes (0: no limit) are done or the loop is to stop; then the caller still owns it.
func (l *Loop) duty(limit int) (idle bool) {
	check := l.g.cfg.CheckOwner
	if check {
		l.owner.goid.Store(goroutineID())
	}
	for n := 0; limit == 0 || n < limit; n++ {
		if l.stop.Load() {
			break
		}
		l.pass()
		if l.more() || (limit == 0 && l.spin()) { // a poster does not spin for others
			continue
		}
		if !l.setAlarm() {
			continue // a deadline has come
		}
		if check {
			l.owner.goid.Store(0)
		}
		if l.park() {
			return true
		}
		if check {
			l.owner.goid.Store(goroutineID())
		}
	}
	if check {
		l.owner.goid.Store(0)
	}
	return false
}

// park gives the loop up if there is nothing to do. It returns false when something came meanwhile and
// the caller owns the loop again.
func (l *Loop) park() bool {
	blocked := l.blocked // from the Store on, what the owner owns is out of bounds
	l.state.Store(parked)
	// Look again. A producer makes its work visible and then looks at state; here it is the other way round, so
	// one of the two sees the other.
	if !l.visible(blocked) {
		return true
	}
	return !l.state.CompareAndSwap(parked, running)
}

// more reports, to the owner, whether another pass has something to do.
func (l *Loop) more() bool {
	if l.again || l.self.len() > 0 || (l.next < len(l.taken) && l.blocked == 0) {
		return true
	}
	if at, ok := l.timers.next(); ok && at <= l.now {
		return true
	}
	return l.visible(l.blocked)
}

// visible reports whether others have left something to do. It uses atomics only, so that a loop that has
// just been given up may call it. With blocked rings the inbox does not count, but room in them does.
func (l *Loop) visible(blocked uint64) bool {
	if l.woken.Load() || l.probe.Load() || l.stop.Load() {
		return true
	}
	if blocked == 0 && l.inbox.length.Load() > 0 {
		return true
	}
	for i := range l.in {
		if r := l.in[i].ring; r.tail.Load() != r.head.Load() {
			return true
		}
	}
	for ; blocked != 0; blocked &= blocked - 1 {
		if r := l.out[bits.TrailingZeros64(blocked)].ring; r.Len() < r.Cap() {
			return true
		}
	}
	return false
}

// spin looks for work for at most Config.Spin. It does not yield: a locked goroutine pays a trip through
// the kernel for Gosched, and a loop of Gosched starves the poller.
func (l *Loop) spin() bool {
	if l.g.cfg.Spin == 0 {
		return false
	}
	end := l.g.cfg.Now() + l.g.cfg.Spin
	if at, ok := l.timers.next(); ok {
		end = min(end, at)
	}
	for {
		for range spinLooks {
			if l.visible(l.blocked) {
				return true
			}
		}
		if l.g.cfg.Now() >= end {
			return false
		}
	}
}

// setAlarm sets the alarm for the next deadline; false when the deadline has come. An alarm that is set for
// an earlier time is left alone: its pass finds nothing and sets the right one, which is cheaper
// than moving it at each park.
func (l *Loop) setAlarm() bool {
	at, ok := l.timers.next()
	if !ok || (l.alarmAt != 0 && l.alarmAt <= at) {
		return true
	}
	wait := at - l.g.cfg.Now()
	if wait <= 0 {
		return false
	}
	l.alarmAt = at
	l.alarm.Reset(wait)
	return true
}

// signal gives the loop to somebody if nobody owns it: to the caller with baton, else to the loop's goroutine.
// Called after the work is visible. An owner that is running looks again before it parks.
func (l *Loop) signal(baton bool) {
	if l.state.Load() != parked || !l.state.CompareAndSwap(parked, running) {
		return
	}
	if baton {
		l.runBaton()
		return
	}
	l.stats.wakes.Add(1)
	l.wake <- struct{}{}
}

// runBaton owns the loop on a poster's goroutine until it is idle again or batonPasses are done.
func (l *Loop) runBaton() {
	l.stats.batons.Add(1)
	if l.duty(batonPasses) {
		return
	}
	l.stats.wakes.Add(1)
	l.wake <- struct{}{}
}
