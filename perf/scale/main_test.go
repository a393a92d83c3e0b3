package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix/perf/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	o, err := parse([]string{"-o", "x", "-only", "^memory-"}, new(strings.Builder))
	if err != nil || len(o.parts) != 3 || o.runs != 5 || o.logBytes != 20<<30 || o.smallLog() != 1<<30 || o.sizes.streams[2] != 10_000 || o.memoryRuns() != 3 {
		t.Errorf("%+v %v", o, err)
	}
	if o, err := parse([]string{"-o", "x", "-brief", "-log-bytes", "64MiB"}, new(strings.Builder)); err != nil || o.logBytes != 64<<20 || o.runs != 2 || o.sizes.streams[2] != 20 {
		t.Errorf("brief: %+v %v", o, err)
	}
	for want, args := range map[string][]string{
		"-o is missing":                     {"-brief"},
		`no part is called "nothing"`:       {"-o", "x", "-only", "nothing"},
		"-only: ":                           {"-o", "x", "-only", "("},
		"runs is 0; give 1 to 50":           {"-o", "x", "-runs", "0"},
		"idle 0s; give more than 0":         {"-o", "x", "-idle", "0s"},
		`"x" is no flag`:                    {"-o", "y", "x"},
		`log-bytes is "1KiB"`:               {"-o", "x", "-log-bytes", "1KiB"},
		`log-bytes is "7MiB"; give 8MiB to`: {"-o", "x", "-log-bytes", "7MiB"},
	} {
		if _, err := parse(args, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestEstimate holds the whole session to what it may take.
func TestEstimate(t *testing.T) {
	o, err := parse([]string{"-o", "x"}, new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	var whole time.Duration
	for _, p := range parts {
		took := p.estimate(&o)
		t.Logf("%-18s %v", p.name, took.Round(time.Second))
		whole += took
	}
	t.Log(whole)
	if whole > 25*time.Minute {
		t.Errorf("all parts take %v, and may take 25 minutes", whole)
	}
}

func TestCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"go run ./perf/scale -o DIR":                             {"-o", "/somewhere/else"},
		"go run ./perf/scale -o DIR -only='log|cores' -runs=3":   {"-runs", "3", "-o=/x", "-only", "log|cores"},
		"go run ./perf/scale -o DIR -brief=true -duration=300ms": {"--o", "/x", "-brief", "-duration", "300ms"},
	} {
		o, err := parse(args, io.Discard)
		if err != nil || o.command != want {
			t.Errorf("%q: %s, %v, want %s", args, o.command, err, want)
		}
	}
}

// TestNoRoom wants the disk asked before anything is built or written.
func TestNoRoom(t *testing.T) {
	var progress strings.Builder
	err := run(t.Context(), []string{"-o", t.TempDir(), "-only", "^log$", "-log-bytes", "1024GiB"}, new(strings.Builder), &progress)
	if err == nil || !strings.Contains(err.Error(), "MiB free, and logs of 1048576 and 1024 MiB with what is published to them need 1") {
		t.Errorf("%v", err)
	}
	if strings.Contains(progress.String(), "part 1") {
		t.Errorf("it had begun: %s", progress.String())
	}
}

// TestScale runs the whole command for a moment and looks at what is left, not at the figures.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("builds felixd and starts some 80 brokers")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress strings.Builder
	if err := run(t.Context(), []string{"-o", dir, "-brief"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, jsonFile))
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	wantRows := map[string]int{
		"streams": 4, "connections": 3 + 4, "log": 4, "memory-connection": 2, "memory-stream": 2, "memory-subscriber": 1, "cores": 8, "record": 2,
	}
	for _, row := range r.Rows {
		wantRows[row.Part]--
		if row.Value == nil || row.Runs == 0 {
			t.Errorf("%s, %s: no value; %s", row.Part, row.What, row.Detail)
		}
		if (row.Bound == nil) != (row.Verdict == session.NoTarget) || (row.Target == "") != (row.Bound == nil) || row.What == "" || row.Verdict == session.VoidRun {
			t.Errorf("%+v", row)
		}
	}
	for part, n := range wantRows {
		if n != 0 {
			t.Errorf("%d rows of part %s are missing", n, part)
		}
	}
	for _, s := range r.Series {
		if len(s.Samples) == 0 || !slices.ContainsFunc(s.Samples, func(s Sample) bool { return !s.Discarded && len(s.Figures) > 0 }) {
			t.Errorf("%s, %s: %+v", s.Part, s.Variant, s.Samples)
		}
		for _, sample := range s.Samples {
			if packets, ok := sample.Figures[packetsPerRecord]; ok && strings.Contains(s.Variant, "plain") && packets < 1.9 {
				t.Errorf("%s: %.2f packets per record, want one for each and one for its ack", s.Variant, packets)
			}
		}
	}
	if r.Machine.Kernel == "" || r.Machine.Commit == "" || r.Machine.SocketBytes == 0 || r.Command != "go run ./perf/scale -o DIR -brief=true" {
		t.Errorf("%+v, command %q", r.Machine, r.Command)
	}
	markdown, err := os.ReadFile(filepath.Join(dir, markdownFile))
	if err != nil || string(markdown) != out.String() || !strings.HasPrefix(out.String(), "# Cost over scale\n\n## Targets\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, hidden := range []string{dir, os.TempDir()} {
		if strings.Contains(string(text), hidden) || strings.Contains(out.String(), hidden) {
			t.Errorf("the report names %s", hidden)
		}
	}
	for _, want := range []string{"8 parts, about ", "part 8 of 8: record", "done after "} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("%q is not in the progress", want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
