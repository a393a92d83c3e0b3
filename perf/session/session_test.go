package session

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"felix/perf/load"
)

var update = flag.Bool("update", false, "writes the golden files of testdata anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; go test -update writes it anew. It is now:\n%s", file, text)
	}
}

// figures are what a fake run measured.
type figures struct {
	rate, delivered, p50, p99, cpu float64
	void                           string
}

// report makes a report of runs, of which the first does not count.
func report(c load.ReportConfig, scenario load.Scenario, runs ...figures) *load.Report {
	var reports []*load.Report
	for _, f := range append([]figures{{rate: 1, delivered: 1, p50: 1, p99: 1, cpu: 1}}, runs...) {
		r := &load.Report{Scenario: scenario, Config: c, Runs: []load.RunReport{{}}}
		g := &r.Runs[0].Figures
		g.AckedPerSec, g.PayloadMBPerSec = f.rate, f.rate*float64(c.Size)/1e6
		if f.delivered > 0 {
			g.DeliveredPerSec, g.PayloadMBPerSec = &f.delivered, f.delivered*float64(c.Size)/1e6
		}
		if f.p50 > 0 {
			g.Ack = &load.Latency{P50: f.p50, P99: f.p99}
			g.AckUncorrected = g.Ack
		}
		if f.cpu > 0 {
			g.BrokerCPUSecPerMillion = &f.cpu
		}
		if f.void != "" {
			g.Void, r.Runs[0].VoidReasons = true, []string{f.void}
		}
		reports = append(reports, r)
	}
	return load.Join(reports...)
}

func config(size, batch int, acks load.Acks, durability load.Durability) load.ReportConfig {
	return load.ReportConfig{Broker: "felix", Publishers: 64, InFlight: 64, Size: size, Batch: batch, Acks: acks, Durability: durability}
}

func machine() load.Machine {
	return load.Machine{Time: "2026-11-30T00:00:00Z", CPU: "A CPU", CPUs: 2, GOMAXPROCS: 2, MemoryMB: 8000, Kernel: "Linux 6", Go: "go1.26", Commit: "0123456789ab", RmemMax: 1, WmemMax: 2, SocketBytes: 3, LoadAverage: "0 0 0"}
}

// fixed is a session with everything in it.
func fixed() Session {
	single := config(256, 1, load.AcksBatch, load.Memory)
	lone := config(256, 1, load.AcksEach, load.Memory)
	fan := config(4096, 64, load.AcksBatch, load.Memory)
	fan.Subscribers = 10
	durable := config(4096, 64, load.AcksBatch, load.OnCommit)
	cell := func(name, group string, figure Figure, r *load.Report) Cell {
		return Cell{Name: name, Group: group, Figure: figure, Report: r}
	}
	cells := &Cells{
		Machine: machine(), Command: "go run ./perf/matrix", Disk: "ext4", Notes: []string{"a note"}, Idle: &Idle{CPUPercent: 0.1, RSSMB: 60},
		Ceilings: Ceilings{
			LoopPerSec: []float64{2e6, 2.2e6, 1.9e6}, EchoP50us: []float64{60, 62, 61}, SinkMBPerSec: []float64{900, 1000, 950},
			LoopInOnePerSec: []float64{2.4e6}, EchoInOneP50us: []float64{20, 21}, SinkInOneMBPerSec: []float64{1100},
			DiskP50us: []float64{90, 95, 85}, DiskMBPerSec: []float64{2000, 2500, 2100}, FioMBPerSec: []float64{1500}, FioSmallP50us: []float64{100},
		},
		Cells: []Cell{
			cell("memory-256B-1", "In memory", AckedPerSec, report(single, load.Pub, figures{rate: 1.3e6, p50: 900, p99: 2000, cpu: 1.1}, figures{rate: 1.4e6, p50: 800, p99: 2100, cpu: 1.2}, figures{rate: 1.35e6, p50: 850, p99: 2050, cpu: 1.3})),
			cell("memory-4KiB-64", "In memory", AckedPerSec, report(config(4096, 64, load.AcksBatch, load.Memory), load.Pub, figures{rate: 100e3, p50: 900, p99: 2000, cpu: 9}, figures{rate: 150e3, p50: 900, p99: 2000, cpu: 9})),
			cell("unacked-256B-1", "Fire and forget", AckedPerSec, report(config(256, 1, load.AcksNone, load.Memory), load.Pub, figures{rate: 1e6, void: "7 records were lost"})),
			cell("on_commit-4KiB-64", "Durable", AckedPerSec, report(durable, load.Pub, figures{rate: 120e3, p50: 900, p99: 2000, cpu: 9}, figures{rate: 121e3, p50: 900, p99: 2000, cpu: 9})),
			cell("lone-memory", "Latency", AckP50, report(lone, load.Pub, figures{rate: 1e4, p50: 70, p99: 300, cpu: 30}, figures{rate: 1e4, p50: 72, p99: 310, cpu: 30})),
			cell("fanout10-4KiB", "Fan-out", DeliveredPerSec, report(fan, load.FanOut, figures{rate: 2e4, delivered: 2e5, p50: 500, p99: 900, cpu: 40}, figures{rate: 2.1e4, delivered: 2.1e5, p50: 500, p99: 900, cpu: 40})),
		},
	}
	cells.Cells[1].Report.Config.Publishers = 32
	for i, name := range []string{"fanout10-4KiB-stock", "fanout10-4KiB-jumbo"} {
		more := 1 + 0.9*float64(i)
		c := cell(name, "Jumbo build", DeliveredPerSec, report(fan, load.FanOut, figures{rate: 2e4 * more, delivered: 2e5 * more, p50: 500, p99: 900, cpu: 40}, figures{rate: 2e4 * more, delivered: 2.1e5 * more, p50: 500, p99: 900, cpu: 40}))
		c.Report.PacketBytes = ptr(1000 + 4000*float64(i))
		if i > 0 {
			c.Against = cells.Cells[len(cells.Cells)-1].Name
		}
		cells.Cells = append(cells.Cells, c)
	}
	pair := func(name, promise string, figure Figure, atLeast float64, felix, peer *load.Report) Pair {
		return Pair{Name: name, Promise: promise, Figure: figure, AtLeast: atLeast, NotEqual: []string{"the | transport"}, Felix: felix, Peer: peer}
	}
	unacked := config(256, 1, load.AcksNone, load.Memory)
	peers := &Peers{
		Machine: machine(), Command: "go run -C perf/peers .", Peer: "nats-server 2.15.3", Setup: []string{"both: defaults"}, Rounds: 2,
		Pairs: []Pair{
			pair("jetstream-memory-256B-1", "acked, in memory", AckedPerSec, 1,
				report(single, load.Pub, figures{rate: 900e3, p50: 900, p99: 2000, cpu: 1}, figures{rate: 910e3, p50: 900, p99: 2000, cpu: 1}),
				report(single, load.Pub, figures{rate: 100e3, p50: 9000, p99: 20000, cpu: 10}, figures{rate: 101e3, p50: 9000, p99: 20000, cpu: 10})),
			pair("core-256B-1", "fire and forget, in memory", AckedPerSec, 0.6,
				report(unacked, load.Pub, figures{rate: 900e3, cpu: 1}, figures{rate: 910e3, cpu: 1}),
				report(unacked, load.Pub, figures{rate: 1800e3, cpu: 0.5}, figures{rate: 1850e3, cpu: 0.5})),
			pair("lone-request", "one at a time, answered", AckP50, 1,
				report(lone, load.Pub, figures{rate: 1e4, p50: 80, p99: 300, cpu: 30}, figures{rate: 1e4, p50: 90, p99: 310, cpu: 30}),
				report(lone, load.Pub, figures{rate: 1e4, p50: 70, p99: 300, cpu: 30}, figures{rate: 1e4, p50: 100, p99: 310, cpu: 30})),
			pair("fanout10-4KiB-64", "in memory, 10 subscribers", DeliveredPerSec, 1,
				report(fan, load.FanOut, figures{rate: 2e4, delivered: 2e5, p50: 500, p99: 900, cpu: 40}, figures{rate: 2e4, delivered: 2e5, p50: 500, p99: 900, cpu: 40}),
				report(fan, load.FanOut, figures{rate: 2e4, delivered: 1e5, p50: 500, p99: 900, cpu: 40, void: "gaps"}, figures{rate: 2e4, delivered: 1e5, p50: 500, p99: 900, cpu: 40})),
			pair("lone-jetstream-memory", "one at a time, acked", AckP50, 1,
				report(lone, load.Pub, figures{rate: 1e4, p50: 100, p99: 300, cpu: 30}, figures{rate: 1e4, p50: 101, p99: 310, cpu: 30}),
				report(lone, load.Pub, figures{rate: 1e4, p50: 80, p99: 300, cpu: 30}, figures{rate: 1e4, p50: 81, p99: 310, cpu: 30})),
		},
	}
	return Session{cells, peers}
}

func TestReport(t *testing.T) {
	s := fixed()
	golden(t, "report.md", s.Markdown([]string{"charts/fanout.svg"}))
	text, err := s.Readme("perf/results/2026-11-30-0123456")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "readme.md", text)
	if _, err := (Session{Cells: s.Cells}).Readme(""); err == nil {
		t.Error("a table of peers without peers")
	}
	if text := (Session{Peers: s.Peers}).Markdown(nil); !strings.Contains(text, "Linux 6") || strings.Contains(text, "Ceilings") {
		t.Error(text)
	}
}

func TestReplaceReadme(t *testing.T) {
	got, err := ReplaceReadme("a\n"+ReadmeBegin+"\nold\n"+ReadmeEnd+"\nb\n", "new\n")
	if want := "a\n" + ReadmeBegin + "\nnew\n" + ReadmeEnd + "\nb\n"; err != nil || got != want {
		t.Errorf("%q %v", got, err)
	}
	if again, err := ReplaceReadme(got, "new\n"); err != nil || again != got {
		t.Errorf("not the same the second time: %q %v", again, err)
	}
	for _, bad := range []string{"", ReadmeBegin, ReadmeEnd + ReadmeBegin} {
		if _, err := ReplaceReadme(bad, ""); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestReadWrite reads back what was written, and refuses what nobody wrote.
func TestReadWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "holds neither") {
		t.Error(err)
	}
	s := fixed()
	if err := WriteJSON(filepath.Join(dir, CellsFile), s.Cells); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir); err != nil || got.Peers != nil || got.Cells.Command != s.Cells.Command {
		t.Errorf("%+v %v", got, err)
	}
	if err := WriteJSON(filepath.Join(dir, PeersFile), s.Peers); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil || got.Markdown(nil) != s.Markdown(nil) {
		t.Errorf("other text after reading: %v", err)
	}
	for file, text := range map[string]string{PeersFile: `{"pairs":[{"name":"x"}]}`, CellsFile: `{"cells":[{"name":"x"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, CellsFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("broken JSON was taken")
	}
}

func TestNames(t *testing.T) {
	day := time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
	for commit, want := range map[string]string{
		"": "2026-11-30-unknown", "0123456789ab": "2026-11-30-0123456", "0123456789ab-dirty": "2026-11-30-0123456-dirty",
	} {
		if got := DirName(day, commit); got != want {
			t.Errorf("%q: %s", commit, got)
		}
	}
	if got := Commit(t.Context(), t.TempDir()); got != "" {
		t.Errorf("a commit where there is none: %s", got)
	}
	for v, want := range map[float64]string{
		0: "0", 0.1234: "0.123", 1.5: "1.50", 99.96: "100", 9.996: "10.0", 1234: "1234", 9994: "9994", 12345: "12.3 k", 999_600: "1.00 M", 1.4e6: "1.40 M", math.NaN(): "-", -2: "-2.00",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is printed as %s, want %s", v, got, want)
		}
	}
}

func TestFigures(t *testing.T) {
	v := 5.0
	f := &load.Figures{AckedPerSec: 1, DeliveredPerSec: &v, Ack: &load.Latency{P50: 2}, E2E: &load.Latency{P50: 3}}
	for g, want := range map[Figure]float64{AckedPerSec: 1, DeliveredPerSec: 5, AckP50: 2, E2EP50: 3} {
		if got, ok := g.Of(f); !ok || got != want || g.Less() != (want == 2 || want == 3) {
			t.Errorf("%s: %v %v", g, got, ok)
		}
		if _, ok := g.Of(&load.Figures{}); ok {
			t.Errorf("%s of nothing", g)
		}
	}
	if Median(nil) != 0 || Median([]float64{3, 1}) != 2 || Median([]float64{3, 1, 9}) != 3 {
		t.Error("median")
	}
	r := report(config(1, 1, load.AcksBatch, load.Memory), load.Pub, figures{rate: 100}, figures{rate: 110}, figures{rate: 90})
	if s, ok := Spread(r, AckedPerSec); !ok || math.Abs(s-0.2) > 1e-9 {
		t.Errorf("spread %v", s)
	}
	if _, ok := Spread(r, AckP50); ok {
		t.Error("a spread of what was not measured")
	}
}

func ptr[T any](v T) *T { return &v }
