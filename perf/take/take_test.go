package take

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"felix/perf/load"
	"felix/perf/session"
)

// A fake makes runs up. Looks are what the cache line takes, one after the other; the last one stays.
type fake struct {
	looks []float64
	slept time.Duration
	void  map[int]bool // by number of the run
	kept  int
}

func (f *fake) cpus() *CPUs {
	return &CPUs{
		line: func(context.Context) float64 {
			ns := f.looks[0]
			if len(f.looks) > 1 {
				f.looks = f.looks[1:]
			}
			return ns
		},
		sleep: func(ctx context.Context, d time.Duration) error { f.slept += d; return ctx.Err() },
		left:  patience,
		least: 100,
	}
}

func (f *fake) once(context.Context) (*load.Report, error) {
	r := &load.Report{Runs: []load.RunReport{{}}}
	r.AckedPerSec = float64(f.kept)
	if f.void[f.kept] {
		r.Void, r.Runs[0].Void, r.Runs[0].VoidReasons = true, true, []string{"a lie"}
	}
	return r, nil
}

func (f *fake) keep(number int, _ *load.Report) error {
	if number != f.kept {
		return fmt.Errorf("run %d is kept as number %d", f.kept, number)
	}
	f.kept++
	return nil
}

// TestAgain wants runs made again while they are void or the CPUs were apart, each for its own number of times, and all of them kept.
func TestAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		looks   []float64 // before and after each run
		void    []int
		made    int
		counted int    // the number of the run that counts
		note    string // of it
		notes   string // of the session
	}{
		{"near", []float64{110, 120}, nil, 1, 0, "", "0 s were spent waiting while it took more than 3 times as long, 0 runs and probes were made again because it did when they ended, and 0 of 1 count"},
		{"void once", []float64{110}, []int{0}, 2, 1, "", "0 runs and probes were made again"},
		{"void for ever", []float64{110}, []int{0, 1, 2, 3}, 3, 2, "", "0 of 1 count"},
		{"waits", []float64{400, 400, 110, 110}, nil, 1, 0, "", "0 runs and probes were made again"},
		{"apart when it ends", []float64{110, 400, 110, 110}, nil, 2, 1, "", "1 runs and probes were made again"},
		{"apart twice", []float64{110, 400, 110, 400, 110, 110}, nil, 3, 2, "", "2 runs and probes were made again"},
		{"apart three times", []float64{110, 400, 110, 400, 110, 400}, nil, 3, 2, "took 400 ns, and 100 at best", "2 runs and probes were made again because it did when they ended, and 1 of 1 count"},
		{"void and apart", []float64{110, 400, 110, 400, 110, 110}, []int{0}, 3, 2, "", "1 runs and probes were made again"},
		{"no line", []float64{0}, nil, 1, 0, "", "0 of 1 count"},
	} {
		f := &fake{looks: test.looks, void: map[int]bool{}}
		for _, i := range test.void {
			f.void[i] = true
		}
		var progress strings.Builder
		m := Maker{MaxVoids: 2, CPUs: f.cpus(), Progress: &progress}
		var runs Runs
		if err := m.Run(t.Context(), &runs, "side ", session.AckedPerSec, f.once, f.keep); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if len(runs.Counted) != 1 || f.kept != test.made || runs.Counted[0].AckedPerSec != float64(test.counted) {
			t.Errorf("%s: run %v of %d counts", test.name, runs.Counted[0].AckedPerSec, f.kept)
		}
		run := runs.Counted[0].Runs[0]
		if got := strings.Join(run.Notes, "; "); (got == "") != (test.note == "") || !strings.Contains(got, test.note) {
			t.Errorf("%s: notes of the run %q", test.name, got)
		}
		if (run.LineNs == nil) != (test.looks[0] == 0) {
			t.Errorf("%s: the run does not say what the line took: %v", test.name, run.LineNs)
		}
		if got := strings.Join(m.CPUs.Notes(), "; "); !strings.Contains(got, test.notes) {
			t.Errorf("%s: %s", test.name, got)
		}
		if n := strings.Count(progress.String(), "once more"); n != test.made-1 {
			t.Errorf("%s: %s", test.name, progress.String())
		}
	}
}

// TestVoidsOfALoad wants the bound on void runs to hold over all that a session makes of a load.
func TestVoidsOfALoad(t *testing.T) {
	f := &fake{looks: []float64{100}, void: map[int]bool{0: true, 2: true, 4: true}}
	m := Maker{MaxVoids: 2, Progress: new(strings.Builder)}
	var runs Runs
	for range 3 {
		if err := m.Run(t.Context(), &runs, "", session.AckedPerSec, f.once, f.keep); err != nil {
			t.Fatal(err)
		}
	}
	if f.kept != 5 || len(runs.Counted) != 3 || !runs.Counted[2].Void || runs.Counted[0].Void || runs.Counted[1].Void {
		t.Errorf("%d runs, of which %d count", f.kept, len(runs.Counted))
	}
}

// TestProbe wants a probe made again while the CPUs were apart, and not when it fails.
func TestProbe(t *testing.T) {
	for _, test := range []struct {
		looks []float64
		fail  error
		made  int
	}{
		{[]float64{110}, nil, 1},
		{[]float64{110, 400, 110}, nil, 2},
		{[]float64{110, 400, 110, 400, 110, 400}, nil, 3},
		{[]float64{110, 400, 110}, errors.New("broken"), 1},
	} {
		f, made := &fake{looks: test.looks}, 0
		if err := f.cpus().Probe(t.Context(), func() error { made++; return test.fail }); err != test.fail || made != test.made {
			t.Errorf("%v: %d probes, %v", test.looks, made, err)
		}
	}
	made := 0
	if err := (*CPUs)(nil).Probe(t.Context(), func() error { made++; return nil }); err != nil || made != 1 {
		t.Errorf("where nobody looks: %d probes, %v", made, err)
	}
}

// TestPatience wants waits to be bounded, each and all together, and runs to be taken as they come after that.
func TestPatience(t *testing.T) {
	f := &fake{looks: []float64{400}}
	c := f.cpus()
	c.near(t.Context())
	if f.slept < maxWait-2*time.Second || f.slept > maxWait {
		t.Errorf("one wait slept %v", f.slept)
	}
	for range 1000 {
		c.near(t.Context())
	}
	if f.slept > patience {
		t.Errorf("all waits slept %v", f.slept)
	}
	m := Maker{MaxVoids: 2, CPUs: c, Progress: new(strings.Builder)}
	if err := m.Run(t.Context(), &Runs{}, "", session.AckedPerSec, f.once, f.keep); err != nil || f.kept != 1 {
		t.Errorf("%d runs, %v", f.kept, err)
	}

	// Where the line always takes long, that is as near as it gets.
	f = &fake{looks: []float64{400, 450, 410}}
	c = f.cpus()
	c.least = 0
	if c.near(t.Context()); f.slept != 0 || c.apart(450) {
		t.Errorf("waited %v for CPUs that are always far from each other", f.slept)
	}
}

// TestEnds wants errors handed on, that of the context before those that its end brought, and nothing counted then.
func TestEnds(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{looks: []float64{100}}
	m := Maker{CPUs: f.cpus(), Progress: new(strings.Builder)}
	var runs Runs
	fails := func(context.Context) (*load.Report, error) { return nil, broken }
	if err := m.Run(ctx, &runs, "", session.AckedPerSec, fails, f.keep); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := m.Run(ctx, &runs, "", session.AckedPerSec, f.once, func(int, *load.Report) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	cancel()
	if err := m.Run(ctx, &runs, "", session.AckedPerSec, fails, f.keep); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.looks = []float64{400}
	if m.CPUs.near(ctx); f.slept > pause {
		t.Errorf("waited %v after the end", f.slept)
	}
	if len(runs.Counted) != 0 {
		t.Errorf("%d runs count", len(runs.Counted))
	}
	if c := WatchCPUs(ctx, new(strings.Builder)); c != nil || c.near(ctx) != 0 || c.Notes() != nil || c.apart(1) {
		t.Error("after the end somebody looks on")
	}
}

// TestWatchCPUs looks at the real ones, where there are two.
func TestWatchCPUs(t *testing.T) {
	var progress strings.Builder
	c := WatchCPUs(t.Context(), &progress)
	if c == nil {
		t.Skip("a single CPU has no line to another")
	}
	if c.least <= 0 || c.apart(c.least) || !c.apart(4*c.least) || !strings.HasPrefix(progress.String(), "a cache line ") {
		t.Errorf("%v ns at best: %s", c.least, progress.String())
	}
}
