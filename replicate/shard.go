package replicate

import (
	"fmt"
	"math"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// A Shard is one log of a stream: the unit of order. It is owned by the loop of its host; Stream, Index and Owner may be asked from
// any goroutine.
type Shard struct {
	stream *Stream
	host   *Host
	index  uint32

	stages
	ring      fanout.Ring  // the log, or its tail when there is one on disk. Invariant: ring.Tail() == appended
	topic     fanout.Topic // who reads it
	producers producers
	refused   RefusedBatches[uint64, Outcome] // by producer; looked at only where a batch is not the next one
	held      appendQueue
	log       *shardLog // of a durable stream; nil in memory

	dirty  bool // in host.dirty
	resume bool // the topic has stopped holding back: take from held
	timed  bool // in host.timed
	aging  bool // in host.aging
	gone   bool // the stream was deleted
}

var _ fanout.Archive = (*Shard)(nil) // a topic looks for it

// stages are offsets, each one past the last record that has come that far.
// Invariant: ring start <= delivered <= committed <= appended. Delivered is the end of a frame.
type stages struct {
	appended  wire.Offset // in the log: has an offset
	committed wire.Offset // at the level its mode promises: the high watermark. May be acknowledged and delivered
	delivered wire.Offset // offered to the topic
}

// Stream returns the stream.
func (s *Shard) Stream() *Stream { return s.stream }

// Index returns the shard's number in its stream, from 0.
func (s *Shard) Index() uint32 { return s.index }

// Owner returns the core that owns the shard.
func (s *Shard) Owner() core.ID { return s.host.loop.ID() }

// Topic returns the subscriptions of the shard, for use on its loop.
func (s *Shard) Topic() *fanout.Topic { return &s.topic }

// ShardStats is a view of a shard.
type ShardStats struct {
	Start                          wire.Offset // oldest offset kept
	Appended, Committed, Delivered wire.Offset
	Memory                         int64 // bytes of slabs in the ring
	Held                           int   // appends that wait to be made
	Pending                        int   // appends that wait for the disk
	Producers                      int   // idempotent producers remembered
	Subscriptions                  int
}

// Stats is for use on the shard's loop.
func (s *Shard) Stats() ShardStats {
	st := ShardStats{
		Start: s.ring.Start(), Appended: s.appended, Committed: s.committed, Delivered: s.delivered,
		Memory: s.ring.Memory(), Held: s.held.n, Producers: s.producers.list.n, Subscriptions: len(s.topic.Subscriptions()),
	}
	if s.log != nil {
		st.Start, st.Pending = s.log.start, s.log.pending.n
	}
	return st
}

// Append gives a batch its offsets and adds it to the log, or says why not, by a.Done: for a durable stream once it is as safe as the
// stream's mode promises. It never blocks: while a subscriber or a busy log holds the shard back the batch waits, in order. It runs on
// the shard's loop.
func (s *Shard) Append(l *core.Loop, a *Append) {
	l.AssertOwner()
	a.Outcome, a.next = Pending, nil
	switch {
	case s.gone:
		a.finish(l, StreamGone)
	case s.held.n == 0 && !s.topic.Holding():
		s.tryApply(l, a)
	case s.held.n < s.host.cfg.MaxHeld:
		s.held.push(a)
		s.host.watchDeadline(l, s, a)
	default:
		s.refuseForNow(l, a, Overloaded)
	}
}

// tryApply appends a, or puts it in front of those held when the log is busy. The call of Done is the last thing it does, since that
// may append again.
func (s *Shard) tryApply(l *core.Loop, a *Append) {
	if s.log == nil {
		s.apply(l, a)
	} else if !s.applyDurable(l, a) {
		s.held.pushFront(a)
		s.host.watchDeadline(l, s, a)
		s.log.block(l, s)
	}
}

// apply appends a in memory.
func (s *Shard) apply(l *core.Loop, a *Append) {
	if a.Idempotent {
		if o := s.judge(a); o != Appended {
			a.finish(l, o)
			return
		}
	}
	a.Base = s.appended
	if a.Count > 0 {
		if s.ring.NeedsSlab(a.Records, a.Count) {
			// Offer first, so that the ring can let go of its oldest slab.
			s.flush(l)
		}
		s.ring.Append(a.Records, a.Count, s.host.micros(l))
		s.appended = s.ring.Tail()
		s.markDirty(l)
	}
	if a.Idempotent {
		s.remember(a)
	}
	s.committed = s.commitMark()
	if !s.mayAck(s.appended) {
		panic(fmt.Sprintf("BUG: replicate: in-memory shard with [.., %d) committed at %d", s.appended, s.committed))
	}
	a.finish(l, Appended)
}

// commitMark returns how far the records have reached the level that the stream's mode promises: in memory at once, with a log what
// it has completed. It, mayAck and mayDeliver are all that consensus changes.
func (s *Shard) commitMark() wire.Offset {
	if s.log != nil {
		return s.log.durable
	}
	return s.appended
}

// mayAck decides whether a batch that ends at end may be acknowledged.
func (s *Shard) mayAck(end wire.Offset) bool { return end <= s.committed }

// mayDeliver decides how far readers may see.
func (s *Shard) mayDeliver() wire.Offset { return s.committed }

// Bounds implements fanout.Log. In memory what may be delivered is in sealed frames, or in the open one that ReadFrames seals. With a log
// a frame can hold records beyond, so readers see what has been delivered: whole frames.
func (s *Shard) Bounds() (start, end wire.Offset) {
	if s.log != nil {
		return s.log.start, s.delivered
	}
	return s.ring.Start(), s.mayDeliver()
}

// ReadFrames implements fanout.Log. With a log it returns nothing for what the ring has let go of.
func (s *Shard) ReadFrames(dst []*fanout.Frame, from wire.Offset, maxFrames, maxBytes int) []*fanout.Frame {
	if s.log != nil {
		return s.ring.ReadFramesTo(dst, from, s.delivered, maxFrames, maxBytes)
	}
	if from >= s.ring.Sealed() {
		s.ring.Seal()
	}
	return s.ring.ReadFrames(dst, from, maxFrames, maxBytes)
}

// OnResume implements fanout.Gate.
func (s *Shard) OnResume(l *core.Loop) {
	s.resume = true
	s.markDirty(l)
}

// markDirty has the host look at the shard at the end of the pass.
func (s *Shard) markDirty(l *core.Loop) {
	if !s.dirty {
		s.dirty = true
		s.host.add(l, s)
	}
}

// work is the shard's part of Host.Work.
func (s *Shard) work(l *core.Loop) {
	s.dirty = false // whatever comes up from here on makes another pass
	if s.resume {
		s.resume = false
		// A batch that starts a new slab offers the one before and may bring the next hold.
		s.goOn(l)
	}
	s.flush(l)
}

// goOn makes the appends that were held, until something holds them back again.
func (s *Shard) goOn(l *core.Loop) {
	for s.held.n > 0 && !s.topic.Holding() && (s.log == nil || !s.log.blocked) {
		s.tryApply(l, s.held.pop())
	}
}

// flush seals what was appended in the pass, offers it, and lets go of the oldest records.
func (s *Shard) flush(l *core.Loop) {
	s.ring.Seal()
	to := s.ring.FrameEnd(s.mayDeliver())
	if len(s.topic.Subscriptions()) == 0 {
		s.delivered = max(s.delivered, to)
	}
	for s.delivered < to {
		frames := s.ring.ReadFramesTo(s.host.scratch[:0], s.delivered, to, flushFrames, math.MaxInt)
		s.host.scratch = frames
		// Before they are offered: a subscription that falls behind meanwhile reads up to here.
		s.delivered = frames[len(frames)-1].End()
		s.topic.OfferAll(l, frames)
		fanout.ReleaseAll(frames)
	}
	s.ring.Offered(s.delivered)
	// With a log nothing that the ring lets go of is lost, so nothing is held back for it.
	if s.ring.Trim(s.host.micros(l)) && s.log == nil {
		s.topic.Guard(l)
	}
}

// flushFrames is how many frames are offered at a time.
const flushFrames = 256

// retain applies the stream's retention.
func (s *Shard) retain(l *core.Loop, r Retention) {
	if s.log != nil {
		s.host.age(l, s)
		return
	}
	s.ring.Retain(r.MaxSizeBytes, r.MaxAge.Microseconds())
	if s.ring.Memory() > 0 {
		s.ring.Trim(s.host.micros(l))
		s.host.age(l, s)
	}
}

// close ends the shard of a deleted stream.
func (s *Shard) close(l *core.Loop) {
	s.flush(l)
	s.gone = true
	s.topic.Close(l)
	for s.held.n > 0 {
		s.held.pop().finish(l, StreamGone)
	}
	if s.log != nil {
		s.log.close(l, s)
	}
	s.ring.Free()
	s.forgetProducers()
}
