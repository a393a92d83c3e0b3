package session

import (
	"math"
	"slices"
	"testing"

	"felix/perf/load"
)

// inRounds is a session in three rounds, in which the machine has three speeds.
func inRounds() *Cells {
	single := config(256, 1, load.AcksBatch, load.Memory)
	durable := config(256, 1, load.AcksBatch, load.OnCommit)
	return &Cells{
		Ceilings: Ceilings{LoopPerSec: []float64{1e6, 2e6, 1.5e6}, DiskP50us: []float64{90, 95, 85}},
		Cells: []Cell{
			{Name: "memory-256B-1", Figure: AckedPerSec, Report: report(single, load.Pub, figures{rate: 0.61e6}, figures{rate: 1.22e6}, figures{rate: 0.1e6})},
			// Two runs in each round.
			{Name: "on_commit-256B-1", Figure: AckedPerSec, Report: report(durable, load.Pub, figures{rate: 0.36e6}, figures{rate: 0.38e6}, figures{rate: 0.74e6}, figures{rate: 0.78e6},
				figures{rate: 1e6}, figures{rate: 1e6})},
			// As many as do not go into three.
			{Name: "unacked-256B-1", Figure: AckedPerSec, Report: report(config(256, 1, load.AcksNone, load.Memory), load.Pub, figures{rate: 0.7e6}, figures{rate: 0.7e6})},
		},
	}
}

// What a cell has of its ceiling, or of another cell, is asked in each round: the medians, which are of different rounds, say otherwise here.
func TestJudgeInRounds(t *testing.T) {
	c := inRounds()
	rows := c.Judge()
	for _, want := range []struct {
		cell, target        string
		value, bound, ratio float64
		verdict             Verdict
	}{
		{"memory-256B-1", ">= 0.6 L", 0.61e6, 0.9e6, 0.61 / 0.6, Meets},
		{"on_commit-256B-1", ">= 0.6 x in memory", 0.76e6, 0.6 * 0.61e6, 0.76 / (0.6 * 1.22), Meets},
		{"unacked-256B-1", ">= acked", 0.7e6, 0.61e6, 0.7 / 0.61, Meets}, // in each round as it is
	} {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Cell == want.cell && r.Target == want.target })
		if r := rows[i]; math.Abs(r.Value/want.value-1) > 1e-9 || math.Abs(r.Bound/want.bound-1) > 1e-9 || math.Abs(r.Ratio/want.ratio-1) > 1e-9 || r.Verdict != want.verdict {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	if got := c.Ceilings.CeilingOf(c.Cells[0].Report); got != "0.61 L" {
		t.Errorf("its share is %s", got)
	}
	if got := c.Ceilings.CeilingOf(c.Cells[2].Report); got != "0.47 L" { // 0.7 of 1.5
		t.Errorf("without rounds the share is %s", got)
	}
	if whole := c.Ceilings.whole(); whole.rounds() != 0 || whole.L() != 1.5e6 || whole.CeilingOf(c.Cells[0].Report) != "0.41 L" {
		t.Errorf("as a whole it has %d rounds, L %v, and the share is %s", whole.rounds(), whole.L(), whole.CeilingOf(c.Cells[0].Report))
	}
	// A ceiling that was not taken in each round: there are none.
	c.Ceilings.EchoP50us = []float64{1, 2}
	if got := c.Ceilings.CeilingOf(c.Cells[0].Report); len(c.rounds()) != 0 || got != "0.41 L" {
		t.Errorf("%d rounds, share %s", len(c.rounds()), got)
	}
}

// A void run in one round voids the row.
func TestVoidInRounds(t *testing.T) {
	c := inRounds()
	single := config(256, 1, load.AcksBatch, load.Memory)
	c.Cells[0].Report = report(single, load.Pub, figures{rate: 0.61e6}, figures{rate: 1.22e6, void: "x"}, figures{rate: 1e6})
	for _, r := range c.Judge() {
		if r.Cell == "memory-256B-1" && r.Target == ">= 0.6 L" && r.Verdict != VoidRun {
			t.Errorf("%+v", r)
		}
	}
}

// The ratio of a pair is that of runs in turn, whatever the machine did between the rounds, and so is its interval.
func TestRatioInRounds(t *testing.T) {
	single := config(256, 1, load.AcksBatch, load.Memory)
	felix := report(single, load.Pub, figures{rate: 1.1e6}, figures{rate: 0.56e6}, figures{rate: 2.2e6})
	peer := report(single, load.Pub, figures{rate: 1e6}, figures{rate: 0.5e6}, figures{rate: 2e6})
	p := Pair{Figure: AckedPerSec, AtLeast: 1, Felix: felix, Peer: peer}
	low, high, ok := p.Interval()
	if ratio, known := p.Ratio(); !known || math.Abs(ratio-1.1) > 1e-9 || !ok || low < 1.05 || high > 1.2 || p.Standing() != Ahead {
		t.Errorf("ratio %v, interval %v to %v, %s", ratio, low, high, p.Standing())
	}
	p.Felix, p.Peer = peer, felix
	if ratio, _ := p.Ratio(); math.Abs(ratio-1/1.1) > 1e-9 || p.Standing() != Behind || !p.Lost() {
		t.Errorf("the other way round %v, %s", ratio, p.Standing())
	}
	p.Felix = report(single, load.Pub, figures{rate: 1e6}, figures{rate: 3e6}) // one run fewer: the medians are left
	if ratio, _ := p.Ratio(); math.Abs(ratio-2/1.1) > 1e-9 || p.Standing() != Ahead {
		t.Errorf("with runs that do not pair %v, %s", ratio, p.Standing())
	}
	if _, _, ok := p.Interval(); ok {
		t.Error("runs that do not pair have an interval")
	}
	// As many figures on both sides, but of different rounds.
	p.Felix = report(single, load.Pub, figures{rate: 1e6}, figures{}, figures{rate: 3e6})
	p.Peer = report(single, load.Pub, figures{}, figures{rate: 1e6}, figures{rate: 3e6})
	if _, _, ok := p.Interval(); ok {
		t.Error("runs of different rounds have an interval")
	}
}
