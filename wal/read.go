package wal

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"felix/netio/wire"
)

// Limits bound one Read. Zero fields mean the defaults.
type Limits struct {
	Bytes   int // record bytes, default 1 MiB; one larger record comes alone
	Records int // default 10,000
	// To is the first offset that may not be given, such as a high watermark. Zero means the shard's visible end.
	To wire.Offset
}

// A Reader reads one shard forward. It belongs to one goroutine, any but a core's loop, since it waits for the disk.
// Several may read beside each other and beside the lane. While it stands in a segment that segment is not recycled,
// so an idle Reader should be closed.
type Reader struct {
	l     *Lane
	shard uint64
	next  wire.Offset

	seg   *segment // held, nil when not standing anywhere
	sc    scanner
	pos   int64       // group to look at next; a hint when it is left from an earlier call
	limit wire.Offset // end of the extent
	cuts  uint64      // shardIndex.cuts when the present Read began
	g     groupHeader

	advisedTo int64       // the system was asked to read the segment up to here
	advising  atomic.Bool // one request at a time

	out     []byte
	found   []foundBatch
	batches []Batch
}

// foundBatch is a batch in Reader.out.
type foundBatch struct {
	from, size int
	lo, hi     wire.Offset // the part of it that is given
}

// readWindow is how much a Reader reads at once.
const readWindow = 256 << 10

// readAhead is how far beyond its window a Reader has the system read. Finding pages and starting their reads is half of what a
// cold read costs the processor; a goroutine does that, one at a time, while the reader checks and copies. From the disk a reader
// got 0.49-0.53 of a plain sequential read without it, 0.84-1.18 with it (1 GiB, 2 vCPUs, 2026-11-30, BenchmarkCatchUp in perf).
const readAhead = 4 << 20

// NewReaderOffCore returns a Reader of the shard that starts at offset from. It reads nothing yet.
func (l *Lane) NewReaderOffCore(shard uint64, from wire.Offset) *Reader {
	return &Reader{l: l, shard: shard, next: from}
}

// Offset is where the next Read starts.
func (r *Reader) Offset() wire.Offset { return r.next }

// Seek makes the next Read start at offset.
func (r *Reader) Seek(offset wire.Offset) {
	if offset != r.next {
		r.next = offset
		r.leave()
	}
}

// Close lets go of the segment. The Reader may be used again.
func (r *Reader) Close() { r.leave() }

func (r *Reader) leave() {
	if r.seg != nil {
		r.seg.letGo()
		r.seg = nil
	}
}

// RangeOffCore returns the offsets of a shard that can be read now: [start, visible). ok is false when the lane does
// not know the shard. Records appear here once their group has reached what its mode promises.
func (l *Lane) RangeOffCore(shard uint64) (start, visible wire.Offset, ok bool) {
	l.idx.mu.RLock()
	defer l.idx.mu.RUnlock()
	s := l.idx.shards[shard]
	if s == nil {
		return 0, 0, false
	}
	return s.start, s.end, true
}

// rangeAndCuts is RangeOffCore with how often the end went back so far.
func (l *Lane) rangeAndCuts(shard uint64) (start, visible wire.Offset, cuts uint64, ok bool) {
	l.idx.mu.RLock()
	defer l.idx.mu.RUnlock()
	s := l.idx.shards[shard]
	if s == nil {
		return 0, 0, 0, false
	}
	return s.start, s.end, s.cuts, true
}

// errTakenBack ends a Read whose shard was truncated, or fell back to the last sync, since it began. What it was about to read
// is no damage; the next Read sees the shard as it is then.
var errTakenBack = errors.New("wal: the shard's end went back")

// Read returns batches from the reader's offset on, as many as fit lim and at least one record when there is one, and
// moves the offset past them. At the visible end it returns none and does not wait. The batches live until the next
// call. It blocks for the disk.
//
// Errors: *TrimmedError below the start, *DamageError for records that do not read back (Seek to its To to go on),
// ErrUnknownShard, or the failed read.
func (r *Reader) Read(lim Limits) ([]Batch, error) {
	if lim.Bytes <= 0 {
		lim.Bytes = 1 << 20
	}
	if lim.Records <= 0 {
		lim.Records = 10000
	}
	r.out, r.found = r.out[:0], r.found[:0]
	start, end, cuts, ok := r.l.rangeAndCuts(r.shard)
	if cuts != r.cuts {
		r.leave() // the batches ahead may have been taken back
		r.cuts = cuts
	}
	switch {
	case !ok:
		r.leave()
		return nil, fmt.Errorf("%w: %d", ErrUnknownShard, r.shard)
	case r.next < start:
		r.leave()
		return nil, &TrimmedError{r.shard, r.next, start}
	}
	if lim.To > 0 {
		end = min(end, lim.To)
	}
	r.sc.n = 0 // groups may have been written since the window was read
	from := r.next
	err := r.collect(end, lim)
	if len(r.found) == 0 && err != nil {
		r.leave()
		if err == errTakenBack {
			return nil, nil
		}
		return nil, err
	}
	return r.cut(from, lim)
}

// collect copies batches to r.out until the limits are reached. An error after the first batch is met again by the
// next call.
func (r *Reader) collect(end wire.Offset, lim Limits) error {
	records, partial, retried := 0, false, false
	for at := r.next; at < end && len(r.out) < lim.Bytes && records < lim.Records; {
		if r.seg == nil || at >= r.limit {
			if err := r.locate(at); err != nil {
				return err
			}
		}
		b, err := r.group(at)
		if err != nil {
			if retried {
				r.seg.damaged.Store(true)
				r.leave()
				return err
			}
			r.leave()
			// Retention may have changed where things stand since the position was taken. The index has the last word,
			// once: damage is met again.
			retried = true
			continue
		}
		truncated := r.g.truncates(r.shard)
		for i := range r.g.dir {
			e := &r.g.dir[i]
			size := int(e.size)
			if e.shard != r.shard || !e.kind.takesOffsets() || at < e.base || at >= e.end() {
				b = b[size:]
				continue
			}
			to := e.end()
			if truncated {
				to = r.g.keptEnd(i)
			}
			switch {
			case at >= to:
			case at >= min(end, r.limit):
				partial = true
			default:
				body := b[:size]
				if checksum(body) != e.crc {
					err := &DamageError{Shard: r.shard, From: at, To: min(e.end(), r.limit), Segment: r.seg.name, Byte: r.pos, Reason: "checksum of a batch does not match"}
					r.seg.damaged.Store(true)
					r.leave()
					return err
				}
				hi := min(to, r.limit, end)
				r.found = append(r.found, foundBatch{len(r.out), size, at, hi})
				r.out = append(r.out, body...)
				records += int(hi - at)
				at = hi
				partial = hi == end && hi < to
			}
			b = b[size:]
		}
		r.pos += r.g.diskLen()
	}
	if partial {
		r.leave() // the rest of the last group is asked for later, and the group is behind
	}
	return nil
}

// truncates says whether the group holds a truncation of the shard.
func (h *groupHeader) truncates(shard uint64) bool {
	for i := range h.dir {
		if e := &h.dir[i]; e.kind == kindTruncate && e.shard == shard {
			return true
		}
	}
	return false
}

// keptEnd is the end of directory entry i as far as no truncation behind it in the same group takes it back.
func (h *groupHeader) keptEnd(i int) wire.Offset {
	end := h.dir[i].end()
	for k := range h.dir[i+1:] {
		if e := &h.dir[i+1+k]; e.kind == kindTruncate && e.shard == h.dir[i].shard {
			end = min(end, e.base)
		}
	}
	return end
}

// locate finds where at stands and holds the segment.
func (r *Reader) locate(at wire.Offset) error {
	r.leave()
	x := r.l.idx
	x.mu.RLock()
	s := x.shards[r.shard]
	if s == nil {
		x.mu.RUnlock()
		return fmt.Errorf("%w: %d", ErrUnknownShard, r.shard)
	}
	if at < s.start {
		start := s.start
		x.mu.RUnlock()
		return &TrimmedError{r.shard, at, start}
	}
	if s.cuts != r.cuts {
		x.mu.RUnlock()
		return errTakenBack
	}
	e, ok := s.find(at)
	if !ok {
		from, to := s.hole(at)
		x.mu.RUnlock()
		return &DamageError{Shard: r.shard, From: max(from, at), To: to, Reason: "see the damage reported at start"}
	}
	seg, limit := e.seg, e.to
	entry, inMemory := entryAt(e.entries, at)
	seg.hold()
	x.mu.RUnlock()
	if !inMemory {
		var err error
		if entry, err = r.l.sealedEntry(seg, r.shard, at); err != nil {
			seg.letGo()
			return err
		}
	}
	r.seg, r.limit, r.pos = seg, limit, int64(entry.block)*blockSize
	if r.sc.win == nil {
		r.sc.win = make([]byte, readWindow)
	}
	// What the window holds from before may have been written since. Up to limit everything is there now.
	r.sc.f, r.sc.h, r.sc.n, r.sc.end = seg.file, &seg.segmentHeader, 0, seg.size-blockSize
	r.advisedTo = r.pos + readAhead // a short read needs no more than what the system reads by itself
	r.sc.ahead = r.advise
	return nil
}

// advise has the system read on when less than half of what it was asked for is left.
func (r *Reader) advise(pos int64) {
	if pos+readAhead/2 < r.advisedTo || r.advisedTo >= r.sc.end || r.advising.Swap(true) {
		return
	}
	file, from, n := r.seg.file, max(pos, r.advisedTo), int64(readAhead)
	r.advisedTo = from + n
	go func() {
		defer r.advising.Store(false)
		// It is advice: what it cannot do, the read does.
		_ = file.with(func(f File) error {
			if fd, ok := f.Fd(); ok {
				return unix.Fadvise(fd, from, n, unix.FADV_WILLNEED)
			}
			return nil
		})
	}()
}

// group parses the group at r.pos and returns its body, unchecked. The offset at is what is looked for.
func (r *Reader) group(at wire.Offset) ([]byte, error) {
	damage := func(reason string) error {
		return &DamageError{Shard: r.shard, From: at, To: r.skip(at), Segment: r.seg.name, Byte: r.pos, Reason: reason}
	}
	b, err := r.sc.need(r.pos, blockSize)
	if err != nil {
		return nil, fmt.Errorf("wal: read %s at byte %d: %w", r.seg.name, r.pos, err)
	}
	headLen, bodyLen, perr := peekGroupHeader(b)
	if perr != nil {
		return nil, damage("no group header")
	}
	total := headLen + int(bodyLen)
	if b, err = r.sc.need(r.pos, total); err != nil {
		return nil, fmt.Errorf("wal: read %s at byte %d: %w", r.seg.name, r.pos, err)
	}
	if len(b) < total || parseGroupHeader(b, &r.g) != nil || r.g.epoch != r.seg.epoch || r.g.salt != r.seg.salt {
		return nil, damage("checksum of a group header does not match")
	}
	return b[headLen:], nil
}

// skip returns the first offset after at that a sparse index entry leads to, past the damage at r.pos.
func (r *Reader) skip(at wire.Offset) wire.Offset {
	to := r.limit
	consider := func(entries []indexEntry) {
		for _, e := range entries {
			if e.offset > at && int64(e.block)*blockSize > r.pos {
				to = min(to, e.offset)
				return
			}
		}
	}
	x := r.l.idx
	x.mu.RLock()
	if s := x.shards[r.shard]; s != nil {
		if e, ok := s.find(at); ok {
			consider(e.entries)
		}
	}
	x.mu.RUnlock()
	if ix := r.seg.loaded.Load(); ix != nil {
		for _, run := range ix.runs[r.shard] {
			if run.from <= at && at < run.to {
				consider(run.index)
			}
		}
	}
	return max(to, at+1)
}

// cut parses what was found and clips it to the limits.
func (r *Reader) cut(at wire.Offset, lim Limits) ([]Batch, error) {
	r.batches = r.batches[:0]
	bytes, records := 0, 0
	for _, f := range r.found {
		var b Batch
		err := parseBatch(r.out[f.from:f.from+f.size], &b)
		if err == nil {
			err = b.clip(f.lo, f.hi)
		}
		full := false
		if err == nil {
			full, err = b.fit(lim.Bytes-bytes, lim.Records-records, len(r.batches) == 0)
		}
		if err != nil {
			if len(r.batches) > 0 {
				r.leave() // the next call meets it first
				break
			}
			d := &DamageError{Shard: r.shard, From: f.lo, To: f.hi, Byte: r.pos, Reason: "the batch does not parse"}
			if r.seg != nil {
				d.Segment = r.seg.name
			}
			r.leave()
			return nil, d
		}
		b.Flags &^= flagConsensus | flagProducer | flagMoved // the fields say the same; where it stands is the lane's affair
		if b.Count == 0 {
			r.next = at
			r.leave()
			break
		}
		r.batches = append(r.batches, b)
		bytes += len(b.Records)
		records += int(b.Count)
		at = b.End()
		r.next = at
		if full {
			r.leave() // the position may be past the rest of this batch
			break
		}
	}
	return r.batches, nil
}

// fit cuts b to at most the given bytes and records; with first, at least one record stays. full says that something
// was cut off.
func (b *Batch) fit(bytes, records int, first bool) (full bool, err error) {
	if len(b.Records) <= bytes && int(b.Count) <= records {
		return false, nil
	}
	used, n := 0, 0
	for n < int(b.Count) {
		size, err := recordSize(b.Records[used:])
		if err != nil {
			return false, err
		}
		if (used+size > bytes || n+1 > records) && !(first && n == 0) {
			break
		}
		used += size
		n++
	}
	full = n < int(b.Count)
	b.Records, b.Count = b.Records[:used], uint32(n)
	return full, nil
}
