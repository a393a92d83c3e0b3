package fanout

import (
	"errors"
	"fmt"
	"math"

	"felix/core"
	"felix/netio/wire"
)

// Log is what a topic reads of its shard. The loop that owns the shard calls it.
type Log interface {
	// Bounds returns the oldest offset kept and the high watermark: readers see [start, end).
	Bounds() (start, end wire.Offset)
	// ReadFrames appends frames that hold records from offset from on, in order, without holes, up to maxFrames frames and about
	// maxBytes bytes, and at least one frame when start <= from < end. The first may begin below from. Each
	// is retained for the caller.
	ReadFrames(dst []*Frame, from wire.Offset, maxFrames, maxBytes int) []*Frame
}

// An Archive is a Log whose older records lie where the loop must not wait for them, on a disk. Its ReadFrames returns nothing for
// those; ReadArchive gets them. A topic whose Log is an Archive uses it as one.
type Archive interface {
	Log
	// Committed returns one past the last record that may be acknowledged. It may be above the end of Bounds, which moves by whole
	// frames: a start offset between the two is none in the future, and "latest" is Committed.
	Committed() wire.Offset
	// ReadArchive reads frames as ReadFrames does and gives them to done on the loop, possibly much later, exactly once unless the
	// loop is closed before. The frames are retained for done, which has copied what it needs of the slice when it returns. The first
	// may begin above from where records between are gone. err is a *CursorError when from is below the start by now; any
	// other one ends the subscription.
	ReadArchive(l *core.Loop, from wire.Offset, maxFrames, maxBytes int, done func(l *core.Loop, frames []*Frame, err error))
}

// Gate is told when a topic stops holding back appends.
type Gate interface {
	// OnResume runs on the loop once no subscription holds back appends any more. It may not call the topic:
	// it notes that there is work.
	OnResume(l *core.Loop)
}

// Errors of Subscribe besides *CursorError.
var (
	ErrDeleted = errors.New("fanout: the stream was deleted")
	ErrTooMany = errors.New("fanout: the shard has as many subscriptions as it may: unsubscribe others or raise Limits.Subscriptions")
)

// CursorError refuses a start offset.
type CursorError struct {
	Reason wire.CursorReason
	// Requested is the refused offset. Available is the oldest offset kept, or the tail when Requested is beyond it.
	Requested, Available wire.Offset
}

func (e *CursorError) Error() string {
	if e.Reason == wire.CursorInFuture {
		return fmt.Sprintf("start offset %d is in the future: the next record gets offset %d; start at or below it", e.Requested, e.Available)
	}
	return fmt.Sprintf("start offset %d is too old: the oldest record kept is %d; start there or at \"earliest\"", e.Requested, e.Available)
}

// A Topic is the subscriptions of one shard. It is owned by the shard's loop; every method runs there.
type Topic struct {
	local   *Local
	log     Log
	archive Archive // log, if it is one
	gate    Gate
	subs    []*Subscription // at most Limits.Subscriptions

	cursors int // of subs that are not live
	holding int // of subs that hold back appends. Invariant: holding <= cursors
	closed  bool

	refeed []*Subscription // fell behind in this Offer, and their writers have made room since
	left   Books           // of subscriptions that have left
}

// Books are the records of a topic's subscriptions, those that have left included.
// Invariant: Offered = Taken + Dropped + Discarded + Queued.
type Books struct {
	Offered, Taken, Dropped, Discarded, Queued uint64
}

// Init prepares the zero value. gate may be nil when no subscription has the policy Block.
func (t *Topic) Init(local *Local, log Log, gate Gate) {
	t.local, t.log, t.gate = local, log, gate
	t.archive, _ = log.(Archive)
}

// Subscriptions returns the subscriptions in no particular order. The slice is the topic's own and changes with the next call.
func (t *Topic) Subscriptions() []*Subscription { return t.subs }

// Holding reports whether a subscription holds back appends.
func (t *Topic) Holding() bool { return t.holding > 0 }

// Subscribe registers s and returns the first offset it will see and the high watermark. Until Start nothing is queued; what is
// appended meanwhile is read from the log then. It fails with *CursorError, ErrDeleted or ErrTooMany.
func (t *Topic) Subscribe(l *core.Loop, s *Subscription, start wire.StartPosition) (from, tail wire.Offset, err error) {
	l.AssertOwner()
	if s.token != nil {
		panic(fmt.Sprintf("BUG: fanout: subscription %d used twice", s.ID))
	}
	if t.closed {
		return 0, 0, ErrDeleted
	}
	if len(t.subs) >= t.local.limits.Subscriptions {
		return 0, 0, ErrTooMany
	}
	first, tail := t.log.Bounds()
	if t.archive != nil {
		tail = t.archive.Committed()
	}
	switch start.Kind {
	case wire.StartEarliest:
		from = first
	case wire.StartOffset:
		from = start.Offset
		if from < first {
			return 0, 0, &CursorError{Reason: wire.CursorTooOld, Requested: from, Available: first}
		}
		if from > tail {
			return 0, 0, &CursorError{Reason: wire.CursorInFuture, Requested: from, Available: tail}
		}
	default:
		from = tail
	}
	if s.Capacity <= 0 {
		s.Capacity = DefaultCapacity
	}
	s.Capacity = min(s.Capacity, MaxCapacity)
	if s.QueueBytes <= 0 {
		s.QueueBytes = DefaultQueueBytes
	}
	s.topic, s.place, s.from = t, len(t.subs), from
	s.token = make(chan struct{}, 1)
	s.q.init()
	s.next.Store(uint64(from))
	s.position.Store(uint64(from))
	t.subs = append(t.subs, s)
	t.cursors++
	return from, tail, nil
}

// Start lets s have what it asked for: history first, then live. For others than those that are joining it does nothing.
func (t *Topic) Start(l *core.Loop, s *Subscription) {
	l.AssertOwner()
	if s.topic != t || s.started {
		return
	}
	s.started = true
	if !s.holds {
		s.state.Store(uint32(CatchingUp))
	}
	t.feed(l, s)
}

// Feed goes on with a subscription that reads the log, after its writer made room. For others it does nothing.
func (t *Topic) Feed(l *core.Loop, s *Subscription) {
	l.AssertOwner()
	if s.topic != t || !s.started || s.isLive() {
		return
	}
	t.feed(l, s)
}

// feed queues what the log has, as far as there is room. A subscription that has everything below the high watermark is live
// from then on: the next frame offered begins where it stands, or holds it. While an archive is being read, its answer goes on
// from here.
func (t *Topic) feed(l *core.Loop, s *Subscription) {
	if s.reading || s.hasEnded() {
		return
	}
	for {
		start, end := t.log.Bounds()
		if s.offset() < start {
			t.local.Counters.EventsDropped.Add(s.skip(start))
		}
		if s.offset() >= end {
			t.goLive(l, s)
			break
		}
		room := min(max(s.Capacity-s.q.depth(), 1), feedFrames)
		frames := t.log.ReadFrames(t.local.scratch[:0], s.offset(), room, max(s.QueueBytes-s.queued(), 0))
		if len(frames) == 0 {
			if t.archive == nil {
				panic(fmt.Sprintf("BUG: fanout: log with [%d, %d) has no frame for %d", start, end, s.offset()))
			}
			if t.readArchive(l, s) {
				break
			}
			continue
		}
		t.local.scratch = frames
		size := t.feedFrames(s, frames)
		if size > 0 && !s.stop(size) {
			break
		}
	}
	t.wake(s)
}

// feedFrames is how many frames feed reads at a time.
const feedFrames = 128

// What a subscription takes from an archive at a time, and what it may have queued for more of it: these frames are its own, so that
// a slow reader of history must not fill QueueBytes with them.
const (
	archiveReadBytes  = 256 << 10
	archiveQueueBytes = 1 << 20
)

// readArchive asks for what comes next, or stops feeding until there is room. It returns false when the writer made room meanwhile.
func (t *Topic) readArchive(l *core.Loop, s *Subscription) bool {
	bound := min(s.QueueBytes, archiveQueueBytes)
	frames, bytes := s.Capacity-s.q.depth(), bound-s.queued()
	if s.q.depth() > 0 && (frames <= 0 || bytes <= 0) {
		return !s.stopAt(1, bound)
	}
	if s.answer == nil {
		s.answer = func(l *core.Loop, frames []*Frame, err error) { t.onArchive(l, s, frames, err) }
	}
	s.reading = true
	t.archive.ReadArchive(l, s.offset(), max(frames, 1), min(max(bytes, 1), archiveReadBytes), s.answer)
	return true
}

// onArchive takes the answer of an archive. The subscription may have left since, and may even be live.
func (t *Topic) onArchive(l *core.Loop, s *Subscription, frames []*Frame, err error) {
	l.AssertOwner()
	s.reading = false
	if s.topic != t || s.isLive() || s.hasEnded() {
		ReleaseAll(frames)
		return
	}
	t.local.Counters.Encodes.Add(uint64(len(frames)))
	if len(frames) > 0 && frames[0].Base > s.offset() {
		t.local.Counters.EventsDropped.Add(s.skip(frames[0].Base))
	}
	size := t.feedFrames(s, frames)
	if gone := (*CursorError)(nil); errors.As(err, &gone) {
		if gone.Available > s.offset() {
			t.local.Counters.EventsDropped.Add(s.skip(gone.Available))
		}
		err = nil
	}
	if err != nil {
		t.fail(l, s, err)
		return
	}
	if size > 0 && !s.stop(size) {
		t.wake(s)
		return
	}
	t.feed(l, s)
}

// fail ends s, whose log cannot be read.
func (t *Topic) fail(l *core.Loop, s *Subscription, err error) {
	s.failure = err
	t.end(l, s, Failed)
	t.local.burst.wake()
}

// lag ends s, for which there is no room. Whoever calls it wakes the writers.
func (t *Topic) lag(l *core.Loop, s *Subscription) {
	t.local.Counters.Lagged.Add(1)
	t.end(l, s, Lagged)
}

// end ends s after what is queued. It stays registered, as one that is not live, until its writer leaves.
func (t *Topic) end(l *core.Loop, s *Subscription, reason EndReason) {
	t.unhold(l, s)
	s.spent = true
	s.state.Store(uint32(Ended))
	s.ended.Store(uint32(reason))
	t.local.burst.add(s)
}

// feedFrames queues frames read from the log. It returns the size of the first that does not fit, 0 when all do.
func (t *Topic) feedFrames(s *Subscription, frames []*Frame) (size int) {
	for i, f := range frames {
		frames[i] = nil
		if size == 0 && f.End() > s.offset() {
			f = t.from(f, s.offset())
			if s.fits(f.Size()) {
				t.push(s, f)
				continue
			}
			size = f.Size()
		}
		f.Release()
	}
	return size
}

// from returns f, or in its place a frame with those records of it that are not below next. The reference moves along.
func (t *Topic) from(f *Frame, next wire.Offset) *Frame {
	if f.Base == next {
		return f
	}
	if f.Base > next {
		panic(fmt.Sprintf("BUG: fanout: frame [%d, %d) follows %d", f.Base, f.End(), next))
	}
	part := t.local.slabs.cut(f, next)
	t.local.Counters.Encodes.Add(1)
	f.Release()
	return part
}

func (t *Topic) push(s *Subscription, f *Frame) {
	t.local.Counters.FramesDelivered.Add(1)
	t.local.Counters.EventsDelivered.Add(uint64(f.Count))
	s.push(f)
}

// goLive ends reading the log.
func (t *Topic) goLive(l *core.Loop, s *Subscription) {
	s.state.Store(uint32(Live))
	s.fell, s.spent = false, false
	s.hungry.Store(false)
	t.cursors--
	t.unhold(l, s)
}

// Offer gives a sealed frame, the next one in order, to every live subscription.
func (t *Topic) Offer(l *core.Loop, f *Frame) {
	l.AssertOwner()
	t.offer(l, f, true)
	t.local.burst.wake()
}

// OfferAll is Offer for several frames, with one wake-up per writer.
func (t *Topic) OfferAll(l *core.Loop, frames []*Frame) {
	l.AssertOwner()
	for _, f := range frames {
		t.offer(l, f, len(frames) == 1)
	}
	if len(frames) > 1 {
		for _, s := range t.subs {
			t.local.burst.add(s)
		}
	}
	t.local.burst.wake()
}

// wake wakes the writer of s if it waits.
func (t *Topic) wake(s *Subscription) {
	t.local.burst.add(s)
	t.local.burst.wake()
}

// offer pushes f. With last the writers that wait are noted on the way.
func (t *Topic) offer(l *core.Loop, f *Frame, last bool) {
	live := int32(len(t.subs) - t.cursors)
	if live == 0 {
		return
	}
	// One atomic operation for all references; those not used go back with another.
	f.Retain(live)
	pushed, size := int32(0), f.Size()
	for _, s := range t.subs {
		if !s.isLive() {
			continue
		}
		if s.offset() == f.Base && !s.spent && s.fits(size) {
			s.push(f)
			pushed++
		} else if t.offerSlow(l, s, f) {
			pushed++
		}
		if last {
			t.local.burst.add(s)
		}
	}
	t.local.Counters.FramesDelivered.Add(uint64(pushed))
	t.local.Counters.EventsDelivered.Add(uint64(pushed) * uint64(f.Count))
	if pushed < live {
		f.slab.release(live - pushed)
	}
	for i, s := range t.refeed {
		t.refeed[i] = nil
		t.feed(l, s)
	}
	t.refeed = t.refeed[:0]
}

// offerSlow is offer where the frame does not simply follow, or does not fit. It reports whether a reference was used.
func (t *Topic) offerSlow(l *core.Loop, s *Subscription, f *Frame) (used bool) {
	next := s.offset()
	if f.End() <= next {
		return false // s has it from the log
	}
	part := f
	if f.Base != next {
		f.Retain(1)
		part = t.from(f, next)
	}
	switch {
	case s.fits(part.Size()):
		s.spent = false
	case s.Policy == CatchUp, s.Policy == Block && !s.spent:
		t.fallBehind(l, s, part.Size())
		part = t.unused(f, part)
	case s.EndOnDrop:
		t.cursors++
		t.lag(l, s)
		part = t.unused(f, part)
	case s.Policy == DropOld:
		t.dropOld(s, part.Size())
	default:
		t.local.Counters.FramesDropped.Add(1)
		t.local.Counters.EventsDropped.Add(s.skip(f.End()))
		part = t.unused(f, part)
	}
	if part == nil {
		return false
	}
	s.push(part)
	if part != f {
		t.local.Counters.FramesDelivered.Add(1)
		t.local.Counters.EventsDelivered.Add(uint64(part.Count))
		return false
	}
	return true
}

// unused releases part if it was made from f, and returns nil.
func (t *Topic) unused(f, part *Frame) *Frame {
	if part != f {
		part.Release()
	}
	return nil
}

// dropOld drops from the front of the queue until a frame of that size fits.
func (t *Topic) dropOld(s *Subscription, size int) {
	for !s.fits(size) {
		f := s.q.pop()
		if f == nil {
			return // the writer was faster
		}
		s.cut(f)
		s.dropped.Add(uint64(f.Count))
		t.local.Counters.FramesDropped.Add(1)
		t.local.Counters.EventsDropped.Add(uint64(f.Count))
		f.Release()
	}
}

// fallBehind makes a live subscription read the log from where it stands. A frame of that size did not fit.
func (t *Topic) fallBehind(l *core.Loop, s *Subscription, size int) {
	s.state.Store(uint32(CatchingUp))
	s.fell = true
	t.cursors++
	if s.Policy == Block {
		t.hold(l, s)
	}
	if s.stop(size) {
		t.refeed = append(t.refeed, s)
	}
}

// hold makes s hold back appends until it is live or its time is up.
func (t *Topic) hold(l *core.Loop, s *Subscription) {
	s.holds = true
	s.state.Store(uint32(Blocked))
	t.holding++
	t.local.Counters.Stalls.Add(1)
	if s.expire == nil {
		s.expire = func(l *core.Loop) { t.onExpired(l, s) }
	}
	l.Arm(&s.timer, t.local.limits.MaxBlock, s.expire)
}

func (t *Topic) unhold(l *core.Loop, s *Subscription) {
	if !s.holds {
		return
	}
	s.holds = false
	l.Disarm(&s.timer)
	t.holding--
	if t.holding == 0 && t.gate != nil {
		t.gate.OnResume(l)
	}
}

// onExpired lets appends go on although s is not live. One that fell behind is live again without what it missed, and skips frames
// until one fits. One that is still reading history goes on with that, at the risk that the ring overtakes it.
func (t *Topic) onExpired(l *core.Loop, s *Subscription) {
	t.local.Counters.StallsExpired.Add(1)
	_, end := t.log.Bounds()
	switch {
	case s.fell && s.EndOnDrop && s.offset() < end:
		t.lag(l, s)
		t.local.burst.wake()
	case s.fell:
		if s.offset() < end {
			t.local.Counters.EventsDropped.Add(s.skip(end))
		}
		t.goLive(l, s)
	default:
		s.state.Store(uint32(Joining))
		if s.started {
			s.state.Store(uint32(CatchingUp))
		}
		t.unhold(l, s)
	}
	s.spent = true
}

// floor returns the lowest offset that a subscription with the policy Block still has to read and may hold appends back for.
func (t *Topic) floor() wire.Offset {
	lowest := wire.Offset(math.MaxUint64)
	if t.cursors == 0 {
		return lowest
	}
	for _, s := range t.subs {
		if s.protects() {
			lowest = min(lowest, s.offset())
		}
	}
	return lowest
}

// Guard makes the subscriptions for which Ring.Trim came out short hold back appends, at most MaxBlock, so that the ring
// does not grow on.
func (t *Topic) Guard(l *core.Loop) {
	for _, s := range t.subs {
		if s.protects() && !s.holds {
			t.hold(l, s)
		}
	}
}

// protects reports whether the ring keeps what s has not read.
func (s *Subscription) protects() bool { return s.Policy == Block && !s.spent && !s.isLive() }

// Unsubscribe removes s. What is queued is released and counted as discarded. It may be called again, and after Close. The books
// are exact when the writer has stopped before.
func (t *Topic) Unsubscribe(l *core.Loop, s *Subscription) {
	l.AssertOwner()
	registered := s.topic == t
	if registered {
		last := len(t.subs) - 1
		t.subs[s.place] = t.subs[last]
		t.subs[s.place].place = s.place
		t.subs[last] = nil
		t.subs = t.subs[:last]
		if !s.isLive() {
			t.cursors--
		}
		s.topic = nil
		t.unhold(l, s)
	}
	s.ended.CompareAndSwap(uint32(NotEnded), uint32(Unsubscribed))
	s.state.Store(uint32(Ended))
	s.discard()
	if registered {
		t.left.add(s.Stats())
	}
	t.wake(s)
}

// Close ends every subscription with Deleted, after what is queued. Appends are no longer held back; the gate is not told.
func (t *Topic) Close(l *core.Loop) {
	l.AssertOwner()
	for i, s := range t.subs {
		t.subs[i] = nil
		s.topic, s.holds = nil, false
		l.Disarm(&s.timer)
		s.ended.Store(uint32(Deleted))
		s.state.Store(uint32(Ended))
		t.local.burst.add(s)
	}
	t.local.burst.wake()
	t.subs, t.cursors, t.holding, t.closed = nil, 0, 0, true
}

// Books adds up the records of all subscriptions so far. They balance exactly only while no writer takes.
func (t *Topic) Books() Books {
	sum := t.left
	for _, s := range t.subs {
		st := s.Stats()
		sum.add(st)
		sum.Queued += s.inRecords - s.cutRecords - st.Taken
	}
	return sum
}

func (b *Books) add(s Stats) {
	b.Offered += uint64(s.Next - s.From)
	b.Taken += s.Taken
	b.Dropped += s.Dropped
	b.Discarded += s.Discarded
}
