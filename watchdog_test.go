package felix

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"felix/core"
	"felix/netio"
	"felix/wal"
)

// lockedBuffer takes the lines of a logger from any goroutine.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestWatchdog(t *testing.T) {
	moving := func() sight {
		return sight{
			loops:  []core.LoopStats{{ID: 0, Passes: 1, Tasks: 1}, {ID: 1, Passes: 1, Tasks: 1}},
			queues: []netio.QueueStats{{Core: 0, Waiting: 3, Freed: 1}, {Core: 1}},
			lanes:  []LaneStats{{ID: 4}, {ID: 5, Stats: wal.Stats{Pending: 10, Batches: 1}}},
		}
	}
	later := moving() // all that has work has moved
	later.queues[0].Freed, later.lanes[1].Batches = 2, 2
	for _, tt := range []struct {
		name, text, end string
		serious         bool
		stuck           func(s *sight)
		stalls          func(w *watchdog) uint64
	}{
		{"core", "core 1 has work and does not move", "core 1 moves again", true,
			func(s *sight) { s.loops[1].Inbox, s.loops[1].Busy = 5, true }, func(w *watchdog) uint64 { return w.loopStalls.Load() }},
		{"queue", "3 publishes wait on core 0 and none of the 7 in work", "queue 0 moves again", false,
			func(s *sight) { s.queues[0].Freed, s.queues[0].InUse = 2, 7 }, func(w *watchdog) uint64 { return w.queueStalls.Load() }},
		{"lane", "lane 5 has records to write and its disk does not answer", "lane 5 moves again", true,
			func(s *sight) { s.lanes[1].Batches = 2 }, func(w *watchdog) uint64 { return w.laneStalls.Load() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &lockedBuffer{}
			w := &watchdog{log: log.logger(), stalled: map[string]stall{}}
			told := func(want int) {
				t.Helper()
				list, other := w.reasons(), w.warnings()
				if !tt.serious {
					list, other = other, list
				}
				if len(list) != want || want > 0 && !strings.HasPrefix(list[0], tt.text) || len(other) != 0 {
					t.Errorf("told %q and %q, want %d", list, other, want)
				}
			}
			w.compare(moving(), later)
			told(0)
			stuck, before := later, later
			stuck.loops, stuck.queues, stuck.lanes = slices.Clone(later.loops), slices.Clone(later.queues), slices.Clone(later.lanes)
			// What is not under test moves on.
			stuck.queues[0].Freed, stuck.lanes[1].Batches = 3, 3
			tt.stuck(&stuck)
			if tt.name == "core" {
				before = stuck
				before.queues, before.lanes = later.queues, later.lanes
			}
			w.compare(before, stuck)
			told(1)
			w.compare(before, stuck)
			told(1)
			w.compare(moving(), later)
			told(0)
			if n := tt.stalls(w); n != 1 {
				t.Errorf("%d stalls counted", n)
			}
			if text := log.String(); strings.Count(text, tt.text) != 1 || strings.Count(text, tt.end) != 1 {
				t.Errorf("log: %s", text)
			}
		})
	}
}

// TestWatchdogLooks has the real parts in the order that compare relies on.
func TestWatchdogLooks(t *testing.T) {
	b := mustStart(t, Config{Cores: 2})
	first, second := b.sight(), b.sight()
	if len(first.loops) != 2 || len(first.queues) != 2 || len(first.lanes) != len(b.lanes) {
		t.Fatalf("%+v", first)
	}
	for i := range first.loops {
		if first.loops[i].ID != second.loops[i].ID || first.queues[i].Core != second.queues[i].Core {
			t.Errorf("%+v, then %+v", first, second)
		}
	}
	w := &watchdog{log: b.log, stalled: map[string]stall{}}
	first.loops, second.loops = nil, nil // which are busy starting, as far as two looks at once can tell
	w.compare(first, second)
	if list := append(w.reasons(), w.warnings()...); len(list) != 0 {
		t.Errorf("an idle broker: %q", list)
	}
}
