package core

import (
	"testing"
)

// What the watchdog sees: a task that does not end, and nothing of the kind in an idle or a working loop.
func TestStalledSince(t *testing.T) {
	g := startGroup(t, Config{Cores: 1})
	l := g.Loop(0)
	idle(t, l)
	first := l.StatsOffCore()
	if l.StatsOffCore().StalledSince(first) {
		t.Error("an idle loop counts as stalled")
	}
	do(t, l, func(*Loop) {})
	idle(t, l)
	second := l.StatsOffCore()
	if second.StalledSince(first) || second.Tasks != first.Tasks+1 || second.Passes <= first.Passes || second.LastProgress < first.LastProgress {
		t.Errorf("after one task: %+v, before %+v", second, first)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	post(t, l, func(*Loop) { close(entered); <-release })
	wait(t, entered, "the task")
	post(t, l, func(*Loop) {})
	third := l.StatsOffCore()
	if !l.StatsOffCore().StalledSince(third) || third.Inbox != 1 || !third.Busy {
		t.Errorf("a task that does not end is not seen: %+v", third)
	}
	close(release)
	idle(t, l)
	if l.StatsOffCore().StalledSince(third) {
		t.Error("still stalled")
	}
	// Work that waits while none runs, although passes are made.
	waiting := LoopStats{Passes: 5, Tasks: 7, Inbox: 1}
	later := waiting
	later.Passes = 9
	if !later.StalledSince(waiting) {
		t.Error("waiting work is not seen")
	}
}
