package felix

import (
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"felix/wal"
)

// A brokerLane is one lane of the log with what the broker knows of it besides.
type brokerLane struct {
	*wal.Lane
	id       uint64
	recovery time.Duration // how long reading it back took at the start
	cut      int64         // bytes of a torn end that it cut off
	unsynced *atomic.Int64 // bytes written since the last sync
}

// LaneStats is what a lane of the log has counted in this life.
type LaneStats struct {
	ID       uint64
	Recovery time.Duration // how long reading it back took at the start
	CutBytes int64         // of a torn end, cut off at the start
	Unsynced int64         // bytes written since the last sync
	wal.Stats
}

// storageBuckets are the upper bounds, in seconds, of how long a group takes to the disk: from a fast NVMe to a disk that is stuck.
var storageBuckets = []float64{
	25e-6, 50e-6, 75e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6, 1e-3, 2e-3, 3e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 1, 5,
}

// A storageMeter times what the lanes write. The lanes' own goroutines call it, which wait for the disk anyway.
type storageMeter struct {
	appends *metrics.PrometheusHistogram // groups that were only written
	syncs   *metrics.PrometheusHistogram // groups that were written and synced, and syncs alone
	now     func() time.Duration         // never goes back
}

func newStorageMeter(set *metrics.Set, now func() time.Duration) *storageMeter {
	return &storageMeter{
		appends: set.NewPrometheusHistogramExt("felix_storage_append_duration_seconds", storageBuckets),
		syncs:   set.NewPrometheusHistogramExt("felix_storage_sync_duration_seconds", storageBuckets),
		now:     now,
	}
}

// wrap returns a function that makes backends which do what the given one does and are metered; unsynced counts the bytes of a lane
// that are written and not synced.
func (m *storageMeter) wrap(unsynced *atomic.Int64) func(wal.Backend) wal.Backend {
	return func(b wal.Backend) wal.Backend { return &meteredBackend{b, m, unsynced} }
}

type meteredBackend struct {
	wal.Backend
	meter    *storageMeter
	unsynced *atomic.Int64 // written on the lane's goroutine only. A segment is synced whole before the next one is written
}

func (b *meteredBackend) Write(f wal.File, bufs [][]byte, off int64, sync bool) error {
	begun := b.meter.now()
	err := b.Backend.Write(f, bufs, off, sync)
	if took := (b.meter.now() - begun).Seconds(); sync {
		b.meter.syncs.Update(took)
	} else {
		b.meter.appends.Update(took)
	}
	if sync && err == nil {
		b.unsynced.Store(0)
		return nil
	}
	var n int
	for _, buf := range bufs {
		n += len(buf)
	}
	b.unsynced.Add(int64(n))
	return err
}

func (b *meteredBackend) Sync(f wal.File) error {
	begun := b.meter.now()
	err := b.Backend.Sync(f)
	if err == nil {
		b.unsynced.Store(0)
	}
	b.meter.syncs.Update((b.meter.now() - begun).Seconds())
	return err
}
