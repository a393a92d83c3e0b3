package ceiling

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// DiskConfig says where and how much. Zero fields take the defaults.
type DiskConfig struct {
	Dir string // on the file system to be measured; the probe's file is removed again
	// FileBytes is the size of the file, a multiple of 1 MiB. It is written with zeros and synced before anything is measured, and used
	// again from the front when it is full. Zero means 128 MiB.
	FileBytes int64
	// Rounds of 4 KiB, and of 1 MiB, are measured after a tenth of them as warm-up. Zero means 1,000 and 100.
	SmallRounds, LargeRounds int
}

// DiskResult is what a write with its sync costs where the file system has nothing else to do.
type DiskResult struct {
	P50, P99       time.Duration // write + fdatasync of 4 KiB: DESIGN's D
	BytesPerSecond float64       // write + fdatasync of 1 MiB, one after the other: DESIGN's Z
}

// Disk writes and syncs, one after the other, into blocks that were written before.
func Disk(ctx context.Context, c DiskConfig) (r DiskResult, err error) {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.SmallRounds, 1000)
	set(&c.LargeRounds, 100)
	if c.FileBytes == 0 {
		c.FileBytes = 128 << 20
	}
	file, err := os.CreateTemp(c.Dir, "ceiling-*")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	block := make([]byte, 1<<20)
	for off := int64(0); off < c.FileBytes; off += int64(len(block)) {
		if _, err := file.WriteAt(block, off); err != nil {
			return r, err
		}
	}
	if err := file.Sync(); err != nil {
		return r, err
	}
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(block) // never fails

	write := func(size, rounds int) ([]time.Duration, error) {
		took := make([]time.Duration, 0, rounds)
		off := int64(0)
		for i := range rounds + rounds/10 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			start := time.Now()
			if _, err := file.WriteAt(block[:size], off); err != nil {
				return nil, err
			}
			if err := unix.Fdatasync(int(file.Fd())); err != nil {
				return nil, err
			}
			if i >= rounds/10 {
				took = append(took, time.Since(start))
			}
			if off += int64(size); off >= c.FileBytes {
				off = 0
			}
		}
		return took, nil
	}
	took, err := write(4<<10, c.SmallRounds)
	if err != nil {
		return r, err
	}
	slices.Sort(took)
	r.P50, r.P99 = took[len(took)/2], took[len(took)*99/100]
	if took, err = write(1<<20, c.LargeRounds); err != nil {
		return r, err
	}
	var total time.Duration
	for _, d := range took {
		total += d
	}
	r.BytesPerSecond = float64(len(took)) * (1 << 20) / total.Seconds()
	return r, nil
}

// ReadFiles reads files from front to back, one after the other, 1 MiB at a time, and returns the bytes per second.
func ReadFiles(ctx context.Context, names []string) (bytesPerSecond float64, err error) {
	var total int64
	buf := make([]byte, 1<<20)
	start := time.Now()
	for _, name := range names {
		n, err := readFile(ctx, name, buf)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return float64(total) / time.Since(start).Seconds(), nil
}

func readFile(ctx context.Context, name string, buf []byte) (total int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		n, err := file.Read(buf)
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// DropCache writes files back and takes them out of the page cache, so that the next reader waits for the disk.
func DropCache(names []string) error {
	var errs []error
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED), file.Close())
	}
	return errors.Join(errs...)
}
