package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
	"felix/perf/take"
)

// maxVoids is how many runs of a cell are made again because they are void, in the whole session.
const maxVoids = 2

// A book is one session of those that are made at the same time.
type book struct {
	dir     string
	taken   map[string]*take.Runs // by cell, an entry for each at most; the first run is of round 0, unless the session is brief
	session session.Session
}

// newBook is one with nothing in it yet.
func newBook(dir string) *book {
	return &book{dir: dir, taken: map[string]*take.Runs{}, session: session.Session{Cells: &session.Cells{}}}
}

// rounds are the numbers of the first round and the last. Nothing of round 0 counts; a brief session has round 1 alone.
func (b *bench) rounds() (first, last int) {
	if b.brief {
		return 1, 1
	}
	return 0, b.runs
}

// order is which cells of a turn run in a round, one after the other. A single cell runs once. Two run A B in round 0, and then the pairs
// of A B B A ... are spread over the rounds, as evenly as whole pairs can be.
func (b *bench) order(turn []cell, round int) []int {
	if len(turn) == 1 {
		return []int{0}
	}
	if round == 0 {
		return []int{0, 1}
	}
	_, rounds := b.rounds()
	pairs := rounds
	if !b.brief {
		pairs = max(pairs, turn[1].pairs)
	}
	var order []int
	for _, second := range stats.Interleave(pairs)[2*((round-1)*pairs/rounds) : 2*(round*pairs/rounds)] {
		i := 0
		if second {
			i = 1
		}
		order = append(order, i)
	}
	return order
}

// allRounds makes every run of every cell, and writes what there is after each round and when it fails.
func (b *bench) allRounds(ctx context.Context) error {
	first, last := b.rounds()
	for round := first; round <= last; round++ {
		if err := b.round(ctx, round); err != nil {
			b.collect(fmt.Sprintf("cut short in round %d of %d: %v", round, last, err))
			if slices.ContainsFunc(b.books, func(k *book) bool { return len(k.session.Cells.Cells) > 0 }) {
				err = errors.Join(err, b.write())
			}
			return err
		}
		note := ""
		if round < last {
			note = fmt.Sprintf("not whole: after round %d of %d", round, last)
		}
		b.collect(note)
		if err := b.write(); err != nil {
			return err
		}
	}
	return nil
}

// round takes a sample of the ceilings, but for round 0, and makes each turn's share of runs, for every book in turn.
func (b *bench) round(ctx context.Context, round int) error {
	_, last := b.rounds()
	text := fmt.Sprintf("round %d of %d", round, last)
	if round == 0 {
		text += ", which does not count"
	} else {
		fmt.Fprintf(b.progress, "%s: ceilings\n", text)
		for _, k := range stats.InTurn(b.books, round) {
			if err := b.sample(ctx, &k.session.Cells.Ceilings); err != nil {
				return err
			}
		}
	}
	all := turns(b.cells)
	for i, turn := range all {
		fmt.Fprintf(b.progress, "%s, cell %d of %d: %s\n", text, i+1, len(all), names(turn))
		for _, k := range stats.InTurn(b.books, round) {
			for _, j := range b.order(turn, round) {
				if err := b.take(ctx, k, turn[j]); err != nil {
					return fmt.Errorf("cell %s: %w", turn[j].Name, err)
				}
			}
		}
	}
	return nil
}

// names are those of cells that run together, for people.
func names(turn []cell) string {
	if len(turn) > 1 {
		return turn[0].Name + " and " + turn[1].Name + " in turn"
	}
	return turn[0].Name
}

// take makes a run of a cell for a book, again at once while it does not count and that may be.
func (b *bench) take(ctx context.Context, k *book, c cell) error {
	runs := k.taken[c.Name]
	if runs == nil {
		runs = &take.Runs{}
		k.taken[c.Name] = runs
	}
	maker := take.Maker{MaxVoids: maxVoids, CPUs: b.cpus, Progress: b.progress}
	if b.brief {
		maker.MaxVoids = 0
	}
	once := func(ctx context.Context) (*load.Report, error) { return b.once(ctx, c) }
	return maker.Run(ctx, runs, "", c.figure, once, func(number int, report *load.Report) error {
		return session.WriteJSON(filepath.Join(k.dir, session.RawDir, fmt.Sprintf("cell-%s-%d.json", c.Name, number)), report)
	})
}

// collect takes into every book the cells that have a run that counts, in the order of the tables, and what a reader should know: note, unless it
// is "", and what the CPUs did. Of two cells in turn whole pairs count.
func (b *bench) collect(note string) {
	first, _ := b.rounds()
	least := 2 - first // with the run of round 0
	for _, k := range b.books {
		cells := k.session.Cells
		cells.Cells, cells.Notes = nil, slices.Concat(b.notes, b.cpus.Notes())
		if note != "" {
			cells.Notes = append(cells.Notes, note)
		}
		for _, turn := range turns(b.cells) {
			runs := -1
			for _, c := range turn {
				n := 0
				if t := k.taken[c.Name]; t != nil {
					n = len(t.Counted)
				}
				if runs < 0 || n < runs {
					runs = n
				}
			}
			if runs < least {
				continue
			}
			for _, c := range turn {
				report := load.Join(k.taken[c.Name].Counted[:runs]...)
				cells.Cells = append(cells.Cells, session.Cell{Name: c.Name, Group: c.group, Figure: c.figure, Report: report, Against: c.against})
				cells.Machine.SocketBytes = max(cells.Machine.SocketBytes, report.Machine.SocketBytes)
			}
		}
		place := func(c session.Cell) int {
			return slices.IndexFunc(b.cells, func(o cell) bool { return o.Name == c.Name })
		}
		slices.SortStableFunc(cells.Cells, func(x, y session.Cell) int { return cmp.Compare(place(x), place(y)) })
	}
}
