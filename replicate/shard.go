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
	ring      fanout.Ring  // the log. Invariant: ring.Tail() == appended
	topic     fanout.Topic // who reads it
	producers producers
	held      heldAppends

	dirty  bool // in host.dirty
	resume bool // the topic has stopped holding back: take from held
	aging  bool // in host.aging
	gone   bool // the stream was deleted
}

// stages are offsets, each one past the last record that has come that far.
// Invariant: ring start <= delivered <= committed <= appended.
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
	Held                           int   // appends that wait
	Producers                      int   // idempotent producers remembered
	Subscriptions                  int
}

// Stats is for use on the shard's loop.
func (s *Shard) Stats() ShardStats {
	return ShardStats{
		Start: s.ring.Start(), Appended: s.appended, Committed: s.committed, Delivered: s.delivered,
		Memory: s.ring.Memory(), Held: s.held.n, Producers: s.producers.list.n, Subscriptions: len(s.topic.Subscriptions()),
	}
}

// Append gives a batch its offsets and adds it to the log, or says why not, by a.Done. It never blocks: while a subscriber holds
// the shard back the batch waits, in order. It runs on the shard's loop.
func (s *Shard) Append(l *core.Loop, a *Append) {
	l.AssertOwner()
	a.Outcome, a.next = Pending, nil
	switch {
	case s.gone:
		a.finish(l, StreamGone)
	case s.held.n == 0 && !s.topic.Holding():
		s.apply(l, a)
	case s.held.n < s.host.cfg.MaxHeld:
		s.held.push(a)
	default:
		a.finish(l, Overloaded)
	}
}

// apply appends a. The call of Done is the last thing it does, since that may append again.
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

// commitMark returns how far the records have reached the level that the stream's mode promises. In memory that is at once. It, mayAck
// and mayDeliver are all that a log or consensus changes.
func (s *Shard) commitMark() wire.Offset { return s.appended }

// mayAck decides whether a batch that ends at end may be acknowledged.
func (s *Shard) mayAck(end wire.Offset) bool { return end <= s.committed }

// mayDeliver decides how far readers may see.
func (s *Shard) mayDeliver() wire.Offset { return s.committed }

// Bounds implements fanout.Log.
func (s *Shard) Bounds() (start, end wire.Offset) { return s.ring.Start(), s.mayDeliver() }

// ReadFrames implements fanout.Log.
func (s *Shard) ReadFrames(dst []*fanout.Frame, from wire.Offset, maxFrames, maxBytes int) []*fanout.Frame {
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
		for s.held.n > 0 && !s.topic.Holding() {
			s.apply(l, s.held.pop())
		}
	}
	s.flush(l)
}

// flush seals what was appended in the pass, offers it, and lets go of the oldest records.
func (s *Shard) flush(l *core.Loop) {
	s.ring.Seal()
	to := s.mayDeliver()
	if len(s.topic.Subscriptions()) == 0 {
		s.delivered = to
	}
	for s.delivered < to {
		frames := s.ring.ReadFrames(s.host.scratch[:0], s.delivered, flushFrames, math.MaxInt)
		s.host.scratch = frames
		s.topic.OfferAll(l, frames)
		s.delivered = frames[len(frames)-1].End()
		fanout.ReleaseAll(frames)
	}
	s.ring.Offered(s.delivered)
	if s.ring.Trim(s.host.micros(l)) {
		s.topic.Guard(l)
	}
}

// flushFrames is how many frames are offered at a time.
const flushFrames = 256

// retain applies the stream's retention.
func (s *Shard) retain(l *core.Loop, r Retention) {
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
	s.ring.Free()
	s.forgetProducers()
}
