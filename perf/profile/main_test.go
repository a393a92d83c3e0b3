package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"felix/perf/load"
)

func TestProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command and runs a cell")
	}
	cell, err := load.FindCell("memory-256B-64")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out strings.Builder
	// A machine that is busy may measure nothing in a second; the profiles are there all the same.
	if err := profile(t.Context(), cell, dir, time.Second, 200*time.Millisecond, &out); err != nil && !strings.Contains(err.Error(), "the run is void") {
		t.Fatal(err)
	}
	for _, name := range []string{"cpu", "alloc", "mutex", "block"} {
		info, err := os.Stat(filepath.Join(dir, name+".pprof"))
		if err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
		top, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		if err != nil || strings.Count(string(top), "flat%") != 2 {
			t.Errorf("%s: %v\n%s", name, err, top)
		}
	}
	if !strings.Contains(out.String(), "memory-256B-64: ") || !strings.Contains(out.String(), "flat%") {
		t.Errorf("%s", out.String())
	}
}

func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"-cell nothing": `there is no cell "nothing"`, "": `there is no cell ""`, "-cell lone-memory -duration 2m": "duration is 2m0s",
	} {
		if err := run(t.Context(), strings.Fields(args), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-list"}, &out); err != nil || !strings.Contains(out.String(), "fanout10-4KiB\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
