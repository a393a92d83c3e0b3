package fanout

import (
	"errors"
	"math/rand/v2"
	"testing"

	"felix/core"
	"felix/netio/wire"
)

// An archiveLog is a testLog whose ring drops what was offered; what it dropped is read back when the test says so.
type archiveLog struct {
	*testLog
	start     wire.Offset // oldest offset kept
	delivered wire.Offset
	committed wire.Offset // may be in the middle of a frame
	asked     []archiveRead
	fail      error
}

type archiveRead struct {
	from, to            wire.Offset
	maxFrames, maxBytes int
	done                func(*core.Loop, []*Frame, error)
}

func newArchiveLog(t testing.TB, limits Limits) *archiveLog {
	g := &archiveLog{testLog: newTestLog(t, limits)}
	g.Init(g.local, nil, 0)
	g.topic = Topic{}
	g.topic.Init(g.local, g, g)
	return g
}

func (g *archiveLog) Bounds() (start, end wire.Offset) { return g.start, g.delivered }

func (g *archiveLog) Committed() wire.Offset { return g.committed }

func (g *archiveLog) ReadFrames(dst []*Frame, from wire.Offset, maxFrames, maxBytes int) []*Frame {
	return g.ReadFramesTo(dst, from, g.delivered, maxFrames, maxBytes)
}

func (g *archiveLog) ReadArchive(_ *core.Loop, from wire.Offset, maxFrames, maxBytes int, done func(*core.Loop, []*Frame, error)) {
	if from < g.start || from >= g.Start() || maxFrames < 1 || maxBytes < 1 {
		g.t.Errorf("archive asked for %d frames, %d bytes from %d; the log has [%d, ..), the ring [%d, ..)", maxFrames, maxBytes, from, g.start, g.Start())
	}
	g.asked = append(g.asked, archiveRead{from, g.delivered, maxFrames, maxBytes, done})
}

// answer answers one read, in batches of random sizes.
func (g *archiveLog) answer(rng *rand.Rand) {
	i := rng.IntN(len(g.asked))
	r := g.asked[i]
	g.asked = append(g.asked[:i], g.asked[i+1:]...)
	switch {
	case g.fail != nil:
		r.done(g.l, nil, g.fail)
		return
	case r.from < g.start:
		r.done(g.l, nil, &CursorError{Reason: wire.CursorTooOld, Requested: r.from, Available: g.start})
		return
	}
	p := NewPacker(g.slabs, g.local.limits)
	for at := r.from; at < r.to && p.Size() < r.maxBytes; {
		n := wire.Offset(1 + rng.IntN(20))
		n = min(n, r.to-at)
		b := batch(at, int(n))
		if p.Frames() >= r.maxFrames && !p.Joins(at, len(b), uint32(n)) {
			break
		}
		p.Add(at, b, uint32(n), 0, rng.IntN(10000))
		at += n
	}
	frames := p.Take()
	for _, f := range frames {
		checkFrame(g.t, f)
	}
	r.done(g.l, frames, nil)
}

// deliver commits up to an offset and offers whole frames.
func (g *archiveLog) deliver(committed wire.Offset) {
	g.Seal()
	g.committed = max(g.committed, committed)
	to := g.FrameEnd(g.committed)
	for g.delivered < to {
		frames := g.ReadFramesTo(nil, g.delivered, to, 3, 1<<30)
		g.delivered = frames[len(frames)-1].End()
		if g.delivered > g.committed {
			g.t.Fatalf("frame up to %d read, %d is committed", g.delivered, g.committed)
		}
		g.topic.OfferAll(g.l, frames)
		ReleaseAll(frames)
	}
	g.Offered(g.delivered)
	g.Trim(0)
}

func (g *archiveLog) add(count int) {
	b := batch(g.Tail(), count)
	g.Append(b, uint32(count), 0)
}

// Random interleavings with a log that answers late and out of order: each subscription sees every offset from its start on, except
// those its counter says were dropped, and nothing is dropped under CatchUp but for retention.
func TestArchiveInterleavings(t *testing.T) {
	reads, lives := 0, 0
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 3))
		g := newArchiveLog(t, Limits{RingRecords: 5 + rng.IntN(200), LeastRecords: 1, RingBytes: 1 << (12 + rng.IntN(6)),
			FrameRecords: 1 + rng.IntN(30), FrameBytes: 100 + rng.IntN(2000)})
		retention := seed%4 == 0
		type reader struct {
			*Subscription
			next wire.Offset
			gaps uint64
		}
		var readers, gone []*reader
		read := func(r *reader, max int) {
			for _, f := range r.Take(nil, max) {
				checkFrame(t, f)
				if f.Base < r.next {
					t.Fatalf("seed %d: %d again, after %d", seed, f.Base, r.next)
				}
				r.gaps += uint64(f.Base - r.next)
				r.next = f.End()
				f.Release()
			}
			if r.WantsFeed() {
				g.topic.Feed(g.l, r.Subscription)
			}
		}
		for range 1500 {
			switch k := rng.IntN(22); {
			case k < 8:
				g.add(1 + rng.IntN(10)*rng.IntN(4))
			case k < 12:
				g.deliver(g.delivered + wire.Offset(rng.Uint64N(uint64(g.Tail()-g.delivered)+1)))
			case k < 13 && len(readers) < 8:
				start := []wire.StartPosition{latest, earliest, at(g.start + wire.Offset(rng.Uint64N(uint64(g.committed-g.start)+1)))}[rng.IntN(3)]
				r := &reader{Subscription: &Subscription{Policy: []Policy{CatchUp, CatchUp, Block, DropNew, DropOld}[rng.IntN(5)], Capacity: 1 + rng.IntN(40), QueueBytes: 1 << (8 + rng.IntN(10))}}
				from, _, err := g.topic.Subscribe(g.l, r.Subscription, start)
				if err != nil {
					t.Fatal(err)
				}
				r.next = from
				readers = append(readers, r)
			case k < 15 && len(g.asked) > 0:
				reads++
				g.answer(rng)
			case len(readers) == 0:
			case k < 16:
				g.topic.Start(g.l, readers[rng.IntN(len(readers))].Subscription)
			case k < 19:
				r := readers[rng.IntN(len(readers))]
				read(r, 1<<rng.IntN(14))
				if r.isLive() {
					lives++
				}
			case k < 20:
				if s := readers[rng.IntN(len(readers))]; s.holds {
					g.l.Disarm(&s.timer)
					s.expire(g.l)
				}
			case k < 21:
				if retention && rng.IntN(20) == 0 {
					g.start += wire.Offset(rng.Uint64N(uint64(g.delivered-g.start) + 1))
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
		g.deliver(g.Tail())
		for _, r := range readers {
			for n := 0; !r.isLive() || r.Stats().Depth > 0; n++ {
				if len(g.asked) > 0 {
					g.answer(rng)
				}
				read(r, 1000)
				if n > 1e6 {
					t.Fatalf("seed %d: stuck: %+v", seed, r.Stats())
				}
			}
			st := r.Stats()
			if st.Next != g.Tail() || r.gaps+uint64(st.Next-r.next) != st.Dropped {
				t.Fatalf("seed %d: read up to %d of %d with gaps of %d, %d counted as dropped (%v)", seed, r.next, st.Next, r.gaps, st.Dropped, r.Policy)
			}
			if r.Policy == CatchUp && !retention && st.Dropped != 0 {
				t.Fatalf("seed %d: %d dropped", seed, st.Dropped)
			}
		}
		for _, r := range gone {
			if st := r.Stats(); r.gaps > st.Dropped {
				t.Fatalf("seed %d: gaps of %d, %d counted as dropped", seed, r.gaps, st.Dropped)
			}
		}
		check(t, "holding", g.topic.Holding(), false)
		if seed%2 == 0 {
			g.topic.Close(g.l)
		}
		for len(g.asked) > 0 {
			g.answer(rng)
		}
		for _, r := range readers {
			g.topic.Unsubscribe(g.l, r.Subscription)
		}
		g.close()
	}
	if reads < 1000 || lives < 1000 {
		t.Fatalf("%d reads, %d looks at live subscriptions: the test does not reach what it is for", reads, lives)
	}
}

func TestFailedArchive(t *testing.T) {
	g := newArchiveLog(t, Limits{RingRecords: 4, LeastRecords: 1})
	for range 20 {
		g.add(2)
		g.deliver(g.Tail())
	}
	rng := rand.New(rand.NewPCG(1, 1))
	s := g.subscribe(&Subscription{Policy: Block}, earliest)
	check(t, "reads", len(g.asked), 1)
	g.topic.Feed(g.l, s)
	check(t, "reads while one is on its way", len(g.asked), 1)
	g.topic.hold(g.l, s)
	g.fail = errors.New("rotten")
	g.answer(rng)
	check(t, "holding", g.topic.Holding(), false)
	check(t, "timer armed", s.timer.Armed(), false)
	if reason, ended := s.End(); reason != Failed || !ended || reason.String() != "failed" {
		t.Fatal(reason, ended)
	}
	check(t, "error", s.Err(), g.fail)
	g.topic.Feed(g.l, s)
	g.add(1)
	g.deliver(g.Tail())
	g.topic.Guard(g.l)
	check(t, "reads", len(g.asked), 0)
	check(t, "depth", s.Stats().Depth, 0)
	g.checkBooks()
	g.topic.Unsubscribe(g.l, s)
	if reason, _ := s.End(); reason != Failed {
		t.Fatal(reason)
	}
	g.checkBooks()
	g.close()
}

// Records that are missing in front of an answer are counted.
func TestArchiveAnswersAboveWhatWasAsked(t *testing.T) {
	g := newArchiveLog(t, Limits{RingRecords: 4, LeastRecords: 1})
	for range 20 {
		g.add(2)
		g.deliver(g.Tail())
	}
	s := g.subscribe(&Subscription{Policy: CatchUp}, earliest)
	p := NewPacker(g.slabs, Limits{})
	p.Add(7, batch(7, 3), 3, 0, 0)
	g.asked[0].done(g.l, p.Take(), nil)
	check(t, "frames", g.take(s, 99), "7-10")
	check(t, "dropped", s.Stats().Dropped, 7)
	check(t, "counter", g.local.Counters.EventsDropped.Load(), 7)
	check(t, "asked next", g.asked[1].from, 10)
	g.checkBooks()
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

// A slow reader of history holds little memory of its own.
func TestArchiveQueueIsBounded(t *testing.T) {
	g := newArchiveLog(t, Limits{RingRecords: 4, LeastRecords: 1, RingBytes: 1 << 12})
	for range 3000 {
		g.add(50)
		g.deliver(g.Tail())
	}
	s := g.subscribe(&Subscription{Policy: CatchUp, Capacity: MaxCapacity}, earliest)
	rng := rand.New(rand.NewPCG(1, 1))
	for len(g.asked) > 0 {
		g.answer(rng)
	}
	if held := g.slabs.Held() - g.slabs.InRings(); held > 2*archiveQueueBytes || held < archiveQueueBytes/2 {
		t.Fatalf("%d bytes are held", held)
	}
	for next := wire.Offset(0); next < g.Tail(); {
		for len(g.asked) > 0 {
			g.answer(rng)
		}
		frames := s.Take(nil, 10000)
		if len(frames) == 0 {
			t.Fatalf("stuck at %d: %+v", next, s.Stats())
		}
		for _, f := range frames {
			check(t, "frame", f.Base, next)
			next = f.End()
			f.Release()
		}
		if s.WantsFeed() {
			g.topic.Feed(g.l, s)
		}
	}
	check(t, "state", s.Stats().State, Live)
	g.topic.Unsubscribe(g.l, s)
	g.close()
}

func TestRingFrameEnd(t *testing.T) {
	g := newTestLog(t, Limits{FrameRecords: 5})
	check(t, "of an empty ring", g.FrameEnd(7), 0)
	for _, n := range []int{3, 2, 4, 5, 1} { // frames [0, 5) [5, 9) [9, 14) [14, 15)
		g.add(n)
	}
	check(t, "open frame", g.FrameEnd(99), 14)
	g.Seal()
	for upTo, want := range []wire.Offset{0, 0, 0, 0, 0, 5, 5, 5, 5, 9, 9, 9, 9, 9, 14, 15, 15} {
		check(t, "end", g.FrameEnd(wire.Offset(upTo)), want)
		frames := g.ReadFramesTo(nil, 0, wire.Offset(upTo), 99, 1<<20)
		end := wire.Offset(0)
		for _, f := range frames {
			end = f.End()
		}
		check(t, "read", end, want)
		ReleaseAll(frames)
	}
	g.flush()
	g.close()
}

func TestPacker(t *testing.T) {
	slabs := NewSlabs(SlabsConfig{})
	p := NewPacker(slabs, Limits{FrameRecords: 4, FrameBytes: 300})
	for _, b := range [][2]int{{0, 2}, {2, 2}, {4, 1}, {5, 9}, {14, 1}, {20, 1}, {21, 1}} {
		p.Add(wire.Offset(b[0]), batch(wire.Offset(b[0]), b[1]), uint32(b[1]), int64(b[0]), 0)
	}
	check(t, "frames", p.Frames(), 5)
	frames := p.Take()
	for i, want := range [][2]wire.Offset{{0, 4}, {4, 5}, {5, 14}, {14, 15}, {20, 22}} {
		checkFrame(t, frames[i])
		check(t, "base", frames[i].Base, want[0])
		check(t, "end", frames[i].End(), want[1])
		check(t, "time", frames[i].AppendMicros, int64(want[0]))
	}
	check(t, "frames after", p.Frames(), 0)
	ReleaseAll(frames)
	for i := range wire.Offset(200) { // beyond the table of a slab
		p.Add(7*i, batchOf(1, 3000), 1, 0, 100)
	}
	ReleaseAll(p.Take())
	check(t, "held", slabs.Held(), 0)
	check(t, "of nothing", len(p.Take()), 0)
}
