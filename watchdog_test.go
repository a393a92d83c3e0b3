package felix

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"felix/core"
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
	b := mustStart(t, Config{Cores: 2})
	log := &lockedBuffer{}
	w := &watchdog{loops: b.group.Loops(), log: log.logger(), stalled: map[core.ID]bool{}}
	moving := []core.LoopStats{{ID: 0, Passes: 1, Tasks: 1}, {ID: 1, Passes: 1, Tasks: 1}}
	stuck := []core.LoopStats{{ID: 0, Passes: 1, Tasks: 1}, {ID: 1, Passes: 1, Tasks: 1, Inbox: 5, Busy: true}}
	w.compare(moving, moving)
	if got := w.reasons(); len(got) != 0 || w.stalls.Load() != 0 {
		t.Errorf("idle cores: %v", got)
	}
	w.compare(stuck, stuck)
	w.compare(stuck, stuck)
	if got := w.reasons(); len(got) != 1 || got[0] != "core 1 has work and does not move" || w.stalls.Load() != 1 {
		t.Errorf("a stuck core: %v, %d stalls", got, w.stalls.Load())
	}
	w.compare(stuck, moving)
	if got := w.reasons(); len(got) != 0 || w.stalls.Load() != 1 {
		t.Errorf("a core that moves again: %v", got)
	}
	if text := log.String(); strings.Count(text, "does not move") != 1 || strings.Count(text, "moves again") != 1 {
		t.Errorf("log: %s", text)
	}
}
