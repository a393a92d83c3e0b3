package fanout

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"felix/netio/wire"
)

func TestStartPositions(t *testing.T) {
	g := newTestLog(t, Limits{RingRecords: 50, LeastRecords: 1})
	g.publish(10, 10) // [0, 100), [50, 100) kept
	g.add(5)          // and five in the open frame
	for _, c := range []struct {
		name  string
		start wire.StartPosition
		from  wire.Offset
		fails *CursorError
	}{
		{"default", wire.StartPosition{}, 105, nil},
		{"latest", latest, 105, nil},
		{"earliest", earliest, 50, nil},
		{"oldest kept", at(50), 50, nil},
		{"middle of a frame", at(63), 63, nil},
		{"tail", at(105), 105, nil},
		{"too old", at(49), 0, &CursorError{wire.CursorTooOld, 49, 50}},
		{"zero", at(0), 0, &CursorError{wire.CursorTooOld, 0, 50}},
		{"in the future", at(106), 0, &CursorError{wire.CursorInFuture, 106, 105}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Subscription{}
			from, tail, err := g.topic.Subscribe(g.l, s, c.start)
			if c.fails != nil {
				var got *CursorError
				if !errors.As(err, &got) || *got != *c.fails {
					t.Fatalf("got %v, want %v", err, c.fails)
				}
				if err.Error() == "" {
					t.Fatal("no message")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			check(t, "from", from, c.from)
			check(t, "tail", tail, 105)
			check(t, "capacity", s.Capacity, DefaultCapacity)
			check(t, "state", s.Stats().State, Joining)
			check(t, "depth before Start", s.Stats().Depth, 0)
			g.topic.Start(g.l, s)
			check(t, "state", s.Stats().State, Live)
			next := c.from
			for _, f := range s.Take(nil, 1<<20) {
				checkFrame(t, f)
				check(t, "base", f.Base, next)
				next = f.End()
				f.Release()
			}
			check(t, "end", next, 105)
			g.topic.Unsubscribe(g.l, s)
		})
	}
	check(t, "subscriptions", len(g.topic.Subscriptions()), 0)
	g.close()
}

// What is appended between Subscribe and Start, and between Start and the end of the pass, comes once.
func TestJoiningLeavesNoGapAndNoDuplicate(t *testing.T) {
	g := newTestLog(t, Limits{})
	g.publish(3, 2)
	s := &Subscription{}
	g.add(1)
	if _, _, err := g.topic.Subscribe(g.l, s, at(3)); err != nil {
		t.Fatal(err)
	}
	g.add(1) // joins the open frame, which s has not seen
	g.flush()
	check(t, "queued before Start", s.Stats().Depth, 0)
	g.add(2)
	g.topic.Start(g.l, s) // seals and reads the open frame
	g.add(1)
	check(t, "state", s.Stats().State, Live)
	g.flush() // offers a frame that s has, and one that it has not
	check(t, "frames", g.take(s, 99), "3-4 4-6 6-8 8-10 10-11")
	g.publish(1, 2)
	check(t, "frames", g.take(s, 99), "11-13")
	check(t, "encodes above frames", g.local.Counters.Encodes.Load()-g.local.Counters.FramesSealed.Load(), 1)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

// A subscription at the tail while a frame is open begins in the middle of it.
func TestJoinInTheMiddleOfTheOpenFrame(t *testing.T) {
	g := newTestLog(t, Limits{})
	g.add(3)
	s := g.subscribe(&Subscription{}, latest) // at 3; reads nothing, so the frame stays open
	g.add(2)
	g.flush()
	check(t, "frames", g.take(s, 99), "3-5")
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestDropNewSkipsFrames(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 3, Policy: DropNew}, latest)
	g.publish(5, 2)
	check(t, "dropped", s.Stats().Dropped, 4)
	check(t, "frames", g.take(s, 1), "0-2")
	g.publish(2, 2)
	check(t, "frames", g.take(s, 99), "2-4 4-6 10-12")
	st := s.Stats()
	check(t, "dropped", st.Dropped, 6)
	check(t, "taken", st.Taken, 8)
	check(t, "position", st.Position, 12)
	check(t, "counter", g.local.Counters.EventsDropped.Load(), 6)
	check(t, "counter", g.local.Counters.FramesDropped.Load(), 3)
	check(t, "counter", g.local.Counters.EventsDelivered.Load(), 8)
	g.checkBooks()
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestDropOldDropsQueuedFrames(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 3, Policy: DropOld}, latest)
	g.publish(5, 2)
	check(t, "dropped", s.Stats().Dropped, 4)
	g.checkBooks()
	check(t, "frames", g.take(s, 99), "4-6 6-8 8-10")
	check(t, "taken", s.Stats().Taken, 6)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

// A reader that can be told loses nothing: where the first record would be left out its subscription ends, behind what is queued.
func TestEndOnDrop(t *testing.T) {
	for _, tt := range []struct {
		policy Policy
		expire bool // MaxBlock passes
		resume wire.Offset
		frames string
	}{
		{DropNew, false, 6, "0-2 2-4 4-6"},
		{DropOld, false, 6, "0-2 2-4 4-6"},
		{Block, true, 6, "0-2 2-4 4-6"},
	} {
		g := newTestLog(t, Limits{})
		s := g.subscribe(&Subscription{Capacity: 3, Policy: tt.policy, EndOnDrop: true}, latest)
		other := g.subscribe(&Subscription{}, latest)
		g.publish(5, 2)
		if tt.expire {
			check(t, "state", s.Stats().State, Blocked)
			g.l.Disarm(&s.timer)
			s.expire(g.l)
		}
		check(t, "holding", g.topic.Holding(), false)
		check(t, "state", s.Stats().State, Ended)
		g.publish(2, 2) // passes it by
		g.checkBooks()
		_, ended := s.End()
		check(t, "ended before it is read", ended, false)
		check(t, "frames", g.take(s, 99), tt.frames)
		reason, ended := s.End()
		check(t, "reason", reason, Lagged)
		check(t, "ended", ended, true)
		check(t, "resume", s.Stats().Next, tt.resume)
		check(t, "dropped", s.Stats().Dropped, 0)
		check(t, "lagged", g.local.Counters.Lagged.Load(), 1)
		check(t, "dropped in all", g.local.Counters.EventsDropped.Load(), 0)
		g.topic.Unsubscribe(g.l, s)
		check(t, "frames of the other", g.take(other, 99), "0-2 2-4 4-6 6-8 8-10 10-12 12-14")
		g.checkBooks()
		g.topic.Unsubscribe(g.l, other)
		g.close()
	}
}

// What the log has let go of is a jump for everyone: to subscribe again would not bring it back.
func TestEndOnDropIsNotForRetention(t *testing.T) {
	g := newTestLog(t, Limits{RingRecords: 4, LeastRecords: 1, FrameRecords: 1})
	s := &Subscription{EndOnDrop: true}
	if _, _, err := g.topic.Subscribe(g.l, s, latest); err != nil {
		t.Fatal(err)
	}
	for range 600 {
		g.publish(1, 1)
	}
	start := g.Start()
	if start == 0 {
		t.Fatal("the ring let go of nothing")
	}
	g.topic.Start(g.l, s)
	check(t, "state", s.Stats().State, Live)
	check(t, "dropped", s.Stats().Dropped, uint64(start))
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestQueueIsBoundedInBytesToo(t *testing.T) {
	for policy, want := range map[Policy]string{DropNew: "0-1 1-2", DropOld: "3-4 4-5"} {
		g := newTestLog(t, Limits{})
		s := g.subscribe(&Subscription{QueueBytes: 2500, Policy: policy}, latest)
		for range 5 {
			g.Append(wire.AppendRecord(nil, append(record(g.Tail()), make([]byte, 930)...)), 1, 0)
			g.flush()
		}
		var got string
		for _, f := range s.Take(nil, 1<<20) {
			got += fmt.Sprintf("%d-%d ", f.Base, f.End())
			f.Release()
		}
		check(t, policy.String(), got, want+" ")
		g.Append(batchOf(1, 100_000), 1, 0) // alone in the queue any frame fits
		g.flush()
		check(t, "depth with a large frame", s.Stats().Depth, 1)
		g.topic.Unsubscribe(g.l, s)
		check(t, "discarded", s.Stats().Discarded, 1)
		g.checkBooks()
		g.close()
	}
}

func TestCatchUpReadsTheLogAndComesBack(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 4, Policy: CatchUp}, latest)
	g.publish(20, 2)
	st := s.Stats()
	check(t, "state", st.State, CatchingUp)
	check(t, "dropped", st.Dropped, 0)
	check(t, "depth", st.Depth, 4)
	check(t, "holding", g.topic.Holding(), false)
	check(t, "wants to be fed while full", s.WantsFeed(), false)
	check(t, "frames", g.take(s, 19), "0-2 2-4 4-6 6-8 8-10 10-12 12-14 14-16 16-18 18-20 20-22 22-24 24-26 26-28 28-30 30-32 32-34 34-36 36-38")
	check(t, "state", s.Stats().State, Live)
	g.publish(1, 2)
	check(t, "frames", g.take(s, 99), "38-40 40-42")
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

// A large frame, beyond half of the queue's bytes, is fed once the queue is empty.
func TestFeedOfLargeFrames(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{QueueBytes: 1000, Policy: CatchUp}, latest)
	for _, size := range []int{300, 5000, 600, 900, 10, 5000, 10} {
		g.Append(batchOf(1, size), 1, 0)
		g.flush()
	}
	var ends []wire.Offset
	for range 7 {
		for _, f := range s.Take(nil, 1) {
			ends = append(ends, f.End())
			f.Release()
		}
		if s.WantsFeed() {
			g.topic.Feed(g.l, s)
		}
	}
	check(t, "frames", fmt.Sprint(ends), "[1 2 3 4 5 6 7]")
	check(t, "state", s.Stats().State, Live)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestBlockHoldsUntilLiveAgain(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 4, Policy: Block}, latest)
	other := g.subscribe(&Subscription{Policy: Block}, latest)
	g.publish(4, 2)
	check(t, "holding", g.topic.Holding(), false)
	g.publish(3, 2)
	check(t, "holding", g.topic.Holding(), true)
	check(t, "state", s.Stats().State, Blocked)
	check(t, "state of the other", other.Stats().State, Live)
	check(t, "timer armed", s.timer.Armed(), true)
	check(t, "frames", g.take(s, 2), "0-2 2-4") // half is free: fed with 8-10, 10-12; 12-14 is left
	check(t, "holding", g.topic.Holding(), true)
	check(t, "frames", g.take(s, 2), "4-6 6-8")
	check(t, "holding", g.topic.Holding(), false)
	check(t, "resumed", g.resumed, 1)
	check(t, "timer armed", s.timer.Armed(), false)
	check(t, "state", s.Stats().State, Live)
	check(t, "stalls", g.local.Counters.Stalls.Load(), 1)
	check(t, "frames", g.take(s, 99), "8-10 10-12 12-14")
	check(t, "dropped", s.Stats().Dropped, 0)
	g.checkBooks()
	g.topic.Close(g.l)
	g.take(other, 99)
	g.close()
}

func TestBlockGivesUpAfterMaxBlock(t *testing.T) {
	g := newTestLog(t, Limits{})
	s := g.subscribe(&Subscription{Capacity: 4, Policy: Block}, latest)
	g.publish(6, 2)
	check(t, "holding", g.topic.Holding(), true)
	g.l.Disarm(&s.timer) // it fires
	s.expire(g.l)
	check(t, "holding", g.topic.Holding(), false)
	check(t, "resumed", g.resumed, 1)
	check(t, "state", s.Stats().State, Live)
	check(t, "dropped", s.Stats().Dropped, 4)
	g.publish(3, 2) // as drop_new
	check(t, "holding", g.topic.Holding(), false)
	check(t, "dropped", s.Stats().Dropped, 10)
	check(t, "frames", g.take(s, 1), "0-2")
	g.publish(1, 2) // fits: the stall is over
	g.publish(1, 2)
	check(t, "holding", g.topic.Holding(), true)
	check(t, "stalls", g.local.Counters.Stalls.Load(), 2)
	check(t, "expired", g.local.Counters.StallsExpired.Load(), 1)
	check(t, "frames", g.take(s, 99), "2-4 4-6 6-8 18-20 20-22")
	check(t, "holding", g.topic.Holding(), false)
	g.checkBooks()
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

// A subscription with the policy Block that reads history is not overtaken by the ring: it holds back appends from where
// that would begin.
func TestBlockWhileReadingHistory(t *testing.T) {
	for _, budget := range []int64{0, 1} {
		g := newTestLog(t, Limits{RingRecords: 100, LeastRecords: 1, BudgetBytes: budget})
		g.publish(40, 1)
		s := g.subscribe(&Subscription{Capacity: 4, Policy: Block}, earliest)
		check(t, "state", s.Stats().State, CatchingUp)
		g.publish(64, 1) // four are queued, so that many may go
		g.local.Trim()
		check(t, "start", g.Start(), 4)
		check(t, "holding", g.topic.Holding(), false)
		g.publish(1, 1)
		check(t, "holding", g.topic.Holding(), true)
		check(t, "state", s.Stats().State, Blocked)
		g.publish(20, 1)
		g.local.Trim()
		check(t, "start", g.Start(), 4)
		g.l.Disarm(&s.timer) // it fires
		s.expire(g.l)
		check(t, "holding", g.topic.Holding(), false)
		check(t, "state", s.Stats().State, CatchingUp)
		check(t, "dropped", s.Stats().Dropped, 0)
		g.publish(55, 1) // overtakes it
		check(t, "start", g.Start(), 80)
		check(t, "holding in the same stall", g.topic.Holding(), false)
		for s.Stats().State != Live {
			g.take(s, 1)
		}
		check(t, "dropped", s.Stats().Dropped, 76)
		check(t, "depth", s.Stats().Depth, 4)
		g.publish(1, 1)
		check(t, "holding in the next stall", g.topic.Holding(), true)
		g.take(s, 99)
		check(t, "taken", s.Stats().Taken, 105)
		check(t, "holding", g.topic.Holding(), false)
		g.checkBooks()
		g.topic.Unsubscribe(g.l, s)
		g.close()
	}
}

func TestRingOvertakesASlowReader(t *testing.T) {
	g := newTestLog(t, Limits{RingRecords: 20, LeastRecords: 1})
	s := g.subscribe(&Subscription{Capacity: 4, Policy: CatchUp}, latest)
	g.publish(50, 2)
	// The last two of the first four are still queued when half of the queue is free.
	check(t, "frames", g.take(s, 99), "0-2 2-4 4-6 6-8 80-82 82-84 84-86 86-88 88-90 90-92 92-94 94-96 96-98 98-100")
	check(t, "taken + dropped", s.Stats().Taken+s.Stats().Dropped, 100)
	check(t, "counter", g.local.Counters.EventsDropped.Load(), s.Stats().Dropped)
	g.checkBooks()
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestClosedTopic(t *testing.T) {
	g := newTestLog(t, Limits{})
	live := g.subscribe(&Subscription{Capacity: 2, Policy: Block}, latest)
	joining := &Subscription{}
	if _, _, err := g.topic.Subscribe(g.l, joining, earliest); err != nil {
		t.Fatal(err)
	}
	g.publish(3, 1)
	check(t, "holding", g.topic.Holding(), true)
	g.topic.Close(g.l)
	check(t, "holding", g.topic.Holding(), false)
	check(t, "timer armed", live.timer.Armed(), false)
	if reason, ended := live.End(); reason != Deleted || ended {
		t.Fatalf("%v %v with frames queued", reason, ended)
	}
	check(t, "frames", g.take(live, 99), "0-1 1-2")
	if reason, ended := live.End(); reason != Deleted || !ended {
		t.Fatalf("%v %v", reason, ended)
	}
	if reason, ended := joining.End(); reason != Deleted || !ended {
		t.Fatalf("%v %v", reason, ended)
	}
	check(t, "state", live.Stats().State, Ended)
	g.topic.Start(g.l, joining)
	g.topic.Feed(g.l, live)
	g.topic.Unsubscribe(g.l, live)
	if reason, _ := live.End(); reason != Deleted {
		t.Fatal(reason)
	}
	if _, _, err := g.topic.Subscribe(g.l, &Subscription{}, latest); !errors.Is(err, ErrDeleted) {
		t.Fatal(err)
	}
	g.topic.Offer(g.l, nil) // nobody is there
	g.close()
}

func TestUnsubscribe(t *testing.T) {
	g := newTestLog(t, Limits{Subscriptions: 3})
	var subs []*Subscription
	for i := range 3 {
		subs = append(subs, g.subscribe(&Subscription{ID: uint64(i), Capacity: 2, Policy: Block}, latest))
	}
	if _, _, err := g.topic.Subscribe(g.l, &Subscription{}, latest); !errors.Is(err, ErrTooMany) {
		t.Fatal(err)
	}
	g.publish(2, 5)
	g.take(subs[1], 1)
	g.topic.Unsubscribe(g.l, subs[0])
	check(t, "discarded", subs[0].Stats().Discarded, 10)
	if reason, ended := subs[0].End(); reason != Unsubscribed || !ended {
		t.Fatalf("%v %v", reason, ended)
	}
	g.publish(2, 5)
	check(t, "holding", g.topic.Holding(), true)
	g.topic.Unsubscribe(g.l, subs[2])
	check(t, "holding", g.topic.Holding(), true) // subs[1] is full as well
	g.topic.Unsubscribe(g.l, subs[1])
	check(t, "holding", g.topic.Holding(), false)
	check(t, "resumed", g.resumed, 1)
	g.topic.Unsubscribe(g.l, subs[1])
	g.checkBooks()
	check(t, "books", g.topic.Books().Discarded, uint64(10+10+10))
	check(t, "subscriptions", len(g.topic.Subscriptions()), 0)
	g.topic.Unsubscribe(g.l, &Subscription{}) // never registered
	g.publish(1, 1)
	g.close()
}

// Random interleavings of everything, on one goroutine: each subscription sees every offset from its start on, except those that its
// counter says were dropped, in order, and the books balance at every step.
func TestRandomInterleavings(t *testing.T) {
	lagged := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		g := newTestLog(t, Limits{RingRecords: 20 + rng.IntN(500), LeastRecords: 1 + rng.IntN(50), RingBytes: 1 << (14 + rng.IntN(6)),
			BudgetBytes: 1 << (15 + rng.IntN(6)), FrameRecords: 1 + rng.IntN(30), FrameBytes: 100 + rng.IntN(2000)})
		type reader struct {
			*Subscription
			next wire.Offset
			gaps uint64
		}
		var readers, gone []*reader
		read := func(r *reader, frames []*Frame) {
			for _, f := range frames {
				checkFrame(t, f)
				if f.Base < r.next {
					t.Fatalf("seed %d: %d again, after %d", seed, f.Base, r.next)
				}
				r.gaps += uint64(f.Base - r.next)
				r.next = f.End()
				f.Release()
			}
		}
		for range 2000 {
			switch k := rng.IntN(20); {
			case k < 8:
				g.add(1 + rng.IntN(10)*rng.IntN(4))
			case k < 12:
				g.flush()
				g.local.Trim()
			case k < 13 && len(readers) < 8:
				start := []wire.StartPosition{latest, earliest, at(g.Start() + wire.Offset(rng.Uint64N(uint64(g.Tail()-g.Start())+1)))}[rng.IntN(3)]
				r := &reader{Subscription: &Subscription{Policy: Policy(rng.IntN(4)), EndOnDrop: rng.IntN(4) == 0, Capacity: 1 + rng.IntN(40), QueueBytes: 1 << (8 + rng.IntN(10))}}
				from, _, err := g.topic.Subscribe(g.l, r.Subscription, start)
				if err != nil {
					t.Fatal(err)
				}
				r.next = from
				readers = append(readers, r)
			case len(readers) == 0:
			case k < 15:
				g.topic.Start(g.l, readers[rng.IntN(len(readers))].Subscription)
			case k < 18:
				r := readers[rng.IntN(len(readers))]
				read(r, r.Take(nil, 1<<rng.IntN(14)))
				if r.WantsFeed() {
					g.topic.Feed(g.l, r.Subscription)
				}
			case k < 19:
				if s := readers[rng.IntN(len(readers))]; s.holds && rng.IntN(3) == 0 {
					g.l.Disarm(&s.timer)
					s.expire(g.l)
				}
			case rng.IntN(10) == 0:
				i := rng.IntN(len(readers))
				g.topic.Unsubscribe(g.l, readers[i].Subscription)
				gone = append(gone, readers[i])
				readers = append(readers[:i], readers[i+1:]...)
			}
			g.checkBooks()
		}
		for _, r := range readers {
			g.topic.Start(g.l, r.Subscription)
		}
		g.flush()
		for _, r := range readers {
			for !r.isLive() && !r.hasEnded() || r.Stats().Depth > 0 {
				read(r, r.Take(nil, 1000))
				if r.WantsFeed() {
					g.topic.Feed(g.l, r.Subscription)
				}
			}
			st := r.Stats()
			if reason, _ := r.End(); reason == Lagged {
				lagged++
				if r.next != st.Next || r.gaps != st.Dropped {
					t.Fatalf("seed %d: ended at %d with gaps of %d, read up to %d, %d counted as dropped (%v)", seed, st.Next, r.gaps, r.next, st.Dropped, r.Policy)
				}
				continue
			}
			if st.Next != g.Tail() || r.gaps+uint64(st.Next-r.next) != st.Dropped {
				t.Fatalf("seed %d: read up to %d of %d with gaps of %d, %d counted as dropped (%v)", seed, r.next, st.Next, r.gaps, st.Dropped, r.Policy)
			}
		}
		for _, r := range gone {
			if st := r.Stats(); r.gaps > st.Dropped {
				t.Fatalf("seed %d: gaps of %d, %d counted as dropped", seed, r.gaps, st.Dropped)
			}
		}
		check(t, "holding", g.topic.Holding(), false)
		g.topic.Close(g.l)
		g.close()
	}
	if lagged == 0 {
		t.Error("no subscription lagged")
	}
}
