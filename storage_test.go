package felix

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"felix/wal"
)

// scriptedBackend answers with err.
type scriptedBackend struct {
	wal.Backend
	err error
}

func (b *scriptedBackend) Write(wal.File, [][]byte, int64, bool) error { return b.err }
func (b *scriptedBackend) Sync(wal.File) error                         { return b.err }

func TestUnsyncedBytes(t *testing.T) {
	var unsynced atomic.Int64
	inner := &scriptedBackend{}
	b := newStorageMeter(metrics.NewSet(), func() time.Duration { return 0 }).wrap(&unsynced)(inner)
	group := [][]byte{make([]byte, 96), make([]byte, 4000)}
	write := func(sync bool) { _ = b.Write(nil, group, 0, sync) }
	sync := func() { _ = b.Sync(nil) }
	failing := func(fn func()) func() {
		return func() {
			inner.err = errors.New("test")
			fn()
			inner.err = nil
		}
	}
	for i, step := range []struct {
		do   func()
		want int64
	}{
		{func() { write(true) }, 0}, {func() { write(false) }, 4096}, {func() { write(false) }, 8192}, {sync, 0},
		{func() { write(false) }, 4096}, {func() { write(true) }, 0}, {func() { write(false) }, 4096},
		{failing(sync), 4096}, {failing(func() { write(true) }), 8192},
	} {
		step.do()
		if got := unsynced.Load(); got != step.want {
			t.Errorf("step %d: %d bytes, want %d", i, got, step.want)
		}
	}
}

// TestDiskBytes compares what a lane says that it takes with its files.
func TestDiskBytes(t *testing.T) {
	b := mustStart(t, Config{Cores: 1, Admin: "127.0.0.1:0", Log: Log{SegmentBytes: 1 << 20, Retention: Retention{MaxSizeBytes: 1 << 20}}})
	c := mustDial(t, b)
	ctx := longContext(t)
	for range 60 {
		if _, err := c.Publish(ctx, "orders", make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	files := func() (n int64) {
		_ = filepath.WalkDir(filepath.Join(b.DataDir(), "lanes"), func(path string, e fs.DirEntry, err error) error {
			if err == nil && filepath.Base(path) != "LOCK" && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil {
					n += info.Size()
				}
			}
			return nil // one that is renamed meanwhile is met again
		})
		return n
	}
	// The keeper makes, frees and recycles segments meanwhile; in the end both agree, with spares among the files.
	for again := time.NewTicker(20 * time.Millisecond); ; <-again.C {
		s := b.Stats().Lanes[0]
		spares, _ := filepath.Glob(filepath.Join(b.DataDir(), "lanes", "lane-0", "*.spare"))
		if n := files(); s.Recycled+s.Released > 0 && len(spares) > 0 && n == s.DiskBytes && b.Stats().Lanes[0].DiskBytes == n {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d bytes of files, the lane says %d; %+v", files(), s.DiskBytes, s)
		}
	}
	_, text := get(t, b, "/metrics")
	for _, want := range []string{"felix_storage_disk_bytes", "felix_storage_unsynced_bytes", "felix_storage_open_sealed_segments", "felix_storage_recovery_truncated_bytes"} {
		if !strings.Contains(text, fmt.Sprintf("%s{lane=\"0\"} ", want)) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
