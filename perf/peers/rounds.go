package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
	"felix/perf/take"
)

// maxVoids is how many runs of a pair's side are made again because they are void, in all rounds.
const maxVoids = 3

// runner makes one run of a pair on a side.
type runner func(ctx context.Context, o options, p pair, peer bool) (*load.Report, error)

// book is one result of those that are measured at the same time.
type book struct {
	dir    string // "": nothing is kept
	result *session.Peers
	taken  []*taken // a pair each
}

// taken is what there is of a pair so far.
type taken struct {
	pair
	sides [2]take.Runs // felix, and the peer after it; the first run of each is of round 0
}

// sideNames are those of taken.sides.
var sideNames = [2]string{"felix", "nats"}

// errRun is why a run of a pair failed, which ends that pair and nothing else. A run that the end of the context ended is none.
type errRun struct{ error }

func (e errRun) Unwrap() error { return e.error }

// measure makes round 0, which does not count, and then those that do, and writes the results after each. In a round every pair runs both sides
// one after the other, the order of them changing from round to round, for every book in turn. A pair whose run fails has no part in what follows, in
// any book, and is an error at the end.
func (o options) measure(ctx context.Context, books []*book, once runner, progress io.Writer) error {
	for _, k := range books {
		for _, p := range o.pairs {
			k.taken = append(k.taken, &taken{pair: p})
		}
	}
	maker := take.Maker{MaxVoids: maxVoids, Progress: progress}
	if o.watch {
		maker.CPUs = take.WatchCPUs(ctx, progress)
	}
	order := append([]bool{false, true}, stats.Interleave(o.rounds)...)
	givenUp := map[string]bool{}
	var notes, names []string
	for round := range o.rounds + 1 {
		text := fmt.Sprintf("round %d of %d", round, o.rounds)
		if round == 0 {
			text += ", which does not count"
		}
		for i, p := range o.pairs {
			for _, k := range stats.InTurn(books, round) {
				if givenUp[p.Name] {
					break
				}
				fmt.Fprintf(progress, "%s, pair %d of %d: %s\n", text, i+1, len(o.pairs), p.Name)
				err := o.both(ctx, &maker, k.dir, k.taken[i], order[2*round:2*round+2], once)
				switch failed := (errRun{}); {
				case err == nil:
				case errors.As(err, &failed):
					givenUp[p.Name] = true
					names = append(names, p.Name)
					notes = append(notes, fmt.Sprintf("pair %s was given up in round %d: %v", p.Name, round, failed))
					fmt.Fprintf(progress, "  %s\n", notes[len(notes)-1])
				default:
					err = fmt.Errorf("pair %s, round %d: %w", p.Name, round, err)
					if slices.ContainsFunc(books, func(k *book) bool { return k.collect(notes) > 0 }) {
						err = errors.Join(err, write(books))
					}
					return err
				}
			}
		}
		for _, k := range books {
			k.collect(slices.Concat(notes, maker.CPUs.Notes()))
		}
		if err := write(books); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%d of %d pairs were given up, and the result says why: %s", len(names), len(o.pairs), strings.Join(names, ", "))
	}
	return nil
}

// both runs both sides of a pair, in the order that is given.
func (o options) both(ctx context.Context, maker *take.Maker, dir string, t *taken, peerNext []bool, once runner) error {
	for _, peer := range peerNext {
		side := 0
		if peer {
			side = 1
		}
		name := sideNames[side]
		run := func(ctx context.Context) (*load.Report, error) {
			report, err := once(ctx, o, t.pair, peer)
			if err != nil && ctx.Err() == nil {
				err = errRun{fmt.Errorf("%s: %w", name, err)}
			}
			return report, err
		}
		err := maker.Run(ctx, &t.sides[side], fmt.Sprintf("%-5s ", name), t.Figure, run, func(number int, report *load.Report) error {
			return keep(dir, t.Name, name, number, report)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// collect takes into the result every pair that has a run that counts on both sides, and returns how many these are. A run whose other side is not
// there is left out.
func (k *book) collect(notes []string) int {
	k.result.Pairs, k.result.Rounds, k.result.Notes = nil, 0, notes
	for _, t := range k.taken {
		felix, peer := t.sides[0].Counted, t.sides[1].Counted
		n := min(len(felix), len(peer))
		if n < 2 { // round 0 alone
			continue
		}
		p := t.Pair
		p.Felix, p.Peer = load.Join(felix[:n]...), load.Join(peer[:n]...)
		k.result.Pairs = append(k.result.Pairs, p)
		k.result.Rounds = max(k.result.Rounds, n-1)
	}
	return len(k.result.Pairs)
}
