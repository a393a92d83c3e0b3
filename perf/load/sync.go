package load

import (
	"context"
	"time"

	"felix/perf/ceiling"
)

// SyncTime measures what the disk under dir takes to write and sync 4 KiB into blocks that were written before: the median of 64, in a
// moment, where ceiling.Disk by itself takes its time.
func SyncTime(ctx context.Context, dir string) (time.Duration, error) {
	r, err := ceiling.Disk(ctx, ceiling.DiskConfig{Dir: dir, FileBytes: 1 << 20, SmallRounds: 64, LargeRounds: 1})
	return r.P50, err
}
