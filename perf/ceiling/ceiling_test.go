package ceiling

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ServeIfAsked()
	goleak.VerifyTestMain(m)
}

var forms = map[string]Form{"one-process": OneProcess, "two-processes": TwoProcesses}

// The probes are short here: the test is that they move data, check their answers and leave nothing behind.
func TestProbes(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			rate, err := form.Loop(ctx, LoopConfig{Conns: 2, Streams: 2, Warmup: 20 * time.Millisecond, Duration: 100 * time.Millisecond})
			if err != nil || rate <= 0 {
				t.Errorf("Loop: %v records/s, %v", rate, err)
			}
			echo, err := form.Echo(ctx, 256, 100)
			if err != nil || echo.P50 <= 0 || echo.P99 < echo.P50 {
				t.Errorf("Echo: %+v, %v", echo, err)
			}
			bytes, err := form.Sink(ctx, 1, 100*time.Millisecond)
			if err != nil || bytes <= 0 {
				t.Errorf("Sink: %v B/s, %v", bytes, err)
			}
			if _, err := form.Loop(ctx, LoopConfig{Rings: maxRings + 1}); err == nil {
				t.Error("a Loop beyond its bound")
			}
		})
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	r, err := Disk(t.Context(), DiskConfig{Dir: dir, FileBytes: 2 << 20, SmallRounds: 20, LargeRounds: 10})
	if err != nil || r.P50 <= 0 || r.P99 < r.P50 || r.BytesPerSecond <= 0 {
		t.Errorf("Disk: %+v, %v", r, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the probe left %v (%v)", left, err)
	}
	names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, name := range names {
		if err := os.WriteFile(name, make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := DropCache(names); err != nil {
		t.Error(err)
	}
	if rate, err := ReadFiles(t.Context(), names); err != nil || rate <= 0 {
		t.Errorf("ReadFiles: %v B/s, %v", rate, err)
	}
	if _, err := ReadFiles(t.Context(), []string{filepath.Join(dir, "none")}); err == nil {
		t.Error("a missing file was read")
	}
}

func TestProbeStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, form := range forms {
		if _, err := form.Sink(ctx, 1, time.Hour); err == nil {
			t.Errorf("%s: Sink ran to its end with a canceled context", name)
		}
	}
	if _, err := Disk(ctx, DiskConfig{Dir: t.TempDir(), FileBytes: 1 << 20}); err == nil {
		t.Error("Disk ran to its end with a canceled context")
	}
}

// inForms runs a benchmark in both forms, the one that is compared with a broker in a process of its own last.
func inForms(b *testing.B, once func(b *testing.B, form Form)) {
	for _, name := range []string{"one-process", "two-processes"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				once(b, forms[name])
			}
		})
	}
}

func BenchmarkLoop(b *testing.B) {
	inForms(b, func(b *testing.B, form Form) {
		rate, err := form.Loop(b.Context(), LoopConfig{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate, "records/s")
	})
}

func BenchmarkEcho(b *testing.B) {
	inForms(b, func(b *testing.B, form Form) {
		echo, err := form.Echo(b.Context(), 256, 5000)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(echo.P50.Microseconds()), "p50-us")
		b.ReportMetric(float64(echo.P99.Microseconds()), "p99-us")
	})
}

func BenchmarkSink(b *testing.B) {
	inForms(b, func(b *testing.B, form Form) {
		rate, err := form.Sink(b.Context(), 1, 2*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate/1e6, "MB/s")
	})
}

func BenchmarkDisk(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		r, err := Disk(b.Context(), DiskConfig{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.P50.Microseconds()), "p50-us")
		b.ReportMetric(float64(r.P99.Microseconds()), "p99-us")
		b.ReportMetric(r.BytesPerSecond/1e6, "MB/s")
	}
}
