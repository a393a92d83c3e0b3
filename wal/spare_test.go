package wal

import (
	"runtime"
	"testing"
	"time"
)

// TestSpareProcessor wants a processor to be spare when the process used less than all others since the last look, and looks to be far apart.
func TestSpareProcessor(t *testing.T) {
	others := time.Duration(runtime.GOMAXPROCS(0) - 1)
	begin := time.Unix(1_800_000_000, 0)
	var used time.Duration
	looks := 0
	s := spareProcessor{cpu: func() time.Duration { looks++; return used }}
	for i, step := range []struct {
		after time.Duration // the step before
		used  time.Duration // meanwhile
		want  bool
		looks int
	}{
		{0, time.Hour, false, 1}, // nothing to compare with
		{5 * time.Millisecond, 0, false, 1},
		{5 * time.Millisecond, 0, others > 0, 2},
		{9 * time.Millisecond, time.Second, others > 0, 2}, // the answer stands
		{time.Millisecond, 0, false, 3},
		{20 * time.Millisecond, others * 20 * time.Millisecond, false, 4},
		{20 * time.Millisecond, others*20*time.Millisecond - 1, others > 0, 5},
		{-time.Hour, 0, false, 6}, // a clock that was set back says nothing
		{time.Hour, time.Second, others > 0, 7},
	} {
		begin = begin.Add(step.after)
		used += step.used
		if got := s.look(begin); got != step.want || looks != step.looks {
			t.Errorf("step %d: %v after %d looks, want %v after %d", i, got, looks, step.want, step.looks)
		}
	}
	if before := processTime(); before <= 0 {
		t.Errorf("this process has used %v", before)
	}
}
