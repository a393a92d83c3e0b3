package session

import (
	"errors"
	"fmt"
	"strings"

	"felix/perf/load"
)

// Markers in README.md. What is between them is replaced.
const (
	ReadmeBegin = "<!-- peers -->"
	ReadmeEnd   = "<!-- /peers -->"
)

// Readme is the table for the front page: felix, the peer, and the share of the ceiling, lost rows first; then the targets that are missed.
// dir is where the session is found, for the reader.
func (s Session) Readme(dir string) (string, error) {
	if s.Peers == nil {
		return "", errors.New("the session has no peers, and the table is about them; run perf/matrix without -peers=false")
	}
	var ceilings Ceilings
	if s.Cells != nil {
		ceilings = s.Cells.Ceilings.whole() // the pairs have rounds of their own
	}
	t := Table{Header: []string{"promise", "felix", s.Peers.Peer, "felix is", "share of the ceiling"}}
	lost := 0
	for _, p := range s.Peers.Sorted() {
		felix, peer, _ := p.Values()
		how := string(p.Standing())
		if ratio, ok := p.Ratio(); ok {
			how = times(ratio)
			if p.Standing() == NotShown {
				how += ", not shown"
			}
		}
		if p.Lost() {
			lost++
		}
		t.Rows = append(t.Rows, []string{p.Promise + ", " + shape(p.Felix), p.Figure.text(felix), p.Figure.text(peer), how, ceilings.CeilingOf(p.Felix)})
	}
	m := s.Peers.Machine
	var b strings.Builder
	fmt.Fprintf(&b, "%d CPUs (%s), shared with the generator, %s, %s, commit %s, %s. Rates are records per second, times the p50 of an answer; medians of %d runs\n",
		m.CPUs, m.CPU, m.Kernel, m.Go, m.Commit, strings.SplitN(m.Time, "T", 2)[0], s.Peers.Rounds)
	fmt.Fprintf(&b, "with fresh processes, TLS on both sides, in turn. Felix is behind in %d of %d rows; they come first. What is not equal in a row, every run and the\n", lost, len(t.Rows))
	fmt.Fprintf(&b, "charts are in `%s`; `go run ./perf/matrix` measures all of it again.\n\n", dir)
	b.WriteString(t.rows())
	for _, note := range s.Peers.Notes {
		fmt.Fprintf(&b, "\n%s.\n", strings.TrimSuffix(note, "."))
	}
	if !ceilings.empty() {
		in := ""
		if ceilings.inOneOnly() {
			in = ", L, S and E in one process"
		}
		fmt.Fprintf(&b, "\nCeilings of the session%s: L %s records/s, S %s MB/s, E %s us, D %s us, Z %s MB/s (`BUILD.md` says what they are).\n",
			in, Number(ceilings.L()), Number(ceilings.S()), Number(ceilings.E()), Number(ceilings.D()), Number(ceilings.Z()))
	}
	if s.Cells != nil {
		missed := Table{Header: []string{"target that is missed", "", "measured", "bound", "measured / bound"}}
		for _, r := range s.Cells.Judge() {
			if r.Verdict == Misses {
				missed.Rows = append(missed.Rows, []string{r.Cell, r.Target, Number(r.Value) + " " + r.Unit, Number(r.Bound) + " " + r.Unit, times(r.Ratio)})
			}
		}
		if len(missed.Rows) > 0 {
			b.WriteString("\n" + missed.rows())
		}
	}
	return b.String(), nil
}

func (c *Ceilings) empty() bool { return c.L() == 0 }

// shape says how a load looks.
func shape(r *load.Report) string {
	c := &r.Config
	size := fmt.Sprintf("%d B", c.Size)
	if c.Size >= 1024 && c.Size%1024 == 0 {
		size = fmt.Sprintf("%d KiB", c.Size/1024)
	}
	text := size
	if c.Batch > 1 {
		text += fmt.Sprintf(" x %d", c.Batch)
	}
	if c.Acks == load.AcksBatch && c.InFlight > 0 {
		publishers := fmt.Sprintf("%d publishers", c.Publishers)
		if c.Publishers == 1 {
			publishers = "1 publisher"
		}
		text += fmt.Sprintf(", %s x %d in flight", publishers, c.InFlight)
	}
	if c.Subscribers > 0 {
		text += fmt.Sprintf(", to %d", c.Subscribers)
	}
	return text
}

// ReplaceReadme puts text between the markers of a README.
func ReplaceReadme(readme, text string) (string, error) {
	before, rest, ok := strings.Cut(readme, ReadmeBegin)
	_, after, ok2 := strings.Cut(rest, ReadmeEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("the README lacks the lines %s and %s between which the table belongs", ReadmeBegin, ReadmeEnd)
	}
	return before + ReadmeBegin + "\n" + strings.TrimSpace(text) + "\n" + ReadmeEnd + after, nil
}
