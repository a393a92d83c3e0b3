package felix

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"felix/core"
	"felix/netio"
)

// watchInterval is how far apart two looks at a core are. Work that has not moved between them is a stall.
const watchInterval = 2 * time.Second

// A watchdog looks for cores, lanes and queues for slots that have work and do not move. It only tells: a stalled loop is a fault of ours,
// and what it holds is best seen in a profile of the living process; a lane waits for its disk; a queue for what the publishes in work
// wait for.
type watchdog struct {
	look func() sight
	also []func() // what else looks each time
	log  *slog.Logger
	quit chan struct{}
	done chan struct{}

	loopStalls, queueStalls, laneStalls atomic.Uint64 // times one was found stalled

	mu      sync.Mutex
	stalled map[string]stall // guarded by mu: by what it is, found so at the last look
}

// A sight is one look at what is watched, each list in an order that does not change.
type sight struct {
	loops  []core.LoopStats
	queues []netio.QueueStats
	lanes  []LaneStats
}

// A stall is what is told of something that does not move.
type stall struct {
	text    string
	serious bool // the broker is not ready while it lasts; otherwise it is a warning
}

// sight looks at everything.
func (b *Broker) sight() sight {
	s := sight{queues: b.server.Queues(), lanes: b.laneStats()}
	for _, loop := range b.group.Loops() {
		s.loops = append(s.loops, loop.StatsOffCore())
	}
	return s
}

// startWatchdog begins to look, and to call also each time.
func startWatchdog(look func() sight, log *slog.Logger, also ...func()) *watchdog {
	w := &watchdog{look: look, also: also, log: log, quit: make(chan struct{}), done: make(chan struct{}), stalled: map[string]stall{}}
	go w.run()
	return w
}

func (w *watchdog) run() {
	defer close(w.done)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	before := w.look()
	for {
		select {
		case <-w.quit:
			return
		case <-ticker.C:
		}
		now := w.look()
		w.compare(before, now)
		before = now
		for _, look := range w.also {
			look()
		}
	}
}

// compare takes two looks at everything and notes what is stalled, and what is so no more.
func (w *watchdog) compare(before, now sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range now.loops {
		w.note(fmt.Sprintf("core %d", s.ID), s.StalledSince(before.loops[i]), &w.loopStalls,
			stall{fmt.Sprintf("core %d has work and does not move", s.ID), true},
			"see", "/debug/pprof/goroutine?debug=2", "inbox", s.Inbox, "rings", s.Rings)
	}
	pending := int64(0)
	for i, s := range now.lanes {
		pending += s.Pending
		prev := before.lanes[i]
		w.note(fmt.Sprintf("lane %d", s.ID), s.Failed == nil && s.Pending > 0 && prev.Pending > 0 && s.Batches == prev.Batches && s.Groups == prev.Groups, &w.laneStalls,
			stall{fmt.Sprintf("lane %d has records to write and its disk does not answer", s.ID), true},
			"pending_bytes", s.Pending, "groups", s.Groups, "backend", s.Backend)
	}
	for i, s := range now.queues {
		// Not serious: a subscriber may hold publishes back for as long as it may.
		w.note(fmt.Sprintf("queue %d", s.Core), s.StalledSince(before.queues[i]), &w.queueStalls,
			stall{fmt.Sprintf("%d publishes wait on core %d and none of the %d in work has ended for %v: their shards wait for a disk or for a slow subscriber", s.Waiting, s.Core, s.InUse, watchInterval), false},
			"lanes_pending_bytes", pending)
	}
}

// note tells once that something stalls, and once that it does no more. The caller holds mu.
func (w *watchdog) note(what string, stalled bool, times *atomic.Uint64, s stall, args ...any) {
	_, was := w.stalled[what]
	switch {
	case stalled && !was:
		times.Add(1)
		w.log.Error(s.text, args...)
		w.stalled[what] = s
	case stalled:
		w.stalled[what] = s
	case was:
		w.log.Info(what+" moves again", args...)
		delete(w.stalled, what)
	}
}

// reasons says why the broker is not ready, and warnings what else does not move.
func (w *watchdog) reasons() (list []string)  { return w.texts(true) }
func (w *watchdog) warnings() (list []string) { return w.texts(false) }

func (w *watchdog) texts(serious bool) (list []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(w.stalled)) {
		if s := w.stalled[what]; s.serious == serious {
			list = append(list, s.text)
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
