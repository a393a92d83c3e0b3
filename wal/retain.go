package wal

import (
	"errors"
	"fmt"

	"felix/netio/wire"
)

// reclaim frees the segments that hold nothing live, and moves the live batches of sparse ones to the tail so that they
// can be freed too. It runs on the keeper goroutine. ErrBusy means that there was no room to write; it is tried again.
func (l *Lane) reclaim() error {
	if err := l.release(); err != nil {
		return err
	}
	if l.opts.SparseShare <= 0 {
		return nil
	}
	moved := false
	sealed := l.sealedSegments()
	live := l.liveIn(sealed)
	for i, s := range sealed {
		// The newest segments are left alone: what is sparse in them may be gone before it is worth moving.
		if i >= len(sealed)-1 || live[i] == 0 || s.damaged.Load() || live[i]*100 >= s.size*int64(l.opts.SparseShare) {
			continue
		}
		err := l.moveLive(s)
		var damage *DamageError
		if errors.As(err, &damage) {
			l.opts.Log(fmt.Sprintf("lane %d: %s is kept: %v", l.opts.Lane, s.name, err))
			continue // the reader has marked it, so it is not tried again
		}
		if err != nil {
			return err
		}
		moved = true
	}
	if moved {
		return l.release()
	}
	return nil
}

// sealedSegments lists the segments that may be freed, oldest first. One with damage stays while any shard of the lane
// misses offsets.
func (l *Lane) sealedSegments() []*segment {
	holes := l.idx.anyHole()
	l.keep.mu.Lock()
	defer l.keep.mu.Unlock()
	var out []*segment
	for _, s := range l.keep.segments[:len(l.keep.segments)-1] {
		if !holes || !s.damaged.Load() {
			out = append(out, s)
		}
	}
	return out
}

func (x *index) anyHole() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, s := range x.shards {
		if len(s.holes()) > 0 {
			return true
		}
	}
	return false
}

// liveIn is about how much of each of these segments is still wanted. One of which nothing is stays that way: sealed segments take no
// records. That is why they are asked for by name: one that was active when its bytes were counted may have filled and been sealed since.
func (l *Lane) liveIn(sealed []*segment) []int64 {
	l.idx.mu.RLock()
	live := make(map[*segment]int64, len(sealed))
	for _, s := range l.idx.shards {
		for i := range s.extents {
			e := &s.extents[i]
			if e.to <= s.start {
				continue
			}
			share := e.bytes
			if e.from < s.start {
				share = e.bytes * int64(e.to-s.start) / int64(e.to-e.from)
			}
			live[e.seg] += max(share, 1)
		}
		for i := range s.registers {
			if r := &s.registers[i]; r.seg != nil {
				live[r.seg] += max(int64(r.size), 1)
			}
		}
	}
	l.idx.mu.RUnlock()
	bytes := make([]int64, len(sealed))
	for i, s := range sealed {
		bytes[i] = live[s]
	}
	return bytes
}

// release logs that empty segments are gone, makes that durable, and lets them go.
func (l *Lane) release() error {
	sealed := l.sealedSegments()
	live := l.liveIn(sealed)
	var empty []*segment
	j := &job{reserve: true, reply: make(chan error, 1)}
	for i, s := range sealed {
		if live[i] == 0 && len(empty) < maxGroupEntries {
			empty = append(empty, s)
			j.batches = append(j.batches, Batch{Kind: kindRelease, Base: offsetOfEpoch(s.epoch), Time: l.now().UnixMicro()})
		}
	}
	if len(empty) == 0 {
		return nil
	}
	if err := l.ask(j); err != nil {
		return err
	}
	l.keep.mu.Lock()
	kept := l.keep.segments[:0]
	for _, s := range l.keep.segments {
		gone := false
		for _, e := range empty {
			gone = gone || e == s
		}
		if !gone {
			kept = append(kept, s)
		}
	}
	clear(l.keep.segments[len(kept):])
	l.keep.segments = kept
	l.keep.mu.Unlock()
	for _, s := range empty {
		l.stats.released.Add(1)
		s.letGo()
	}
	return nil
}

// ask gives a job to the lane's goroutine and waits for it.
func (l *Lane) ask(j *job) error {
	select {
	case l.w.jobs <- j:
		return <-j.reply
	case <-l.stop:
		return ErrClosed
	}
}

// liveRange is what a shard still has in a segment.
type liveRange struct {
	shard    uint64
	from, to wire.Offset
}

// liveIn lists what is wanted of s. It goes by the index, not by what the segment holds: a truncated batch still stands
// there beside the one that replaced it.
func (x *index) liveIn(s *segment) (ranges []liveRange, slots []tableRegister) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id, sh := range x.shards {
		for i := range sh.extents {
			if e := &sh.extents[i]; e.seg == s && e.to > sh.start {
				ranges = append(ranges, liveRange{id, max(e.from, sh.start), e.to})
			}
		}
		for _, r := range sh.registers {
			if r.seg == s {
				slots = append(slots, tableRegister{shard: id, slot: r.slot})
			}
		}
	}
	return ranges, slots
}

// mover collects moved batches into jobs for the lane's goroutine.
type mover struct {
	l    *Lane
	job  *job
	size int
}

// moveLive writes the live batches of s again at the tail, with their times kept.
func (l *Lane) moveLive(s *segment) error {
	m := mover{l: l, job: &job{from: s, reply: make(chan error, 1)}}
	ranges, slots := l.idx.liveIn(s)
	for _, r := range ranges {
		if err := m.moveRange(r); err != nil {
			return fmt.Errorf("move shard %d out of %s: %w", r.shard, s.name, err)
		}
	}
	for _, r := range slots {
		value, offset, ok, err := l.RegisterOffCore(r.shard, r.slot)
		if err != nil {
			return err
		}
		if ok {
			b := Batch{Kind: KindRegister, Slot: r.slot, Shard: r.shard, Base: offset, Records: value, Time: l.now().UnixMicro()}
			if err := m.add(&b); err != nil {
				return err
			}
		}
	}
	return m.flush()
}

func (m *mover) moveRange(r liveRange) error {
	reader := m.l.NewReaderOffCore(r.shard, r.from)
	defer reader.Close()
	for reader.Offset() < r.to {
		batches, err := reader.Read(Limits{Bytes: m.l.opts.MaxGroupBytes, Records: 1 << 30, To: r.to})
		var trimmed *TrimmedError
		if errors.As(err, &trimmed) || errors.Is(err, ErrUnknownShard) {
			return nil // gone since
		}
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			return nil
		}
		for i := range batches {
			if err := m.add(&batches[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *mover) add(b *Batch) error {
	n := b.encodedSize()
	if m.size > 0 && m.size+n > m.l.opts.MaxGroupBytes || len(m.job.batches) >= maxGroupEntries {
		if err := m.flush(); err != nil {
			return err
		}
	}
	c := *b
	c.Flags |= flagMoved
	c.Extensions = append([]byte(nil), b.Extensions...)
	c.Records = append([]byte(nil), b.Records...)
	m.job.batches = append(m.job.batches, c)
	m.size += n
	return nil
}

func (m *mover) flush() error {
	if len(m.job.batches) == 0 {
		return nil
	}
	n := len(m.job.batches)
	err := m.l.ask(m.job)
	if err == nil {
		m.l.stats.movedBatches.Add(uint64(n))
	}
	m.job.batches, m.size = m.job.batches[:0], 0
	return err
}

func (l *Lane) scannerOf(s *segment) (*scanner, error) {
	size, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", s.name, err)
	}
	return newScanner(s.file, &s.segmentHeader, size), nil
}
