package session

import (
	"math"

	"felix/perf/load"
	"felix/perf/stats"
)

// A session in rounds takes every ceiling and makes a run of every cell in each of them (perf/matrix). The machine is not the same in all: what
// two numbers have to do with each other is asked within a round first, and then the median of the answers is taken. A cell with several runs
// in a round stands there with their median.

// samples are all that c has.
func (c *Ceilings) samples() []*[]float64 {
	return []*[]float64{
		&c.LoopPerSec, &c.EchoP50us, &c.SinkMBPerSec, &c.LoopInOnePerSec, &c.EchoInOneP50us, &c.SinkInOneMBPerSec,
		&c.DiskP50us, &c.DiskMBPerSec, &c.FioMBPerSec, &c.FioSmallP50us, &c.LineNs,
	}
}

// at returns the ceilings of one of n rounds, and false when they were not taken in each.
func (c *Ceilings) at(round, n int) (Ceilings, bool) {
	one := *c
	for _, samples := range one.samples() {
		switch len(*samples) {
		case 0:
		case n:
			*samples = (*samples)[round : round+1]
		default:
			return *c, false
		}
	}
	return one, true
}

// rounds is in how many the ceilings were taken; 0 when there were not several.
func (c *Ceilings) rounds() int {
	n := max(len(c.DiskP50us), len(c.LoopPerSec), len(c.EchoP50us), len(c.SinkMBPerSec))
	if _, ok := c.at(0, n); !ok || n < 2 {
		return 0
	}
	return n
}

// whole is c without its rounds, for loads that ran at another time.
func (c *Ceilings) whole() Ceilings {
	one := *c
	for _, samples := range one.samples() {
		if len(*samples) > 0 {
			*samples = []float64{Median(*samples)}
		}
	}
	return one
}

// inRound is a report of the runs in one of n rounds, and false when they cannot be told apart.
func inRound(r *load.Report, round, n int) (*load.Report, bool) {
	one := &load.Report{Scenario: r.Scenario, Config: r.Config, Machine: r.Machine}
	var counted []load.RunReport
	for _, run := range r.Runs {
		if !run.Discarded {
			counted = append(counted, run)
		}
	}
	if n < 1 || len(counted) == 0 || len(counted)%n != 0 {
		return r, false
	}
	each := len(counted) / n
	one.Runs = counted[round*each : (round+1)*each]
	return load.Join(one), true
}

// rounds returns what there was in each round, nil when the session was not made in rounds. A cell whose runs are not as many in each stands in
// all of them as it is.
func (c *Cells) rounds() (all []*Cells) {
	n := c.Ceilings.rounds()
	for round := range n {
		one := *c
		one.Ceilings, _ = c.Ceilings.at(round, n)
		one.Cells = make([]Cell, len(c.Cells))
		for i, cell := range c.Cells {
			cell.Report, _ = inRound(cell.Report, round, n)
			one.Cells[i] = cell
		}
		all = append(all, &one)
	}
	return all
}

// ratios are a figure of each run of a to that of the run of b that was made in turn with it: nil when one has none beside it, or no figure.
func ratios(a, b *load.Report, g Figure) (all []float64) {
	x, y := Counted(a), Counted(b)
	if len(x) != len(y) {
		return nil
	}
	for i := range x {
		v, ok := g.Of(x[i])
		w, ok2 := g.Of(y[i])
		if !ok || !ok2 {
			return nil
		}
		all = append(all, v/w)
	}
	return all
}

// ratioInterval is where the mean of ratios lies with 95 % confidence, by Student's t on their logarithms. It is false with fewer than two.
func ratioInterval(ratios []float64) (low, high float64, ok bool) {
	if len(ratios) < 2 {
		return 0, 0, false
	}
	var logs []float64
	for _, r := range ratios {
		logs = append(logs, math.Log(r))
	}
	low, high = stats.MeanInterval(logs)
	return math.Exp(low), math.Exp(high), true
}
