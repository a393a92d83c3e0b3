package main

import (
	"fmt"
	"strings"

	"felix/perf/load"
	"felix/perf/session"
)

// A Report is scale.json.
type Report struct {
	Machine     load.Machine `json:"machine"`
	Command     string       `json:"command"`
	Runs        int          `json:"runs"`
	DurationSec float64      `json:"duration_sec"`
	Rows        []Row        `json:"rows"` // in the order of the parts
	Notes       []string     `json:"notes"`
	Series      []*Series    `json:"series"`
}

// Markdown is scale.md.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString("# Cost over scale\n\n")
	b.WriteString(r.table().Markdown())
	b.WriteString(session.MachineTable(r.Machine, r.Command, "").Markdown())
	b.WriteString(r.seriesTable().Markdown())
	return b.String()
}

// table shows the rows.
func (r *Report) table() session.Table {
	t := session.Table{
		Title: "Targets",
		Intro: fmt.Sprintf("Missed ones first. Medians of %d runs of %v s on fresh brokers, in turn; the interval holds the true value with 95 %%, and a row "+
			"whose interval holds its bound is not shown. `perf/scale/doc.go` says what is measured how.", r.Runs, r.DurationSec),
		Header: []string{"part", "what", "target", "measured", "95 % interval", "spread", "runs", "verdict", "detail"},
		Notes:  r.Notes,
	}
	for _, row := range sorted(r.Rows) {
		unit := row.Unit
		if unit != "" {
			unit = " " + unit
		}
		interval, spread, target := "-", "-", row.Target
		if row.Low != nil && row.High != nil {
			interval = session.Number(*row.Low) + " to " + session.Number(*row.High)
		}
		if row.Spread != nil {
			spread = session.Number(*row.Spread*100) + " %"
		}
		if target == "" {
			target = "-"
		}
		t.Rows = append(t.Rows, []string{
			row.Part, row.What, target, number(row.Value) + unit, interval, spread, fmt.Sprint(row.Runs), string(row.Verdict), row.Detail,
		})
	}
	return t
}

// seriesTable shows the medians of every figure of every variant.
func (r *Report) seriesTable() session.Table {
	t := session.Table{Title: "Medians", Intro: "Every variant; `" + jsonFile + "` has each run.", Header: []string{"part", "variant", "figure", "median", "spread", "runs"}}
	for _, s := range r.Series {
		for _, f := range []Figure{cpuPerMillion, cpuNet, brokerCores, ackedRate, packetsPerRecord, keepAliveCores, heldBytes, liveBytes, rssBytes, logBytes} {
			values := s.values(f)
			if len(values) == 0 {
				continue
			}
			of := "-"
			if v := spread(values); v != nil {
				of = session.Number(*v*100) + " %"
			}
			t.Rows = append(t.Rows, []string{s.Part, s.Variant, string(f), session.Number(s.median(f)), of, fmt.Sprint(len(values))})
		}
	}
	return t
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return session.Number(*v)
}
