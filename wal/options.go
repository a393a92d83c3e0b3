package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Mode says what a record waits for before it counts as done.
type Mode uint8

const (
	// OnCommit waits until the record is on disk. Nothing is lost on kill or power cut.
	OnCommit Mode = iota
	// Periodic waits for the write and is synced at most Options.SyncInterval later. A power cut loses that much.
	Periodic
	// None waits for the write; the system decides when it reaches the disk. A power cut loses any of it.
	None
)

// ParseMode reads the name of a mode as configuration and catalog spell it.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "on_commit":
		return OnCommit, nil
	case "periodic":
		return Periodic, nil
	case "none":
		return None, nil
	}
	return 0, fmt.Errorf("wal: fsync mode %q is not one of on_commit, periodic, none", s)
}

func (m Mode) String() string {
	switch m {
	case OnCommit:
		return "on_commit"
	case Periodic:
		return "periodic"
	case None:
		return "none"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Options of a lane. The zero value of a field means its default; they are copied on open and then fixed.
type Options struct {
	// Lane is the lane's id. Segments of another lane in the directory refuse the start.
	Lane uint64
	// Now is the clock for append times, retention and the written times of groups. Required.
	Now func() time.Time
	// Rand gives the salt of a new segment. Nil means the system's generator. It must not be guessable by publishers,
	// who could else write payloads that look like groups to a scan after damage.
	Rand func() uint64
	// FS is the file system. Nil means OSFS.
	FS FS
	// Backend chooses how groups are written. WrapBackend, when set, gets the chosen one and returns the one to use
	// (fault injection); it is called on the lane's goroutine.
	Backend     BackendKind
	WrapBackend func(Backend) Backend
	openBackend func(kind BackendKind, log func(string)) Backend // newBackend, but in tests
	// Notify is called, on a goroutine of the lane, whenever Drain may have something to give or a refused append may
	// pass now. It must not block and must not call the lane. Nil means that the owner polls Drain.
	Notify func()
	// Log gets one line for each thing an operator should know. Nil means silence. It may be called on any goroutine.
	Log func(line string)

	// SegmentBytes is the size of a segment, a multiple of 4 KiB, 64 KiB to 4 GiB. Zero means 64 MiB. A new segment is
	// at most 1/8 of the free space, and larger when one batch needs it.
	SegmentBytes int64
	// MaxGroupBytes bounds the encoded batches of one group; appends beyond it start the next group. One larger batch
	// makes a group of its own. Zero means 1 MiB; at most a quarter of SegmentBytes.
	MaxGroupBytes int
	// MaxBatchBytes refuses larger batches with ErrTooLarge. Zero means 65 MiB; at most 255 MiB.
	MaxBatchBytes int
	// Groups is the number of group buffers: one open, the rest at the lane's goroutine. When all are full, Append
	// answers ErrBusy. Zero means 4; 2 to 64.
	Groups int
	// SyncInterval bounds how long a written Periodic record stays unsynced. Zero means 250 ms.
	SyncInterval time.Duration
	// MarkAfter is the idle time after which a mark group proves the last group durable. Zero means 250 ms.
	MarkAfter time.Duration
	// CheckpointBytes is the log written between checkpoints within a segment. Zero means 16 MiB.
	CheckpointBytes int64
	// ZeroAhead is the least distance in bytes that zeros run ahead of the groups in a fresh segment. Zero means
	// 32 MiB; negative turns zeroing off.
	ZeroAhead int64
	// ZeroRate bounds zeroing in bytes per second. Zero means 256 MiB.
	ZeroRate int64
	// SpareSegments bounds the emptied segments kept for reuse; more are removed. Zero means 4, negative none.
	SpareSegments int
	// ReserveBytes of the disk are never taken by segments, so that deletion and the catalog can go on when it is
	// full. Zero means 1/64 of the free space at open, at most 64 MiB.
	ReserveBytes int64
	// SparseShare is the live part of a sealed segment, in percent, below which its batches are moved to the tail so
	// that it can be freed. Zero means 12; negative turns moving off.
	SparseShare int
	// IndexCache bounds the sealed segments whose sparse index is kept in memory. Zero means 64.
	IndexCache int
}

// withDefaults returns o with its zero fields set, or an error that names every field out of bounds.
func (o Options) withDefaults() (Options, error) {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	defInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defDur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.SegmentBytes, 64<<20)
	defInt(&o.MaxGroupBytes, int(min(1<<20, o.SegmentBytes/4)))
	defInt(&o.MaxBatchBytes, 65<<20)
	defInt(&o.Groups, 4)
	defDur(&o.SyncInterval, 250*time.Millisecond)
	defDur(&o.MarkAfter, 250*time.Millisecond)
	def(&o.CheckpointBytes, 16<<20)
	def(&o.ZeroAhead, 32<<20)
	def(&o.ZeroRate, 256<<20)
	defInt(&o.SpareSegments, 4)
	defInt(&o.SparseShare, 12)
	defInt(&o.IndexCache, 64)
	if o.openBackend == nil {
		o.openBackend = newBackend
	}
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.Notify == nil {
		o.Notify = func() {}
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Rand == nil {
		o.Rand = func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:]) // documented never to fail
			return le.Uint64(b[:])
		}
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("wal: "+format, args...))
		}
	}
	check(o.Now != nil, "Now is required")
	check(o.SegmentBytes >= 64<<10 && o.SegmentBytes <= 4<<30 && o.SegmentBytes%blockSize == 0,
		"SegmentBytes %d is not a multiple of 4096 from 65536 to 4294967296", o.SegmentBytes)
	check(o.MaxGroupBytes > 0 && int64(o.MaxGroupBytes) <= o.SegmentBytes/4, "MaxGroupBytes %d is not from 1 to a quarter of SegmentBytes %d", o.MaxGroupBytes, o.SegmentBytes)
	check(o.MaxBatchBytes > 0 && o.MaxBatchBytes <= 255<<20, "MaxBatchBytes %d is not from 1 to 267386880", o.MaxBatchBytes)
	check(o.Groups >= 2 && o.Groups <= 64, "Groups %d is not from 2 to 64", o.Groups)
	check(o.SyncInterval > 0, "SyncInterval %v is not positive", o.SyncInterval)
	check(o.MarkAfter > 0, "MarkAfter %v is not positive", o.MarkAfter)
	check(o.CheckpointBytes > 0, "CheckpointBytes %d is not positive", o.CheckpointBytes)
	check(o.ZeroRate > 0, "ZeroRate %d is not positive", o.ZeroRate)
	check(o.ReserveBytes >= 0, "ReserveBytes %d is negative", o.ReserveBytes)
	check(o.SparseShare <= 50, "SparseShare %d is above 50", o.SparseShare)
	check(o.IndexCache > 0, "IndexCache %d is not positive", o.IndexCache)
	return o, errors.Join(errs...)
}
