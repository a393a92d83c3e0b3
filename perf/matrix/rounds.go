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
)

// maxVoids is how many runs of a cell are made again because they are void, in the whole session.
const maxVoids = 2

// taken is what a session has of a cell so far.
type taken struct {
	reports []*load.Report // the first is of round 0, unless the session is brief
	voids   int            // runs that were made again
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
	b.taken = map[string]*taken{}
	cells := b.session.Cells
	notes := slices.Clip(cells.Notes)
	first, last := b.rounds()
	for round := first; round <= last; round++ {
		if err := b.round(ctx, round); err != nil {
			cells.Notes = append(notes, fmt.Sprintf("cut short in round %d of %d: %v", round, last, err))
			if b.collect(); len(cells.Cells) > 0 {
				err = errors.Join(err, b.write())
			}
			return err
		}
		cells.Notes = notes
		if round < last {
			cells.Notes = append(notes, fmt.Sprintf("not whole: after round %d of %d", round, last))
		}
		b.collect()
		if err := b.write(); err != nil {
			return err
		}
	}
	return nil
}

// round takes a sample of the ceilings, but for round 0, and makes each turn's share of runs.
func (b *bench) round(ctx context.Context, round int) error {
	_, last := b.rounds()
	text := fmt.Sprintf("round %d of %d", round, last)
	if round == 0 {
		text += ", which does not count"
	} else {
		fmt.Fprintf(b.progress, "%s: ceilings\n", text)
		if err := b.sample(ctx, &b.session.Cells.Ceilings); err != nil {
			return err
		}
	}
	all := turns(b.cells)
	for i, turn := range all {
		fmt.Fprintf(b.progress, "%s, cell %d of %d: %s\n", text, i+1, len(all), names(turn))
		for _, j := range b.order(turn, round) {
			if err := b.take(ctx, turn[j]); err != nil {
				return fmt.Errorf("cell %s: %w", turn[j].Name, err)
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

// take makes a run of a cell, again at once while it is void and that may be.
func (b *bench) take(ctx context.Context, c cell) error {
	t := b.taken[c.Name]
	if t == nil {
		t = &taken{}
		b.taken[c.Name] = t
	}
	for {
		report, err := b.once(ctx, c)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		file := fmt.Sprintf("cell-%s-%d.json", c.Name, len(t.reports)+t.voids)
		if err := session.WriteJSON(filepath.Join(b.dir, session.RawDir, file), report); err != nil {
			return err
		}
		value, _ := c.figure.Of(&report.Figures)
		fmt.Fprintf(b.progress, "  %s %s\n", c.figure, session.Number(value))
		if report.Void && t.voids < maxVoids && !b.brief {
			t.voids++
			fmt.Fprintf(b.progress, "  void, once more: %s\n", session.Void(report))
			continue
		}
		t.reports = append(t.reports, report)
		return nil
	}
}

// collect takes into the session every cell that has a run that counts, in the order of the tables. Of two cells in turn whole pairs count.
func (b *bench) collect() {
	first, _ := b.rounds()
	least := 2 - first // with the run of round 0
	cells := b.session.Cells
	cells.Cells = nil
	for _, turn := range turns(b.cells) {
		runs := -1
		for _, c := range turn {
			n := 0
			if t := b.taken[c.Name]; t != nil {
				n = len(t.reports)
			}
			if runs < 0 || n < runs {
				runs = n
			}
		}
		if runs < least {
			continue
		}
		for _, c := range turn {
			report := load.Join(b.taken[c.Name].reports[:runs]...)
			cells.Cells = append(cells.Cells, session.Cell{Name: c.Name, Group: c.group, Figure: c.figure, Report: report, Against: c.against})
			cells.Machine.SocketBytes = max(cells.Machine.SocketBytes, report.Machine.SocketBytes)
		}
	}
	place := func(c session.Cell) int {
		return slices.IndexFunc(b.cells, func(o cell) bool { return o.Name == c.Name })
	}
	slices.SortStableFunc(cells.Cells, func(x, y session.Cell) int { return cmp.Compare(place(x), place(y)) })
}
