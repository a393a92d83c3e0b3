package core

import (
	"sync/atomic"
	"time"
)

// counters are written by the owner of a loop (passes, tasks, progress) or by whoever signals it (wakes,
// batons), and read from anywhere.
type counters struct {
	passes, tasks atomic.Uint64
	progress      atomic.Int64 // start of the last pass that did something
	wakes, batons atomic.Uint64
}

// LoopStats is a snapshot of a loop's counters for metrics and for the watchdog.
type LoopStats struct {
	ID     ID
	Passes uint64 // begun
	Tasks  uint64 // run, counted at the end of a pass
	Wakes  uint64 // signals to the loop's goroutine
	Batons uint64 // times a poster ran the loop
	// LastProgress is the start of the last pass that ran, fired, did or sent anything, on the group's clock.
	LastProgress time.Duration
	Inbox        int  // tasks posted and not drained
	Rings        int  // tasks in the rings to this core
	Busy         bool // a pass runs, or its goroutine is about to run one
}

// StatsOffCore returns a snapshot. The fields are read one by one, not at one moment.
func (l *Loop) StatsOffCore() LoopStats {
	s := LoopStats{
		ID:           l.id,
		Passes:       l.stats.passes.Load(),
		Tasks:        l.stats.tasks.Load(),
		Wakes:        l.stats.wakes.Load(),
		Batons:       l.stats.batons.Load(),
		LastProgress: time.Duration(l.stats.progress.Load()),
		Inbox:        int(l.inbox.length.Load()),
		Busy:         l.state.Load() != parked,
	}
	for i := range l.in {
		s.Rings += l.in[i].ring.Len()
	}
	return s
}

// StalledSince reports whether work waited and nothing moved between prev and s, two snapshots of one loop
// that the caller took some time apart (the broker's watchdog: 2 s): a pass that does not end, a
// goroutine that does not get to run, or tasks that wait while none runs.
func (s LoopStats) StalledSince(prev LoopStats) bool {
	if s.Busy && prev.Busy && s.Passes == prev.Passes {
		return true
	}
	waits := s.Inbox+s.Rings > 0 && prev.Inbox+prev.Rings > 0
	return waits && s.Tasks == prev.Tasks
}
