package take

import (
	"context"
	"fmt"
	"io"

	"felix/perf/load"
	"felix/perf/session"
)

// maxApart is how often one run is made again because the CPUs were apart.
const maxApart = 2

// Runs are those of one load in a session. The zero value has none.
type Runs struct {
	Counted []*load.Report // of one run each, in the order in which they were made
	voids   int            // runs that were made again because they were void
	made    int            // all of them
}

// A Maker makes runs.
type Maker struct {
	MaxVoids int   // runs of a load that are made again because they are void
	CPUs     *CPUs // nil: runs are taken whatever the CPUs do
	Progress io.Writer
}

// Run makes a run with once, again as long as it does not count and that may be, and adds it to runs. Each that was made goes to keep with its number,
// from 0, the ones that do not count too. The line that says how it went begins with name. Errors are those of once and keep as they are, and that of ctx once it has ended.
func (m *Maker) Run(ctx context.Context, runs *Runs, name string, figure session.Figure, once func(context.Context) (*load.Report, error), keep func(number int, r *load.Report) error) error {
	for apart := 0; ; {
		var report *load.Report
		line, took, err := m.CPUs.while(ctx, func() (err error) { report, err = once(ctx); return err })
		if ended := ctx.Err(); ended != nil {
			err = ended
		}
		if err != nil {
			return err
		}
		m.CPUs.note(report, line)
		if err := keep(runs.made, report); err != nil {
			return err
		}
		runs.made++
		value, _ := figure.Of(&report.Figures)
		fmt.Fprintf(m.Progress, "  %s%s %s\n", name, figure, session.Number(value))
		switch {
		case report.Void && runs.voids < m.MaxVoids:
			runs.voids++
			fmt.Fprintf(m.Progress, "  %svoid, once more: %s\n", name, session.Void(report))
			continue
		case m.CPUs.again(line, took, apart):
			apart++
			fmt.Fprintf(m.Progress, "  %sthe CPUs were apart, once more: a cache line took %.0f ns\n", name, line)
			continue
		}
		m.CPUs.counted(line)
		runs.Counted = append(runs.Counted, report)
		return nil
	}
}
