package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"felix/perf/load"
	"felix/perf/stats"
)

// A Verdict is what a figure says about its target.
type Verdict string

const (
	Meets       Verdict = "meets"
	Misses      Verdict = "misses"
	VoidRun     Verdict = "void"
	NotMeasured Verdict = "not measured"
	NoTarget    Verdict = "-"
)

// A Row is a target and what was measured.
type Row struct {
	Cell   string
	Target string // as DESIGN section 10 says it
	Unit   string
	Value  float64 // of the medians, like Bound
	Bound  float64
	// Ratio is value / bound, of a session in rounds the median of those of its rounds. It decides.
	Ratio   float64
	AtMost  bool // Value is to be at most Bound; otherwise at least
	Verdict Verdict
}

// Miss is how far the value is from the bound: above 1 it is missed.
func (r Row) Miss() float64 {
	if r.Verdict != Meets && r.Verdict != Misses {
		return 0
	}
	if r.AtMost {
		return r.Ratio
	}
	return 1 / r.Ratio
}

// A target judges a session. It is called with a book that notes what it asked for in vain.
type target struct {
	cell, text, unit string
	atMost           bool
	measure          func(b *book) (value, bound float64)
}

// targets are the rows of DESIGN section 10 that a session answers, in its order.
var targets = []target{
	{"memory-256B-1", ">= 0.6 L", "records/s", false, func(b *book) (float64, float64) { return b.rate("memory-256B-1"), 0.6 * b.L() }},
	{"memory-256B-64", ">= 1.6 L and >= 0.7 S, whichever is less", "records/s", false, func(b *book) (float64, float64) {
		return b.rate("memory-256B-64"), min(1.6*b.L(), 0.7*b.S()*1e6/256)
	}},
	{"memory-4KiB-64", ">= 0.8 S", "MB/s", false, func(b *book) (float64, float64) { return b.megabytes("memory-4KiB-64"), 0.8 * b.S() }},
	{"unacked-256B-1", ">= acked", "records/s", false, func(b *book) (float64, float64) { return b.rate("unacked-256B-1"), b.rate("memory-256B-1") }},
	{"unacked-256B-64", ">= acked", "records/s", false, func(b *book) (float64, float64) { return b.rate("unacked-256B-64"), b.rate("memory-256B-64") }},
	{"unacked-4KiB-64", ">= acked", "records/s", false, func(b *book) (float64, float64) { return b.rate("unacked-4KiB-64"), b.rate("memory-4KiB-64") }},
	{"on_commit-256B-1", ">= 0.6 x in memory", "records/s", false, func(b *book) (float64, float64) {
		return b.rate("on_commit-256B-1"), 0.6 * b.rate("memory-256B-1")
	}},
	{"on_commit-4KiB-64", ">= 0.85 x in memory, up to 0.8 Z", "MB/s", false, func(b *book) (float64, float64) {
		return b.megabytes("on_commit-4KiB-64"), min(0.85*b.megabytes("memory-4KiB-64"), 0.8*b.Z())
	}},
	{"lone-memory", "p50 <= 1.25 E", "us", true, func(b *book) (float64, float64) { return b.ack("lone-memory").P50, 1.25 * b.E() }},
	{"lone-memory", "p99 <= 2 p50 + E", "us", true, func(b *book) (float64, float64) {
		return b.ack("lone-memory").P99, 2*b.ack("lone-memory").P50 + b.E()
	}},
	{"lone-on_commit", "p50 <= in memory + 1.2 D", "us", true, func(b *book) (float64, float64) {
		return b.ack("lone-on_commit").P50, b.ack("lone-memory").P50 + 1.2*b.D()
	}},
	// The bound holds where D is at most 100 us, and moves with a slower disk.
	{"waiting-on_commit-1KiB", "p99 <= 3 ms where D <= 100 us", "us", true, func(b *book) (float64, float64) {
		return b.ack("waiting-on_commit-1KiB").P99, 3000 * max(1, b.D()/100)
	}},
	{"fanout10-256B", ">= 0.8 S", "MB/s", false, func(b *book) (float64, float64) { return b.megabytes("fanout10-256B"), 0.8 * b.S() }},
	{"fanout10-1KiB", ">= 0.9 S", "MB/s", false, func(b *book) (float64, float64) { return b.megabytes("fanout10-1KiB"), 0.9 * b.S() }},
	{"fanout10-4KiB", ">= 0.9 S", "MB/s", false, func(b *book) (float64, float64) { return b.megabytes("fanout10-4KiB"), 0.9 * b.S() }},
	{"fanout10-4KiB-jumbo", ">= 1.8 x stock", "MB/s", false, func(b *book) (float64, float64) {
		return b.megabytes("fanout10-4KiB-jumbo"), 1.8 * b.megabytes("fanout10-4KiB-stock")
	}},
	{"fanout500-paced", "ack p50 from the call <= 1.3 x one subscriber", "us", true, func(b *book) (float64, float64) {
		return b.known(b.call("fanout500-paced").P50), 1.3 * b.known(b.call("fanout1-paced").P50)
	}},
	{stalled, "throughput of each healthy subscriber: 95 % interval of the difference within 5 % of no stall", "%", true, func(b *book) (float64, float64) {
		return b.difference(func(r *load.Report, f *load.Figures) *float64 {
			if f.DeliveredPerSec == nil {
				return nil
			}
			each := *f.DeliveredPerSec / float64(r.Config.Subscribers-r.Config.Slow)
			return &each
		}), maxStall * 100
	}},
	{stalled, "delivery p99 of healthy subscribers likewise", "%", true, func(b *book) (float64, float64) {
		return b.difference(func(_ *load.Report, f *load.Figures) *float64 {
			if f.E2E == nil {
				return nil
			}
			return &f.E2E.P99
		}), maxStall * 100
	}},
	{stalled, "ack p50 from the call likewise", "%", true, func(b *book) (float64, float64) {
		return b.difference(func(_ *load.Report, f *load.Figures) *float64 {
			if f.AckUncorrected == nil {
				return nil
			}
			return &f.AckUncorrected.P50
		}), maxStall * 100
	}},
	{"memory-256B-1", "broker CPU <= 1.5 us per record", "us", true, func(b *book) (float64, float64) { return b.cpu("memory-256B-1"), 1.5 }},
	{"memory-256B-64", "broker CPU <= 0.35 us per record", "us", true, func(b *book) (float64, float64) { return b.cpu("memory-256B-64"), 0.35 }},
	{"idle", "<= 0.2 % CPU", "%", true, func(b *book) (float64, float64) { return b.idle().CPUPercent, 0.2 }},
	{"idle", "<= 25 MiB", "MB", true, func(b *book) (float64, float64) { return b.idle().RSSMB, 25 * 1.048576 }},
}

// The cells that show what subscribers that do not read do to the others: both have the same that read. Their runs are made in turn.
const (
	stalled    = "stalled10of50-500hz"
	notStalled = "fanout40-500hz"
	minStalls  = 10   // pairs of runs; with fewer nothing is said
	maxStall   = 0.05 // that the interval of a difference may reach away from none
)

// maxSpread is what runs of a cell may differ by: (max - min) / median.
const maxSpread = 0.10

// Judge holds the cells against the targets: those that are missed first, the worst first, then those that could not be judged, then
// those that are met, in the order of DESIGN.
func (c *Cells) Judge() []Row {
	var rows []Row
	rounds := c.rounds()
	for _, t := range targets {
		b := &book{cells: c}
		row := Row{Cell: t.cell, Target: t.text, Unit: t.unit, AtMost: t.atMost}
		row.Value, row.Bound = t.measure(b)
		row.Ratio = row.Value / row.Bound
		switch {
		case b.missing:
			row.Verdict = NotMeasured
		case b.void:
			row.Verdict = VoidRun
		default:
			if of := t.ratios(rounds); len(of) > 0 {
				row.Ratio = Median(of)
			}
			row.Verdict = verdict(row.Ratio, t.atMost)
		}
		rows = append(rows, row)
	}
	rows = append(rows, c.spread())
	order := []Verdict{Misses, VoidRun, NotMeasured, Meets}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if by := cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict)); by != 0 || a.Verdict != Misses {
			return by
		}
		return cmp.Compare(b.Miss(), a.Miss())
	})
	return rows
}

// ratios are value / bound in each round, nil when one has no answer: some targets are of the whole session.
func (t *target) ratios(rounds []*Cells) (all []float64) {
	for _, round := range rounds {
		b := &book{cells: round}
		value, bound := t.measure(b)
		if b.missing || b.void {
			return nil
		}
		all = append(all, value/bound)
	}
	return all
}

// spread is the row of what the runs of cells differ by: all of them in one, by the worst.
func (c *Cells) spread() Row {
	row := Row{Cell: "every cell", Target: fmt.Sprintf("spread, (max - min) / median, <= %.0f %%", maxSpread*100), Unit: "%", Bound: maxSpread * 100, AtMost: true, Verdict: NotMeasured}
	worst, met, of := "", 0, 0
	for i := range c.Cells {
		cell := &c.Cells[i]
		spread, ok := Spread(cell.Report, cell.Figure)
		if !ok || Void(cell.Report) != "" {
			continue
		}
		of++
		if spread <= maxSpread {
			met++
		}
		if worst == "" || spread*100 > row.Value {
			worst, row.Value = cell.Name, spread*100
		}
	}
	if of > 0 {
		row.Ratio = row.Value / row.Bound
		row.Verdict = verdict(row.Ratio, true)
		row.Target += fmt.Sprintf(": %d of %d meet it, worst: %s, %.1f %%", met, of, worst, row.Value)
	}
	return row
}

// verdict is what value / bound says.
func verdict(ratio float64, atMost bool) Verdict {
	switch {
	case math.IsNaN(ratio):
		return NotMeasured
	case atMost && ratio <= 1, !atMost && ratio >= 1:
		return Meets
	}
	return Misses
}

// A book answers what targets ask for. What is not there is remembered.
type book struct {
	cells         *Cells
	missing, void bool
}

func (b *book) report(name string) *load.Report {
	for i := range b.cells.Cells {
		if c := &b.cells.Cells[i]; c.Name == name {
			b.void = b.void || Void(c.Report) != ""
			return c.Report
		}
	}
	b.missing = true
	return &load.Report{}
}

func (b *book) known(v float64) float64 {
	b.missing = b.missing || !(v > 0)
	return v
}

func (b *book) rate(name string) float64      { return b.known(b.report(name).AckedPerSec) }
func (b *book) megabytes(name string) float64 { return b.known(b.report(name).PayloadMBPerSec) }

func (b *book) ack(name string) load.Latency {
	if l := b.report(name).Ack; l != nil {
		return *l
	}
	b.missing = true
	return load.Latency{}
}

// call is the time of an acknowledgement from the call of Publish. At a fixed rate the time from when the record was due holds the
// generator's own lateness besides, which is the same in cells that are compared and would make them more alike than they are.
func (b *book) call(name string) load.Latency {
	if l := b.report(name).AckUncorrected; l != nil {
		return *l
	}
	b.missing = true
	return load.Latency{}
}

// cpu is the broker's per acked record, in microseconds: seconds per million.
func (b *book) cpu(name string) float64 {
	if v := b.report(name).BrokerCPUSecPerMillion; v != nil {
		return *v
	}
	b.missing = true
	return 0
}

// difference is how far the 95 % interval of the difference between stall and no stall reaches, in percent: that of the mean over the
// pairs of runs, which were made one after the other.
func (b *book) difference(figure func(*load.Report, *load.Figures) *float64) float64 {
	without, with := b.report(notStalled), b.report(stalled)
	before, after := Counted(without), Counted(with)
	if len(before) != len(after) || len(before) < minStalls {
		b.missing = true
		return 0
	}
	var differences []float64
	for i := range before {
		x, y := figure(without, before[i]), figure(with, after[i])
		if x == nil || y == nil || !(*x > 0) {
			b.missing = true
			return 0
		}
		differences = append(differences, *y / *x - 1)
	}
	low, high := stats.MeanInterval(differences)
	return max(math.Abs(low), math.Abs(high)) * 100
}

func (b *book) idle() Idle {
	if b.cells.Idle == nil {
		b.missing = true
		return Idle{}
	}
	return *b.cells.Idle
}

func (b *book) L() float64 { return b.known(b.cells.Ceilings.L()) }
func (b *book) E() float64 { return b.known(b.cells.Ceilings.E()) }
func (b *book) S() float64 { return b.known(b.cells.Ceilings.S()) }
func (b *book) D() float64 { return b.known(b.cells.Ceilings.D()) }
func (b *book) Z() float64 { return b.known(b.cells.Ceilings.Z()) }

// A Share is what part of a ceiling a load reached. Of rates it is better when it is larger, of E and D when it is smaller.
type Share struct {
	Value float64
	Of    string // the ceiling
}

// CeilingOf says what share of its ceiling a load on felix reached, such as "0.62 L" or "1.1 E": "-" when no ceiling has its shape
// or none was measured.
func (c *Ceilings) CeilingOf(r *load.Report) string {
	share, ok := c.Share(r)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f %s", share.Value, share.Of)
}

// Share is the share of the nearest of the ceilings that a load on felix can have. It is false when no ceiling has its shape or none was
// measured.
func (c *Ceilings) Share(r *load.Report) (nearest Share, ok bool) {
	for _, s := range c.shares(r) {
		if s.Value > nearest.Value {
			nearest = s
		}
	}
	return nearest, nearest.Value > 0
}

// shares are those of every ceiling that has the shape of a load on felix and was measured; in rounds the medians of those of the rounds.
func (c *Ceilings) shares(r *load.Report) []Share {
	whole := c.wholeShares(r)
	values := make([][]float64, len(whole))
	n := c.rounds()
	for round := range n {
		ceilings, _ := c.at(round, n)
		report, ok := inRound(r, round, n)
		of := ceilings.wholeShares(report)
		if !ok || len(of) != len(whole) {
			return whole
		}
		for i, s := range of {
			values[i] = append(values[i], s.Value)
		}
	}
	if n > 0 {
		for i := range whole {
			whole[i].Value = Median(values[i])
		}
	}
	return whole
}

// wholeShares are those of the medians.
func (c *Ceilings) wholeShares(r *load.Report) (all []Share) {
	E, D := c.E(), c.D()
	consider := func(value, ceiling float64, name string) {
		if ceiling > 0 && value > 0 {
			all = append(all, Share{value / ceiling, name})
		}
	}
	k := &r.Config
	switch {
	case Void(r) != "":
	case k.Rate > 0: // an open loop does what it is told
	case k.Acks == load.AcksEach && r.Ack != nil && k.Durability == load.OnCommit:
		if E > 0 && D > 0 {
			consider(r.Ack.P50, E+D, "(E+D)")
		}
	case k.Acks == load.AcksEach && r.Ack != nil:
		consider(r.Ack.P50, E, "E")
	default:
		consider(r.PayloadMBPerSec, c.S(), "S")
		if r.Scenario == load.Pub && k.Batch == 1 {
			consider(r.AckedPerSec, c.L(), "L")
		}
		if r.Scenario == load.Pub && k.Durability != load.Memory {
			consider(r.PayloadMBPerSec, c.Z(), "Z")
		}
	}
	return all
}
