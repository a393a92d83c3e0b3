// Package fanout keeps the records of a shard in memory and hands them to its subscribers: encoded once, kept once, shared by all.
//
// It owns the frames (Frame, Slabs, Packer), the replay ring of a shard (Ring), its subscriptions (Topic, Subscription) and the rules for
// a full queue (Policy). It knows a shard only through Log, Archive and Gate: offsets, watermarks, streams and disks are replicate's, the
// socket side is netio's.
//
// # Threading
//
// Ring, Topic and Local belong to one core's loop. Slabs, Frame and the queue of a Subscription are shared: a frame may be released on any
// goroutine, and each subscription has one writer goroutine that calls Take, WantsFeed, Wait, End and Err. The loop never waits
// for a writer, nor for an Archive: its answer comes back as a call on the loop. Stats may be called from anywhere.
//
// # A record's way
//
// Ring.Append copies a batch behind the 24 bytes reserved for the head of an event frame. What is appended in one pass of the loop goes
// into the same frame, up to Limits.FrameRecords and FrameBytes; Seal fills the head in, and the frame is what replay, delivery and
// the socket use from then on: nothing is encoded again.
//
//	slab    | head r r r | head r | head r r r r r |  free   |    frames lie side by side, so a reader that is
//	table   |  Frame     |  Frame |     Frame      |         |    behind gets many of them in one write (Coalesce)
//
// A subscription is a cursor, next: the offset to be offered to it.
//
//	            Subscribe         Start              next == high watermark
//	(nothing) ------------> Joining ------> CatchingUp ----------------------> Live <---+
//	                                          ^    frames read from the Log     |        | frame offered
//	                                          |                                 |        | and queued
//	                                          +--- Blocked <--------------------+--------+
//	                                               queue full: CatchUp, Block
//
// Joining and falling behind are the same thing: the loop reads frames from the Log into the queue as far as there is room, and when
// next reaches the high watermark the subscription is live in the same pass. Nothing lies between, so there is no gap and
// no duplicate to look for. Only the first frame after a start in its middle is made anew.
//
// What the ring of a Log with an Archive has let go of is read from there, one read per subscription at a time, until next is in the
// ring; then as above. A subscription that is gone or live when the answer comes releases it. One whose log cannot be read
// ends as Failed after what is queued. One with EndOnDrop ends as Lagged where it would lose its first record: its reader
// is told, and can subscribe again where it stood.
//
// # Invariants
//
//  1. A sealed frame never changes. A slab is reused only when its last reference is gone: the ring's, or that of a held frame.
//  2. Per subscription, in records: next - from = taken + dropped + discarded + queued. A drop is always an offset jump and a count.
//  3. Live subscriptions have next == the end of the last frame offered, or a later offset that they reached by reading the Log.
//  4. One push into a parked writer's queue is followed by exactly one wake-up (wake.go); a stop for want of room by exactly one
//     WantsFeed (Subscription.stop). Neither can be lost.
//  5. Ring: start <= offered <= sealed <= tail, and what a subscription with the policy Block has not read is not dropped before
//     its time is up.
//  6. Slabs.Held counts every slab in use once, whoever holds it.
//
// # Limits
//
// Limits and the fields of Subscription say what happens at each bound. A queue is bounded in frames and bytes; at the bound Policy decides.
// A ring is bounded in records and bytes, all rings together by Limits.BudgetBytes. Unused slabs are pooled up to SlabsConfig.PoolBytes.
// Frames from an Archive are the subscription's own, so 1 MiB of its queue and 256 KiB a read is what they may take.
//
// # Decisions
//
// Slabs grow 1, 4, 16, 64, 256 KiB per ring, so that a quiet stream costs 1 KiB and a busy one a pool operation per 256 KiB; batches
// that need more get 1 MiB. The table of frames is part of the slab (40 bytes per 256), so that a frame costs no allocation; with
// frames of 64 KiB most of it is never touched. A slab is dropped as a whole; a ring's start moves by frames.
//
// Queues have a single pusher and lock-free takers: the loop may take the oldest frame from under the writer (DropOld). They start with
// 16 slots; an idle subscription takes 1 KiB.
//
// A subscription that Block held appends back for in vain is live again without what it missed, as drop_new would have left it, and
// does not go on reading history: it would be behind for as long as publishers are faster, and would never pace them again. One
// that is still reading history at that time keeps reading.
//
// The loop wakes at most 8 writers; they wake the others. With 500 writers an append with its offer took 132 us (58-181) in place
// of 300 us (201-355) when the loop woke all of them: medians of five interleaved runs of BenchmarkDeliver/subs=500 on a busy 2-vCPU EPYC.
//
// References are counted per slab, not per frame: one atomic operation for a frame offered to any number of subscriptions, and one
// to release a run of frames (ReleaseAll). The price is that one held frame keeps its whole slab.
//
// Start reading at slab.go (memory), ring.go (what is kept), topic.go (who gets it), then subscription.go, queue.go and wake.go (how it
// crosses to the writer).
package fanout
