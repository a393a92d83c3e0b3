package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"felix/perf/load"
	"felix/perf/session"
)

// A chart is a picture of a session.
type chart struct {
	name  string // of its file, without .svg
	title string
	svg   []byte
}

// Sizes of charts.
const (
	chartWidth  = 24 * vg.Centimeter
	chartHeight = 11 * vg.Centimeter
	margin      = 0.4 * vg.Centimeter
	rowHeight   = 0.6 * vg.Centimeter // of a horizontal bar
)

var palette = []color.Color{
	color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0xff, 0x7f, 0x0e, 0xff}, color.RGBA{0x2c, 0xa0, 0x2c, 0xff}, color.RGBA{0x94, 0x67, 0xbd, 0xff},
}

var (
	aheadColor  = color.RGBA{0x2c, 0xa0, 0x2c, 0xff}
	behindColor = color.RGBA{0xd6, 0x27, 0x28, 0xff}
)

// charts makes the pictures for which the session has figures. The same session makes the same pictures.
func charts(s session.Session) (all []chart, err error) {
	for _, draw := range []func(session.Session) (*chart, error){throughput, latencies, fanOut, fanOutLatency, peerRatios} {
		c, err := draw(s)
		if err != nil {
			return nil, err
		}
		if c != nil {
			all = append(all, *c)
		}
	}
	return all, nil
}

// find returns the report of a cell that is not void, nil without one.
func find(s session.Session, name string) *load.Report {
	if s.Cells == nil {
		return nil
	}
	i := slices.IndexFunc(s.Cells.Cells, func(c session.Cell) bool { return c.Name == name })
	if i < 0 || session.Void(s.Cells.Cells[i].Report) != "" {
		return nil
	}
	return s.Cells.Cells[i].Report
}

// A series is one color of a grouped bar chart; NaN is a bar that is not there.
type series struct {
	name   string
	values []float64
}

// throughput shows megabytes by shape and promise.
func throughput(s session.Session) (*chart, error) {
	shapes := []string{"256B-1", "256B-64", "256B-100", "4KiB-1", "4KiB-64", "4KiB-100"}
	var all []series
	for _, promise := range []string{"memory", "unacked", "periodic", "on_commit"} {
		row := series{name: promise}
		for _, shape := range shapes {
			v := math.NaN()
			if r := find(s, promise+"-"+shape); r != nil {
				v = r.PayloadMBPerSec
			}
			row.values = append(row.values, v)
		}
		all = append(all, row)
	}
	var limit *line
	if s.Cells != nil {
		limit = &line{"ceiling S", s.Cells.Ceilings.S()}
	}
	return bars("throughput", "Payload by size, batch and promise", "MB/s", shapes, all, limit)
}

// latencies shows what one publish at a time takes.
func latencies(s session.Session) (*chart, error) {
	names := []string{"lone-memory-0B", "lone-memory", "lone-memory-4KiB", "lone-periodic", "lone-on_commit-0B", "lone-on_commit", "lone-on_commit-4KiB"}
	all := []series{{name: "p50"}, {name: "p99"}, {name: "p99.9"}}
	for _, name := range names {
		values := [3]float64{math.NaN(), math.NaN(), math.NaN()}
		if r := find(s, name); r != nil && r.Ack != nil {
			values = [3]float64{r.Ack.P50, r.Ack.P99, r.Ack.P999}
		}
		for i, v := range values {
			all[i].values = append(all[i].values, v)
		}
	}
	var limit *line
	if s.Cells != nil {
		limit = &line{"ceiling E", s.Cells.Ceilings.E()}
	}
	labels := make([]string, len(names))
	for i, name := range names {
		labels[i] = strings.TrimPrefix(name, "lone-")
	}
	return bars("latency", "One publish at a time, until it is acknowledged", "us", labels, all, limit)
}

// A line is a level across a chart.
type line struct {
	name  string
	value float64
}

// bars makes a grouped bar chart, nil when it would have no bar.
func bars(name, title, unit string, groups []string, all []series, limit *line) (*chart, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, unit
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	width := chartWidth / vg.Length(len(groups)*(len(all)+2))
	drawn := false
	for i, s := range all {
		values := make(plotter.Values, len(s.values))
		some := false
		for j, v := range s.values {
			if !math.IsNaN(v) && v > 0 {
				values[j], some = v, true
			}
		}
		if !some {
			continue
		}
		drawn = true
		b, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		b.Color, b.LineStyle.Width = palette[i%len(palette)], 0
		b.Offset = width * vg.Length(float64(i)-float64(len(all)-1)/2)
		p.Add(b)
		p.Legend.Add(s.name, b)
	}
	if !drawn {
		return nil, nil
	}
	if limit != nil && limit.value > 0 {
		level := plotter.NewFunction(func(float64) float64 { return limit.value })
		level.Color, level.Dashes = color.Gray{0x40}, []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(level)
		p.Legend.Add(limit.name, level)
		p.Y.Max = max(p.Y.Max, limit.value*1.05)
	}
	p.NominalX(groups...)
	p.X.Min, p.X.Max = -0.6, float64(len(groups))-0.4
	p.Y.Max *= 1.3 // room for the legend
	return finish(p, name, title, chartHeight)
}

// fanOut shows deliveries over subscribers.
func fanOut(s session.Session) (*chart, error) {
	return overSubscribers(s, "fanout", "Deliveries, 256 B, batches of 64", "deliveries/s", map[string]func(*load.Report) *float64{
		"all subscribers together": func(r *load.Report) *float64 { return r.DeliveredPerSec },
	})
}

// fanOutLatency shows times over subscribers.
func fanOutLatency(s session.Session) (*chart, error) {
	return overSubscribers(s, "fanout-latency", "Times, 256 B, batches of 64, p50", "us", map[string]func(*load.Report) *float64{
		"acknowledgement": func(r *load.Report) *float64 { return p50(r.Ack) },
		"delivery":        func(r *load.Report) *float64 { return p50(r.E2E) },
	})
}

func p50(l *load.Latency) *float64 {
	if l == nil {
		return nil
	}
	return &l.P50
}

// overSubscribers makes a chart of lines over the number of subscribers, nil with fewer than two points.
func overSubscribers(s session.Session, name, title, unit string, lines map[string]func(*load.Report) *float64) (*chart, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "subscribers", unit
	p.Y.Min = 0
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks{{Value: 1, Label: "1"}, {Value: 10, Label: "10"}, {Value: 50, Label: "50"}, {Value: 500, Label: "500"}}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	names := []string{}
	for name := range lines {
		names = append(names, name)
	}
	slices.Sort(names)
	drawn := false
	for i, name := range names {
		var points plotter.XYs
		for _, n := range []int{1, 10, 50, 500} {
			if r := find(s, fmt.Sprintf("fanout%d-256B", n)); r != nil {
				if v := lines[name](r); v != nil {
					points = append(points, plotter.XY{X: float64(n), Y: *v})
				}
			}
		}
		if len(points) < 2 {
			continue
		}
		drawn = true
		l, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		l.Color, marks.Color, marks.Shape = palette[i%len(palette)], palette[i%len(palette)], draw.CircleGlyph{}
		p.Add(l, marks)
		p.Legend.Add(name, l, marks)
	}
	if !drawn {
		return nil, nil
	}
	p.Y.Max *= 1.2 // room for the legend
	return finish(p, name, title, chartHeight)
}

// peerRatios shows how felix stands in each pair, on a logarithmic scale whose middle is equality.
func peerRatios(s session.Session) (*chart, error) {
	if s.Peers == nil {
		return nil, nil
	}
	var names []string
	var ahead, behind plotter.Values
	sorted := s.Peers.Sorted()
	slices.Reverse(sorted) // the first is drawn at the bottom
	for _, pair := range sorted {
		ratio, ok := pair.Ratio()
		if !ok || !(ratio > 0) {
			continue
		}
		names = append(names, pair.Name)
		level := math.Log10(ratio)
		ahead, behind = append(ahead, max(level, 0)), append(behind, min(level, 0))
	}
	if len(names) == 0 {
		return nil, nil
	}
	title := "felix against " + s.Peers.Peer
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, "times better"
	var ticks plot.ConstantTicks
	for _, v := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100} {
		ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: fmt.Sprintf("%g x", v)})
	}
	p.X.Tick.Marker = ticks
	p.Add(plotter.NewGrid())
	for _, side := range []struct {
		values plotter.Values
		color  color.Color
	}{{ahead, aheadColor}, {behind, behindColor}} {
		b, err := plotter.NewBarChart(side.values, rowHeight*0.7)
		if err != nil {
			return nil, err
		}
		b.Horizontal, b.Color, b.LineStyle.Width = true, side.color, 0
		p.Add(b)
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = min(p.X.Min, math.Log10(0.5)), max(p.X.Max, math.Log10(2))+0.05
	return finish(p, "peers", title, rowHeight*vg.Length(len(names))+3*vg.Centimeter)
}

// finish draws the plot.
func finish(p *plot.Plot, name, title string, height vg.Length) (*chart, error) {
	p.BackgroundColor = color.White
	p.Title.Padding, p.Legend.Padding = margin, vg.Points(2)
	canvas := vgsvg.New(chartWidth, height)
	p.Draw(draw.Crop(draw.New(canvas), margin, -2*margin, margin, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return &chart{name, title, b.Bytes()}, nil
}

// inline is the picture as an element of a page: without what stands before it in a file.
func (c chart) inline() string {
	text := string(c.svg)
	if i := strings.Index(text, "<svg"); i >= 0 {
		return text[i:]
	}
	return ""
}
