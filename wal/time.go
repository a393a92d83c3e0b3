package wal

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"felix/netio/wire"
)

// OffsetForTimeOffCore returns the offset of the shard's first record appended at or after t (microseconds since 1970),
// or its visible end when there is none. Within a shard append times never run backwards. It blocks for the disk and
// reads at most about one index distance of log.
func (l *Lane) OffsetForTimeOffCore(shard uint64, t int64) (wire.Offset, error) {
	from, end, err := l.beforeTime(shard, t)
	if err != nil {
		return 0, err
	}
	r := l.NewReaderOffCore(shard, from)
	defer r.Close()
	for r.Offset() < end {
		batches, err := r.Read(Limits{Bytes: 64 << 10, To: end})
		var trimmed *TrimmedError
		var damaged *DamageError
		switch {
		case errors.As(err, &trimmed):
			r.Seek(trimmed.Start) // retention went past it meanwhile
			continue
		case errors.As(err, &damaged):
			r.Seek(damaged.To)
			continue
		case err != nil:
			return 0, err
		}
		for i := range batches {
			if batches[i].Time >= t {
				return batches[i].Base, nil
			}
		}
	}
	return end, nil
}

// beforeTime returns an offset at or before the first record of time t or later, from the sparse index.
func (l *Lane) beforeTime(shard uint64, t int64) (from, end wire.Offset, err error) {
	x := l.idx
	x.mu.RLock()
	s := x.shards[shard]
	if s == nil {
		x.mu.RUnlock()
		return 0, 0, fmt.Errorf("%w: %d", ErrUnknownShard, shard)
	}
	start, end := s.start, s.end
	i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].maxTime >= t })
	if i == len(s.extents) {
		x.mu.RUnlock()
		return end, end, nil
	}
	e := &s.extents[i]
	from = max(start, e.from)
	entries, seg := e.entries, e.seg
	if entries == nil {
		seg.hold()
	}
	from = lastBefore(entries, t, from, e.to)
	to := e.to
	x.mu.RUnlock()
	if entries != nil {
		return from, end, nil
	}
	defer seg.letGo()
	ix, err := l.loadIndex(seg)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range ix.runs[shard] {
		if r.from <= from && from < r.to {
			return lastBefore(r.index, t, from, to), end, nil
		}
	}
	return from, end, nil
}

// lastBefore returns the offset of the last entry in [from, to) whose time is before t, at least from.
func lastBefore(entries []indexEntry, t int64, from, to wire.Offset) wire.Offset {
	for _, e := range entries {
		if e.time >= t || e.offset >= to {
			break
		}
		from = max(from, e.offset)
	}
	return from
}

// Retention bounds what a shard keeps. Zero fields do not bound.
type Retention struct {
	MaxAge   time.Duration
	MaxBytes int64 // encoded bytes of its batches
}

// RetentionStartOffCore returns where the shard may start under r at the given time: the owner passes it to SetStart
// when it is above the present start. It goes by the index, so it keeps up to one index distance more than asked for,
// and never anything less. It reads the disk only for an index that is not in memory.
func (l *Lane) RetentionStartOffCore(shard uint64, r Retention, now time.Time) (wire.Offset, error) {
	x := l.idx
	x.mu.RLock()
	s := x.shards[shard]
	if s == nil {
		x.mu.RUnlock()
		return 0, fmt.Errorf("%w: %d", ErrUnknownShard, shard)
	}
	start, end := s.start, s.end
	to := start
	var split *segment // holds the extent that the size bound falls into
	var splitAt extent
	var keep int64
	if r.MaxBytes > 0 {
		var sum int64
		i := len(s.extents)
		for i > 0 && sum+s.extents[i-1].bytes <= r.MaxBytes {
			i--
			sum += s.extents[i].bytes
		}
		if i > 0 {
			e := &s.extents[i-1]
			to = max(to, e.from)
			split, splitAt, keep = e.seg, *e, r.MaxBytes-sum
			if splitAt.entries != nil {
				splitAt.entries = append([]indexEntry(nil), splitAt.entries...)
			}
			split.hold()
		}
	}
	if r.MaxAge > 0 {
		oldest := now.Add(-r.MaxAge).UnixMicro()
		for i := range s.extents {
			e := &s.extents[i]
			if e.maxTime >= oldest {
				to = max(to, lastBefore(e.entries, oldest, e.from, e.to))
				break
			}
			to = max(to, e.to)
		}
	}
	x.mu.RUnlock()
	if split != nil {
		defer split.letGo()
		at, err := l.bytesFromEnd(split, shard, &splitAt, keep)
		if err != nil {
			return start, err
		}
		to = max(to, at)
	}
	return min(to, end), nil
}

// bytesFromEnd returns the first index offset of the extent after which no more than keep bytes follow; the extent's
// last entry is as far as it goes.
func (l *Lane) bytesFromEnd(s *segment, shard uint64, e *extent, keep int64) (wire.Offset, error) {
	entries := e.entries
	if entries == nil {
		ix, err := l.loadIndex(s)
		if err != nil {
			return 0, err
		}
		for _, r := range ix.runs[shard] {
			if r.from <= e.from && e.from < r.to {
				entries = r.index
			}
		}
	}
	at := e.from
	for i, en := range entries {
		// Cutting at this entry keeps what follows it. Keep at least what was asked for.
		if en.offset >= e.to || e.bytes-int64(en.before) < keep {
			break
		}
		if i > 0 {
			at = max(at, en.offset)
		}
	}
	return at, nil
}
