package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// maxDrift is how far the medians of two sessions on one commit may be apart.
const maxDrift = 0.10

// A Drift is a median in two sessions.
type Drift struct {
	Name   string // cell, or pair and side
	Figure Figure
	Before float64
	Now    float64
}

// Change is now / before - 1.
func (d Drift) Change() float64 { return d.Now/d.Before - 1 }

// Within reports whether the medians are close enough.
func (d Drift) Within() bool { return math.Abs(d.Change()) <= maxDrift }

// Against compares the medians of what both sessions have: those that are too far apart first, the farthest on top. alone names what only
// one has, or has without figures.
func (s Session) Against(before Session) (drifts []Drift, alone []string) {
	now, then := s.medians(), before.medians()
	for name, d := range now {
		b, ok := then[name]
		if !ok || b.Figure != d.Figure {
			alone = append(alone, name)
			continue
		}
		drifts = append(drifts, Drift{name, d.Figure, b.Now, d.Now})
	}
	for name := range then {
		if _, ok := now[name]; !ok {
			alone = append(alone, name)
		}
	}
	slices.Sort(alone)
	slices.SortFunc(drifts, func(a, b Drift) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Change()), math.Abs(a.Change())), cmp.Compare(a.Name, b.Name))
	})
	return drifts, alone
}

// medians are those of cells and pairs that are not void.
func (s Session) medians() map[string]Drift {
	medians := map[string]Drift{}
	if s.Cells != nil {
		for i := range s.Cells.Cells {
			c := &s.Cells.Cells[i]
			if v, ok := c.Figure.Of(&c.Report.Figures); ok && Void(c.Report) == "" {
				medians[c.Name] = Drift{Name: c.Name, Figure: c.Figure, Now: v}
			}
		}
	}
	if s.Peers != nil {
		for i := range s.Peers.Pairs {
			p := &s.Peers.Pairs[i]
			if _, ok := p.Ratio(); !ok {
				continue
			}
			felix, peer, _ := p.Values()
			for name, v := range map[string]float64{p.Name + ", felix": felix, p.Name + ", peer": peer} {
				medians[name] = Drift{Name: name, Figure: p.Figure, Now: v}
			}
		}
	}
	return medians
}

// AgainstTable shows two sessions beside each other.
func (s Session) AgainstTable(before Session, dir string) Table {
	drifts, alone := s.Against(before)
	within := 0
	t := Table{Header: []string{"", "figure", "before", "now", "change", ""}}
	for _, d := range drifts {
		word := fmt.Sprintf("beyond %.0f %%", maxDrift*100)
		if d.Within() {
			within++
			word = "within"
		}
		t.Rows = append(t.Rows, []string{d.Name, string(d.Figure), d.Figure.text(d.Before), d.Figure.text(d.Now), fmt.Sprintf("%+.1f %%", d.Change()*100), word})
	}
	t.Title = "Against " + dir
	t.Intro = fmt.Sprintf("Medians of %d of %d are within %.0f %%.", within, len(drifts), maxDrift*100)
	for _, name := range alone {
		t.Notes = append(t.Notes, name+" is in one session only, or has no figure in one")
	}
	return t
}
