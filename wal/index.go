package wal

import (
	"slices"
	"sort"
	"sync"

	"felix/netio/wire"
)

// index says where every shard's offsets are. It is derived: recovery builds it from checkpoint, footers and scan,
// and the lane's goroutine applies each group to it once the group has reached what its mode promises. Only that
// goroutine (or recovery, before it starts) changes it, under mu; readers on any goroutine take mu for reading and
// hold it for lookups only, never across a disk read.
type index struct {
	mu     sync.RWMutex
	shards map[uint64]*shardIndex
	// unsynced holds, per shard, the end it had before the first group that was written without a sync since the
	// last one. When the lane is poisoned the ends fall back to these.
	unsynced map[uint64]wire.Offset
}

// shardIndex is one shard's place in the lane.
// Invariants: start <= end; extents are sorted, disjoint and within [.., end). A gap between them at or past start
// is damage.
type shardIndex struct {
	id         uint64
	start, end wire.Offset
	term       Term
	index      uint64
	lastTime   int64
	extents    []extent
	cuts       uint64 // how often places of offsets were taken back; a Reader that stands over one looks again
	registers  []register
	echoed     uint64 // sequence of the group whose echo already names this shard
}

// extent is a range of offsets whose batches stand in one segment in order.
type extent struct {
	from, to         wire.Offset
	seg              *segment
	bytes            int64 // encoded bytes of the batches as they were written, whole run
	minTime, maxTime int64
	moved            bool
	// closed says that the extent was cut, so that batches it no longer names stand behind it and it must not grow.
	closed bool
	// entries is the sparse index. Nil when the segment's footer holds it.
	entries []indexEntry
}

// register is where the latest value of a slot stands.
type register struct {
	slot   uint8
	entry  uint16
	size   uint32 // encoded bytes; 0 when read from a checkpoint
	seg    *segment
	pos    int64
	offset wire.Offset
}

func newIndex() *index {
	return &index{shards: map[uint64]*shardIndex{}, unsynced: map[uint64]wire.Offset{}}
}

// shard returns the shard's entry, making it. Caller holds mu for writing.
func (x *index) shard(id uint64) *shardIndex {
	s := x.shards[id]
	if s == nil {
		s = &shardIndex{id: id}
		x.shards[id] = s
	}
	return s
}

// apply folds one batch, which stands as directory entry i of the group at pos of seg, into the index. It is the only
// meaning the log has: recovery and the running lane both come here. Caller holds mu for writing.
func (x *index) apply(b *Batch, size uint32, seg *segment, pos int64, i int) {
	switch b.Kind {
	case KindRegister:
		s := x.shard(b.Shard)
		r := register{b.Slot, uint16(i), size, seg, pos, b.Base}
		if k := slices.IndexFunc(s.registers, func(o register) bool { return o.slot == b.Slot }); k >= 0 {
			s.registers[k] = r
		} else {
			s.registers = append(s.registers, r)
		}
	case kindStart:
		x.shard(b.Shard).setStart(b.Base)
	case kindTruncate:
		s := x.shard(b.Shard)
		s.cutFrom(b.Base)
		s.end = min(s.end, b.Base)
		s.start = min(s.start, s.end)
	case kindDelete:
		delete(x.shards, b.Shard)
		delete(x.unsynced, b.Shard)
	case kindRelease, kindCheckpoint, kindFooter, kindIndex:
	default:
		if !b.Kind.takesOffsets() {
			return
		}
		s := x.shard(b.Shard)
		if b.Flags&flagMoved != 0 {
			s.applyMoved(b, size, seg, pos)
			return
		}
		s.applyAppend(b, size, seg, pos)
	}
}

func (s *shardIndex) setStart(start wire.Offset) {
	if start <= s.start {
		return
	}
	s.start = start
	s.end = max(s.end, start)
	n := 0
	for n < len(s.extents) && s.extents[n].to <= start {
		n++
	}
	s.extents = slices.Delete(s.extents, 0, n)
}

// cutFrom forgets the places of offsets at and after from.
func (s *shardIndex) cutFrom(from wire.Offset) {
	n := len(s.extents)
	for n > 0 && s.extents[n-1].from >= from {
		n--
	}
	clear(s.extents[n:])
	if n < len(s.extents) || n > 0 && s.extents[n-1].to > from {
		s.cuts++
	}
	s.extents = s.extents[:n]
	if n > 0 && s.extents[n-1].to > from {
		s.extents[n-1].to = from
		s.extents[n-1].closed = true
	}
}

func (s *shardIndex) applyAppend(b *Batch, size uint32, seg *segment, pos int64) {
	if b.Base < s.end {
		// A truncate record stands before this batch in the log unless it was lost to damage; the later batch wins.
		s.cutFrom(b.Base)
	}
	s.end = b.End()
	s.start = min(s.start, b.Base)
	s.term, s.index = b.Term, b.Index
	s.lastTime = max(s.lastTime, b.Time)
	if n := len(s.extents); n > 0 {
		e := &s.extents[n-1]
		if e.seg == seg && e.to == b.Base && !e.moved && !e.sealedAway() {
			e.extend(b, size, pos)
			return
		}
	}
	s.extents = append(s.extents, newExtent(b, size, seg, pos))
}

// applyMoved puts the batch in the place of the extents that cover it now.
func (s *shardIndex) applyMoved(b *Batch, size uint32, seg *segment, pos int64) {
	from, to := max(b.Base, s.start), min(b.End(), s.end)
	if from >= to {
		return
	}
	i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].to > from })
	if i > 0 {
		if e := &s.extents[i-1]; e.seg == seg && e.moved && e.to == b.Base && !e.sealedAway() {
			s.remove(from, to)
			s.extents[i-1].extend(b, size, pos)
			s.extents[i-1].to = to
			return
		}
	}
	i = s.remove(from, to)
	e := newExtent(b, size, seg, pos)
	e.from, e.to, e.moved = from, to, true
	s.extents = slices.Insert(s.extents, i, e)
}

// remove forgets the places of [from, to), splitting extents that reach beyond, and returns where an extent for the
// range belongs.
func (s *shardIndex) remove(from, to wire.Offset) int {
	i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].to > from })
	if i < len(s.extents) && s.extents[i].from < from && from <= s.start {
		s.extents[i].from = from // what is below the start has no place
	}
	if i < len(s.extents) && s.extents[i].from < from {
		right := s.extents[i]
		right.entries = slices.Clone(right.entries)
		s.extents[i].to, s.extents[i].closed = from, true
		i++
		if right.to > to {
			right.from = to
			s.extents = slices.Insert(s.extents, i, right)
			return i
		}
	}
	j := i
	for j < len(s.extents) && s.extents[j].to <= to {
		j++
	}
	s.extents = slices.Delete(s.extents, i, j)
	if i < len(s.extents) && s.extents[i].from < to {
		s.extents[i].from = to
	}
	return i
}

func newExtent(b *Batch, size uint32, seg *segment, pos int64) extent {
	e := extent{from: b.Base, to: b.Base, seg: seg, minTime: b.Time, maxTime: b.Time, moved: b.Flags&flagMoved != 0}
	seg.touched[b.Shard] = struct{}{}
	e.extend(b, size, pos)
	return e
}

// extend adds the next batch of the run. A sparse entry is made when the lane's log has grown by indexSpacing since
// the last one, so that a lookup walks no more than that.
func (e *extent) extend(b *Batch, size uint32, pos int64) {
	if n := len(e.entries); n == 0 || pos-int64(e.entries[n-1].block)*blockSize >= indexSpacing {
		e.entries = append(e.entries, indexEntry{b.Base, b.Time, uint32(pos / blockSize), uint32(e.bytes)})
		e.seg.indexEntries++
	}
	e.to = b.End()
	e.bytes += int64(size)
	e.minTime, e.maxTime = min(e.minTime, b.Time), max(e.maxTime, b.Time)
}

// sealedAway says that the extent cannot grow: it was cut, or its sparse index is in the footer.
func (e *extent) sealedAway() bool { return e.entries == nil || e.closed }

// indexSpacing is the distance in log bytes between the sparse index entries of a run. At 48 shards it costs 0.4 % of
// the log, and a lookup reads at most this much to find its batch.
const indexSpacing = 256 << 10

// find returns the extent that holds offset. Caller holds mu.
func (s *shardIndex) find(offset wire.Offset) (*extent, bool) {
	i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].to > offset })
	if i == len(s.extents) || s.extents[i].from > offset {
		return nil, false
	}
	return &s.extents[i], true
}

// hole returns the damaged range around offset, which no extent holds. Caller holds mu.
func (s *shardIndex) hole(offset wire.Offset) (from, to wire.Offset) {
	i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].to > offset })
	from, to = s.start, s.end
	if i > 0 {
		from = max(from, s.extents[i-1].to)
	}
	if i < len(s.extents) {
		to = s.extents[i].from
	}
	return from, to
}

// holes returns every damaged range of the shard. Caller holds mu.
func (s *shardIndex) holes() []ShardRange {
	var out []ShardRange
	at := s.start
	for i := range s.extents {
		if e := &s.extents[i]; e.from > at {
			out = append(out, newShardRange(s.id, at, e.from))
		}
		at = max(at, s.extents[i].to)
	}
	if at < s.end {
		out = append(out, newShardRange(s.id, at, s.end))
	}
	return out
}

// entryAt returns the block of the group to start walking at for offset.
func entryAt(entries []indexEntry, offset wire.Offset) (indexEntry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].offset > offset })
	if i == 0 {
		return indexEntry{}, false
	}
	return entries[i-1], true
}

// runsOf collects what seg holds for its footer, and the sparse entries of these runs one after the other.
// Caller holds mu.
func (x *index) runsOf(seg *segment) (runs []run, entries []indexEntry) {
	ids := make([]uint64, 0, len(seg.touched))
	for id := range seg.touched {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		s := x.shards[id]
		if s == nil {
			continue
		}
		for i := range s.extents {
			e := &s.extents[i]
			if e.seg != seg || e.entries == nil {
				continue
			}
			runs = append(runs, run{id, e.from, e.to, e.bytes, e.minTime, e.maxTime, e.moved, uint32(len(e.entries))})
			entries = append(entries, e.entries...)
		}
	}
	return runs, entries
}

// dropEntries forgets the sparse entries of seg, which its footer holds from now on. Caller holds mu for writing.
func (x *index) dropEntries(seg *segment) {
	for id := range seg.touched {
		if s := x.shards[id]; s != nil {
			for i := range s.extents {
				if s.extents[i].seg == seg {
					s.extents[i].entries = nil
				}
			}
		}
	}
}

// foldRuns applies the footer of an older segment, in epoch order.
func (x *index) foldRuns(seg *segment, runs []run, keep func(shard uint64) bool) {
	for _, moved := range []bool{false, true} {
		for i := range runs {
			r := &runs[i]
			if r.moved != moved || !keep(r.shard) {
				continue
			}
			s := x.shard(r.shard)
			e := extent{from: r.from, to: r.to, seg: seg, bytes: r.bytes, minTime: r.minTime, maxTime: r.maxTime, moved: r.moved}
			seg.touched[r.shard] = struct{}{}
			if moved {
				s.extents = slices.Insert(s.extents, s.remove(r.from, r.to), e)
				s.end = max(s.end, r.to)
				continue
			}
			s.cutFrom(r.from)
			s.end = r.to
			s.lastTime = max(s.lastTime, r.maxTime)
			s.extents = append(s.extents, e)
		}
	}
}

// reconcile takes a checkpoint as the truth about starts, ends and which shards exist. What the fold before it does not
// know of was lost to damage and shows as a hole. lookup finds segments by epoch; nil leaves registers alone.
func (x *index) reconcile(c *checkpoint, lookup func(epoch uint64) *segment) {
	have := make(map[uint64]struct{}, len(c.shards))
	for i := range c.shards {
		t := &c.shards[i]
		have[t.id] = struct{}{}
		s := x.shard(t.id)
		s.cutFrom(t.end)
		s.end = t.end
		s.start = 0
		s.setStart(t.start)
		s.term, s.index, s.lastTime = t.term, t.index, t.lastTime
	}
	for id := range x.shards {
		if _, ok := have[id]; !ok {
			delete(x.shards, id)
		}
	}
	if lookup == nil {
		return
	}
	for i := range c.registers {
		r := &c.registers[i]
		s := x.shard(r.shard)
		s.registers = append(s.registers, register{slot: r.slot, entry: r.entry, seg: lookup(r.epoch), pos: r.pos, offset: r.offset})
	}
}

// table returns the lane's shard table for a checkpoint. Caller holds mu.
func (x *index) table() *checkpoint {
	c := &checkpoint{}
	ids := make([]uint64, 0, len(x.shards))
	for id := range x.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		s := x.shards[id]
		c.shards = append(c.shards, tableShard{id, s.start, s.end, s.term, s.index, s.lastTime})
		for _, r := range s.registers {
			if r.seg != nil {
				c.registers = append(c.registers, tableRegister{id, r.slot, r.entry, r.seg.epoch, r.pos, r.offset})
			}
		}
	}
	return c
}

// noteUnsynced remembers the shard's end before a group that is written without a sync. Caller holds mu for writing.
func (x *index) noteUnsynced(id uint64) {
	if _, ok := x.unsynced[id]; ok {
		return
	}
	if s := x.shards[id]; s != nil {
		x.unsynced[id] = s.end
	} else {
		x.unsynced[id] = 0
	}
}

// fallBack cuts every shard to what the last sync made durable. The lane is poisoned: readers stop there.
func (x *index) fallBack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, end := range x.unsynced {
		if s := x.shards[id]; s != nil && s.end > end {
			s.cutFrom(end)
			s.end = end
			s.start = min(s.start, end)
		}
	}
	clear(x.unsynced)
}

// echoOf appends the ends, after a group, of the shards in its directory, each once.
func (x *index) echoOf(dst []shardEnd, dir []dirEntry, sequence uint64) []shardEnd {
	for i := range dir {
		s := x.shards[dir[i].shard]
		if s == nil || s.echoed == sequence || dir[i].kind >= kindRelease {
			continue
		}
		s.echoed = sequence
		dst = append(dst, shardEnd{s.id, s.end})
	}
	return dst
}
