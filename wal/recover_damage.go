package wal

import (
	"fmt"
	"slices"
)

// Recovery's other half: what does not read back, whom it concerns, and what the caller is told.

// foldDamaged goes on from the first group that did not follow. Up to the durable mark a group that is missing or bad
// is damage; the first one after the mark is the torn end.
func (r *recovery) foldDamaged() error {
	n := r.kept
	for ; n < len(r.refs); n++ {
		ref := &r.refs[n]
		if ref.sequence <= r.sequence && r.lastSegment != nil {
			return fmt.Errorf("wal: segment %s byte %d: group %d stands after group %d; the directory mixes files of two copies, restore one of them whole",
				ref.seg.name, ref.pos, ref.sequence, r.sequence)
		}
		gap := !r.follows(ref)
		first := ref.sequence // the first group that is missing or bad
		switch {
		case gap && r.lastSegment == nil:
			first = max(ref.sequence, 1) - 1
		case gap:
			first = r.sequence + 1
		}
		if (gap || ref.bad) && first > r.durable {
			break
		}
		sc, err := r.scanner(ref.seg)
		if err != nil {
			return err
		}
		g, ok, err := sc.at(ref.pos)
		r.rec.ScannedBytes += sc.read
		if err != nil || !ok {
			return fmt.Errorf("wal: read segment %s byte %d again: %w", ref.seg.name, ref.pos, err)
		}
		if gap {
			d := r.damageBefore(ref.seg, segmentDataStart, g)
			if last := r.lastSegment; last != nil && (last == ref.seg || ref.pos == segmentDataStart) {
				d.Segment, d.Byte, d.Bytes = last.name, last.pos, ref.pos-last.pos
				if last != ref.seg {
					d.Bytes = last.size - blockSize - last.pos
				}
			}
			d.Unattributed = g.sequence-r.sequence > 2
			r.rec.Damage = append(r.rec.Damage, d)
			if d.Unattributed {
				for id := range r.idx.shards {
					r.suspect[id] = struct{}{}
				}
			}
			r.vouch(g)
		}
		if ref.bad && ref.sequence > r.durable {
			break
		}
		r.keep(ref, g)
	}
	r.stale = r.refs[n:]
	if n < len(r.refs) {
		cut := &Cut{Groups: len(r.stale)}
		for i := range r.stale {
			cut.Bytes += r.stale[i].len
		}
		if r.lastSegment != nil {
			cut.Segment, cut.Byte = r.lastSegment.name, r.lastSegment.pos
		} else {
			cut.Segment, cut.Byte = r.refs[n].seg.name, segmentDataStart
		}
		r.rec.Cut = cut
	}
	return nil
}

// vouch removes from the suspects the shards whose end g's echo states.
func (r *recovery) vouch(g *group) {
	for _, p := range g.echo {
		delete(r.suspect, p.shard)
	}
}

// damageBefore reports the bytes before g that do not parse. g's echo names the shards of the group just before it,
// and raises their ends so that lost offsets are never given out again.
func (r *recovery) damageBefore(s *segment, from int64, g *group) Damage {
	d := Damage{Lane: r.lane, Segment: s.name, Byte: from, Bytes: g.pos - from, Reason: "no readable group"}
	for _, p := range g.echo {
		sh := r.idx.shard(p.shard)
		if p.end > sh.end {
			d.Shards = append(d.Shards, newShardRange(p.shard, sh.end, p.end))
			sh.end = p.end
		}
	}
	return d
}

func (r *recovery) badEntry(s *segment, g *group, i int, keep func(uint64) bool) {
	e := &g.dir[i]
	d := Damage{Lane: r.lane, Segment: s.name, Byte: g.pos + g.entryOffset(i), Bytes: int64(e.size), Reason: "checksum of a batch does not match"}
	switch {
	case e.kind.takesOffsets() && e.flags&flagMoved != 0:
		d.Reason = "checksum of a moved batch does not match"
		d.Shards = []ShardRange{newShardRange(e.shard, e.base, e.end())}
	case e.kind.takesOffsets():
		d.Shards = []ShardRange{newShardRange(e.shard, e.base, e.end())}
		if keep(e.shard) {
			sh := r.idx.shard(e.shard)
			sh.cutFrom(e.base)
			sh.end = e.end()
		}
	case e.kind == kindCheckpoint || e.kind == kindFooter || e.kind == kindIndex:
		d.Reason = "checksum of derived data does not match"
	default:
		d.Reason = fmt.Sprintf("checksum of a record of kind %d does not match", e.kind)
		d.Shards = []ShardRange{newShardRange(e.shard, e.base, e.base)}
	}
	r.rec.Damage = append(r.rec.Damage, d)
}

// report turns the index into the caller's view and names the holes that no damage explains yet.
func (r *recovery) report() {
	if r.readOnly {
		r.rec.Sequence = r.sequence
	}
	segment := ""
	if len(r.missing) > 0 {
		segment = r.missing[0]
	}
	ids := make([]uint64, 0, len(r.idx.shards))
	for id := range r.idx.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var holes []ShardRange
	for _, id := range ids {
		s := r.idx.shards[id]
		for _, h := range s.holes() {
			if !r.explained(h) {
				holes = append(holes, h)
			}
		}
		for k, reg := range s.registers {
			if reg.seg == nil {
				r.rec.Damage = append(r.rec.Damage, Damage{Lane: r.lane, Segment: segment, Byte: reg.pos, Reason: fmt.Sprintf("register %d of shard %d is in a segment that is missing", reg.slot, id),
					Shards: []ShardRange{newShardRange(id, reg.offset, reg.offset)}})
				s.registers[k].seg = nil
			}
		}
		state := ShardState{Shard: id, Start: s.start, End: s.end, Offsets: fmt.Sprintf("[%d, %d)", s.start, s.end), Term: s.term, Index: s.index, LastTime: s.lastTime}
		for i := range s.extents {
			state.Bytes += s.extents[i].bytes
		}
		for _, reg := range s.registers {
			state.Slots = append(state.Slots, reg.slot)
		}
		r.rec.Shards = append(r.rec.Shards, state)
	}
	if len(holes) > 0 {
		d := Damage{Lane: r.lane, Segment: segment, Shards: holes, Reason: "no segment holds these offsets"}
		if len(r.doubtful) > 0 {
			s := r.doubtful[0]
			d.Segment, d.Byte, d.Bytes = s.name, s.pos, s.size-s.pos
			d.Reason = "these offsets stood in a segment that is cut short or has lost its end"
		}
		if len(r.missing) > 0 {
			d.Segment, d.Byte, d.Bytes = segment, 0, 0
			d.Reason = fmt.Sprintf("%d segment(s) of the lane are missing or unreadable: %v", len(r.missing), r.missing)
		}
		for _, s := range r.doubtful {
			s.damaged.Store(true)
		}
		r.rec.Damage = append(r.rec.Damage, d)
	}
	for id := range r.suspect {
		r.rec.Suspect = append(r.rec.Suspect, id)
	}
	slices.Sort(r.rec.Suspect)
	r.rec.Sequence = r.sequence
}

// quarantine marks the segments in which something does not read back.
func (r *recovery) quarantine() {
	for _, d := range r.rec.Damage {
		for _, s := range r.segments {
			if s.name == d.Segment {
				s.damaged.Store(true)
			}
		}
	}
}

func (r *recovery) explained(h ShardRange) bool {
	for _, d := range r.rec.Damage {
		for _, s := range d.Shards {
			if s.Shard == h.Shard && s.From <= h.From && h.To <= s.To {
				return true
			}
		}
	}
	return false
}
