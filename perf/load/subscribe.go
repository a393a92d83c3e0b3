package load

import (
	"context"
	"errors"
	"sync/atomic"
)

// maxShardsSeen bounds the offsets that a reader remembers. Records of shards beyond it are not checked for gaps.
const maxShardsSeen = 65536

// A reader is a subscriber that reads. It keeps the offsets of each shard and the times of records.
type reader struct {
	run   *run
	index int
	in    Subscriber

	delivered, duplicates, gaps atomic.Int64 // records; written by the reader
	err                         error        // that ended it; set when the goroutine has ended

	// Owned by the reader's goroutine.
	next []uint64 // by shard: the offset expected
	seen []bool   // by shard: next counts

	// Of one call of Receive: when it brought something, how much, and the run of equal stamps at its end.
	now                int64
	got, doubled, lost int64
	due, sent, equal   int64
}

// work receives until ctx ends or the subscription does.
func (s *reader) work(ctx context.Context) {
	take := s.take
	for {
		s.now = -1
		err := s.in.Receive(ctx, take)
		s.flushStamps()
		var gap *GapError
		if errors.As(err, &gap) {
			s.gap(gap)
			err = nil
		}
		s.publish()
		if err != nil {
			if ctx.Err() == nil {
				s.err = err
			}
			return
		}
	}
}

// publish makes what was counted visible to others.
func (s *reader) publish() {
	if s.got > 0 {
		s.delivered.Add(s.got)
	}
	if s.doubled > 0 {
		s.duplicates.Add(s.doubled)
	}
	if s.lost > 0 {
		s.gaps.Add(s.lost)
	}
	s.got, s.doubled, s.lost = 0, 0, 0
}

// take is called for each record.
func (s *reader) take(r Record) {
	if s.now < 0 {
		s.now = s.run.now() // records of one call were there together
	}
	if r.HasOffset && !s.inOrder(r.Shard, r.Offset) {
		s.doubled++
		return
	}
	s.got++
	due, sent, ok := s.run.stamps.get(r.Payload, s.now)
	switch {
	case !ok:
	case due == s.due && sent == s.sent:
		s.equal++ // records of a batch have one stamp
	default:
		s.flushStamps()
		s.due, s.sent, s.equal = due, sent, 1
	}
}

// flushStamps enters the times of the records that had equal stamps.
func (s *reader) flushStamps() {
	if s.equal > 0 && s.run.counts(s.due) {
		s.run.latencies.add(s.index, e2eRaw, s.now-s.due, s.now-s.sent, s.equal, s.run.schedule.open())
	}
	s.due, s.sent, s.equal = -1, -1, 0
}

// inOrder takes up an offset and reports false when it was there before.
func (s *reader) inOrder(shard uint32, offset uint64) bool {
	if shard >= maxShardsSeen {
		return true
	}
	s.grow(shard)
	if s.seen[shard] {
		if offset < s.next[shard] {
			return false
		}
		s.lost += int64(offset - s.next[shard])
	}
	s.next[shard], s.seen[shard] = offset+1, true
	return true
}

// gap takes up records that the target says were missed.
func (s *reader) gap(g *GapError) {
	if g.Shard >= maxShardsSeen || g.To <= g.From {
		return
	}
	s.grow(g.Shard)
	from := g.From
	if s.seen[g.Shard] {
		from = max(from, s.next[g.Shard])
	}
	if g.To > from {
		s.lost += int64(g.To - from)
		s.next[g.Shard], s.seen[g.Shard] = g.To, true
	}
}

func (s *reader) grow(shard uint32) {
	for int(shard) >= len(s.next) {
		s.next = append(s.next, 0)
		s.seen = append(s.seen, false)
	}
}
