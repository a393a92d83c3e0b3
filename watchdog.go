package felix

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"felix/core"
)

// watchInterval is how far apart two looks at a core are. Work that has not moved between them is a stall.
const watchInterval = 2 * time.Second

// A watchdog looks for cores that have work and do not move. It only tells: a stalled loop is a fault of ours, and
// what it holds is best seen in a profile of the living process.
type watchdog struct {
	loops  []*core.Loop
	log    *slog.Logger
	quit   chan struct{}
	done   chan struct{}
	stalls atomic.Uint64 // times a core was found stalled

	mu      sync.Mutex
	stalled map[core.ID]bool // guarded by mu: found so at the last look
}

// startWatchdog begins to look after a group's loops.
func startWatchdog(group *core.Group, log *slog.Logger) *watchdog {
	w := &watchdog{
		loops: group.Loops(), log: log,
		quit: make(chan struct{}), done: make(chan struct{}),
		stalled: map[core.ID]bool{},
	}
	go w.run()
	return w
}

func (w *watchdog) run() {
	defer close(w.done)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	before := w.snapshot()
	for {
		select {
		case <-w.quit:
			return
		case <-ticker.C:
		}
		now := w.snapshot()
		w.compare(before, now)
		before = now
	}
}

func (w *watchdog) snapshot() []core.LoopStats {
	stats := make([]core.LoopStats, len(w.loops))
	for i, loop := range w.loops {
		stats[i] = loop.StatsOffCore()
	}
	return stats
}

// compare takes two looks at every core and notes those that are stalled, and those that are so no more.
func (w *watchdog) compare(before, now []core.LoopStats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range now {
		stalled := s.StalledSince(before[i])
		switch {
		case stalled && !w.stalled[s.ID]:
			w.stalls.Add(1)
			w.log.Error("a core has work and does not move; /debug/pprof/goroutine?debug=2 shows where it stands", "core", s.ID, "inbox", s.Inbox, "rings", s.Rings)
		case !stalled && w.stalled[s.ID]:
			w.log.Info("a stalled core moves again", "core", s.ID)
		}
		w.stalled[s.ID] = stalled
	}
}

// reasons says why the broker is not ready, as far as its cores go.
func (w *watchdog) reasons() (list []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, loop := range w.loops {
		if w.stalled[loop.ID()] {
			list = append(list, fmt.Sprintf("core %d has work and does not move", loop.ID()))
		}
	}
	return list
}

// stop ends the watchdog and waits for it. A nil watchdog is one that was never started.
func (w *watchdog) stop() {
	if w == nil {
		return
	}
	close(w.quit)
	<-w.done
}
