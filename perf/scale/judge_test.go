package main

import (
	"math"
	"strings"
	"testing"

	"felix/perf/session"
)

// series has one run that does not count and those of the values.
func series(f Figure, values ...float64) *Series {
	s := &Series{Part: "part", Variant: "variant", Samples: []Sample{{Discarded: true, Figures: map[Figure]float64{f: 1e9}}}}
	for _, v := range values {
		s.Samples = append(s.Samples, Sample{Figures: map[Figure]float64{f: v}})
	}
	return s
}

func TestVerdicts(t *testing.T) {
	base := series(cpuPerMillion, 1, 1.01, 0.99, 1, 1.005)
	void := series(cpuPerMillion, 1, 1)
	void.Samples[2].Void = "a lie"
	for name, c := range map[string]struct {
		row  Row
		want session.Verdict
	}{
		"a little more":          {ratio(series(cpuPerMillion, 1.03, 1.04, 1.05, 1.04, 1.03), base, cpuPerMillion, Row{}, 1.1, true), session.Meets},
		"much more":              {ratio(series(cpuPerMillion, 1.3, 1.31, 1.32, 1.3, 1.31), base, cpuPerMillion, Row{}, 1.1, true), session.Misses},
		"perhaps more":           {ratio(series(cpuPerMillion, 1.0, 1.2, 1.05, 1.1, 1.15), base, cpuPerMillion, Row{}, 1.1, true), NotShown},
		"less where more is due": {ratio(series(cpuPerMillion, 0.5, 0.51, 0.5, 0.49, 0.5), base, cpuPerMillion, Row{}, 0.9, false), session.Misses},
		"one run":                {ratio(series(cpuPerMillion, 1), series(cpuPerMillion, 1), cpuPerMillion, Row{}, 1.1, true), NotShown},
		"no runs":                {ratio(series(cpuPerMillion), base, cpuPerMillion, Row{}, 1.1, true), session.NotMeasured},
		"no figure":              {ratio(series(ackedRate, 1, 1), base, cpuPerMillion, Row{}, 1.1, true), session.NotMeasured},
		"a void run":             {ratio(void, base, cpuPerMillion, Row{}, 1.1, true), session.VoidRun},
		"no target":              {ratio(series(cpuPerMillion, 2, 2), base, cpuPerMillion, Row{}, noTarget, true), session.NoTarget},
		"a value below":          {value(series(heldBytes, 3000, 3001, 3002), heldBytes, Row{}, 4096), session.Meets},
		"a value above":          {value(series(heldBytes, 5000, 5001, 5002), heldBytes, Row{}, 4096), session.Misses},
		"a value about":          {value(series(heldBytes, 3000, 4000, 5000), heldBytes, Row{}, 4096), NotShown},
	} {
		if c.row.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, c.row.Verdict, c.want, c.row)
		}
		if c.row.Part != "part" {
			t.Errorf("%s is of part %q", name, c.row.Part)
		}
	}
	row := ratio(void, base, cpuPerMillion, Row{}, 1.1, true)
	if !strings.Contains(row.Detail, "void: a lie") || row.Runs != 2 {
		t.Errorf("%+v", row)
	}
	row = value(series(heldBytes, 10, 20, 30), heldBytes, Row{}, noTarget)
	if *row.Value != 20 || *row.Spread != 1 || row.Bound != nil {
		t.Errorf("%+v", row)
	}
}

// TestOrder wants the worst miss on top and what has no target at the end.
func TestOrder(t *testing.T) {
	row := func(what string, v, bound float64, verdict session.Verdict) Row {
		return Row{What: what, Value: &v, Bound: &bound, AtMost: true, Verdict: verdict}
	}
	got := ""
	for _, r := range sorted([]Row{
		row("a", 1, 1, session.NoTarget), row("b", 1, 2, session.Meets), row("c", 3, 2, session.Misses), row("d", 2, 2, NotShown), row("e", 9, 2, session.Misses),
		{What: "f", Verdict: session.VoidRun},
	}) {
		got += r.What
	}
	if got != "ecfdba" {
		t.Errorf("%s", got)
	}
	r := Report{Rows: []Row{row("miss", 9, 2, session.Misses), {What: "none", Verdict: session.NotMeasured, Value: known(math.NaN())}}}
	if text := r.table().Markdown(); !strings.Contains(text, "|  | miss | - | 9.00 | - | - | 0 | misses |  |") || !strings.Contains(text, "|  | none | - | - | - | - | 0 | not measured |  |") {
		t.Errorf("%s", text)
	}
}
