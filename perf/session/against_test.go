package session

import (
	"math"
	"slices"
	"strings"
	"testing"

	"felix/perf/load"
)

func markdown(tables []Table) string {
	var b strings.Builder
	for _, t := range tables {
		b.WriteString(t.Markdown())
	}
	return b.String()
}

func TestAgainst(t *testing.T) {
	now, before := fixed(), fixed()
	drifts, alone := now.Against(before)
	same := func(c Change) bool { return !c.Known() || c.Relative() == 0 && c.Within() }
	if len(alone) != 0 || slices.ContainsFunc(drifts, func(d Drift) bool { return !same(d.Median) || !same(d.Share) || d.verdict() != "within" }) || len(drifts) != 7+3*4 {
		t.Errorf("a session against itself: %+v %v", drifts, alone)
	}
	now.Cells.Cells[0].Report.AckedPerSec *= 1.2
	five := now.Cells.Cells[5].Report
	five.DeliveredPerSec = ptr(*five.DeliveredPerSec * 0.7)
	five.PayloadMBPerSec *= 0.7
	now.Cells.Ceilings.SinkMBPerSec = []float64{650, 665, 700} // 0.7 times
	now.Cells.Ceilings.EchoP50us = []float64{80}
	now.Peers.Pairs[0].Felix.AckedPerSec *= 1.05
	now.Peers.Pairs[1].Felix.AckedPerSec *= 1.05
	now.Peers.Pairs[1].Peer.AckedPerSec *= 0.92
	before.Cells.Cells = slices.Delete(before.Cells.Cells, 1, 2)
	before.Peers.Pairs = slices.Delete(before.Peers.Pairs, 2, 3)
	golden(t, "against.md", markdown(now.AgainstTables(before, "perf/results/before")))
}

// TestShares wants shares of the same ceiling in the same form on both sides, each of its own session, and none where there is no ceiling.
func TestShares(t *testing.T) {
	single := config(256, 1, load.AcksBatch, load.Memory)
	paced := single
	paced.Rate = 1000
	make := func(rate, L, S, inOne float64) Session {
		c := &Cells{Cells: []Cell{
			{Name: "cell", Figure: AckedPerSec, Report: report(single, load.Pub, figures{rate: rate})},
			{Name: "paced", Figure: AckedPerSec, Report: report(paced, load.Pub, figures{rate: rate})},
		}}
		c.Ceilings.LoopInOnePerSec = []float64{inOne}
		if L > 0 {
			c.Ceilings.LoopPerSec, c.Ceilings.SinkMBPerSec = []float64{L}, []float64{S}
		}
		return Session{Cells: c}
	}
	for _, test := range []struct {
		name        string
		before, now Session
		change      float64 // of the share
		of, verdict string
		intro       string
	}{
		{"the machine moved", make(1e6, 2e6, 1e4, 3e6), make(7e5, 1.4e6, 1e4, 3e6), 0, "L", "beyond 10 %, share within", "Medians of 0 of 2 are within 10 %; as shares of the ceilings of their session, 1 of 1."},
		{"felix moved", make(1e6, 2e6, 1e4, 3e6), make(7e5, 2e6, 1e4, 3e6), -0.3, "L", "beyond 10 %", "Medians of 0 of 2 are within 10 %; as shares of the ceilings of their session, 0 of 1."},
		{"the machine hid it", make(1e6, 2e6, 1e4, 3e6), make(1e6, 1.25e6, 1e4, 3e6), 0.6, "L", "within, share beyond 10 %", "Medians of 2 of 2 are within 10 %; as shares of the ceilings of their session, 0 of 1."},
		// The nearest was S before and is L now: that of L is compared.
		{"another ceiling is the nearest", make(1e6, 2e6, 300, 3e6), make(1e6, 2e6, 1e4, 3e6), 0, "L", "within", "Medians of 2 of 2 are within 10 %; as shares of the ceilings of their session, 1 of 1."},
		{"one with one process only", make(1e6, 0, 0, 2e6), make(1e6, 9e6, 1e4, 4e6), -0.5, "L", "within, share beyond 10 %", "Medians of 2 of 2 are within 10 %; as shares of the ceilings of their session, 0 of 1."},
	} {
		drifts, _ := test.now.Against(test.before)
		for _, d := range drifts {
			switch {
			case d.Name == "paced" && d.Share.Known():
				t.Errorf("%s: an open loop has the share %+v", test.name, d.Share)
			case d.Name == "cell" && (d.Of != test.of || !d.Share.Known() || math.Abs(d.Share.Relative()-test.change) > 1e-9 || d.verdict() != test.verdict):
				t.Errorf("%s: %+v of %s, %s; want %v, %s", test.name, d.Share, d.Of, d.verdict(), test.change, test.verdict)
			}
		}
		tables := test.now.AgainstTables(test.before, "x")
		if len(tables) != 2 || tables[1].Intro != test.intro {
			t.Errorf("%s: %d tables, %s", test.name, len(tables), tables[len(tables)-1].Intro)
		}
	}
	if text := markdown(make(1e6, 9e6, 1e4, 4e6).AgainstTables(make(1e6, 0, 0, 2e6), "x")); !strings.Contains(text, "| L in one process | 2.00 M records/s | 4.00 M records/s | +100.0 % |") {
		t.Errorf("%s", text)
	}
	peers := Session{Peers: fixed().Peers}
	if tables := peers.AgainstTables(peers, "x"); len(tables) != 1 || tables[0].Intro != "Medians of 8 of 8 are within 10 %; ratios of felix to the peer, 4 of 4." {
		t.Errorf("peers alone: %d tables, %s", len(tables), tables[0].Intro)
	}
}
