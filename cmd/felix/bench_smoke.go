package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"felix/perf/load"
)

// smokeTime is the measured time of a cell; one without acks has to send more than the buffers hold, and takes unackedSmokeTime to
// maxSmokeTime.
const (
	smokeTime        = 2 * time.Second
	unackedSmokeTime = 4 * time.Second
	smokeWarmup      = 500 * time.Millisecond
	maxSmokeTime     = 16 * time.Second
)

// smokeCells are the runs of bench --smoke, by name.
var smokeCells = []struct {
	name      string
	generator string
	config    load.Config
}{
	{"memory, batch 1", load.GeneratorClient, load.Config{Scenario: load.Pub, Publishers: 16, InFlight: 32}},
	{"memory, batch 64", load.GeneratorClient, load.Config{Scenario: load.Pub, Publishers: 16, InFlight: 16, Batch: 64}},
	{"memory, batch 64, lean", load.GeneratorLean, load.Config{Scenario: load.Pub, Publishers: 16, InFlight: 16, Batch: 64}},
	{"unacked, batch 64", load.GeneratorClient, load.Config{Scenario: load.Pub, Publishers: 16, Batch: 64, Size: 4096, Acks: load.AcksNone}},
	{"on_commit, batch 64", load.GeneratorClient, load.Config{Scenario: load.Pub, Publishers: 16, InFlight: 16, Batch: 64, Durability: load.OnCommit}},
	{"open loop, 2,000/s", load.GeneratorClient, load.Config{Scenario: load.E2E, Rate: smokeRate}},
	{"fan-out 4", load.GeneratorClient, load.Config{Scenario: load.FanOut, Subscribers: smokeFan}},
}

const (
	smokeRate = 2000
	smokeFan  = 4
)

// A smokeRatio relates two figures that belong together on any machine. The bounds are far from what is measured: they find what is
// broken, not what is slow.
type smokeRatio struct {
	name      string
	value     float64
	low, high float64
}

func (r smokeRatio) ok() bool { return r.value >= r.low && r.value <= r.high }

// smokeRatios makes the ratios of the cells.
func smokeRatios(of map[string]*load.Report) []smokeRatio {
	acked := func(name string) float64 { return of[name].AckedPerSec }
	open, fan, unacked := of["open loop, 2,000/s"], of["fan-out 4"], of["unacked, batch 64"]
	payload := func(name string) float64 { return of[name].PayloadMBPerSec }
	ratios := []smokeRatio{
		{"batches of 64 / single records", acked("memory, batch 64") / acked("memory, batch 1"), 0.5, 1000},
		{"lean generator / client", acked("memory, batch 64, lean") / acked("memory, batch 64"), 0.05, 50},
		{"unacked 4 KiB / acked 256 B, in bytes", unacked.PayloadMBPerSec / payload("memory, batch 64"), 0.05, 100},
		{"on_commit / memory", acked("on_commit, batch 64") / acked("memory, batch 64"), 0.0001, 5},
		{"open loop: acknowledged / due", open.AckedPerSec / smokeRate, 0.2, 1.5},
		{"fan-out: delivered / acknowledged", *fan.DeliveredPerSec / fan.AckedPerSec, smokeFan * 0.5, smokeFan * 2},
	}
	if open.E2E != nil && open.E2EUncorrected != nil {
		ratios = append(ratios, smokeRatio{"open loop: corrected / uncorrected p99", open.E2E.P99 / open.E2EUncorrected.P99, 0.99, 1e6})
	}
	return ratios
}

// smokeReport is the JSON of bench --smoke. The order of the fields is that of the output.
type smokeReport struct {
	OK     bool                    `json:"ok"`
	Ratios []smokeRatioJSON        `json:"ratios"`
	Cells  map[string]*load.Report `json:"cells"`
}

type smokeRatioJSON struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	OK    bool    `json:"ok"`
}

// benchSmoke runs every cell for a moment on one broker and checks the ratios.
func (a *app) benchSmoke(ctx context.Context) (err error) {
	broker, err := a.startBenchBroker(ctx, &benchOptions{})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := broker.stop(); err == nil && stopErr != nil {
			err = brokerEnded(stopErr)
		}
	}()
	result := smokeReport{OK: true, Cells: map[string]*load.Report{}}
	for _, cell := range smokeCells {
		report, err := a.smokeCell(ctx, broker, cell.generator, cell.config)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result.Cells[cell.name] = report
		if report.Void {
			return &problem{exitFailure, fmt.Sprintf("the run %q is void", cell.name), strings.Join(report.Runs[0].VoidReasons, "; "), "felix bench --smoke again, and report it with this output and felix version"}
		}
		if a.output != "json" {
			fmt.Fprintf(a.stdout, "%-24s %12.0f records/s  %8.1f MB/s\n", cell.name, report.AckedPerSec, report.PayloadMBPerSec)
		}
	}
	var wrong []string
	var rows [][]string
	for _, r := range smokeRatios(result.Cells) {
		result.Ratios = append(result.Ratios, smokeRatioJSON{r.name, r.value, r.low, r.high, r.ok()})
		mark := "ok"
		if !r.ok() {
			mark = "WRONG"
			result.OK = false
			wrong = append(wrong, fmt.Sprintf("%s is %.3g, and %g to %g is sane", r.name, r.value, r.low, r.high))
		}
		rows = append(rows, []string{r.name, fmt.Sprintf("%.3g", r.value), fmt.Sprintf("%g to %g", r.low, r.high), mark})
	}
	if a.output == "json" {
		err = a.printJSON(result)
	} else {
		fmt.Fprintln(a.stdout)
		err = printTable(a.stdout, []string{"RATIO", "VALUE", "SANE", ""}, rows)
	}
	if err == nil && !result.OK {
		err = &problem{exitFailure, "a ratio is not sane", strings.Join(wrong, "; "), "felix bench --smoke again on a machine that does nothing else, and report it with this output"}
	}
	return err
}

// smokeCell makes one run. One without acks must send more than twice what buffers hold: it takes longer where the machine is slow.
func (a *app) smokeCell(ctx context.Context, broker *benchBroker, generator string, c load.Config) (*load.Report, error) {
	var err error
	if c.Target, err = load.NewTarget(generator, broker.felix); err != nil {
		return nil, err
	}
	c.Warmup, c.Duration = smokeWarmup, smokeTime
	if c.Acks == load.AcksNone {
		c.Duration = unackedSmokeTime
	}
	for ; ; c.Duration *= 2 {
		report, err := load.Run(ctx, c)
		if err != nil || !report.Void || c.Acks != load.AcksNone || c.Duration >= maxSmokeTime || ctx.Err() != nil {
			return report, err
		}
	}
}
