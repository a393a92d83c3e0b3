package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"felix/perf/load"
	"felix/perf/stats"
)

func TestParseSide(t *testing.T) {
	for text, want := range map[string]side{
		"":                             {text: "this tree"},
		" rev:HEAD~1 ":                 {text: "rev:HEAD~1", revision: "HEAD~1"},
		"bin:/tmp/felixd GOMAXPROCS=1": {text: "bin:/tmp/felixd GOMAXPROCS=1", file: "/tmp/felixd", env: []string{"GOMAXPROCS=1"}},
		"FELIX_CORE_SHARDS=2 A=":       {text: "FELIX_CORE_SHARDS=2 A=", env: []string{"FELIX_CORE_SHARDS=2", "A="}},
	} {
		got, err := parseSide(text)
		if err != nil || got.text != want.text || got.revision != want.revision || got.file != want.file || !slices.Equal(got.env, want.env) {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"HEAD", "rev:", "rev:--help", "bin:", "rev:a bin:b", "rev:a rev:b", "=x"} {
		if _, err := parseSide(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"-a: ":                       {"-a", "HEAD"},
		"-b: ":                       {"-b", "rev:"},
		`there is no cell "nothing"`: {"-cells", "lone-memory,nothing"},
		"rounds is 2; give 3 to 200": {"-rounds", "2"},
		"duration is 0s":             {"-duration", "0s"},
		"no such file or directory":  {"-a", "bin:/nowhere/felixd"},
		"/tmp is no program":         {"-a", "bin:/tmp"},
		"git worktree add --detach":  {"-a", "rev:no-such-revision"},
	} {
		if err := run(t.Context(), args, new(strings.Builder), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// fake makes runs of B that are faster by a tenth, in a machine that drifts.
func fake(order *string, void func(n int) bool) runner {
	n := 0
	return func(_ context.Context, _ options, _ load.Cell, s side) (*load.Report, error) {
		n++
		*order += s.text
		rate := 1000 * math.Exp(0.01*math.Sin(float64(n)*2.3)) * (1 + 0.002*float64(n))
		cost := 2.0
		if s.text == "B" {
			rate *= 1.1
		}
		r := &load.Report{Runs: []load.RunReport{{VoidReasons: []string{"a lie"}}}}
		r.AckedPerSec, r.BrokerCPUSecPerMillion = rate, &cost
		r.Ack = &load.Latency{P50: 1e6 / rate, P99: 3e6 / rate}
		r.Void = void(n)
		r.Runs[0].Void = r.Void
		return r, nil
	}
}

func TestMeasure(t *testing.T) {
	o := options{a: side{text: "A"}, b: side{text: "B"}, rounds: 8}
	cell, _ := load.FindCell("lone-memory")
	order := ""
	of, err := measure(t.Context(), o, nil, cell, fake(&order, func(int) bool { return false }), new(strings.Builder))
	if err != nil || order != "AB"+"ABBAABBAABBAABBA" {
		t.Fatal(err, order)
	}
	r := compareCell(cell.Name, of)
	names := ""
	for _, f := range r.Figures {
		names += f.Name + "=" + string(f.Verdict) + " "
		if f.Name == "acked_per_sec" && (math.Abs(f.Effect-0.1) > 0.01 || f.Low > 0.1 || f.High < 0.1) {
			t.Errorf("%+v", f)
		}
	}
	if names != "acked_per_sec=faster ack_p50_us=faster ack_p99_us=faster broker_cpu_sec_per_million=not shown " {
		t.Errorf("%s", names)
	}
	result := result{A: "A", B: "B", Rounds: 8, Cells: []cellResult{r}, Notes: []string{"a note"}}
	var table strings.Builder
	if err := result.print(&table); err != nil || !strings.Contains(table.String(), "lone-memory  acked_per_sec") || strings.Count(table.String(), "\n") != 11 || !strings.HasSuffix(table.String(), "\na note\n") {
		t.Errorf("%v\n%s", err, table.String())
	}

	// A void run is made again; a side that is void again and again is an error.
	order = ""
	if of, err = measure(t.Context(), o, nil, cell, fake(&order, func(n int) bool { return n == 4 }), new(strings.Builder)); err != nil || order != "AB"+"ABBBAABBAABBAABBA" || len(of[0]) != 8 || len(of[1]) != 8 {
		t.Errorf("%v %s", err, order)
	}
	if _, err = measure(t.Context(), o, nil, cell, fake(&order, func(n int) bool { return n > 3 }), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "9 runs were void, the last because a lie") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = measure(ctx, o, nil, cell, fake(&order, func(int) bool { return false }), new(strings.Builder)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestCompare compares this tree with itself, through felixd, in two configurations.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("builds felixd and starts it eight times")
	}
	file := filepath.Join(t.TempDir(), "out.json")
	var out, progress strings.Builder
	err := run(t.Context(), []string{
		"-b", "FELIX_CORE_SHARDS=1", "-cells", "memory-256B-64", "-rounds", "3", "-duration", "1s", "-warmup", "100ms", "-watch=false", "-json", file,
	}, &out, &progress)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil || len(r.Cells) != 1 || len(r.Cells[0].RunsA) != 3 || len(r.Cells[0].Figures) == 0 {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, f := range r.Cells[0].Figures {
		if f.NA != 3 || f.NB != 3 || f.Low > f.Effect || f.High < f.Effect || !slices.Contains([]stats.Verdict{stats.Faster, stats.Slower, stats.NotShown}, f.Verdict) {
			t.Errorf("%+v", f)
		}
	}
	if !strings.Contains(out.String(), "A: this tree\nB: FELIX_CORE_SHARDS=1\n") || time.Duration(r.DurationSec*1e9) != time.Second {
		t.Errorf("%s", out.String())
	}
}
