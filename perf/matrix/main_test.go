package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix/netio/udp"
	"felix/perf/ceiling"
	"felix/perf/load"
	"felix/perf/session"
)

func TestMain(m *testing.M) {
	ceiling.ServeIfAsked()
	goleak.VerifyTestMain(m)
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-cells", "^lone-", "-peers=false", "-o", "/somewhere"}, new(strings.Builder))
	if err != nil || len(o.cells) != 7 || o.peers || o.runs != 5 || o.duration != 2e9 || !o.jumbo || o.command != "go run ./perf/matrix -cells='^lone-' -peers=false" {
		t.Errorf("%d cells, %+v %v", len(o.cells), o, err)
	}
	if o, err := parse([]string{"-brief"}, new(strings.Builder)); err != nil || o.duration != briefDuration || o.warmup != briefWarmup || o.jumbo {
		t.Errorf("brief: %v %v %v", o.duration, o.warmup, err)
	}
	if o, err := parse([]string{"-brief", "-jumbo", "-cells", "jumbo"}, new(strings.Builder)); err != nil || len(o.cells) != 3 {
		t.Errorf("brief with the jumbo build: %d cells, %v", len(o.cells), err)
	}
	if o, err := parse([]string{"-brief", "-duration", "1s"}, new(strings.Builder)); err != nil || o.duration != 1e9 {
		t.Errorf("brief with a duration: %v %v", o.duration, err)
	}
	for want, args := range map[string][]string{
		`no cell is called "nothing"`: {"-cells", "nothing"},
		"-cells: ":                    {"-cells", "("},
		"runs is 0; give 1 to 100":    {"-runs", "0"},
		"duration is 0s":              {"-duration", "0s"},
		`"x" is no flag`:              {"x"},
		"give one of them":            {"-read", "a", "-readme", "b"},
		"-o is where":                 {"-read", "a", "-o", "b"},
		"-twice makes two":            {"-twice", "-against", "a"},
		"-one runs a cell with":       {"-one", "lone-memory"},
		`no cell is called "-jumbo$"`: {"-jumbo=false", "-cells", "-jumbo$"},
	} {
		if _, err := parse(args, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	for want, args := range map[string][]string{
		`no cell is called "x"`: {"-one", "x", "-felixd", "felixd"},
		"-against: ":            {"-against", t.TempDir()}, "-read: ": {"-read", t.TempDir()}, "-readme: ": {"-readme", t.TempDir()},
	} {
		if err := run(t.Context(), args, new(strings.Builder), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestCells wants names that are unique, loads that can be run, and every cell that a target of DESIGN is about.
func TestCells(t *testing.T) {
	target, err := load.NewClientTarget(load.FelixConfig{Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"idle": true, "every cell": true}
	for _, c := range cells() {
		if names[c.Name] {
			t.Errorf("two cells are called %s", c.Name)
		}
		names[c.Name] = true
		c.Config.Target = target
		if err := c.Config.Validate(); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if c.group == "" || c.figure == "" {
			t.Errorf("%s has no place or no figure", c.Name)
		}
	}
	for _, row := range (&session.Cells{}).Judge() {
		if !names[row.Cell] {
			t.Errorf("the target %s of %s is of a cell that is not run", row.Target, row.Cell)
		}
	}
}

func TestParseFio(t *testing.T) {
	rate, err := parseFio([]byte("fio: a warning\n" + `{"jobs":[{"error":0,"write":{"io_bytes":4096000,"runtime":2000}}]}`))
	if err != nil || rate != 2048000 {
		t.Errorf("%v %v", rate, err)
	}
	for _, bad := range []string{"", "nothing", "{", `{"jobs":[]}`, `{"jobs":[{"error":5,"write":{"io_bytes":1,"runtime":1}}]}`, `{"jobs":[{"write":{"io_bytes":0,"runtime":1}}]}`} {
		if _, err := parseFio([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestEstimate wants a whole session to fit into the 45 minutes that it may take.
func TestEstimate(t *testing.T) {
	o, err := parse(nil, new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{options: o, peerPairs: 22}
	total, runs := b.estimate()
	t.Logf("%d runs, %v", runs, total)
	if total > 45*time.Minute || total < 30*time.Minute {
		t.Errorf("%d runs take about %v", runs, total)
	}
	o.twice = true
	if twice, n := (&bench{options: o, peerPairs: 22}).estimate(); twice != 2*total || n != 2*runs {
		t.Errorf("two sessions: %d runs, %v", n, twice)
	}
	o.twice, o.runs = false, 1
	if less, _ := (&bench{options: o, peerPairs: 22}).estimate(); less >= total*2/3 {
		t.Errorf("one run of each takes about %v", less)
	}
}

// sample is a session with cells and pairs for every chart.
func sample() session.Session {
	v := func(x float64) *float64 { return &x }
	var s session.Session
	s.Cells = &session.Cells{Machine: load.Machine{Time: "2026-11-30T00:00:00Z"}, Command: "go run ./perf/matrix -cells 'a<b'"}
	s.Cells.Ceilings.SinkMBPerSec, s.Cells.Ceilings.EchoP50us = []float64{900}, []float64{60}
	for i, c := range cells() {
		x := float64(i + 1)
		r := load.Report{Runs: []load.RunReport{{}}}
		f := &r.Runs[0].Figures
		f.AckedPerSec, f.PayloadMBPerSec, f.DeliveredPerSec = 1e5*x, 10*x, v(1e6*x)
		f.Ack, f.E2E = &load.Latency{P50: 10 * x, P99: 20 * x, P999: 30 * x}, &load.Latency{P50: 15 * x, P99: 25 * x}
		s.Cells.Cells = append(s.Cells.Cells, session.Cell{Name: c.Name, Group: c.group, Figure: c.figure, Report: load.Join(&r)})
	}
	s.Peers = &session.Peers{Peer: "nats-server 2.15.3", Rounds: 3}
	for i, name := range []string{"core", "jetstream", "lone"} {
		side := func(rate float64) *load.Report {
			r := load.Report{Runs: []load.RunReport{{}}}
			r.Runs[0].AckedPerSec = rate
			return load.Join(&r)
		}
		s.Peers.Pairs = append(s.Peers.Pairs, session.Pair{Name: name, Promise: name, Figure: session.AckedPerSec, Felix: side(float64(i) + 0.5), Peer: side(1)})
	}
	return s
}

// TestRender draws every chart, puts all of them into one page that asks for nothing, and does both the same way every time.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	if err := render(dir, sample()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, report := read(session.PageFile), read(session.ReportFile)
	for _, name := range []string{"throughput", "latency", "fanout", "fanout-latency", "peers"} {
		file := session.ChartsDir + "/" + name + ".svg"
		svg := read(file)
		if !strings.Contains(svg, "<svg") || strings.Count(svg, "<path") < 5 {
			t.Errorf("%s has nothing in it", file)
		}
		if !strings.Contains(report, "]("+file+")") {
			t.Errorf("the report does not show %s", file)
		}
	}
	if n := strings.Count(page, "<svg"); n != 5 {
		t.Errorf("the page has %d charts", n)
	}
	for _, foreign := range []string{"<script", "src=", "@import", "<link", "<?xml"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %s", foreign)
		}
	}
	if strings.Contains(page, "a<b") || !strings.Contains(page, "a&lt;b") {
		t.Error("text is not escaped")
	}
	if !strings.Contains(page, `<td class="bad">behind</td>`) && !strings.Contains(page, `<td class="bad">misses</td>`) {
		t.Error("nothing that is missed stands out")
	}
	if at := strings.Index(report, "## felix and nats-server"); at < 0 || at > strings.Index(report, "## Targets") || strings.Index(report, "## Targets") > strings.Index(report, "## "+inMemory) {
		t.Error("what is lost and missed does not come first")
	}
	first := read("charts/peers.svg")
	if err := render(dir, sample()); err != nil || read("charts/peers.svg") != first || read(session.PageFile) != page {
		t.Errorf("another page from the same figures: %v", err)
	}
	if all, err := charts(session.Session{Cells: &session.Cells{}}); err != nil || len(all) != 0 {
		t.Errorf("charts of nothing: %d %v", len(all), err)
	}
}

func TestReadme(t *testing.T) {
	dir := t.TempDir()
	if err := session.WriteJSON(filepath.Join(dir, session.PeersFile), sample().Peers); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "README.md")
	if err := os.WriteFile(file, []byte("x\n"+session.ReadmeBegin+"\n"+session.ReadmeEnd+"\ny\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeReadme(dir, file); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	if !strings.HasPrefix(string(text), "x\n") || !strings.HasSuffix(string(text), "\ny\n") || !strings.Contains(string(text), "| nats-server 2.15.3 |") {
		t.Errorf("%s", text)
	}
	// The front page of the tree has the place.
	front, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.ReplaceReadme(string(front), ""); err != nil {
		t.Error(err)
	}
}

func TestFreeDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "day")
	for _, want := range []string{dir, dir + "-2", dir + "-3"} {
		got, err := freeDir(dir)
		if err != nil || got != want {
			t.Errorf("%s %v, want %s", got, err, want)
		}
		if err := os.Mkdir(got, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlottingStaysHere wants nobody else to import the plotting library.
func TestPlottingStaysHere(t *testing.T) {
	found := []string{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == ".git" {
			return err
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return nil // a test of the parser's, or somebody's corpus
		}
		for _, i := range file.Imports {
			if strings.HasPrefix(i.Path.Value, `"gonum.org/`) && !slices.Contains(found, filepath.Base(filepath.Dir(name))) {
				found = append(found, filepath.Base(filepath.Dir(name)))
			}
		}
		return nil
	})
	if err != nil || !slices.Equal(found, []string{"matrix"}) {
		t.Errorf("packages that import gonum.org: %v %v", found, err)
	}
}

// TestMatrix makes a session of one cell, for a moment, and holds it against itself.
func TestMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("builds felixd and measures for some seconds")
	}
	dir := filepath.Join(t.TempDir(), "results")
	var out, progress strings.Builder
	if err := run(t.Context(), []string{"-brief", "-cells", "^memory-256B-64$", "-peers=false", "-o", dir}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	s, err := session.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Cells
	if len(c.Cells) != 1 || c.Cells[0].Report.Offered == 0 || c.Idle == nil || !(c.Idle.RSSMB > 1) || c.Disk == "" {
		t.Errorf("%+v", c)
	}
	for name, samples := range map[string][]float64{"L": c.Ceilings.LoopPerSec, "E": c.Ceilings.EchoP50us, "S": c.Ceilings.SinkMBPerSec,
		"L in one": c.Ceilings.LoopInOnePerSec, "E in one": c.Ceilings.EchoInOneP50us, "S in one": c.Ceilings.SinkInOneMBPerSec, "D": c.Ceilings.DiskP50us, "Z": c.Ceilings.DiskMBPerSec} {
		if len(samples) != 1 || !(samples[0] > 0) {
			t.Errorf("ceiling %s: %v", name, samples)
		}
	}
	if !strings.Contains(out.String(), "## Targets") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := run(t.Context(), []string{"-read", dir, "-against", dir}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	if why := session.Void(c.Cells[0].Report); why == "" && !strings.Contains(out.String(), "Medians of 1 of 1 are within 10 %") {
		t.Errorf("%s", out.String())
	}
	if text, err := os.ReadFile(filepath.Join(dir, session.AgainstFile)); err != nil || string(text) != out.String() {
		t.Errorf("%s: %v\n%s", session.AgainstFile, err, text)
	}
}

// TestMatrixTwice makes two sessions of one cell at once, for a moment, and wants the second held against the first.
func TestMatrixTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("builds felixd and measures for some seconds")
	}
	dir := filepath.Join(t.TempDir(), "results")
	var out, progress strings.Builder
	if err := run(t.Context(), []string{"-brief", "-twice", "-cells", "^memory-256B-64$", "-peers=false", "-o", dir}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, dir := range []string{dir, dir + "-2"} {
		s, err := session.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Cells.Cells) != 1 || s.Cells.Idle == nil || !slices.ContainsFunc(s.Cells.Notes, func(n string) bool { return strings.Contains(n, "results and results-2") }) {
			t.Errorf("%s: %+v", dir, s.Cells)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir+"-2", session.AgainstFile))
	if err != nil || string(text) != out.String() || !strings.Contains(out.String(), "## Against results\n") {
		t.Errorf("%s: %v\n%s", session.AgainstFile, err, out.String())
	}
}

// TestJumbo runs a cell in both builds, for a moment, each with its generator as a process, and wants larger packets from the one of them.
func TestJumbo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds felixd and the generator twice")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("the jumbo build is a script for bash, which is not here")
	}
	dir := filepath.Join(t.TempDir(), "results")
	var out, progress strings.Builder
	if err := run(t.Context(), []string{"-brief", "-jumbo", "-cells", "^fanout10-4KiB-(stock|jumbo)$", "-peers=false", "-o", dir}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	s, err := session.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Cells.Cells
	if len(c) != 2 || c[1].Against != c[0].Name || c[0].Report.PacketBytes == nil || c[1].Report.PacketBytes == nil {
		t.Fatalf("%+v", c)
	}
	if stock, jumbo := *c[0].Report.PacketBytes, *c[1].Report.PacketBytes; stock > udp.StockPacketBytes || jumbo < 2*stock {
		t.Errorf("packets of %v bytes in the stock build, %v in the jumbo build", stock, jumbo)
	}
}
