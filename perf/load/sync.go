package load

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds of SyncTime.
const (
	syncRounds = 64
	syncBytes  = 4096
)

// SyncTime measures what the disk under dir takes to write and sync 4 KiB into blocks that were written before: the median of 64.
func SyncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, syncBytes)
	if _, err := f.Write(make([]byte, syncRounds*syncBytes)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	took := make([]time.Duration, syncRounds)
	for i := range took {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i*syncBytes)); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[syncRounds/2], nil
}
