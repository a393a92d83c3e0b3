package replicate

import (
	"errors"

	"felix/core"
	"felix/netio/wire"
	"felix/wal"
)

// walShard returns the number under which a lane keeps a shard: stream ids are never used again, and a stream has at most MaxShards.
func walShard(stream uint64, index uint32) uint64 { return stream*MaxShards + uint64(index) }

// A shardLog is what a durable shard has besides its ring. It is owned by the shard's loop; lane and id never change.
type shardLog struct {
	lane *hostLane
	id   uint64 // of the shard in the lane

	start   wire.Offset // oldest offset kept
	durable wire.Offset // what the lane has completed
	pending appendQueue // in the lane and not completed, in the order of their answers

	reads []*archiveRead // on their way; at most one per subscription

	failed    bool // a completion had an error: what is not durable never will be in this life
	blocked   bool // in lane.blocked
	completed bool // in lane.completed
	placed    bool // has a place in lane.slots
	place     uint32

	tableDirty  bool   // the lane's table of producers lacks some of what they appended
	tableListed bool   // in lane.tables
	tableAt     uint64 // lane.bytes at which the next table is due
}

// block notes that the lane refused an append of s as busy.
func (log *shardLog) block(l *core.Loop, s *Shard) {
	log.blocked = true
	log.lane.blocked = append(log.lane.blocked, s)
	s.host.retryLater(l)
}

// applyDurable appends a to the lane and to the ring. It returns false, with nothing changed, when the lane is busy.
func (s *Shard) applyDurable(l *core.Loop, a *Append) (done bool) {
	log := s.log
	hl := log.lane
	if a.Idempotent {
		o := s.judge(a)
		if o == Duplicate && a.end() > s.committed {
			if log.failed {
				a.finish(l, OutcomeUnknown)
				return true
			}
			a.repeat = true
			log.pending.push(a)
			return true
		}
		if o != Appended {
			a.finish(l, o)
			return true
		}
		if !log.tableDirty {
			if err := s.markTable(); err != nil {
				return s.refuse(l, a, err)
			}
		}
	}
	if a.Count == 0 {
		if log.failed {
			a.finish(l, StorageFailed)
			return true
		}
		a.Base, a.repeat = s.appended, false
		if a.Idempotent {
			s.remember(a)
		}
		if log.pending.n > 0 {
			log.pending.push(a) // in its turn
			return true
		}
		a.finish(l, Appended)
		return true
	}
	if s.ring.NeedsSlab(a.Records, a.Count) {
		s.flush(l)
	}
	b := &hl.batch
	*b = wal.Batch{Kind: wal.KindRecords, Shard: log.id, Base: s.appended, Count: a.Count, Time: s.host.micros(l), Records: a.Records}
	if a.Idempotent {
		b.Producer, b.Sequence = a.ProducerID, a.Sequence
	}
	_, err := hl.lane.Append(b, s.stream.settings.Load().FsyncMode, hl.token(s, tokenAppend))
	b.Records = nil
	if err != nil {
		return s.refuse(l, a, err)
	}
	a.Base = s.ring.Append(a.Records, a.Count, b.Time)
	s.appended = s.ring.Tail()
	hl.bytes += uint64(len(a.Records)) + batchOverhead
	s.markDirty(l)
	if a.Idempotent {
		s.remember(a)
		if hl.bytes >= log.tableAt {
			_ = s.writeTable(wal.None) // busy: the next batch tries again
		}
	}
	a.repeat = false
	log.pending.push(a)
	return true
}

// batchOverhead is about what a batch takes in a lane besides its records.
const batchOverhead = 80

// refuse answers an append that the lane did not take. It returns false when it is to be tried again.
func (s *Shard) refuse(l *core.Loop, a *Append, err error) (done bool) {
	switch {
	case errors.Is(err, wal.ErrBusy):
		return false
	case errors.Is(err, wal.ErrDiskFull):
		s.refuseForNow(l, a, DiskFull)
	case errors.Is(err, wal.ErrTooLarge):
		a.finish(l, TooLarge)
	default:
		s.refuseForNow(l, a, StorageFailed)
	}
	return true
}

// complete answers what the lane has completed, and lets it be delivered at the end of the pass.
func (s *Shard) complete(l *core.Loop) {
	log := s.log
	s.committed = max(s.committed, s.commitMark())
	if s.gone {
		return
	}
	s.markDirty(l)
	for a := log.pending.first; a != nil && (s.mayAck(a.end()) || log.failed); a = log.pending.first {
		log.pending.pop()
		switch {
		case !s.mayAck(a.end()):
			a.finish(l, OutcomeUnknown)
		case a.repeat:
			a.finish(l, Duplicate)
		default:
			a.finish(l, Appended)
		}
	}
}

// close ends the log of a deleted stream. What waits for the disk is gone with the stream, whatever becomes of it.
func (log *shardLog) close(l *core.Loop, s *Shard) {
	for log.pending.n > 0 {
		log.pending.pop().finish(l, StreamGone)
	}
	log.tableDirty = false
	log.lane.deletes = append(log.lane.deletes, s)
	log.lane.delete(l)
	s.host.commitLater(l)
}

// commitLater makes a pass in which Work commits what was appended outside of a shard's own work.
func (h *Host) commitLater(l *core.Loop) { l.WakeOffCore() }

// setStart moves the oldest offset kept up to start, as far as records have been delivered.
func (s *Shard) setStart(l *core.Loop, start wire.Offset) {
	log := s.log
	start = min(start, s.delivered)
	if s.gone || start <= log.start {
		return
	}
	if log.lane.lane.SetStart(log.id, start, wal.Periodic, log.lane.token(s, tokenOther)) != nil {
		return // the next look comes in about a second
	}
	log.start = start
	s.host.commitLater(l)
}
