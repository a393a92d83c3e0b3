package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"felix"
	"felix/perf/load"
)

// benchView prints a run: what is measured, how it goes, what came out.
type benchView struct {
	app      *app
	config   load.Config
	broker   *benchBroker
	tty      bool
	p99      []time.Duration // of the last samples
	shown    bool            // a live line stands on the terminal
	profiled bool
}

// sparkWidth is the number of samples in the sparkline.
const sparkWidth = 20

func newBenchView(a *app, c load.Config, broker *benchBroker) *benchView {
	return &benchView{app: a, config: c.WithDefaults(), broker: broker, tty: isTerminal(a.stderr)}
}

// header says what is measured and on what. In JSON the report holds the same.
func (v *benchView) header(ctx context.Context, o *benchOptions) error {
	if v.app.output == "json" {
		return nil
	}
	m, c, w := load.ThisMachine(), v.config, v.app.stdout
	rows := [][]string{
		{"felix", felix.Version()},
		{"broker", v.broker.what},
		{"machine", fmt.Sprintf("%s, %s, %s, %s, GOMAXPROCS %d, load %s", count(m.CPUs, "CPU"), orUnknown(m.CPU), bytesText(m.MemoryMB*1e6), m.Kernel, m.GOMAXPROCS, orUnknown(m.LoadAverage))},
		{"sockets", fmt.Sprintf("rmem_max %s, wmem_max %s%s", bytesText(m.RmemMax), bytesText(m.WmemMax), v.packetText())},
		{"stream", v.streamText()},
		{"load", v.loadText()},
	}
	if c.Stream == "" && c.Durability != load.Memory && v.broker.dir != "" {
		took, err := load.SyncTime(ctx, v.broker.dir)
		text := "a sync of 4 KiB takes " + durationText(took) + " in " + v.broker.dir
		if err != nil {
			text = "the time of a sync is not known: " + deepest(err).Error()
		}
		rows = append(rows, []string{"disk", text})
	}
	loop := "closed loop: both latencies are from the call of publish"
	if c.Rate > 0 {
		loop = fmt.Sprintf("open loop, %s records/s due; corrected latencies are from when a record was due", humanize.Comma(int64(c.Rate)))
	}
	rows = append(rows, []string{"", loop}, []string{"", fmt.Sprintf("generator: %s; %v after %v of warm-up; seed %d", o.generator, c.Duration, max(c.Warmup, 0), c.Seed)})
	if err := printTable(w, nil, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// packetText is the bound of packets of a broker that was started for the run; of another one only the mean will be known.
func (v *benchView) packetText() string {
	if v.broker.maxPacket == 0 {
		return ""
	}
	return fmt.Sprintf(", packets of at most %s B", humanize.Comma(int64(v.broker.maxPacket)))
}

func orUnknown(text string) string {
	if text == "" {
		return "not known"
	}
	return text
}

func (v *benchView) streamText() string {
	c := v.config
	if c.Stream != "" {
		return c.Stream + ", as it is"
	}
	return count(c.Shards, "shard") + ", " + map[load.Durability]string{
		load.Memory: "in memory", load.OnCommit: "durable, on_commit: an ack means on disk",
		load.Periodic: "durable, periodic: an ack means written", load.NoSync: "durable, none: an ack means written",
	}[c.Durability]
}

func (v *benchView) loadText() string {
	c := v.config
	text := fmt.Sprintf("%s x %s x %d", count(c.Publishers, "publisher"), bytesText(int64(max(c.Size, 0))), c.Batch)
	switch c.Acks {
	case load.AcksNone:
		text += ", without acks"
	case load.AcksEach:
		text += ", one at a time"
	default:
		text += fmt.Sprintf(", %d in flight each", c.InFlight)
	}
	text += ", " + count(max(c.Keys, 0), "key") + " each"
	if c.Subscribers > 0 {
		text += ", " + count(c.Subscribers, "subscriber")
		if c.Slow > 0 {
			text += fmt.Sprintf(", %d of which do not read", c.Slow)
		}
	}
	return text
}

// live writes the line that tells how it goes over the one before.
func (v *benchView) live(p load.Progress) {
	if !v.tty {
		return
	}
	p99 := max(p.AckP99, p.E2EP99)
	v.p99 = append(v.p99, p99)
	if len(v.p99) > sparkWidth {
		v.p99 = v.p99[1:]
	}
	fmt.Fprint(v.app.stderr, "\r\x1b[K"+liveText(p, v.p99))
	v.shown = true
}

// liveText is the line, at most 80 columns wide in all but the longest runs.
func liveText(p load.Progress, p99 []time.Duration) string {
	name := fmt.Sprintf("run %d/%d", p.Run, p.Of)
	if p.Run == 0 {
		name = "first run"
	}
	if p.Phase == load.Warming {
		name += " warm-up"
	}
	text := fmt.Sprintf("%s %.0f/%.0f s  %s/s", name, p.Elapsed.Seconds(), p.Total.Seconds(), shortCount(p.AckedRate))
	if p.Delivered > 0 {
		text += fmt.Sprintf(" in, %s/s out", shortCount(p.Delivered))
	}
	if last := p99[len(p99)-1]; last > 0 {
		text += fmt.Sprintf("  p99 %s %s", durationText(last), sparkline(p99))
	}
	if bad := p.Refused + p.Unknown; bad > 0 {
		text += fmt.Sprintf("  %s failed", shortCount(float64(bad)))
	}
	if p.BrokerGone {
		text += "  broker does not answer"
	}
	return text
}

// shortCount is a number in at most 5 columns: 950, 12.3k, 1.20M.
func shortCount(n float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		switch {
		case n < 1000 && unit == "":
			return fmt.Sprintf("%.0f", n)
		case n < 10:
			return fmt.Sprintf("%.2f%s", n, unit)
		case n < 100:
			return fmt.Sprintf("%.1f%s", n, unit)
		case n < 1000:
			return fmt.Sprintf("%.0f%s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.0fT", n)
}

// sparkline draws values as bars, the largest one full.
func sparkline(values []time.Duration) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	most := time.Duration(1)
	for _, v := range values {
		most = max(most, v)
	}
	var text strings.Builder
	for _, v := range values {
		text.WriteRune(bars[int(float64(v)/float64(most)*float64(len(bars)-1)+0.5)])
	}
	return text.String()
}

// clear takes the live line away.
func (v *benchView) clear() {
	if v.shown {
		fmt.Fprint(v.app.stderr, "\r\x1b[K")
		v.shown = false
	}
}

// final prints what came out.
func (v *benchView) final(r *load.Report) error { return printBench(v.app.stdout, r) }

// printBench is the final block.
func printBench(w io.Writer, r *load.Report) error {
	comma := func(n int64) string { return humanize.Comma(n) }
	rate := func(n float64) string { return humanize.Comma(int64(n + 0.5)) }
	rows := [][]string{
		{"offered", comma(r.Offered) + " records"},
		{"answered", fmt.Sprintf("%s acknowledged, %s refused, %s unknown", comma(r.Acked), comma(r.Refused), comma(r.Unknown))},
	}
	if r.DeliveredPerSec != nil {
		rows = append(rows, []string{"delivered", fmt.Sprintf("%s of %s expected, %s again, %s in gaps", comma(r.Delivered), comma(r.Expected), comma(r.Duplicates), comma(r.Gaps))})
	}
	text := fmt.Sprintf("%s records/s, counted at the %s", rate(r.AckedPerSec), r.Config.CountedAt)
	if r.DeliveredPerSec != nil {
		text = fmt.Sprintf("%s records/s in, counted at the %s; %s records/s out", rate(r.AckedPerSec), r.Config.CountedAt, rate(*r.DeliveredPerSec))
	}
	rows = append(rows, []string{"rate", text}, []string{"payload", fmt.Sprintf("%.1f MB/s", r.PayloadMBPerSec)})
	if r.ClientCPUCores != nil {
		text := fmt.Sprintf("generator %.2f cores", *r.ClientCPUCores)
		if r.ClientCPUSecPerMillion != nil {
			text += fmt.Sprintf(", %.3g s per million records", *r.ClientCPUSecPerMillion)
		}
		if r.BrokerCPUCores != nil {
			broker := fmt.Sprintf("broker %.2f cores", *r.BrokerCPUCores)
			if r.BrokerCPUSecPerMillion != nil {
				broker += fmt.Sprintf(", %.3g s per million records", *r.BrokerCPUSecPerMillion)
			}
			text = broker + "; " + text
		}
		rows = append(rows, []string{"cpu", text})
	}
	if r.BrokerRSSMB != nil {
		rows = append(rows, []string{"memory", fmt.Sprintf("broker %.0f MB", *r.BrokerRSSMB)})
	}
	if r.SyncsPerSec != nil && *r.SyncsPerSec > 0 && r.RecordsPerSync != nil {
		text := fmt.Sprintf("%s syncs/s of %.3g records", rate(*r.SyncsPerSec), *r.RecordsPerSync)
		if r.ZeroedGroupShare != nil {
			text += fmt.Sprintf(", %.0f %% of the writes into zeroed blocks", *r.ZeroedGroupShare*100)
		}
		rows = append(rows, []string{"disk", text})
	}
	if r.PacketBytes != nil {
		text := fmt.Sprintf("packets of %.0f B in the mean", *r.PacketBytes)
		if r.Machine.SocketBytes > 0 {
			text += ", socket buffers of " + bytesText(r.Machine.SocketBytes)
		}
		if r.RcvbufErrors != nil {
			text += fmt.Sprintf(", %s dropped by the kernel", comma(*r.RcvbufErrors))
		}
		rows = append(rows, []string{"network", text})
	}
	if err := printTable(w, nil, rows); err != nil {
		return err
	}
	if err := printLatencies(w, r); err != nil {
		return err
	}
	return printRuns(w, r)
}

// printLatencies prints the distributions that there are.
func printLatencies(w io.Writer, r *load.Report) error {
	var rows [][]string
	add := func(name string, l *load.Latency) {
		if l == nil {
			return
		}
		row := []string{name}
		for _, micros := range []float64{l.Min, l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max} {
			row = append(row, durationText(time.Duration(micros*float64(time.Microsecond))))
		}
		rows = append(rows, row)
	}
	if r.Config.Rate > 0 {
		add("ack, corrected", r.Ack)
		add("ack, uncorrected", r.AckUncorrected)
		add("end to end, corrected", r.E2E)
		add("end to end, uncorrected", r.E2EUncorrected)
	} else {
		add("ack", r.Ack)
		add("end to end", r.E2E)
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printTable(w, []string{"LATENCY", "MIN", "P50", "P90", "P99", "P99.9", "P99.99", "MAX"}, rows)
}

// printRuns lists several runs, and what each has to say.
func printRuns(w io.Writer, r *load.Report) error {
	if len(r.Runs) > 1 {
		var rows [][]string
		for i, run := range r.Runs {
			name := fmt.Sprint(i)
			if run.Discarded {
				name = "first, not counted"
			}
			p99 := "-"
			if run.Ack != nil {
				p99 = durationText(time.Duration(run.Ack.P99 * float64(time.Microsecond)))
			}
			rows = append(rows, []string{name, humanize.Comma(int64(run.AckedPerSec + 0.5)), p99})
		}
		fmt.Fprintln(w)
		if err := printTable(w, []string{"RUN", "RECORDS/S", "ACK P99"}, rows); err != nil {
			return err
		}
	}
	var notes []string
	notes = append(notes, r.Config.Notes...)
	for _, run := range r.Runs {
		notes = append(notes, run.Notes...)
	}
	seen := map[string]bool{}
	for _, note := range notes {
		if !seen[note] {
			fmt.Fprintf(w, "\nnote: %s", oneLine(note))
			seen[note] = true
		}
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, run := range r.Runs {
		for _, reason := range run.VoidReasons {
			fmt.Fprintf(w, "VOID: %s\n", oneLine(reason))
		}
	}
	return nil
}
