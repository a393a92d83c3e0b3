package fanout

import (
	"fmt"
	"sync/atomic"

	"felix/core"
	"felix/netio/wire"
)

// Bounds and defaults of a subscription's queue.
const (
	DefaultCapacity   = 512      // frames
	MaxCapacity       = 4096     // frames
	DefaultQueueBytes = 32 << 20 // what 512 frames of 64 KiB take
)

// Policy is what happens to a frame that finds the queue of a subscription full.
type Policy uint8

const (
	// DropNew skips the frame for this subscription.
	DropNew Policy = iota
	// DropOld drops the oldest queued frame.
	DropOld
	// Block makes the subscription read the log from there on and holds back further appends to its shard until it is
	// live again, at most Limits.MaxBlock per stall; then frames are skipped until one fits.
	Block
	// CatchUp makes the subscription read the log from there on, at its own pace.
	CatchUp
)

var policyNames = [...]string{"drop_new", "drop_old", "block", "catch_up"}

// String returns the name in catalog entries.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// ParsePolicy reads a name in a catalog entry.
func ParsePolicy(name string) (Policy, bool) {
	for i, n := range policyNames {
		if n == name {
			return Policy(i), true
		}
	}
	return 0, false
}

// State is where a subscription stands.
type State uint32

const (
	Joining    State = iota // registered; nothing is queued before Topic.Start
	Live                    // frames are queued as they are offered
	CatchingUp              // reads the log
	Blocked                 // reads the log and holds back appends
	Ended                   // nothing is queued any more
)

var stateNames = [...]string{"joining", "live", "catching_up", "blocked", "ended"}

// String returns the name in listings.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint32(s))
}

// EndReason says why a subscription ended.
type EndReason uint32

const (
	NotEnded     EndReason = iota
	Deleted                // its stream was deleted
	Unsubscribed           // Topic.Unsubscribe; what was queued is gone
	Failed                 // the log cannot be read from where it stands: Subscription.Err
	Lagged                 // EndOnDrop, and a frame found no room; it begins at Stats.Next
)

var reasonNames = [...]string{"not_ended", "deleted", "unsubscribed", "failed", "lagged"}

// String returns the name in log lines.
func (r EndReason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("EndReason(%d)", uint32(r))
}

// A Subscription is a cursor on one shard and a bounded queue of frames. The exported fields are set before Topic.Subscribe and
// fixed from then on. The loop of the shard fills the queue; one writer goroutine takes from it. It serves one Subscribe.
type Subscription struct {
	// ID is the owner's number for it.
	ID uint64
	// Capacity bounds the frames in the queue. Zero means DefaultCapacity; more than MaxCapacity means MaxCapacity. At the
	// bound Policy decides.
	Capacity int
	// QueueBytes bounds the bytes in the queue in the same way; one frame always fits. Zero means DefaultQueueBytes.
	QueueBytes int
	// Policy is the rule of the stream.
	Policy Policy
	// EndOnDrop ends the subscription as Lagged, behind what is queued, where Policy would leave out the first record for want of room.
	// It is for a reader that can be told and can have the record from the log. What a log has let go of does not end it.
	EndOnDrop bool
	// Wake, if set, is how the writer is woken, for one that serves several subscriptions and calls Park instead of Wait: the loop calls
	// it, at most once per Park, when there is something to take or the subscription has ended. It must not block.
	Wake func()

	// Owned by the loop.
	topic *Topic      // nil when not registered
	place int         // in topic.subs
	from  wire.Offset // first offset it was to see; fixed by Subscribe
	// What was ever queued, and what of it the loop took out again.
	inBytes, inRecords   uint64
	cutBytes, cutRecords uint64
	started              bool
	holds                bool // holds back appends. Invariant: state is not Live
	fell                 bool // was live and fell behind; false while it joins
	spent                bool // held back appends for MaxBlock: it does not again before a frame fits, or it is live
	timer                core.Timer
	expire               func(*core.Loop)
	reading              bool                              // an Archive has been asked and has not answered
	answer               func(*core.Loop, []*Frame, error) // what it calls; made once
	failure              error                             // set before ended is Failed; read after

	// Written by the loop, read from anywhere.
	// Invariant, in records: next - from = taken + dropped + discarded + queued.
	next      atomic.Uint64 // next offset to offer
	dropped   atomic.Uint64
	discarded atomic.Uint64
	state     atomic.Uint32
	ended     atomic.Uint32 // EndReason; set after the last push
	// The loop stopped feeding for want of room and wants to be told once head and outBytes have come this far.
	hungry    atomic.Bool
	feedHead  atomic.Uint64
	feedBytes atomic.Uint64
	token     chan struct{}    // ends a wait of the writer; capacity 1. See wakeRoots
	wakes     [2]*Subscription // whom the writer wakes when it is; written by whoever has claimed s, then by the writer

	q queue

	// Written by the writer, read from anywhere; beside q.head, which the writer moves, so that the loop misses one line, not two.
	taken    atomic.Uint64 // records
	outBytes atomic.Uint64
	position atomic.Uint64 // one past the last record taken
	parked   atomic.Bool   // the writer waits; lowered by whoever ends that
	_        [28]byte
}

// Stats is a view of a subscription. Its fields are read one after the other, so they fit together exactly only while nothing moves.
type Stats struct {
	State     State
	Depth     int         // frames queued
	From      wire.Offset // first offset it was to see
	Next      wire.Offset // next offset to offer: Next - From records were offered
	Position  wire.Offset // one past the last record the writer took; From before that
	Taken     uint64      // records
	Dropped   uint64      // records
	Discarded uint64      // records that were queued when it was unsubscribed
}

// Stats may be called from any goroutine, once Topic.Subscribe has returned.
func (s *Subscription) Stats() Stats {
	return Stats{
		State: State(s.state.Load()), Depth: s.q.depth(),
		From: s.from, Next: wire.Offset(s.next.Load()), Position: wire.Offset(s.position.Load()),
		Taken: s.taken.Load(), Dropped: s.dropped.Load(), Discarded: s.discarded.Load(),
	}
}

// QueuedBytes returns the bytes in the queue, or a little more. It is for use on the loop.
func (s *Subscription) QueuedBytes() int { return s.queued() }

// Take appends queued frames to dst, oldest first, until maxBytes are reached (the frame that reaches them included) or the queue
// is empty. The caller releases each of them. It never blocks. Only the writer calls it.
func (s *Subscription) Take(dst []*Frame, maxBytes int) []*Frame {
	var size int
	var records uint64
	var end wire.Offset
	for size < maxBytes {
		f := s.q.pop()
		if f == nil {
			break
		}
		size += f.Size()
		records += uint64(f.Count)
		end = f.End()
		dst = append(dst, f)
	}
	if size > 0 {
		s.taken.Add(records)
		s.outBytes.Add(uint64(size))
		s.position.Store(uint64(end))
	}
	return dst
}

// WantsFeed reports, once per stop, that the loop stopped feeding for want of room and that half of the queue is free again: the
// writer then has Topic.Feed run on the loop. It is asked after each Take, before Wait.
func (s *Subscription) WantsFeed() bool {
	return s.hungry.Load() && s.q.head.Load() >= s.feedHead.Load() && s.outBytes.Load() >= s.feedBytes.Load() &&
		s.hungry.CompareAndSwap(true, false)
}

// End returns why the subscription has ended, and true once that is so and the queue is empty: nothing follows.
func (s *Subscription) End() (EndReason, bool) {
	reason := EndReason(s.ended.Load()) // first: nothing is pushed after it is set
	return reason, reason != NotEnded && s.q.depth() == 0
}

// Err returns why the log could not be read, once End has returned Failed; nil before.
func (s *Subscription) Err() error {
	if EndReason(s.ended.Load()) != Failed {
		return nil
	}
	return s.failure
}

// Ready reports whether Take would return something or the subscription has ended.
func (s *Subscription) Ready() bool { return s.q.depth() > 0 || s.ended.Load() != 0 }

func (s *Subscription) offset() wire.Offset { return wire.Offset(s.next.Load()) }

func (s *Subscription) hasEnded() bool { return State(s.state.Load()) == Ended }

func (s *Subscription) isLive() bool { return State(s.state.Load()) == Live }

// queued returns the bytes in the queue, or a little more: the writer counts them out after it took them.
func (s *Subscription) queued() int { return int(s.inBytes - s.cutBytes - s.outBytes.Load()) }

// fits reports whether a frame of that size may be queued.
func (s *Subscription) fits(size int) bool {
	depth := s.q.depth()
	return depth == 0 || depth < s.Capacity && s.queued()+size <= s.QueueBytes
}

// push queues f, whose reference goes to the queue, and moves on.
func (s *Subscription) push(f *Frame) {
	s.inBytes += uint64(f.Size())
	s.inRecords += uint64(f.Count)
	s.next.Store(uint64(f.End()))
	s.q.push(f)
}

// skip moves on to offset to without queueing what lies before it.
func (s *Subscription) skip(to wire.Offset) (records uint64) {
	records = uint64(to - s.offset())
	s.dropped.Add(records)
	s.next.Store(uint64(to))
	return records
}

// stop notes that a frame of that size does not fit. It returns true when the writer has made room meanwhile and will not tell:
// the frame fits now.
func (s *Subscription) stop(size int) bool { return s.stopAt(size, s.QueueBytes) }

// stopAt is stop with another bound on the bytes in the queue.
func (s *Subscription) stopAt(size, queueBytes int) bool {
	head, out := s.q.tail.Load(), s.inBytes-s.cutBytes
	// What is asked for makes the frame fit: half of either bound, or everything for a frame beyond that.
	if size <= queueBytes/2 {
		head = max(head, uint64(s.Capacity/2)) - uint64(s.Capacity/2)
		out = max(out, uint64(queueBytes/2)) - uint64(queueBytes/2)
	}
	s.feedHead.Store(head)
	s.feedBytes.Store(out)
	s.hungry.Store(true)
	// Raised before this look, while the writer moves on before it looks at the flag: one of the two sees the other.
	return s.WantsFeed()
}

// cut notes that the loop took f out of the queue.
func (s *Subscription) cut(f *Frame) {
	s.cutBytes += uint64(f.Size())
	s.cutRecords += uint64(f.Count)
}

// discard empties the queue of a subscription whose writer is gone.
func (s *Subscription) discard() {
	for f := s.q.pop(); f != nil; f = s.q.pop() {
		s.cut(f)
		s.discarded.Add(uint64(f.Count))
		f.Release()
	}
}
