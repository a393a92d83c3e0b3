package netio

import (
	"fmt"

	"felix/fanout"
	"felix/netio/wire"
)

// What the writer of a subscription is doing, as subscription.phase says it.
const (
	writerOpening uint32 = iota // the event stream is not there yet
	writerWaiting               // for something to take
	writerWriting               // in a write to the event stream: the peer's windows decide how long
	writerLeaving               // the subscription is over
)

// statePeerBlocked is a subscription whose client does not read.
const statePeerBlocked = "blocked_by_peer"

// stateName is a fanout state, or statePeerBlocked when two looks found the writer in the same write.
func (sub *subscription) stateName(state fanout.State) string {
	if at := sub.blockedAt.Load(); at != 0 && at == sub.writes.Load() && sub.phase.Load() == writerWriting {
		return statePeerBlocked
	}
	return state.String()
}

// beginWrite and endWrite are around every write to the event stream.
func (sub *subscription) beginWrite() {
	sub.writes.Add(1)
	sub.phase.Store(writerWriting)
}

func (sub *subscription) endWrite() { sub.phase.Store(writerWaiting) }

// subscriberLook is what one look saw of a subscription.
type subscriberLook struct {
	seen     bool
	phase    uint32
	writes   uint64
	state    fanout.State
	next     wire.Offset
	taken    uint64
	hasQueue bool
	told     bool // the stall has been reported
}

// A StalledSubscriber is a subscription that has work, whose client takes what it is sent, and that does not move: a fault of ours.
type StalledSubscriber struct {
	wire.SubscriptionCursor
	Peer  string
	State string
	Depth int
	Next  wire.Offset // next offset to be queued
	Taken uint64      // records
	New   bool        // it was not at the last look
}

// String says which it is and what it waits for.
func (s StalledSubscriber) String() string {
	return fmt.Sprintf("subscriber %d of %s shard %d, of client %s, does not move: %s, %d frames queued, %d records taken, offset %d comes next",
		s.SubscriberID, s.Path(), s.Shard, s.Peer, s.State, s.Depth, s.Taken, s.Next)
}

// LookAtSubscribers compares every subscription with what the last look saw and returns those that had work at both and have not moved in
// between. One goroutine calls it, at intervals within which a subscription that can move does; the intervals are its own. A subscription
// whose client does not read is none of them: it is blocked by its peer from the second look on, and so listed and counted.
func (s *Server) LookAtSubscribers() (stalled []StalledSubscriber) {
	s.subscribers.list(func(sub *subscription) bool {
		st := sub.Stats()
		now := subscriberLook{
			seen: true, phase: sub.phase.Load(), writes: sub.writes.Load(),
			state: st.State, next: st.Next, taken: st.Taken, hasQueue: st.Depth > 0,
		}
		before := sub.look
		same := before.seen && now.phase == before.phase && now.writes == before.writes
		if same && now.phase == writerWriting {
			sub.blockedAt.Store(now.writes)
		}
		if same && now.phase == writerWaiting && now.state == before.state && now.next == before.next && now.taken == before.taken &&
			now.hasWork() && before.hasWork() {
			now.told = true
			if !before.told {
				s.counts.subscriberStalls.Add(1)
			}
			stalled = append(stalled, StalledSubscriber{
				SubscriptionCursor: sub.cursor(), Peer: sub.conn.quic.RemoteAddr().String(), State: st.State.String(),
				Depth: st.Depth, Next: st.Next, Taken: st.Taken, New: !before.told,
			})
		}
		sub.look = now
		return false
	})
	return stalled
}

// FlushLog tells what was left out of the log about clients in the last minute or longer. It is called every few seconds.
func (s *Server) FlushLog() { s.peers.flush() }

// hasWork reports that something should happen: there is something to take, or the log is to be read, or the writer is to leave.
func (l *subscriberLook) hasWork() bool {
	return l.hasQueue || l.state == fanout.CatchingUp || l.state == fanout.Blocked || l.state == fanout.Ended
}
