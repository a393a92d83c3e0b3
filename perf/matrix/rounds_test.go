package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"felix/perf/load"
	"felix/perf/session"
)

// A fakeBench is a bench whose runs and ceilings are made up, and noted in order.
type fakeBench struct {
	bench
	*book             // the first
	made     []string // names of cells, and "ceilings"
	progress strings.Builder
	void     func(made []string) bool
	fail     func(made []string) error
}

// newFake makes one for cells of these names, in this order, of which each may say what it runs against and in how many pairs.
func newFake(t *testing.T, runs int, of ...cell) *fakeBench {
	f := &fakeBench{void: func([]string) bool { return false }, fail: func([]string) error { return nil }}
	f.runs, f.cells = runs, of
	f.book = newBook(t.TempDir())
	f.books = []*book{f.book}
	f.bench.progress = &f.progress
	f.sample = func(_ context.Context, c *session.Ceilings) error {
		f.made = append(f.made, "ceilings")
		c.LoopPerSec = append(c.LoopPerSec, float64(len(f.made)))
		return nil
	}
	f.once = func(_ context.Context, c cell) (*load.Report, error) {
		f.made = append(f.made, c.Name)
		if err := f.fail(f.made); err != nil {
			return nil, err
		}
		r := &load.Report{Runs: []load.RunReport{{}}}
		r.Runs[0].AckedPerSec = float64(len(f.made))
		if f.void(f.made) {
			r.Void, r.Runs[0].Void, r.Runs[0].VoidReasons = true, true, []string{"a lie"}
		}
		return r, nil
	}
	return f
}

func named(name, against string, pairs int) cell {
	return cell{Cell: load.Cell{Name: name}, group: "group", figure: session.AckedPerSec, against: against, pairs: pairs}
}

// counted are the runs of a cell of a session that count, by when they were made.
func counted(s *session.Cells, name string) (rates []float64) {
	for _, c := range s.Cells {
		if c.Name == name {
			for _, r := range session.Counted(c.Report) {
				rates = append(rates, r.AckedPerSec)
			}
		}
	}
	return rates
}

// TestRounds wants a run of every cell in each round, after a sample of the ceilings, pairs spread over the rounds, and nothing of round 0 counted.
func TestRounds(t *testing.T) {
	x, a, b := named("x", "", 0), named("A", "", 0), named("B", "A", 0)
	ten, three := b, b
	ten.pairs, three.pairs = 4, 3
	for _, test := range []struct {
		name  string
		cells []cell
		brief bool
		want  string
	}{
		{"as many pairs as rounds", []cell{x, a, b}, false, "x A B|ceilings x A B|ceilings x B A"},
		{"two pairs in a round", []cell{x, a, ten}, false, "x A B|ceilings x A B B A|ceilings x A B B A"},
		{"pairs that do not divide", []cell{a, three, x}, false, "A B x|ceilings A B x|ceilings B A A B x"},
		{"without the other", []cell{b, x}, false, "B x|ceilings B x|ceilings B x"},
		{"brief", []cell{x, a, ten}, true, "ceilings x A B"},
	} {
		f := newFake(t, 2, test.cells...)
		f.brief = test.brief
		if err := f.allRounds(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(f.made, " "), strings.ReplaceAll(test.want, "|", " "); got != want {
			t.Errorf("%s: %s, want %s", test.name, got, want)
		}
		// Runs are numbered by when they were made: those of round 0 are the first.
		zero := 0
		if !test.brief {
			zero = strings.Count(strings.Split(test.want, "|")[0], " ") + 1
		}
		var names []string
		for _, c := range f.session.Cells.Cells {
			names = append(names, c.Name)
			rates := counted(f.session.Cells, c.Name)
			if want := strings.Count(test.want, c.Name) - min(zero, 1); len(rates) != want || slices.Min(rates) <= float64(zero) {
				t.Errorf("%s: %s counts runs %v, want %d", test.name, c.Name, rates, want)
			}
		}
		if len(names) != len(test.cells) || names[0] != test.cells[0].Name {
			t.Errorf("%s: cells %v", test.name, names)
		}
		if n := len(f.session.Cells.Ceilings.LoopPerSec); n != strings.Count(test.want, "ceilings") {
			t.Errorf("%s: %d samples of the ceilings", test.name, n)
		}
		if !test.brief && !strings.Contains(f.progress.String(), fmt.Sprintf("round 2 of 2, cell 2 of %d: ", len(turns(f.cells)))) {
			t.Errorf("%s: %s", test.name, f.progress.String())
		}
		if _, runs := f.estimate(); runs != len(f.made)-len(f.session.Cells.Ceilings.LoopPerSec) {
			t.Errorf("%s: %d runs are estimated", test.name, runs)
		}
		if files, _ := filepath.Glob(filepath.Join(f.dir, session.RawDir, "cell-*-*.json")); len(files) != len(f.made)-len(f.session.Cells.Ceilings.LoopPerSec) {
			t.Errorf("%s: raw reports %v", test.name, files)
		}
	}
}

// TestVoidRuns wants void runs made again at once, but not for ever, and round 0 to be among those that are.
func TestVoidRuns(t *testing.T) {
	x, y := named("x", "", 0), named("y", "", 0)
	last := func(made []string, name string) bool { return made[len(made)-1] == name }
	for _, test := range []struct {
		name string
		void func(made []string) bool
		want string
		why  string // that x is void
	}{
		{"one", func(made []string) bool { return len(made) == 4 }, "x y ceilings x x y ceilings x y", ""},
		{"in round 0", func(made []string) bool { return len(made) == 1 }, "x x y ceilings x y ceilings x y", ""},
		{"for ever", func(made []string) bool { return last(made, "x") }, "x x x y ceilings x y ceilings x y", "a lie"},
		{"in two rounds", func(made []string) bool { return len(made) == 4 || len(made) == 8 || len(made) == 9 }, "x y ceilings x x y ceilings x x y", "a lie"},
	} {
		f := newFake(t, 2, x, y)
		f.void = test.void
		if err := f.allRounds(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.made, " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if why := session.Void(f.session.Cells.Cells[0].Report); why != test.why {
			t.Errorf("%s: x is void because of %q", test.name, why)
		}
		if n := len(counted(f.session.Cells, "x")); n != 2 {
			t.Errorf("%s: %d runs of x count", test.name, n)
		}
		if files, _ := filepath.Glob(filepath.Join(f.dir, session.RawDir, "cell-x-*.json")); len(files) != strings.Count(test.want, "x") {
			t.Errorf("%s: raw reports of x: %v", test.name, files)
		}
	}
	f := newFake(t, 2, x)
	f.brief, f.void = true, func([]string) bool { return true }
	if err := f.allRounds(t.Context()); err != nil || len(f.made) != 2 {
		t.Errorf("brief: %v %v", f.made, err)
	}
}

// TestCutShort wants whatever counts to be in the results directory when a session ends early: whole pairs, and cells that have a run.
func TestCutShort(t *testing.T) {
	x, a, b := named("x", "", 0), named("A", "", 0), named("B", "A", 4)
	broken := errors.New("broken")
	for _, test := range []struct {
		at   int                // the run, with samples of the ceilings, that fails
		want map[string]float64 // runs that count
	}{
		{2, nil}, // in round 0
		{5, nil}, // the first that would count
		{6, map[string]float64{"x": 1}},
		{7, map[string]float64{"x": 1}}, // half a pair
		{8, map[string]float64{"x": 1, "A": 1, "B": 1}}, // ceilings are 4, pairs A B B A
		{9, map[string]float64{"x": 1, "A": 1, "B": 1}},
		{11, map[string]float64{"x": 1, "A": 2, "B": 2}},
	} {
		f := newFake(t, 2, x, a, b)
		f.fail = func(made []string) error {
			if len(made) == test.at {
				return broken
			}
			return nil
		}
		if err := f.allRounds(t.Context()); !errors.Is(err, broken) {
			t.Fatalf("run %d: %v", test.at, err)
		}
		s, err := session.Read(f.dir)
		if len(test.want) == 0 {
			if err == nil && len(s.Cells.Cells) > 0 {
				t.Errorf("run %d: %+v", test.at, s.Cells.Cells)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, c := range s.Cells.Cells {
			got[c.Name] = float64(len(session.Counted(c.Report)))
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("run %d: %v, want %v", test.at, got, test.want)
		}
		if text := s.Markdown(nil); !strings.Contains(text, "cut short in round ") || !strings.Contains(text, "broken") {
			t.Errorf("run %d: the report does not say that it was cut short", test.at)
		}
	}

	// Nobody gets to write when the process is killed: what the last round left is there.
	f := newFake(t, 3, x)
	f.fail = func(made []string) error {
		if len(made) < 6 { // x, ceilings, x, ceilings, x; then round 3
			return nil
		}
		s, err := session.Read(f.dir)
		if err != nil || len(session.Counted(s.Cells.Cells[0].Report)) != 2 || !slices.Contains(s.Cells.Notes, "not whole: after round 2 of 3") {
			t.Errorf("in round 3: %+v %v", s.Cells, err)
		}
		return nil
	}
	if err := f.allRounds(t.Context()); err != nil || len(f.made) != 7 || len(f.session.Cells.Notes) != 0 {
		t.Errorf("%v %v %v", f.made, f.session.Cells.Notes, err)
	}

	f = newFake(t, 2, x)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.allRounds(ctx); !errors.Is(err, context.Canceled) || len(f.made) != 1 {
		t.Errorf("went on after the end of the context: %v %v", f.made, err)
	}
}

// TestTwice wants two sessions whose runs are made in turn, each with its own ceilings, raw reports and cells.
func TestTwice(t *testing.T) {
	x, a, b := named("x", "", 0), named("A", "", 0), named("B", "A", 0)
	f := newFake(t, 2, x, a, b)
	f.twice = true
	second := newBook(t.TempDir())
	f.books = append(f.books, second)
	if err := f.allRounds(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.made, " "); got != "x x A B A B ceilings ceilings x x A B A B ceilings ceilings x x B A B A" {
		t.Error(got)
	}
	for i, want := range []map[string]string{
		{"x": "[10 17]", "A": "[13 20]", "ceilings": "[8 15]"}, // second in round 1, first in round 2
		{"x": "[9 18]", "A": "[11 22]", "ceilings": "[7 16]"},
	} {
		k := f.books[i]
		s, err := session.Read(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{"x": fmt.Sprint(counted(s.Cells, "x")), "A": fmt.Sprint(counted(s.Cells, "A")), "ceilings": fmt.Sprint(s.Cells.Ceilings.LoopPerSec)}
		if !maps.Equal(got, want) {
			t.Errorf("session %d: %v, want %v", i+1, got, want)
		}
		if files, _ := filepath.Glob(filepath.Join(k.dir, session.RawDir, "cell-*.json")); len(files) != 9 {
			t.Errorf("session %d: raw reports %v", i+1, files)
		}
	}
	if _, runs := f.estimate(); runs != len(f.made)-4 {
		t.Errorf("%d runs are estimated", runs)
	}

	// What there is when they are cut short is there in both: one run of x that counts, and of the second session another.
	f = newFake(t, 2, x)
	second = newBook(t.TempDir())
	f.books = append(f.books, second)
	broken := errors.New("broken")
	f.fail = func(made []string) error {
		if len(made) == 10 { // x x, ceilings ceilings x x, ceilings ceilings x, x
			return broken
		}
		return nil
	}
	if err := f.allRounds(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("%v: %v", f.made, err)
	}
	for i, k := range f.books {
		s, err := session.Read(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(counted(s.Cells, "x")); n != 2-i || !strings.Contains(s.Markdown(nil), "cut short in round 2") {
			t.Errorf("session %d has %d runs that count and the notes %q", i+1, n, s.Cells.Notes)
		}
	}
}

// TestPeersGivenUp wants what perf/peers left before it failed to be part of the session, and nothing that an older one left.
func TestPeersGivenUp(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left.json")
	peers := sample().Peers
	peers.Notes = []string{"pair x was given up in round 3: it did not start"}
	if err := session.WriteJSON(left, peers); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		script string // -o DIR -second DIR are the last arguments
		pairs  int
		want   string
	}{
		{"shift 7; cp '" + left + "' \"$2\"/peers.json; cp '" + left + "' \"$4\"/peers.json; exit 1", 3, "pair x was given up in round 3"},
		{"shift 7; cp '" + left + "' \"$2\"/peers.json; cp '" + left + "' \"$4\"/peers.json", 3, ""},
		{"exit 1", 0, "perf/peers: exit status 1"},
	} {
		f := newFake(t, 5)
		f.books = append(f.books, newBook(t.TempDir()))
		f.root = filepath.Join("..", "..")
		f.peersProgram = filepath.Join(t.TempDir(), "peers")
		if err := os.WriteFile(f.peersProgram, []byte("#!/bin/sh\n"+test.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, k := range f.books {
			if err := errors.Join(f.write(), session.WriteJSON(filepath.Join(k.dir, session.PeersFile), &session.Peers{})); err != nil {
				t.Fatal(err)
			}
		}
		err := f.runPeers(t.Context())
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.script, err, test.want)
		}
		for i, k := range f.books {
			if got := k.session.Peers; (got == nil) != (test.pairs == 0) || got != nil && len(got.Pairs) != test.pairs {
				t.Errorf("%s, session %d: %+v", test.script, i+1, got)
			}
		}
	}
}

// TestTurns wants every cell once, pairs together, and the readers that stall in as many pairs as their target asks for.
func TestTurns(t *testing.T) {
	b := &bench{options: options{runs: 5, cells: cells()}}
	seen := map[string]bool{}
	for _, turn := range turns(b.cells) {
		first, last := b.rounds()
		for i, c := range turn {
			if seen[c.Name] {
				t.Errorf("%s runs twice", c.Name)
			}
			seen[c.Name] = true
			runs := 0
			for round := first; round <= last; round++ {
				for _, j := range b.order(turn, round) {
					if i == j {
						runs++
					}
				}
			}
			if want := 1 + max(b.runs, turn[len(turn)-1].pairs); runs != want {
				t.Errorf("%s has %d runs, want %d", c.Name, runs, want)
			}
			if c.against != "" && (i != 1 || turn[0].Name != c.against) {
				t.Errorf("%s does not run in turn with %s", c.Name, c.against)
			}
			if c.pairs > 0 {
				for round := 1; round <= last; round++ {
					if got := b.order(turn, round); !slices.Equal(got, []int{0, 1, 1, 0}) {
						t.Errorf("%s in round %d: %v", c.Name, round, got)
					}
				}
			}
		}
	}
	if len(seen) != len(b.cells) {
		t.Errorf("%d of %d cells run", len(seen), len(b.cells))
	}
	alone := turns(slices.DeleteFunc(cells(), func(c cell) bool { return !c.jumbo }))
	if len(alone) != 3 || len(alone[0]) != 1 {
		t.Errorf("cells whose others are left out: %v", alone)
	}
}
