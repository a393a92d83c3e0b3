package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"felix/perf/load"
	"felix/perf/session"
)

// A fakeRunner makes runs up and notes them in order.
type fakeRunner struct {
	made []string // pair and side
	void func(made []string) bool
	fail func(made []string) error
}

func (f *fakeRunner) run(_ context.Context, _ options, p pair, peer bool) (*load.Report, error) {
	side, rate := "A", 200.0
	if peer {
		side, rate = "B", 100
	}
	f.made = append(f.made, p.Name+side)
	if f.fail != nil {
		if err := f.fail(f.made); err != nil {
			return nil, err
		}
	}
	r := &load.Report{Runs: []load.RunReport{{}}}
	figures := &r.Runs[0].Figures
	figures.AckedPerSec = rate
	if f.void != nil && f.void(f.made) {
		figures.Void, r.Runs[0].VoidReasons = true, []string{"a lie"}
	}
	r.Figures = *figures
	return r, nil
}

func fakeOptions(rounds int, names ...string) options {
	o := options{rounds: rounds}
	for _, name := range names {
		o.pairs = append(o.pairs, pair{Pair: session.Pair{Name: name, Figure: session.AckedPerSec}})
	}
	return o
}

// measure measures into one result, and returns it and its directory.
func (f *fakeRunner) measure(ctx context.Context, t *testing.T, o options, progress *strings.Builder) (*session.Peers, string, error) {
	k := &book{dir: t.TempDir(), result: &session.Peers{}}
	err := o.measure(ctx, []*book{k}, f.run, progress)
	return k.result, k.dir, err
}

// TestRounds wants A B of every pair in round 0, which is left out, then A B and B A by turns.
func TestRounds(t *testing.T) {
	f := &fakeRunner{}
	var progress strings.Builder
	result, dir, err := f.measure(t.Context(), t, fakeOptions(3, "x", "y"), &progress)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.made, " "); got != "xA xB yA yB xA xB yA yB xB xA yB yA xA xB yA yB" {
		t.Error(got)
	}
	for _, p := range result.Pairs {
		if ratio, ok := p.Ratio(); !ok || ratio != 2 || len(session.Counted(p.Felix)) != 3 || len(session.Counted(p.Peer)) != 3 || len(p.Peer.Runs) != 4 {
			t.Errorf("%s: ratio %v, %d and %d runs", p.Name, ratio, len(p.Felix.Runs), len(p.Peer.Runs))
		}
	}
	if len(result.Pairs) != 2 || result.Rounds != 3 || len(result.Notes) != 0 {
		t.Errorf("%+v", result)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, session.RawDir, "pair-*.json")); len(files) != len(f.made) {
		t.Errorf("raw reports: %v", files)
	}
	if !strings.Contains(progress.String(), "round 3 of 3, pair 2 of 2: y") {
		t.Error(progress.String())
	}
}

// TestVoidRuns wants void runs made again at once, but not for ever.
func TestVoidRuns(t *testing.T) {
	for _, test := range []struct {
		name     string
		void     func(made []string) bool
		want     string
		standing session.Standing
	}{
		{"one", func(made []string) bool { return len(made) == 4 }, "A B A B B B A", session.Ahead},
		{"all that count", func(made []string) bool { return len(made) > 2 }, "A B A A A A B B B B B A", session.FelixVoid},
	} {
		f := &fakeRunner{void: test.void}
		result, _, err := f.measure(t.Context(), t, fakeOptions(2, ""), new(strings.Builder))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.made, " "); got != test.want || result.Pairs[0].Standing() != test.standing {
			t.Errorf("%s: %s, %s", test.name, got, result.Pairs[0].Standing())
		}
	}
}

// TestGivenUp wants a run that fails to end its pair and no other, what the pair has to be kept in whole rounds, and everybody to be told.
func TestGivenUp(t *testing.T) {
	broken := errors.New("it did not start")
	for _, test := range []struct {
		at    int // the run that fails
		order string
		note  string
		runs  map[string]int // that count, of each side
	}{
		{2, "xA xB yA yB yA yB yB yA", "pair x was given up in round 0: nats: it did not start", map[string]int{"y": 2}},
		{5, "xA xB yA yB xA yA yB yB yA", "pair x was given up in round 1: felix: it did not start", map[string]int{"y": 2}},
		{10, "xA xB yA yB xA xB yA yB xB xA yB yA", "pair x was given up in round 2: felix: it did not start", map[string]int{"x": 1, "y": 2}},
		{12, "xA xB yA yB xA xB yA yB xB xA yB yA", "pair y was given up in round 2: felix: it did not start", map[string]int{"x": 2, "y": 1}},
	} {
		f := &fakeRunner{fail: func(made []string) error {
			if len(made) == test.at {
				return broken
			}
			return nil
		}}
		_, dir, err := f.measure(t.Context(), t, fakeOptions(2, "x", "y"), new(strings.Builder))
		if name := strings.Fields(test.note)[1]; err == nil || !strings.HasPrefix(err.Error(), "1 of 2 pairs were given up") || !strings.HasSuffix(err.Error(), ": "+name) {
			t.Errorf("run %d: %v", test.at, err)
		}
		if got := strings.Join(f.made, " "); got != test.order {
			t.Errorf("run %d: %s, want %s", test.at, got, test.order)
		}
		s, err := session.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]int{}
		for _, p := range s.Peers.Pairs {
			runs[p.Name] = len(session.Counted(p.Felix))
			if len(session.Counted(p.Peer)) != runs[p.Name] {
				t.Errorf("run %d: %s has more runs of one side", test.at, p.Name)
			}
		}
		if fmt.Sprint(runs) != fmt.Sprint(test.runs) || !slices.Equal(s.Peers.Notes, []string{test.note}) || !strings.Contains(s.Markdown(nil), test.note) {
			t.Errorf("run %d: %v %q", test.at, runs, s.Peers.Notes)
		}
	}

	f := &fakeRunner{fail: func([]string) error { return broken }}
	result, _, err := f.measure(t.Context(), t, fakeOptions(2, "x", "y"), new(strings.Builder))
	if err == nil || len(f.made) != 2 || len(result.Notes) != 2 || len(result.Pairs) != 0 {
		t.Errorf("all of them: %v %v %+v", err, f.made, result)
	}
}

// TestEnds wants the end of the context to end everything, and what counts to be kept.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeRunner{fail: func(made []string) error {
		if len(made) < 7 {
			return nil
		}
		cancel()
		return errors.New("interrupted")
	}}
	result, dir, err := f.measure(ctx, t, fakeOptions(2, "x", "y"), new(strings.Builder))
	if !errors.Is(err, context.Canceled) || len(f.made) != 7 || len(result.Notes) != 0 {
		t.Errorf("%v after %v, %q", err, f.made, result.Notes)
	}
	if s, err := session.Read(dir); err != nil || len(s.Peers.Pairs) != 1 || s.Peers.Rounds != 1 {
		t.Errorf("%+v %v", s.Peers, err)
	}
}

// TestTwice wants two results whose runs are made in turn, and a pair that is given up to be in the notes of both.
func TestTwice(t *testing.T) {
	f := &fakeRunner{fail: func(made []string) error {
		if len(made) == 11 { // in round 2, whose runs 9 and 10 are those of the first result
			return errors.New("it did not start")
		}
		return nil
	}}
	var books []*book
	for range 2 {
		books = append(books, &book{dir: t.TempDir(), result: &session.Peers{}})
	}
	err := fakeOptions(2, "x").measure(t.Context(), books, f.run, new(strings.Builder))
	if err == nil || len(f.made) != 11 {
		t.Errorf("%v: %v", f.made, err)
	}
	for i, k := range books {
		s, err := session.Read(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Peers.Rounds != 2-i || len(s.Peers.Notes) != 1 {
			t.Errorf("result %d: %d rounds, %q", i+1, s.Peers.Rounds, s.Peers.Notes)
		}
	}
}
