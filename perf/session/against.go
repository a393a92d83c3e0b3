package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"felix/perf/load"
)

// maxDrift is how far the medians of two sessions on one commit may be apart, and the shares of their ceilings.
const maxDrift = 0.10

// A Change is a number in two sessions; 0 is one that there is not.
type Change struct{ Before, Now float64 }

// Known reports whether both sessions have the number.
func (c Change) Known() bool { return c.Before > 0 && c.Now > 0 }

// Relative is now / before - 1; of what is not known 0.
func (c Change) Relative() float64 {
	if !c.Known() {
		return 0
	}
	return c.Now/c.Before - 1
}

// Within reports whether the numbers are known and close enough.
func (c Change) Within() bool { return c.Known() && math.Abs(c.Relative()) <= maxDrift }

// A Drift is what two sessions have of a cell, of a side of a pair, or of the ratio of a pair.
type Drift struct {
	Name   string // cell, pair and side, or pair and "felix / peer"
	Figure Figure // of Median
	Median Change // not known for a ratio, which is no median
	// Share is the part of the ceiling Of that Median is in its own session, or the ratio of a pair, for which Of is "x". What the machine does to a
	// whole session it leaves out. Not known where no ceiling has the shape of the cell.
	Share Change
	Of    string
}

// sortKey is the change that a drift is sorted by: of the median, and for a ratio of that.
func (d Drift) sortKey() float64 {
	if d.Median.Known() {
		return math.Abs(d.Median.Relative())
	}
	return math.Abs(d.Share.Relative())
}

// verdict says what of a drift is too far apart.
func (d Drift) verdict() string {
	beyond := fmt.Sprintf("beyond %.0f %%", maxDrift*100)
	switch {
	case !d.Median.Known() && d.Share.Within():
		return "within"
	case !d.Median.Known():
		return beyond
	case !d.Share.Known() && d.Median.Within(), d.Median.Within() && d.Share.Within():
		return "within"
	case d.Median.Within():
		return "within, share " + beyond
	case d.Share.Within():
		return beyond + ", share within"
	}
	return beyond
}

// Against compares what both sessions have: those that are too far apart first, the farthest on top. alone names what only one has, or has
// without figures.
func (s Session) Against(before Session) (drifts []Drift, alone []string) {
	now, then := s.medians(), before.medians()
	var nowCeilings, thenCeilings Ceilings
	if s.Cells != nil && before.Cells != nil {
		nowCeilings, thenCeilings = sameForm(s.Cells.Ceilings, before.Cells.Ceilings)
	}
	for name, m := range now {
		b, ok := then[name]
		if !ok || b.figure != m.figure {
			if !m.ratio { // both sides of its pair are named
				alone = append(alone, name)
			}
			continue
		}
		d := Drift{Name: name, Figure: m.figure, Median: Change{b.value, m.value}}
		if m.ratio {
			d.Share, d.Of, d.Median = d.Median, "x", Change{}
		}
		if m.report != nil && b.report != nil {
			d.Share, d.Of = shareIn(&nowCeilings, m.report, &thenCeilings, b.report)
		}
		drifts = append(drifts, d)
	}
	for name := range then {
		if _, ok := now[name]; !ok && !then[name].ratio {
			alone = append(alone, name)
		}
	}
	slices.Sort(alone)
	slices.SortFunc(drifts, func(a, b Drift) int {
		return cmp.Or(cmp.Compare(b.sortKey(), a.sortKey()), cmp.Compare(a.Name, b.Name))
	})
	return drifts, alone
}

// shareIn is the share of the ceiling that is the nearest now, in both sessions.
func shareIn(nowCeilings *Ceilings, now *load.Report, thenCeilings *Ceilings, then *load.Report) (Change, string) {
	share, ok := nowCeilings.Share(now)
	if !ok {
		return Change{}, ""
	}
	for _, b := range thenCeilings.shares(then) {
		if b.Of == share.Of {
			return Change{b.Value, share.Value}, share.Of
		}
	}
	return Change{}, ""
}

// sameForm leaves of the ceilings of two sessions the form that both have: L, E and S with two processes, or in one when one of the sessions is
// of before 2026-12 and has no others.
func sameForm(a, b Ceilings) (Ceilings, Ceilings) {
	if a.inOneOnly() || b.inOneOnly() {
		for _, c := range []*Ceilings{&a, &b} {
			c.LoopPerSec, c.EchoP50us, c.SinkMBPerSec = nil, nil, nil
		}
	}
	return a, b
}

// A median is that of a cell, of a side of a pair, or the ratio of a pair.
type median struct {
	figure Figure
	value  float64
	ratio  bool
	report *load.Report // of a cell; nil otherwise
}

// medians are those of cells and pairs that are not void, by name.
func (s Session) medians() map[string]median {
	medians := map[string]median{}
	if s.Cells != nil {
		for i := range s.Cells.Cells {
			c := &s.Cells.Cells[i]
			if v, ok := c.Figure.Of(&c.Report.Figures); ok && Void(c.Report) == "" {
				medians[c.Name] = median{figure: c.Figure, value: v, report: c.Report}
			}
		}
	}
	if s.Peers != nil {
		for i := range s.Peers.Pairs {
			p := &s.Peers.Pairs[i]
			ratio, ok := p.Ratio()
			if !ok {
				continue
			}
			felix, peer, _ := p.Values()
			medians[p.Name+", felix"] = median{figure: p.Figure, value: felix}
			medians[p.Name+", peer"] = median{figure: p.Figure, value: peer}
			medians[p.Name+", felix / peer"] = median{figure: p.Figure, value: ratio, ratio: true}
		}
	}
	return medians
}

// AgainstTables shows two sessions beside each other: their ceilings, which say how the machine moved, and then what they measured.
func (s Session) AgainstTables(before Session, dir string) (tables []Table) {
	if s.Cells != nil && before.Cells != nil {
		if t := ceilingsAgainst(s.Cells.Ceilings, before.Cells.Ceilings); len(t.Rows) > 0 {
			t.Title = "Ceilings against " + dir
			tables = append(tables, t)
		}
	}
	return append(tables, s.againstTable(before, dir))
}

// ceilingsAgainst shows the ceilings that both sessions have.
func ceilingsAgainst(now, before Ceilings) Table {
	form := ""
	if now.inOneOnly() || before.inOneOnly() {
		form = " in one process"
	}
	now, before = sameForm(now, before)
	t := Table{Intro: "What the machine did without a broker, medians. What moved here moved under everything.", Header: []string{"", "before", "now", "change"}}
	for _, r := range []struct {
		name, unit string
		change     Change
	}{
		{"L" + form, "records/s", Change{before.L(), now.L()}},
		{"S" + form, "MB/s", Change{before.S(), now.S()}},
		{"E" + form, "us", Change{before.E(), now.E()}},
		{"D", "us", Change{before.D(), now.D()}},
		{"Z", "MB/s", Change{before.Z(), now.Z()}},
		{"cache line", "ns", Change{Median(before.LineNs), Median(now.LineNs)}},
	} {
		if r.change.Known() {
			t.Rows = append(t.Rows, []string{r.name, Number(r.change.Before) + " " + r.unit, Number(r.change.Now) + " " + r.unit, percent(r.change)})
		}
	}
	return t
}

func percent(c Change) string {
	if !c.Known() {
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", math.Round(c.Relative()*1000)/10+0) // + 0, so that nothing is -0.0
}

// againstTable shows the medians of two sessions, and the shares of their ceilings.
func (s Session) againstTable(before Session, dir string) Table {
	drifts, alone := s.Against(before)
	t := Table{Title: "Against " + dir, Header: []string{"", "figure", "before", "now", "change", "share before", "share now", "change of the share", ""}}
	type count struct{ within, of int }
	var medians, shares, ratios count
	add := func(to *count, c Change) {
		if c.Known() {
			to.of++
		}
		if c.Within() {
			to.within++
		}
	}
	for _, d := range drifts {
		row := []string{d.Name, string(d.Figure), "-", "-", percent(d.Median), "-", "-", percent(d.Share), d.verdict()}
		if d.Median.Known() {
			row[2], row[3] = d.Figure.text(d.Median.Before), d.Figure.text(d.Median.Now)
		}
		if d.Share.Known() {
			row[5], row[6] = fmt.Sprintf("%.2f %s", d.Share.Before, d.Of), fmt.Sprintf("%.2f %s", d.Share.Now, d.Of)
		}
		t.Rows = append(t.Rows, row)
		add(&medians, d.Median)
		if d.Of == "x" {
			add(&ratios, d.Share)
		} else {
			add(&shares, d.Share)
		}
	}
	t.Intro = fmt.Sprintf("Medians of %d of %d are within %.0f %%", medians.within, medians.of, maxDrift*100)
	if shares.of > 0 {
		t.Intro += fmt.Sprintf("; as shares of the ceilings of their session, %d of %d", shares.within, shares.of)
	}
	if ratios.of > 0 {
		t.Intro += fmt.Sprintf("; ratios of felix to the peer, %d of %d", ratios.within, ratios.of)
	}
	t.Intro += "."
	for _, name := range alone {
		t.Notes = append(t.Notes, name+" is in one session only, or has no figure in one")
	}
	return t
}
