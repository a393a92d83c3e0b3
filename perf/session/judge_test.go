package session

import (
	"math"
	"slices"
	"strings"
	"testing"

	"felix/perf/load"
)

// TestJudge wants misses first, the worst on top, then what could not be judged, then what is met.
func TestJudge(t *testing.T) {
	rows := fixed().Cells.Judge()
	find := func(cell, target string) Row {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Cell == cell && r.Target == target })
		if i < 0 {
			t.Fatalf("no row %s %s", cell, target)
		}
		return rows[i]
	}
	for _, test := range []struct {
		cell, target string
		want         Verdict
		value, bound float64
	}{
		{"memory-256B-1", ">= 0.6 L", Meets, 1.35e6, 1.2e6},
		{"memory-4KiB-64", ">= 0.8 S", Misses, 512, 760},
		{"unacked-256B-1", ">= acked", VoidRun, 0, 0},
		{"unacked-256B-64", ">= acked", NotMeasured, 0, 0},
		{"on_commit-4KiB-64", ">= 0.85 x in memory, up to 0.8 Z", Meets, 493.568, 435.2},
		{"lone-memory", "p50 <= 1.25 E", Meets, 71, 76.25},
		{"lone-memory", "p99 <= 2 p50 + E", Misses, 305, 203},
		{"lone-on_commit", "p50 <= in memory + 1.2 D", NotMeasured, 0, 0},
		{"memory-256B-1", "broker CPU <= 1.5 us per record", Meets, 1.2, 1.5},
		{"fanout10-4KiB", ">= 0.9 S", Misses, 839.68, 855},
		{"fanout10-4KiB-jumbo", ">= 1.8 x stock", Meets, 205e3 * 1.9 * 4096 / 1e6, 205e3 * 1.8 * 4096 / 1e6},
		{"idle", "<= 25 MiB", Misses, 60, 26.2144},
		{"every cell", "spread, (max - min) / median, <= 10 %: 6 of 7 meet it, worst: memory-4KiB-64, 40.0 %", Misses, 40, 10},
	} {
		r := find(test.cell, test.target)
		if r.Verdict != test.want {
			t.Errorf("%s %s: %s", test.cell, test.target, r.Verdict)
		}
		if test.value > 0 && (math.Abs(r.Value/test.value-1) > 1e-9 || math.Abs(r.Bound/test.bound-1) > 1e-9) {
			t.Errorf("%s %s: %v, bound %v, want %v and %v", test.cell, test.target, r.Value, r.Bound, test.value, test.bound)
		}
	}
	order, last := []Verdict{Misses, VoidRun, NotMeasured, Meets}, 0
	for i, r := range rows {
		at := slices.Index(order, r.Verdict)
		if at < last || i > 0 && r.Verdict == Misses && r.Miss() > rows[i-1].Miss() {
			t.Errorf("row %d, %s %s, is out of order", i, r.Cell, r.Target)
		}
		last = max(last, at)
	}
	if rows := (&Cells{}).Judge(); slices.ContainsFunc(rows, func(r Row) bool { return r.Verdict != NotMeasured }) {
		t.Error("a session without cells is judged")
	}
}

func TestCeilingOf(t *testing.T) {
	c := fixed().Cells.Ceilings
	lone := config(256, 1, load.AcksEach, load.OnCommit)
	open := config(256, 1, load.AcksBatch, load.Memory)
	open.Rate = 1000
	slowDisk := c
	slowDisk.DiskMBPerSec = []float64{500}
	run := figures{rate: 1e5, p50: 302, p99: 1}
	for _, test := range []struct {
		c        Ceilings
		config   load.ReportConfig
		scenario load.Scenario
		run      figures
		want     string
	}{
		{c, config(256, 1, load.AcksBatch, load.Memory), load.Pub, run, "0.05 L"},
		{c, config(0, 1, load.AcksBatch, load.Memory), load.Pub, run, "0.05 L"},
		{c, config(4096, 1, load.AcksBatch, load.Memory), load.Pub, run, "0.43 S"},
		{c, config(4096, 64, load.AcksBatch, load.Memory), load.Pub, run, "0.43 S"},
		{c, config(0, 64, load.AcksBatch, load.Memory), load.Pub, run, "-"},
		{c, config(4096, 64, load.AcksBatch, load.OnCommit), load.Pub, run, "0.43 S"},
		{slowDisk, config(4096, 64, load.AcksBatch, load.OnCommit), load.Pub, run, "0.82 Z"},
		{c, lone, load.Pub, run, "2.00 (E+D)"},
		{c, open, load.E2E, run, "-"},
		{c, config(256, 64, load.AcksBatch, load.Memory), load.FanOut, run, "0.03 S"},
		{c, config(256, 1, load.AcksBatch, load.Memory), load.Pub, figures{rate: 1, void: "x"}, "-"},
		{Ceilings{}, config(256, 1, load.AcksBatch, load.Memory), load.Pub, run, "-"},
		{Ceilings{}, lone, load.Pub, run, "-"},
	} {
		if got := test.c.CeilingOf(report(test.config, test.scenario, test.run)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.config, got, test.want)
		}
	}
}

// TestStall wants ten pairs of runs, and an interval that reaches too far to be a miss. What both runs of a pair share is no difference.
func TestStall(t *testing.T) {
	fan := config(256, 64, load.AcksBatch, load.OnCommit)
	fan.Subscribers = 40
	slow := fan
	slow.Subscribers = 50
	slow.Slow = 10
	judge := func(n int, healthy float64) (words []Verdict) {
		var without, with []figures
		for i := range n {
			drift := 1 + 0.2*float64(i%3) // of the machine
			without = append(without, figures{rate: 1e5, delivered: 4e6 * drift, p50: 500 * drift, p99: 900})
			with = append(with, figures{rate: 1e5, delivered: 4e6 * healthy * drift, p50: 505 * drift, p99: 900})
		}
		c := &Cells{Cells: []Cell{
			{Name: notStalled, Figure: DeliveredPerSec, Report: report(fan, load.FanOut, without...)},
			{Name: stalled, Figure: DeliveredPerSec, Report: report(slow, load.FanOut, with...)},
		}}
		for _, target := range []string{"throughput of each healthy subscriber: 95 % interval of the difference within 5 % of no stall", "delivery p99 of healthy subscribers likewise", "ack p50 from the call likewise"} {
			for _, r := range c.Judge() {
				if r.Cell == stalled && r.Target == target {
					words = append(words, r.Verdict)
				}
			}
		}
		return words
	}
	for _, test := range []struct {
		n       int
		healthy float64
		want    []Verdict
	}{
		{10, 1, []Verdict{Meets, NotMeasured, Meets}},
		{10, 0.94, []Verdict{Misses, NotMeasured, Meets}},
		{9, 1, []Verdict{NotMeasured, NotMeasured, NotMeasured}},
	} {
		if got := judge(test.n, test.healthy); !slices.Equal(got, test.want) {
			t.Errorf("%d runs, %v: %s, want %s", test.n, test.healthy, got, test.want)
		}
	}
}

// TestCeilingForms wants shares of the ceilings with two processes, and of those in one where a session has no others.
func TestCeilingForms(t *testing.T) {
	c := fixed().Cells.Ceilings
	if c.L() != 2e6 || c.E() != 61 || c.S() != 950 || c.inOneOnly() {
		t.Errorf("two processes: %v %v %v", c.L(), c.E(), c.S())
	}
	c.LoopPerSec, c.EchoP50us, c.SinkMBPerSec = nil, nil, nil
	if c.L() != 2.4e6 || c.E() != 20.5 || c.S() != 1100 || !c.inOneOnly() || c.empty() {
		t.Errorf("one process: %v %v %v", c.L(), c.E(), c.S())
	}
	if text := c.Table().Markdown(); !strings.Contains(text, "in one process only") || strings.Contains(text, "| L |") {
		t.Error(text)
	}
}
