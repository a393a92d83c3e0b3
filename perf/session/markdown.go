package session

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"felix/perf/load"
)

// A Table is a table for people. Cells hold no markup.
type Table struct {
	Title  string
	Intro  string // a sentence or two; "" for none
	Header []string
	Rows   [][]string
	Notes  []string // below it
}

// Markdown is the table with its title as a heading of the second level.
func (t Table) Markdown() string {
	var b strings.Builder
	if t.Title != "" {
		fmt.Fprintf(&b, "## %s\n\n", t.Title)
	}
	if t.Intro != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Intro)
	}
	if len(t.Rows) > 0 {
		b.WriteString(t.rows())
		b.WriteString("\n")
	}
	for _, n := range t.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	if len(t.Notes) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// rows are header and rows as Markdown.
func (t Table) rows() string {
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(&b, "| %s ", strings.ReplaceAll(c, "|", `\|`))
		}
		b.WriteString("|\n")
	}
	line(t.Header)
	b.WriteString(strings.Repeat("|---", len(t.Header)) + "|\n")
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}

// Number prints three significant digits, with k and M for thousands and millions.
func Number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case math.Abs(v) >= 999_500:
		return digits(v/1e6) + " M"
	case math.Abs(v) >= 9_995:
		return digits(v/1e3) + " k"
	}
	return digits(v)
}

// digits prints three significant digits, more of what is longer.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	if math.Abs(v) < 1000 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64) // so that 9.996 is 10.0
	}
	places := max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	return fmt.Sprintf("%.*f", min(places, 4), v)
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return Number(*v)
}

// times prints a ratio.
func times(v float64) string { return digits(v) + " x" }

// text is a figure with its unit.
func (g Figure) text(v float64) string {
	if g.Less() {
		return Number(v) + " us"
	}
	return Number(v) + "/s"
}

// MachineTable is what a session ran on.
func MachineTable(m load.Machine, command, disk string) Table {
	t := Table{Title: "Machine", Header: []string{"", ""}}
	add := func(name, value string) {
		if value != "" {
			t.Rows = append(t.Rows, []string{name, value})
		}
	}
	add("date", m.Time)
	add("commit", m.Commit)
	add("command", command)
	add("machine", fmt.Sprintf("%d CPUs, %s, %s MB", m.CPUs, m.CPU, fmt.Sprint(m.MemoryMB)))
	add("kernel", m.Kernel)
	add("go", fmt.Sprintf("%s, GOMAXPROCS %d", m.Go, m.GOMAXPROCS))
	add("sockets", fmt.Sprintf("rmem_max %d, wmem_max %d, receive buffer of the broker %d bytes", m.RmemMax, m.WmemMax, m.SocketBytes))
	add("disk", disk)
	add("load average before", m.LoadAverage)
	return t
}

// Table shows the ceilings with what their samples differ by.
func (c *Ceilings) Table() Table {
	t := Table{
		Title: "Ceilings", Intro: "What this machine does without a broker, sampled again and again between the cells; medians. " +
			"Shares and targets are of L, E and S with two processes on the same CPUs, as broker and generator are in the cells. In one process nobody else is woken " +
			"for a packet, which an echo shows most: the difference is what a second process costs, with or without a broker.",
		Header: []string{"", "what it is", "median", "samples"},
	}
	if c.inOneOnly() {
		t.Intro = "What this machine does without a broker, sampled again and again between the cells; medians. " +
			"This session took L, E and S in one process only, and shares and targets are of these; the cells had two, which a lone publish pays for."
	}
	for _, r := range []struct {
		name, what, unit string
		samples          []float64
	}{
		{"L", "bare loop, 256 B, one by one, 64 streams x 64 in flight; two processes", "records/s", c.LoopPerSec},
		{"L in one process", "bare loop, 256 B, one by one, 64 streams x 64 in flight; server and client in one", "records/s", c.LoopInOnePerSec},
		{"E", "bare echo, 256 B, one in flight, p50; two processes", "us", c.EchoP50us},
		{"E in one process", "bare echo, 256 B, one in flight, p50; server and client in one", "us", c.EchoInOneP50us},
		{"S", "bulk sink, one server; two processes", "MB/s", c.SinkMBPerSec},
		{"S in one process", "bulk sink, one server; server and client in one", "MB/s", c.SinkInOneMBPerSec},
		{"D", "write + fdatasync of 4 KiB into blocks written before, p50", "us", c.DiskP50us},
		{"Z", "write + fdatasync of 1 MiB likewise", "MB/s", c.DiskMBPerSec},
		{"fio 4 KiB", "fio, psync + fdatasync, blocks written before, mean", "us", c.FioSmallP50us},
		{"cache line", "to another CPU and back: where the CPUs are virtual, several times more when the host has them far apart, and what two processes do is slower then", "ns", c.LineNs},
		{"fio 1 MiB", "fio, psync + fdatasync, blocks written before", "MB/s", c.FioMBPerSec},
	} {
		if len(r.samples) == 0 {
			continue
		}
		var samples []string
		for _, v := range r.samples {
			samples = append(samples, Number(v))
		}
		t.Rows = append(t.Rows, []string{r.name, r.what, Number(Median(r.samples)) + " " + r.unit, strings.Join(samples, ", ")})
	}
	return t
}

// JudgeTable shows the targets, missed ones first.
func (c *Cells) JudgeTable() Table {
	t := Table{
		Title: "Targets", Intro: "DESIGN section 10. Missed ones first, the worst on top. What was measured and its bound are medians; of a session in rounds their ratio is the " +
			"median of those of the rounds, because the machine was not the same in all of them.",
		Header: []string{"cell", "target", "measured", "bound", "measured / bound", "verdict"},
	}
	for _, r := range c.Judge() {
		row := []string{r.Cell, r.Target, "-", "-", "-", string(r.Verdict)}
		if r.Verdict == Meets || r.Verdict == Misses {
			row[2], row[3], row[4] = Number(r.Value)+" "+r.Unit, Number(r.Bound)+" "+r.Unit, times(r.Ratio)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// verdictOf is the word for all targets of a cell.
func verdictOf(rows []Row, cell string) string {
	verdict := NoTarget
	for _, r := range rows { // misses come first, meets last
		if r.Cell == cell && verdict == NoTarget {
			verdict = r.Verdict
		}
	}
	return string(verdict)
}

// Tables shows every cell, a table for each group in the order in which they appear.
func (c *Cells) Tables() (tables []Table) {
	rows := c.Judge()
	var groups []string
	for _, cell := range c.Cells {
		if !slices.Contains(groups, cell.Group) {
			groups = append(groups, cell.Group)
		}
	}
	for _, group := range groups {
		t := Table{Title: group, Header: []string{
			"cell", "records/s", "delivered/s", "MB/s", "ack p50 us", "ack p99 us", "e2e p50 us", "e2e p99 us", "broker us/record", "generator us/record", "spread", "ceiling", "target",
		}}
		for _, cell := range c.Cells {
			if cell.Group != group {
				continue
			}
			r := cell.Report
			spread := "-"
			if v, ok := Spread(r, cell.Figure); ok {
				spread = fmt.Sprintf("%.0f %%", v*100)
			}
			ack, e2e := part(r.Ack), part(r.E2E)
			row := []string{
				cell.Name, Number(r.AckedPerSec), number(r.DeliveredPerSec), Number(r.PayloadMBPerSec), ack[0], ack[1], e2e[0], e2e[1],
				number(r.BrokerCPUSecPerMillion), number(r.ClientCPUSecPerMillion), spread, c.Ceilings.CeilingOf(r), verdictOf(rows, cell.Name),
			}
			if why := Void(r); why != "" {
				row[len(row)-1] = string(VoidRun)
				t.Notes = append(t.Notes, cell.Name+" is void: "+why)
			}
			if text := c.against(cell); text != "" {
				t.Notes = append(t.Notes, text)
			}
			if bound := generatorBound(r); bound != "" {
				t.Notes = append(t.Notes, cell.Name+": "+bound)
			}
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
	}
	return tables
}

// against says how a cell stands to the one that it ran in turn with, "" where that cannot be said.
func (c *Cells) against(cell Cell) string {
	i := slices.IndexFunc(c.Cells, func(o Cell) bool { return o.Name == cell.Against })
	if i < 0 || Void(cell.Report) != "" || Void(c.Cells[i].Report) != "" {
		return ""
	}
	other := c.Cells[i]
	inTurn := ratios(cell.Report, other.Report, cell.Figure)
	if len(inTurn) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s: %s is %s that of %s", cell.Name, cell.Figure, times(Median(inTurn)), other.Name)
	if low, high, ok := ratioInterval(inTurn); ok {
		text += fmt.Sprintf(" (95 %% interval %s-%s)", digits(low), digits(high))
	}
	if a, b := cell.Report.PacketBytes, other.Report.PacketBytes; a != nil && b != nil {
		text += fmt.Sprintf("; packets of %.0f bytes at the mean, there %.0f", *a, *b)
	}
	return text
}

// generatorBound says so when the generator used more of the machine than the broker did: then it, not the broker, sets the rate.
func generatorBound(r *load.Report) string {
	if r.BrokerCPUCores == nil || r.ClientCPUCores == nil || r.Config.Rate > 0 || r.Config.Acks == load.AcksEach {
		return ""
	}
	if *r.ClientCPUCores > 1.5**r.BrokerCPUCores {
		return fmt.Sprintf("the generator is the bottleneck: it used %s cores, the broker %s", digits(*r.ClientCPUCores), digits(*r.BrokerCPUCores))
	}
	return ""
}

func part(l *load.Latency) [2]string {
	if l == nil {
		return [2]string{"-", "-"}
	}
	return [2]string{Number(l.P50), Number(l.P99)}
}

// Table shows the pairs, lost ones first.
func (p *Peers) Table() Table {
	t := Table{
		Title:  "felix and " + p.Peer,
		Intro:  fmt.Sprintf("One promise per row, both sides in turn (A B B A), a fresh process per run, medians of %d rounds after one that does not count. Rows that felix loses first. A ratio is the median of those of the rounds; above 1 it is in favour of felix, of times as well; in brackets its 95 %% interval.", p.Rounds),
		Header: []string{"pair", "promise", "figure", "felix", "peer", "ratio", "felix is", "target", "verdict", "ack p99 us, felix / peer", "broker us/record, felix / peer"},
		Notes:  slices.Clone(p.Notes),
	}
	for _, pair := range p.Sorted() {
		felix, peer, _ := pair.Values()
		ratio := "-"
		if r, ok := pair.Ratio(); ok {
			ratio = times(r)
			if low, high, ok := pair.Interval(); ok {
				ratio += fmt.Sprintf(" (%s-%s)", digits(low), digits(high))
			}
		}
		t.Rows = append(t.Rows, []string{
			pair.Name, pair.Promise, string(pair.Figure), pair.Figure.text(felix), pair.Figure.text(peer), ratio, string(pair.Standing()), pair.target(), string(pair.Verdict()),
			part(pair.Felix.Ack)[1] + " / " + part(pair.Peer.Ack)[1], number(pair.Felix.BrokerCPUSecPerMillion) + " / " + number(pair.Peer.BrokerCPUSecPerMillion),
		})
		for _, side := range []struct {
			name   string
			report *load.Report
		}{{"felix", pair.Felix}, {p.Peer, pair.Peer}} {
			if why := Void(side.report); why != "" {
				t.Notes = append(t.Notes, pair.Name+": the runs of "+side.name+" are void: "+why)
			}
		}
	}
	return t
}

// UnequalTable says per pair what differs besides the broker.
func (p *Peers) UnequalTable() Table {
	t := Table{Title: "What is not equal", Header: []string{"pair", "what"}, Notes: p.Setup}
	for _, pair := range p.Sorted() {
		what := strings.Join(pair.NotEqual, "; ")
		if what == "" {
			what = "nothing that we know of"
		}
		t.Rows = append(t.Rows, []string{pair.Name, what})
	}
	return t
}

// Markdown is the whole report. Charts are the files of the pictures, from the directory of the report.
func (s Session) Markdown(charts []string) string {
	var b strings.Builder
	b.WriteString("# Measurements\n\n")
	for _, t := range s.Tables() {
		b.WriteString(t.Markdown())
	}
	if len(charts) > 0 {
		b.WriteString("## Charts\n\n")
		for _, file := range charts {
			fmt.Fprintf(&b, "![%s](%s)\n\n", strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:], ".svg"), file)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// Tables are those of the report, in its order: what is missed and lost comes first.
func (s Session) Tables() (tables []Table) {
	if s.Peers != nil {
		tables = append(tables, s.Peers.Table())
	}
	if s.Cells != nil {
		tables = append(tables, s.Cells.JudgeTable(), s.Cells.Ceilings.Table())
		tables = append(tables, s.Cells.Tables()...)
	}
	if s.Peers != nil {
		tables = append(tables, s.Peers.UnequalTable())
	}
	switch {
	case s.Cells != nil:
		machine := MachineTable(s.Cells.Machine, s.Cells.Command, s.Cells.Disk)
		machine.Notes = s.Cells.Notes
		tables = append(tables, machine)
	case s.Peers != nil:
		tables = append(tables, MachineTable(s.Peers.Machine, s.Peers.Command, ""))
	}
	return tables
}
