package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"felix"
	"felix/perf/load"
)

// benchJSON runs a bench with the given flags until its report says that enough was measured, each time for twice as long.
func benchJSON(t *testing.T, environ []string, enough func(*load.Report) bool, args ...string) *load.Report {
	t.Helper()
	for d := 200 * time.Millisecond; ; d *= 2 {
		full := append(append([]string{"bench"}, args...), "--warmup", "0", "--duration", d.String(), "-o", "json")
		code, stdout, stderr := call(t.Context(), environ, "", full...)
		var r load.Report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("felix %s: exit code %d, %v\n%s%s", strings.Join(full, " "), code, err, stdout, stderr)
		}
		nothing := slices.ContainsFunc(r.Runs, func(one load.RunReport) bool {
			return slices.Contains(one.VoidReasons, "nothing was acknowledged in the measured time")
		})
		if enough(&r) && !nothing || d > 10*time.Second {
			if code != exitOK || stderr != "" || r.Void || r.Acked != r.Offered || r.Delivered != r.Expected {
				t.Errorf("felix %s: exit code %d\n%s%s", strings.Join(full, " "), code, stdout, stderr)
			}
			return &r
		}
	}
}

func TestBench(t *testing.T) {
	t.Run("a broker of its own", func(t *testing.T) {
		dir := t.TempDir()
		r := benchJSON(t, []string{"FELIX_QUIC_LISTENERS=1"}, func(r *load.Report) bool {
			return r.E2E != nil && r.Ack != nil && r.BrokerCPUCores != nil && *r.BrokerCPUCores > 0
		},
			"e2e", "--durability", "on_commit", "--shards", "3", "--rate", "500", "--publishers", "2", "--subscribers", "3", "--slow", "1", "--data", dir)
		if r.Scenario != load.E2E || r.ClientCPUCores == nil || r.BrokerRSSMB == nil || *r.SyncsPerSec <= 0 || r.Config.CountedAt != "broker" || r.Config.Rate != 500 || r.Expected != 2*r.Acked {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(filepath.Join(dir, "lanes")); err != nil {
			t.Errorf("the broker was not on --data: %v", err)
		}
	})
	f := newFixture(t, felix.Config{})
	t.Run("a broker that runs", func(t *testing.T) {
		r := benchJSON(t, f.environ, func(r *load.Report) bool { return r.Ack != nil }, "pub", "--generator", "lean", "--publishers", "2", "--size", "0", "--keys", "0", "--batch", "8", "--connections", "2")
		if r.Config.Generator != "lean" || r.Config.Size != 0 || r.Config.Keys != 0 || r.E2E != nil || r.DeliveredPerSec != nil {
			t.Errorf("%+v", r)
		}
		r = benchJSON(t, f.environ, func(r *load.Report) bool { return r.E2E != nil }, "fanout", "--subscribers", "3")
		if r.Expected != 3*r.Acked || r.Config.Batch != 64 {
			t.Errorf("%+v", r)
		}
		if n := f.broker.Catalog().Counts().Streams; n != 0 {
			t.Errorf("%d streams were left", n)
		}
	})
	t.Run("a stream that is there", func(t *testing.T) {
		f.ok("", "stream", "create", "orders", "--shards", "2", "--memory", "--on-slow", "block")
		r := benchJSON(t, f.environ, func(r *load.Report) bool { return r.Ack != nil }, "pub", "--stream", "orders", "--acks", "each", "--publishers", "2", "--runs", "2")
		if len(r.Runs) != 3 || r.Config.Stream != "orders" || r.Config.InFlight != 1 || r.Config.Shards != 0 {
			t.Errorf("%+v", r)
		}
		f.ok("", "stream", "info", "orders")
	})
	t.Run("for people", func(t *testing.T) {
		text := f.ok("", "bench", "e2e", "--duration", "2s", "--warmup", "0", "--publishers", "2")
		for _, want := range []string{"\nmachine ", ", which was running\n", "\nstream   48 shards, in memory\n", "closed loop", "2 publishers x 256 B x 1, 8 in flight each, 48 keys each, 1 subscriber\n", "\noffered ", " 0 refused, 0 unknown\n", "counted at the broker", "\nLATENCY ", "\nend to end"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in:\n%s", want, text)
			}
		}
	})
}

// TestBenchMistakes provokes errors: each has three lines and a code.
func TestBenchMistakes(t *testing.T) {
	f := newFixture(t, felix.Config{})
	nobody := []string{"FELIX_SERVER=" + f.broker.Addr().String(), "FELIX_CA_FILE=" + f.broker.CAFile()}
	for _, tt := range []struct {
		environ []string
		args    string
		code    int
		text    string
	}{
		{nil, "bench oops", exitUsage, `there is no command "oops"`},
		{nil, "bench pub --acks each --in-flight 8", exitUsage, "acks each waits for every answer, and in-flight is 8; leave one of them out"},
		{nil, "bench pub --acks each --batch 8", exitUsage, "acks each answers every record by itself, and batch is 8"},
		{nil, "bench pub --acks none --in-flight 8", exitUsage, "acks none has no answers to wait for"},
		{nil, "bench pub --acks none --rate 1000", exitUsage, "buffers on the way hold"},
		{nil, "bench pub --acks sometimes", exitUsage, `acks "sometimes" is none of none, each, batch`},
		{nil, "bench pub --subscribers 3", exitUsage, "unknown flag: --subscribers"},
		{nil, "bench e2e --slow 1", exitUsage, "slow is 1 of 1 subscribers; leave at least one that reads"},
		{nil, "bench pub --stream orders --durability memory", exitUsage, `stream "orders" is used as it is, and shards or durability are given`},
		{nil, "bench pub --stream orders --data /tmp/x", exitUsage, "--data is for a broker that is started"},
		{nil, "bench pub --size -1", exitUsage, "size is -2; give a number from 0"},
		{nil, "bench pub --publishers 0", exitUsage, "publishers is 0; give at least 1"},
		{nil, "bench pub --rate 0", exitUsage, "rate is 0; give records per second"},
		{nil, "bench pub --rate many", exitUsage, "is no value for --rate"},
		{nil, "bench pub --duration 0s", exitUsage, "duration is 0; give at least 1"},
		{nil, "bench pub --duration -1s", exitUsage, "duration is -1s"},
		{nil, "bench pub --batch 64 --size 1000000", exitUsage, "do not fit into a frame"},
		{nil, "bench pub --generator fast", exitUsage, `generator "fast" is none of client, lean`},
		{nil, "bench pub --connections 65", exitUsage, "connections is 65"},
		{nil, "bench pub --stream orders", exitUnavailable, "there is no broker to talk to"},
		{[]string{"FELIX_CORE_SHARDS=99"}, "bench pub", exitFailure, "the broker for this run did not start"},
		{[]string{"FELIX_SERVER=127.0.0.1:1", "FELIX_ADMIN=127.0.0.1:1"}, "bench pub", exitUnavailable, "127.0.0.1:1 does not answer"},
		{nobody, "bench pub", exitUsage, "a stream is to be made for the run"},
		{f.environ, "bench pub --stream nowhere", exitNotFound, `there is no stream "nowhere" to measure`},
	} {
		code, stdout, stderr := call(t.Context(), tt.environ, "", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stderr, tt.text) || strings.Count(stderr, "\n") != 3 || strings.Contains(stdout, "records/s") {
			t.Errorf("felix %s: exit code %d, want %d with %q\n%s%s", tt.args, code, tt.code, tt.text, stdout, stderr)
		}
	}
	if n := f.broker.Catalog().Counts().Streams; n != 0 {
		t.Errorf("%d streams were left", n)
	}
}

// whenBusy calls then once the broker has taken some records.
func (f *fixture) whenBusy(records uint64, then func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for f.broker.Stats().PublishRecords < records {
			select {
			case <-tick.C:
			case <-f.t.Context().Done():
				return
			}
		}
		then()
	}()
	return ended
}

// TestBenchInterrupted presses Ctrl-C in the middle: what there is is printed.
func TestBenchInterrupted(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		f := newFixture(t, felix.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := f.whenBusy(2000, cancel)
		code, stdout, stderr := call(ctx, f.environ, "", "bench", "pub", "--duration", "50s", "--warmup", "0", "-o", format)
		<-done
		if code != exitFailure || !strings.HasPrefix(stderr, "felix: interrupted\n") || strings.Count(stderr, "\n") != 3 {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
		if format == "table" && (!strings.Contains(stdout, "\nnote: cut short") || !strings.Contains(stdout, " 0 unknown\n")) {
			t.Errorf("%s", stdout)
		}
		if format == "json" {
			var r load.Report
			if err := json.Unmarshal([]byte(stdout), &r); err != nil || !r.Runs[0].Interrupted || r.Acked != r.Offered || r.Acked < 2000 {
				t.Errorf("%v\n%s", err, stdout)
			}
		}
		if n := f.broker.Catalog().Counts().Streams; n != 0 {
			t.Errorf("%d streams were left", n)
		}
		cancel()
	}
}

// TestBenchBrokerDies ends the broker in the middle: the run is void, and what was counted is told.
func TestBenchBrokerDies(t *testing.T) {
	f := newFixture(t, felix.Config{DrainLinger: time.Millisecond})
	done := f.whenBusy(100, func() { f.broker.Close() }) // few: it dies before the run is over, however slow the machine is
	code, stdout, stderr := call(t.Context(), f.environ, "", "bench", "pub", "--publishers", "4", "--duration", "3s", "--warmup", "0")
	<-done
	if code != exitFailure || !strings.HasPrefix(stderr, "felix: the run is void\n") || strings.Count(stderr, "\n") != 3 ||
		!strings.Contains(stdout, "\nVOID: the broker could not be asked for its counts at the end") || !strings.Contains(stdout, " unknown: ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestPrintBench keeps the final block.
func TestPrintBench(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	drops := int64(3)
	l := &load.Latency{Min: 61.2, P50: 120, P90: 240.5, P99: 1234, P999: 2345, P9999: 34567, Max: 1_234_567}
	figures := load.Figures{
		Offered: 1_234_567, Acked: 1_234_500, Refused: 60, Unknown: 7, Expected: 2_469_000, Delivered: 2_469_000,
		AckedPerSec: 123_456.7, DeliveredPerSec: p(246_913.4), PayloadMBPerSec: 63.21, Ack: l, AckUncorrected: l, E2E: l, E2EUncorrected: l,
		BrokerCPUCores: p(0.951), ClientCPUCores: p(0.42), BrokerCPUSecPerMillion: p(7.712), ClientCPUSecPerMillion: p(3.4), ZeroedGroupShare: p(0.998),
		BrokerRSSMB: p(123.4), SyncsPerSec: p(5432.1), RecordsPerSync: p(22.73), PacketBytes: p(1311.6), RcvbufErrors: &drops,
	}
	report := &load.Report{
		Scenario: load.E2E, Config: load.ReportConfig{CountedAt: "broker", Rate: 123_457}, Machine: load.Machine{SocketBytes: 7 << 20}, Figures: figures,
		Runs: []load.RunReport{{Figures: figures, Discarded: true, Notes: []string{"one note"}}, {Figures: figures, Notes: []string{"one note", "another\nnote"}, VoidReasons: []string{"it is only a test"}}},
	}
	var all strings.Builder
	if err := printBench(&all, report); err != nil {
		t.Fatal(err)
	}
	all.WriteString("----\n")
	small := &load.Report{Scenario: load.Pub, Config: load.ReportConfig{CountedAt: "generator"}, Figures: load.Figures{Offered: 5, Acked: 5, AckedPerSec: 5, Ack: l}, Runs: []load.RunReport{{}}}
	if err := printBench(&all, small); err != nil {
		t.Fatal(err)
	}
	golden(t, "bench.txt", all.String())
}

func TestBenchLive(t *testing.T) {
	ms := time.Millisecond
	for want, p := range map[string]load.Progress{
		"run 1/1 3/10 s  1.23M/s  p99 4 ms ▃▅█":                                {Run: 1, Of: 1, Phase: load.Measuring, Elapsed: 3 * time.Second, Total: 10 * time.Second, AckedRate: 1_234_567},
		"first run warm-up 1/2 s  950/s in, 12.3k/s out  p99 4 ms ▃▅█":         {Of: 5, Phase: load.Warming, Elapsed: time.Second, Total: 2 * time.Second, AckedRate: 950, Delivered: 12_345},
		"run 2/3 3/10 s  0/s  p99 4 ms ▃▅█  17 failed  broker does not answer": {Run: 2, Of: 3, Phase: load.Measuring, Elapsed: 3 * time.Second, Total: 10 * time.Second, Refused: 10, Unknown: 7, BrokerGone: true},
	} {
		if got := liveText(p, []time.Duration{ms, 2 * ms, 4 * ms}); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1.00k", 12_345: "12.3k", 999_400: "999k", 1e6: "1.00M", 2.5e9: "2.50G", 5e13: "50T", math.Pi: "3"} {
		if got := shortCount(n); got != want && !(n == 5e13 && strings.HasSuffix(got, "T")) {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
	if got := sparkline([]time.Duration{0, 0}); got != "▁▁" {
		t.Errorf("nothing is %q", got)
	}
}

func TestSmokeRatios(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	cells := func() map[string]*load.Report {
		of := map[string]*load.Report{}
		for _, cell := range smokeCells {
			of[cell.name] = &load.Report{Figures: load.Figures{AckedPerSec: 100_000, PayloadMBPerSec: 25}}
		}
		of["memory, batch 64"].AckedPerSec = 500_000
		of["open loop, 2,000/s"].Figures = load.Figures{AckedPerSec: 1999, E2E: &load.Latency{P99: 300}, E2EUncorrected: &load.Latency{P99: 200}}
		of["fan-out 4"].DeliveredPerSec = p(400_000)
		return of
	}
	wrong := func(of map[string]*load.Report) (names []string) {
		for _, r := range smokeRatios(of) {
			if !r.ok() {
				names = append(names, r.name)
			}
		}
		return names
	}
	if names := wrong(cells()); len(names) > 0 {
		t.Errorf("%q are wrong, and nothing is", names)
	}
	for name, change := range map[string]func(map[string]*load.Report){
		"batches of 64 / single records":         func(of map[string]*load.Report) { of["memory, batch 1"].AckedPerSec = 2_000_000 },
		"open loop: acknowledged / due":          func(of map[string]*load.Report) { of["open loop, 2,000/s"].AckedPerSec = 300 },
		"fan-out: delivered / acknowledged":      func(of map[string]*load.Report) { of["fan-out 4"].DeliveredPerSec = p(100_000) },
		"open loop: corrected / uncorrected p99": func(of map[string]*load.Report) { of["open loop, 2,000/s"].E2E = &load.Latency{P99: 100} },
		"on_commit / memory":                     func(of map[string]*load.Report) { of["on_commit, batch 64"].AckedPerSec = math.NaN() },
		"unacked 4 KiB / acked 256 B, in bytes":  func(of map[string]*load.Report) { of["unacked, batch 64"].PayloadMBPerSec = 1 },
	} {
		of := cells()
		change(of)
		if names := wrong(of); len(names) != 1 || names[0] != name {
			t.Errorf("%q are wrong, want %q", names, name)
		}
	}
}
