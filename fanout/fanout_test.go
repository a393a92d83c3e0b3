package fanout

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix/core"
	"felix/netio/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record returns the payload of the record at offset o in every test: the offset, then o mod 40 bytes.
func record(o wire.Offset) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(o))
	return append(b, strings.Repeat("x", int(o%40))...)
}

// batch returns count records from offset base on.
func batch(base wire.Offset, count int) []byte {
	var b []byte
	for i := range count {
		b = wire.AppendRecord(b, record(base+wire.Offset(i)))
	}
	return b
}

// batchOf returns count records of size bytes each.
func batchOf(count, size int) []byte {
	var b []byte
	for range count {
		b = wire.AppendRecord(b, make([]byte, size))
	}
	return b
}

// checkFrame parses f with the wire package and compares it with what record says.
func checkFrame(t testing.TB, f *Frame) {
	t.Helper()
	h, body, rest, ok, err := wire.SplitFrame(f.Bytes(), 1<<30)
	if err != nil || !ok || len(rest) != 0 {
		t.Fatalf("frame [%d, %d): ok %v, %d bytes left, %v", f.Base, f.End(), ok, len(rest), err)
	}
	var e wire.Events
	if err := e.Parse(h.Flags, body); err != nil {
		t.Fatalf("frame [%d, %d): %v", f.Base, f.End(), err)
	}
	if h.Flags != wire.EventsHeadFlags || e.Base != f.Base || e.Count != f.Count || f.Count == 0 {
		t.Fatalf("frame [%d, %d) says base %d, count %d, flags %v", f.Base, f.End(), e.Base, e.Count, h.Flags)
	}
	for r := range e.All() {
		if want := record(r.Offset); string(r.Payload) != string(want) {
			t.Fatalf("record %d is %q, want %q", r.Offset, r.Payload, want)
		}
	}
}

// A testLoop is a loop that the test runs: it is never started, so the test's goroutine owns it. Timers do not fire.
func testLoop(t testing.TB) *core.Loop {
	t.Helper()
	g, err := core.NewGroup(core.Config{Cores: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g.Loop(0)
}

// A testLog is a shard reduced to what a topic needs.
type testLog struct {
	Ring
	t       testing.TB
	l       *core.Loop
	slabs   *Slabs
	local   *Local
	topic   Topic
	micros  int64
	resumed int
	frames  []*Frame
}

func newTestLog(t testing.TB, limits Limits) *testLog {
	g := &testLog{t: t, l: testLoop(t), slabs: NewSlabs(SlabsConfig{})}
	g.local = NewLocal(g.l, g.slabs, limits)
	g.Init(g.local, &g.topic, 0)
	g.topic.Init(g.local, g, g)
	return g
}

func (g *testLog) Bounds() (start, end wire.Offset) { return g.Start(), g.Tail() }

func (g *testLog) ReadFrames(dst []*Frame, from wire.Offset, maxFrames, maxBytes int) []*Frame {
	if from >= g.Sealed() {
		g.Seal()
	}
	return g.Ring.ReadFrames(dst, from, maxFrames, maxBytes)
}

func (g *testLog) OnResume(*core.Loop) { g.resumed++ }

// add appends one batch of count records.
func (g *testLog) add(count int) {
	if b := batch(g.Tail(), count); g.NeedsSlab(b, uint32(count)) {
		g.flush()
	}
	g.Append(batch(g.Tail(), count), uint32(count), g.micros)
}

// flush ends a pass.
func (g *testLog) flush() {
	g.Seal()
	frames := g.Ring.ReadFrames(nil, g.offered, 1<<30, 1<<30)
	g.topic.OfferAll(g.l, frames)
	ReleaseAll(frames)
	g.Offered(g.Sealed())
	if g.Trim(g.micros) {
		g.topic.Guard(g.l)
	}
}

// publish appends frames of one batch of count records each.
func (g *testLog) publish(frames, count int) {
	for range frames {
		g.add(count)
		g.flush()
	}
}

// close checks that nothing is held any more once the ring is empty.
func (g *testLog) close() {
	g.t.Helper()
	g.Free()
	if held, rings := g.slabs.Held(), g.slabs.InRings(); held != 0 || rings != 0 {
		g.t.Fatalf("%d bytes of slabs held at the end, %d of them in rings", held, rings)
	}
}

// subscribe registers and starts s.
func (g *testLog) subscribe(s *Subscription, start wire.StartPosition) *Subscription {
	g.t.Helper()
	if _, _, err := g.topic.Subscribe(g.l, s, start); err != nil {
		g.t.Fatal(err)
	}
	g.topic.Start(g.l, s)
	return s
}

var (
	earliest = wire.StartPosition{Kind: wire.StartEarliest}
	latest   = wire.StartPosition{Kind: wire.StartLatest}
)

func at(o wire.Offset) wire.StartPosition {
	return wire.StartPosition{Kind: wire.StartOffset, Offset: o}
}

// take takes up to n frames, checks and releases them, and returns their ranges. It tells the loop when it wants to be fed.
func (g *testLog) take(s *Subscription, n int) string {
	g.t.Helper()
	var got []string
	for range n {
		frames := s.Take(nil, 1)
		if len(frames) == 0 {
			break
		}
		checkFrame(g.t, frames[0])
		got = append(got, fmt.Sprintf("%d-%d", frames[0].Base, frames[0].End()))
		ReleaseAll(frames)
		if s.WantsFeed() {
			g.topic.Feed(g.l, s)
		}
	}
	return strings.Join(got, " ")
}

func (g *testLog) checkBooks() {
	g.t.Helper()
	b := g.topic.Books()
	if b.Offered != b.Taken+b.Dropped+b.Discarded+b.Queued {
		g.t.Fatalf("books do not balance: %+v", b)
	}
	for _, s := range g.topic.Subscriptions() {
		st := s.Stats()
		if queued := s.inRecords - s.cutRecords - st.Taken; uint64(st.Next-st.From) != st.Taken+st.Dropped+queued {
			g.t.Fatalf("books of %d do not balance: %+v, queued %d", s.ID, st, queued)
		}
	}
}

func check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
