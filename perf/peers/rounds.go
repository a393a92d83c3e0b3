package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
)

// maxVoids is how many runs of a pair's side are made again because they are void, in all rounds.
const maxVoids = 3

// runner makes one run of a pair on a side.
type runner func(ctx context.Context, o options, p pair, peer bool) (*load.Report, error)

// taken is what there is of a pair so far.
type taken struct {
	pair
	sides   [2]side
	givenUp bool // a run failed: it has no part in the rounds that follow
}

// side is felix, or the peer after it.
type side struct {
	name    string
	reports []*load.Report // the first is of round 0
	voids   int            // runs that were made again
}

// errRun is why a run of a pair failed, which ends that pair and nothing else. A run that the end of the context ended is none.
type errRun struct{ error }

func (e errRun) Unwrap() error { return e.error }

// measure makes round 0, which does not count, and then those that do, and writes the result after each. In a round every pair runs both sides
// one after the other, the order of them changing from round to round. Pairs that were given up are an error at the end.
func (o options) measure(ctx context.Context, result *session.Peers, once runner, progress io.Writer) error {
	var all []*taken
	for _, p := range o.pairs {
		all = append(all, &taken{pair: p, sides: [2]side{{name: "felix"}, {name: "nats"}}})
	}
	order := append([]bool{false, true}, stats.Interleave(o.rounds)...)
	var givenUp []string
	for round := range o.rounds + 1 {
		text := fmt.Sprintf("round %d of %d", round, o.rounds)
		if round == 0 {
			text += ", which does not count"
		}
		for i, t := range all {
			if t.givenUp {
				continue
			}
			fmt.Fprintf(progress, "%s, pair %d of %d: %s\n", text, i+1, len(all), t.Name)
			err := o.both(ctx, t, order[2*round:2*round+2], once, progress)
			switch failed := (errRun{}); {
			case err == nil:
			case errors.As(err, &failed):
				t.givenUp = true
				givenUp = append(givenUp, t.Name)
				note := fmt.Sprintf("pair %s was given up in round %d: %v", t.Name, round, failed)
				result.Notes = append(result.Notes, note)
				fmt.Fprintf(progress, "  %s\n", note)
			default:
				collect(result, all)
				if len(result.Pairs) > 0 {
					err = errors.Join(err, o.write(result))
				}
				return fmt.Errorf("pair %s, round %d: %w", t.Name, round, err)
			}
		}
		collect(result, all)
		if err := o.write(result); err != nil {
			return err
		}
	}
	if len(givenUp) > 0 {
		return fmt.Errorf("%d of %d pairs were given up, and the result says why: %s", len(givenUp), len(all), strings.Join(givenUp, ", "))
	}
	return nil
}

// both runs both sides of a pair, in the order that is given.
func (o options) both(ctx context.Context, t *taken, peerNext []bool, once runner, progress io.Writer) error {
	for _, peer := range peerNext {
		s := &t.sides[0]
		if peer {
			s = &t.sides[1]
		}
		for {
			report, err := once(ctx, o, t.pair, peer)
			if err := ctx.Err(); err != nil {
				return err
			}
			if err != nil {
				return errRun{fmt.Errorf("%s: %w", s.name, err)}
			}
			if err := o.keep(t.Name, s.name, len(s.reports)+s.voids, report); err != nil {
				return err
			}
			value, _ := t.Figure.Of(&report.Figures)
			fmt.Fprintf(progress, "  %-5s %s %.0f\n", s.name, t.Figure, value)
			if report.Void && s.voids < maxVoids {
				s.voids++
				fmt.Fprintf(progress, "  %-5s void, once more: %s\n", s.name, session.Void(report))
				continue
			}
			s.reports = append(s.reports, report)
			break
		}
	}
	return nil
}

// collect takes into the result every pair that has a run that counts on both sides. A run whose other side is not there is left out.
func collect(result *session.Peers, all []*taken) {
	result.Pairs, result.Rounds = nil, 0
	for _, t := range all {
		felix, peer := t.sides[0].reports, t.sides[1].reports
		n := min(len(felix), len(peer))
		if n < 2 { // round 0 alone
			continue
		}
		p := t.Pair
		p.Felix, p.Peer = load.Join(felix[:n]...), load.Join(peer[:n]...)
		result.Pairs = append(result.Pairs, p)
		result.Rounds = max(result.Rounds, n-1)
	}
}
