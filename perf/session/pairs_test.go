package session

import (
	"strings"
	"testing"
)

// TestStandings wants times and rates to be judged alike, and void sides to count for nobody.
func TestStandings(t *testing.T) {
	peers := fixed().Peers
	for i, want := range []struct {
		standing Standing
		verdict  Verdict
		lost     bool
	}{
		{Ahead, Meets, false}, {Behind, Misses, true}, {NotShown, Misses, true}, {PeerVoid, VoidRun, false}, {Behind, Misses, true},
	} {
		p := &peers.Pairs[i]
		if p.Standing() != want.standing || p.Verdict() != want.verdict || p.Lost() != want.lost {
			t.Errorf("%s: %s, %s, lost %v, want %+v", p.Name, p.Standing(), p.Verdict(), p.Lost(), want)
		}
		if low, high, ok := p.Interval(); ok {
			if ratio, known := p.Ratio(); known && (ratio < low || ratio > high) {
				t.Errorf("%s: %v is not within %v and %v", p.Name, ratio, low, high)
			}
		} else {
			t.Errorf("%s has no interval", p.Name)
		}
	}
	p := peers.Pairs[0]
	p.Felix = report(p.Felix.Config, p.Felix.Scenario, figures{rate: 1, void: "x"})
	if p.Standing() != FelixVoid || !p.Lost() || p.Verdict() != VoidRun {
		t.Errorf("%s %v", p.Standing(), p.Lost())
	}
	p = peers.Pairs[0]
	p.Figure, p.AtLeast = E2EP50, 0
	if p.Standing() != NoFigures || p.Verdict() != NoTarget {
		t.Errorf("%s %s", p.Standing(), p.Verdict())
	}
}

// TestSorted wants the worst loss first and the rest in its order.
func TestSorted(t *testing.T) {
	got := ""
	for _, p := range fixed().Peers.Sorted() {
		got += p.Name + " "
	}
	if want := "core-256B-1 lone-jetstream-memory lone-request jetstream-memory-256B-1 fanout10-4KiB-64 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGivenUp wants a reader to see which pairs were given up.
func TestGivenUp(t *testing.T) {
	s := fixed()
	s.Peers.Notes = []string{"pair lone-x was given up in round 3: nats: it did not start"}
	text, err := s.Readme("dir")
	for name, text := range map[string]string{"report": s.Markdown(nil), "readme": text, "table": s.Peers.Table().Markdown()} {
		if err != nil || strings.Count(text, s.Peers.Notes[0]) != 1 {
			t.Errorf("%s, %v: %s", name, err, text)
		}
	}
}
