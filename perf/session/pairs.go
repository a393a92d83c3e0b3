package session

import (
	"cmp"
	"fmt"
	"slices"

	"felix/perf/load"
)

// A Pair is one promise, asked of felix and of a peer in turn.
type Pair struct {
	Name    string `json:"name"`
	Promise string `json:"promise"` // what both sides promise
	Figure  Figure `json:"figure"`
	// AtLeast is the ratio that felix is meant to reach, AimAt what is hoped for; 0 when nothing is.
	AtLeast  float64      `json:"at_least"`
	AimAt    float64      `json:"aim_at"`
	NotEqual []string     `json:"not_equal"` // what differs besides the broker
	Felix    *load.Report `json:"felix"`
	Peer     *load.Report `json:"peer"`
}

// A Standing is how felix stands in a pair.
type Standing string

const (
	Ahead     Standing = "ahead"
	Behind    Standing = "behind"
	NotShown  Standing = "not shown" // the interval of the ratio holds 1
	FelixVoid Standing = "felix void"
	PeerVoid  Standing = "peer void"
	NoFigures Standing = "not measured"
)

// Values returns the figure of both sides. It is false when one has none.
func (p *Pair) Values() (felix, peer float64, ok bool) {
	felix, okFelix := p.Figure.Of(&p.Felix.Figures)
	peer, okPeer := p.Figure.Of(&p.Peer.Figures)
	return felix, peer, okFelix && okPeer
}

// ratios are how many times better felix is in each round, whose two runs are made one after the other.
func (p *Pair) ratios() []float64 {
	if p.Figure.Less() {
		return ratios(p.Peer, p.Felix, p.Figure)
	}
	return ratios(p.Felix, p.Peer, p.Figure)
}

// Ratio is how many times better felix is, the median of the rounds: above 1 it is ahead, whether the figure is a rate or a time. It is false
// when one side has no figure or is void.
func (p *Pair) Ratio() (float64, bool) {
	felix, peer, ok := p.Values()
	inTurn := p.ratios()
	switch {
	case !ok || Void(p.Felix) != "" || Void(p.Peer) != "":
		return 0, false
	case len(inTurn) > 0:
		return Median(inTurn), true
	case p.Figure.Less():
		return peer / felix, true
	}
	return felix / peer, true
}

// Interval is the 95 % interval of the ratio, which is false with fewer than two rounds.
func (p *Pair) Interval() (low, high float64, ok bool) { return ratioInterval(p.ratios()) }

// Standing says how felix stands.
func (p *Pair) Standing() Standing {
	if Void(p.Felix) != "" {
		return FelixVoid
	}
	if Void(p.Peer) != "" {
		return PeerVoid
	}
	ratio, ok := p.Ratio()
	if !ok {
		return NoFigures
	}
	low, high, ok := p.Interval()
	switch {
	case ok && low <= 1 && high >= 1:
		return NotShown
	case ok && high < 1, !ok && ratio < 1:
		return Behind
	}
	return Ahead
}

// Lost reports whether felix is behind in the medians, or has no figure to show where the peer has one.
func (p *Pair) Lost() bool {
	if ratio, ok := p.Ratio(); ok {
		return ratio < 1
	}
	return p.Standing() != PeerVoid
}

// Verdict holds the ratio against what it is meant to be.
func (p *Pair) Verdict() Verdict {
	ratio, ok := p.Ratio()
	switch {
	case p.AtLeast == 0:
		return NoTarget
	case !ok && p.Standing() == NoFigures:
		return NotMeasured
	case !ok:
		return VoidRun
	case ratio >= p.AtLeast:
		return Meets
	}
	return Misses
}

// Sorted returns the pairs with those that felix loses first, the worst first; then the others in their order.
func (p *Peers) Sorted() []*Pair {
	var pairs []*Pair
	for i := range p.Pairs {
		pairs = append(pairs, &p.Pairs[i])
	}
	rank := func(p *Pair) float64 {
		ratio, _ := p.Ratio() // 0 for none: nothing to show is the worst
		if p.Lost() {
			return ratio
		}
		return 1
	}
	slices.SortStableFunc(pairs, func(a, b *Pair) int { return cmp.Compare(rank(a), rank(b)) })
	return pairs
}

// target is what the ratio is meant to be, for people.
func (p *Pair) target() string {
	switch {
	case p.AtLeast == 0:
		return "-"
	case p.AimAt > 0:
		return fmt.Sprintf(">= %g x, aim %g x", p.AtLeast, p.AimAt)
	}
	return fmt.Sprintf(">= %g x", p.AtLeast)
}
