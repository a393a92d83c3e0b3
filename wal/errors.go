package wal

import (
	"errors"
	"fmt"
	"strings"

	"felix/netio/wire"
)

var (
	// ErrBusy refuses an append because every group buffer is full or the next segment is still being made. The
	// caller holds the publish and tries again after the next Notify.
	ErrBusy = errors.New("wal: lane is busy, try again after the next completion")
	// ErrDiskFull refuses an append before anything is written. Reads and retention go on; appends resume by
	// themselves once there is room.
	ErrDiskFull = errors.New("wal: disk is full")
	// ErrPoisoned wraps the error that stopped the lane. Only a restart, which reads back what is on disk, clears it.
	ErrPoisoned = errors.New("wal: lane stopped after a disk error, restart to verify and resume")
	// ErrClosed refuses work on a closed lane.
	ErrClosed = errors.New("wal: lane is closed")
	// ErrUnknownShard answers for a shard without any record or start.
	ErrUnknownShard = errors.New("wal: unknown shard")
	// ErrTooLarge refuses a batch beyond MaxBatchBytes.
	ErrTooLarge = errors.New("wal: batch too large")
)

// TrimmedError answers a read below a shard's start.
type TrimmedError struct {
	Shard            uint64
	Requested, Start wire.Offset
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("wal: shard %d: offset %d is gone, the log starts at %d", e.Shard, e.Requested, e.Start)
}

// DamageError answers a read of records that were acknowledged and cannot be read back. Reading goes on at To.
type DamageError struct {
	Shard    uint64
	From, To wire.Offset
	Segment  string // file name, empty when the segment is missing
	Byte     int64
	Reason   string
}

func (e *DamageError) Error() string {
	where := "in no segment of the lane"
	if e.Segment != "" {
		where = fmt.Sprintf("%s at byte %d", e.Segment, e.Byte)
	}
	return fmt.Sprintf("wal: shard %d: offsets [%d, %d) are damaged (%s, %s); restore the file from a backup, or move the shard's start past %d to give them up",
		e.Shard, e.From, e.To, where, e.Reason, e.To)
}

// ShardRange is a range of offsets of one shard.
type ShardRange struct {
	Shard    uint64      `json:"shard"`
	From, To wire.Offset `json:"-"`
	Offsets  string      `json:"offsets"` // "[from, to)"
}

func newShardRange(shard uint64, from, to wire.Offset) ShardRange {
	return ShardRange{shard, from, to, fmt.Sprintf("[%d, %d)", from, to)}
}

// Damage is one place of the log that was durable and does not read back.
type Damage struct {
	Lane    uint64 `json:"lane"`
	Segment string `json:"segment"` // file name, empty when no file is known to have held it
	Byte    int64  `json:"byte"`
	Bytes   int64  `json:"bytes"`
	// Shards names what is lost. Empty means that the place held control or derived data only, or, with
	// Unattributed, that it cannot be told.
	Shards       []ShardRange `json:"shards,omitempty"`
	Unattributed bool         `json:"unattributed,omitempty"`
	Reason       string       `json:"reason"`
}

func (d Damage) String() string {
	var b strings.Builder
	seg := d.Segment
	if seg == "" {
		seg = "(missing segment)"
	}
	fmt.Fprintf(&b, "lane %d: %s byte %d, %d bytes: %s", d.Lane, seg, d.Byte, d.Bytes, d.Reason)
	for _, s := range d.Shards {
		fmt.Fprintf(&b, "; shard %d offsets %s", s.Shard, s.Offsets)
	}
	if d.Unattributed {
		b.WriteString("; the shards it held are not known")
	}
	return b.String()
}
