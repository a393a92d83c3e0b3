package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"felix/netio/wire"
)

// handStream is a publish stream whose writer and reader are the test.
func handStream(c *Client, window int, features wire.Features) *pubStream {
	return newPubStream(c, newFakeIO(), newRetryQueue(c), 0x177F, features, window, nil)
}

// A packCall is one publish as the model remembers it.
type packCall struct {
	topic    *topic
	route    *route
	shard    uint32
	records  [][]byte
	single   bool
	keyed    bool
	key      string
	acked    bool
	once     bool    // of an idempotent publisher
	future   *Future // nil when no answer is owed
	disowned bool
}

type packPlace struct {
	topic *topic
	shard uint32
}

// A packFrame is an acked frame that was written and not answered.
type packFrame struct {
	id    uint64
	calls []*packCall
}

// A packModel publishes into a stream, does the work of its writer and its reader by hand, reads what is written as a broker does, and
// compares it with the calls.
type packModel struct {
	t      *testing.T
	r      *rand.Rand
	s      *pubStream
	topics []*topic
	routes []*route

	due     map[packPlace][]*packCall // not written, in the order of the calls
	owed    []*packCall               // acked and without outcome, in the order of the calls
	widths  map[string]*wire.PublishWidth
	taken   []byte // handed to the writer, not written
	written []byte // by the writer, and not read as frames
	out     []packFrame
	nextID  uint64
	frames  int
	packed  int // records in frames of several
	passed  int // publishes with an answer
	ghost   *Future
}

func (m *packModel) publish() {
	c := &packCall{topic: m.topics[m.r.IntN(len(m.topics))], route: m.routes[0], single: true, acked: m.r.IntN(4) > 0}
	if m.r.IntN(40) == 0 {
		c.route = m.routes[1]
	}
	if m.r.IntN(3) > 0 {
		c.keyed, c.key = true, fmt.Sprint("k", m.r.IntN(50))
		switch m.r.IntN(40) {
		case 0:
			c.key = ""
		case 1:
			c.key = strings.Repeat("k", maxPackedRecord+m.r.IntN(100))
		case 2:
			c.key = strings.Repeat("k", wire.MaxKeyBytes)
		}
	}
	record := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(m.r.Uint32())
		}
		return b
	}
	x := message{topic: c.topic, single: true, keyed: c.keyed, key: c.key, acked: c.acked}
	again := false
	switch m.r.IntN(30) {
	case 0:
		c.records = [][]byte{record(maxPackedRecord)}
	case 1:
		c.records = [][]byte{record(maxPackedRecord + 1)}
	case 2:
		c.records = [][]byte{{}}
	case 3:
		c.records, c.single = [][]byte{record(3), {}, record(200)}, false
	case 4:
		c.shard, x.explicit = m.r.Uint32N(c.route.shards), true
		c.records = [][]byte{record(10)}
	case 5:
		c.acked, x.acked, c.once, x.idempotent = true, true, true, true
		c.records = [][]byte{record(20)}
	case 6:
		c.acked, x.acked = true, true
		c.records = [][]byte{record(30)}
		again = true
	default:
		c.records = [][]byte{record(m.r.IntN(300))}
	}
	if !x.explicit {
		c.shard = c.route.shardOf(c.key, c.keyed)
	}
	x.shard, x.data = c.shard, c.records[0]
	if !c.single {
		x.single, x.data, x.batch = false, nil, c.records
	}
	if again { // one that was refused before
		frame := x.appendFrame(nil, 0)
		x = message{topic: c.topic, again: frame, acked: true, keyed: c.keyed, key: c.key, shard: c.shard}
	}
	var f *Future
	if c.acked {
		f = &Future{topic: c.topic}
		f.Done() // so that a second end panics
		c.future = f
	}
	check(m.t, x.prepare(m.s.flags))
	if !m.s.tryPublish(&x, c.route, f) {
		return
	}
	place := packPlace{c.topic, c.shard}
	m.due[place] = append(m.due[place], c)
	if c.acked {
		m.owed = append(m.owed, c)
	}
}

func (m *packModel) take() {
	if m.taken != nil {
		return
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.taken = m.s.next(); m.taken == nil {
		return
	}
	if w := m.s.queue.window; w > 0 && m.s.queue.unanswered() > w {
		m.t.Fatalf("%d frames unanswered, the window is %d", m.s.queue.unanswered(), w)
	}
}

func (m *packModel) wrote() {
	if m.taken == nil {
		return
	}
	m.written = append(m.written, m.taken...)
	m.s.mu.Lock()
	m.s.queue.wrote(len(m.taken))
	m.s.mu.Unlock()
	m.taken = nil
	m.readFrames()
}

// readFrames is the broker: it reads what was written and finds the calls again.
func (m *packModel) readFrames() {
	for {
		h, body, rest, ok, err := wire.SplitFrame(m.written, wire.MaxFrameBytes)
		check(m.t, err)
		if !ok {
			return
		}
		m.written = rest
		if h.Flags != 0 {
			var p wire.Publish
			check(m.t, p.Parse(h.Flags, body))
			shard := uint32(0)
			if p.HasKey() {
				w := m.widths[string(p.Stream)]
				if w == nil {
					m.t.Fatal("a keyed frame without a width before it")
				}
				shard = wire.ShardOf(w.Routing, p.Key, true, w.Shards)
			}
			m.readPublish(&p, shard)
			continue
		}
		message, err := wire.ParseMessage(body)
		check(m.t, err)
		switch x := message.(type) {
		case *wire.PublishWidth:
			m.widths[x.Stream] = x
		case *wire.PublishBatch:
			p := wire.Publish{RequestID: x.RequestID, Key: x.Key, Stream: []byte(x.Stream), Count: x.Count, Records: x.Records}
			if x.Ack != wire.AckNone {
				p.Flags |= wire.FlagPublishAcked
			}
			if x.HasKey {
				p.Flags |= wire.FlagPublishKeyed
			}
			m.readPublish(&p, x.Shard)
		default:
			m.t.Fatalf("%s was written", message.MessageType())
		}
	}
}

func (m *packModel) readPublish(p *wire.Publish, shard uint32) {
	m.frames++
	var topic *topic
	for _, x := range m.topics {
		if x.scope.Stream == string(p.Stream) {
			topic = x
		}
	}
	place := packPlace{topic, shard}
	var calls []*packCall
	var records [][]byte
	for r := range wire.AllRecords(p.Records) {
		records = append(records, r)
	}
	for at := 0; at < len(records); {
		if len(m.due[place]) == 0 {
			m.t.Fatalf("shard %d: a record that was not published", shard)
		}
		c := m.due[place][0]
		m.due[place] = m.due[place][1:]
		for _, want := range c.records {
			if at == len(records) || !bytes.Equal(records[at], want) {
				m.t.Fatalf("shard %d: another record than the next one published", shard)
			}
			at++
		}
		if c.once != p.Idempotent() || c.acked != p.Acked() || c.keyed != p.HasKey() || len(calls) == 0 && c.key != string(p.Key) {
			m.t.Fatalf("shard %d: frame with flags %v and key %.10q for %+v", shard, p.Flags, p.Key, c)
		}
		if w := m.widths[string(p.Stream)]; c.keyed && w != nil && w.Shards != c.route.shards && p.Flags.Has(wire.FlagPublishBatch) {
			m.t.Fatalf("routed by %d shards, the frame goes by %d", c.route.shards, w.Shards)
		}
		calls = append(calls, c)
	}
	if len(calls) > 1 {
		m.packed += len(calls)
	}
	if p.Acked() {
		m.nextID++
		if p.RequestID != m.nextID {
			m.t.Fatalf("request id %d, want %d", p.RequestID, m.nextID)
		}
		m.out = append(m.out, packFrame{p.RequestID, calls})
	}
}

// answer answers one frame: it is stored, refused for good, or taken apart as one that is to be sent again.
func (m *packModel) answer() {
	if len(m.out) == 0 {
		return
	}
	i := 0
	if m.r.IntN(4) == 0 {
		i = m.r.IntN(len(m.out)) // a broker without pipelining answers in any order
	}
	frame := m.out[i]
	m.out = slices.Delete(m.out, i, i+1)
	m.passed += len(frame.calls)
	m.owed = slices.DeleteFunc(m.owed, func(c *packCall) bool { return slices.Contains(frame.calls, c) })
	switch m.r.IntN(4) {
	case 0:
		m.answerWith(wire.AppendAck(nil, &wire.Ack{RequestID: frame.id, Failed: true, Code: wire.CodeForbidden, Retry: wire.RetryFatal, HasCode: true}))
		for _, c := range frame.calls {
			if _, err := m.outcome(c); !c.disowned && !errors.Is(err, ErrForbidden) {
				m.t.Fatalf("refused: %v", err)
			}
		}
	case 1:
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		out, ok := m.s.queue.answer(frame.id)
		if !ok {
			m.t.Fatalf("frame %d is not out", frame.id)
		}
		at := 0
		out.each(func(f *Future, again []byte) {
			m.sameCall(frame.calls[at], f, again)
			at++
		})
		if at != len(frame.calls) {
			m.t.Fatalf("%d publishes taken apart, want %d", at, len(frame.calls))
		}
		if out.pack != nil {
			m.s.queue.releasePack(out.pack)
		}
		m.s.queue.pop()
	default:
		base := Offset(m.r.Uint64N(1 << 40))
		m.answerWith(wire.AppendAckOK(nil, frame.id, base, true))
		for _, c := range frame.calls {
			if ack, err := m.outcome(c); !c.disowned && (err != nil || !ack.HasOffset || ack.Offset != base) {
				m.t.Fatalf("stored at %d: %+v, %v", base, ack, err)
			}
			base += Offset(len(c.records))
		}
	}
}

func (m *packModel) answerWith(frame []byte) {
	if used, problem := m.s.take(frame); problem != nil || used != len(frame) {
		m.t.Fatalf("%v", problem)
	}
}

func (m *packModel) outcome(c *packCall) (Ack, error) {
	if !c.future.ended.Load() {
		m.t.Fatal("a publish has no outcome")
	}
	return c.future.result()
}

// sameCall checks that a frame does c again, by itself.
func (m *packModel) sameCall(c *packCall, f *Future, frame []byte) {
	if f != c.future && !(c.disowned && f.ghost) {
		m.t.Fatal("the future of another publish")
	}
	h, body, rest, ok, err := wire.SplitFrame(frame, wire.MaxFrameBytes)
	if err != nil || !ok || len(rest) > 0 {
		m.t.Fatalf("not a frame: %v", err)
	}
	key, keyed, _ := frameKey(frame)
	if keyed != c.keyed || string(key) != c.key {
		m.t.Fatalf("key %.10q, want %.10q", key, c.key)
	}
	if h.Flags == 0 {
		return // never packed
	}
	var p wire.Publish
	check(m.t, p.Parse(h.Flags, body))
	var want []byte
	for _, r := range c.records {
		want = wire.AppendRecord(want, r)
	}
	if !p.Acked() || p.Idempotent() != c.once || string(p.Stream) != c.topic.scope.Stream || int(p.Count) != len(c.records) || !bytes.Equal(p.Records, want) {
		m.t.Fatalf("%+v is not what was published", p)
	}
}

// checkBooks counts what the queue holds.
func (m *packModel) checkBooks() {
	q := &m.s.queue
	bytes, publishes := 0, 0
	for i := range q.opened {
		p := &q.open[i]
		if bytes += p.bytes; p.acked {
			publishes += int(p.count)
		}
		if p.acked != (p.pack != nil) || p.acked && len(p.pack.items) != int(p.count) || p.count == 0 || p.count > MaxPackedRecords {
			m.t.Fatalf("an open pack of %d records: %+v", p.count, p.pack)
		}
	}
	if bytes != q.packedBytes || publishes != q.packedPublishes {
		m.t.Fatalf("%d bytes and %d publishes in open packs, counted are %d and %d", bytes, publishes, q.packedBytes, q.packedPublishes)
	}
	bytes, publishes = 0, 0
	for i := range q.count {
		e := q.at(i)
		bytes += int(e.end - e.start)
		if e.pack != nil {
			bytes += len(e.pack.keys) - int(e.pack.items[0].keyEnd) // the first one is the frame's
		} else if e.future == nil {
			bytes += int(e.packKeys) // answered, behind an older one that is not
		} else if e.packKeys != 0 {
			m.t.Fatal("keys without a pack")
		}
		publishes += int(e.publishes)
	}
	for c := q.head; c != nil; c = c.next {
		bytes += c.plain
	}
	if bytes != q.heldBytes || publishes != q.publishes {
		m.t.Fatalf("%d bytes and %d publishes in frames, counted are %d and %d", bytes, publishes, q.heldBytes, q.publishes)
	}
	if n := q.publishes + q.packedPublishes; n < len(m.owed) {
		m.t.Fatalf("%d publishes counted, %d have no outcome", n, len(m.owed))
	}
}

func (m *packModel) disown() {
	var given []*Future
	m.s.queue.disown(func(f *Future) { given = append(given, f) })
	for _, c := range m.owed {
		if c.disowned {
			continue
		}
		if !slices.Contains(given, c.future) {
			m.t.Fatal("a publish was not disowned")
		}
		c.disowned = true
		c.future.end(ErrClosed)
	}
	if m.s.queue.count > 0 {
		if f := m.s.queue.at(m.s.queue.count - 1).future; f != nil && f.ghost {
			m.ghost = f
		}
	}
}

func (m *packModel) drain() {
	if m.taken != nil {
		// What the writer has is sent, as far as anybody knows.
		m.written = append(m.written, m.taken...)
		m.readFrames()
	}
	sent := make(map[*packCall]bool)
	for _, f := range m.out {
		for _, c := range f.calls {
			sent[c] = true
		}
	}
	places := make(map[packPlace][]*packCall)
	for _, c := range m.owed {
		if place := (packPlace{c.topic, c.shard}); !c.disowned {
			places[place] = append(places[place], c)
		}
	}
	left := len(m.owed)
	m.s.queue.drain(func(f *Future, frame []byte, wasSent bool) {
		left--
		for place, calls := range places {
			if len(calls) == 0 || calls[0].future != f {
				continue
			}
			places[place] = calls[1:]
			m.sameCall(calls[0], f, frame)
			if wasSent != sent[calls[0]] {
				m.t.Fatalf("sent: %v, want %v", wasSent, sent[calls[0]])
			}
			return
		}
		if !f.ghost {
			m.t.Fatal("not the oldest of any shard")
		}
	})
	if left != 0 || m.s.queue.count != 0 || m.s.queue.opened != 0 || m.s.queue.heldBytes+m.s.queue.packedBytes+m.s.queue.publishes+m.s.queue.packedPublishes != 0 {
		m.t.Fatalf("%d publishes are left", left)
	}
}

// Conformance: pubsub.order.
func TestPacks(t *testing.T) {
	frames, packed, passed := 0, 0, 0
	for seed := range uint64(30) {
		config := defaultConfig()
		if seed%3 == 1 {
			config.perStreamBytes, config.perStreamPending = 128<<10, 300
		}
		c := newClient(config)
		shards := []uint32{1, 3, 8, 1024}[seed%4]
		m := &packModel{
			t: t, r: rand.New(rand.NewPCG(seed, 2)), due: make(map[packPlace][]*packCall), widths: make(map[string]*wire.PublishWidth),
			topics: []*topic{c.topicFor("default", "orders"), c.topicFor("default", "other")},
			routes: []*route{{shards: shards}, {shards: 12, routing: wire.RoutingJumpHash}},
		}
		m.s = handStream(c, []int{0, 1, 7, 256}[seed/4%4], fakeFeatures)
		disownAt := -1
		if seed%5 == 0 {
			disownAt = 1000
		}
		for i := range 3000 {
			switch n := m.r.IntN(20); {
			case n < 12:
				m.publish()
			case n < 14:
				m.take()
			case n < 16:
				m.wrote()
			default:
				m.answer()
			}
			if i == disownAt {
				m.disown()
			}
			m.checkBooks()
		}
		if seed%6 == 5 {
			m.drain()
			continue
		}
		for m.taken != nil || !m.s.queue.empty() {
			m.take()
			m.wrote()
			m.answer()
			m.checkBooks()
		}
		for place, calls := range m.due {
			if len(calls) > 0 {
				t.Fatalf("seed %d: %d records of shard %d were not written", seed, len(calls), place.shard)
			}
		}
		q := &m.s.queue
		if q.heldBytes+q.packedBytes+q.publishes+q.packedPublishes != 0 || len(m.owed) != 0 || len(m.written) != 0 {
			t.Fatalf("seed %d: %d + %d bytes, %d + %d publishes are left", seed, q.heldBytes, q.packedBytes, q.publishes, q.packedPublishes)
		}
		if m.ghost != nil && m.ghost.ended.Load() {
			t.Fatal("an answer went to a publish that had its outcome")
		}
		for _, p := range q.sparePacks {
			for _, item := range p.items[:cap(p.items)] {
				if item.future != nil {
					t.Fatal("a spare pack keeps a future, which may be somebody else's by now")
				}
			}
		}
		q.trim()
		if q.open != nil || q.sparePacks != nil || q.tail != nil || len(q.spare) != 0 {
			t.Fatal("an idle queue keeps memory")
		}
		m.publish() // and it goes on
		frames, packed, passed = frames+m.frames, packed+m.packed, passed+m.passed
	}
	if packed < frames/4 {
		t.Errorf("%d records were packed into %d frames: the test packs too little", packed, frames)
	}
	if passed == 0 {
		t.Error("no publish was answered")
	}
}

// Packs are closed at their bounds, and all that are due go into one write.
func TestPackBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		shards, records, key, data int
		frames                     []int // records in each
	}{
		"number":               {1, 2*MaxPackedRecords + 1, 0, 0, []int{MaxPackedRecords, MaxPackedRecords, 1}},
		"bytes":                {1, 9, 0, maxPackedRecord, []int{7, 2}},
		"bytes with keys":      {1, 9, maxPackedRecord / 2, maxPackedRecord / 2, []int{7, 2}},
		"too large":            {1, 3, 0, maxPackedRecord + 1, []int{1, 1, 1}},
		"too large with a key": {1, 3, maxPackedRecord, 1, []int{1, 1, 1}},
		"one more shard":       {maxOpenPacks + 1, 3 * (maxOpenPacks + 1), 0, 0, nil},
		"1,024 shards":         {1024, 4096, 0, 0, nil},
	} {
		for _, acked := range []bool{true, false} {
			c := newClient(defaultConfig())
			topic, r := c.topicFor("default", "orders"), &route{shards: uint32(tt.shards)}
			s := handStream(c, 0, fakeFeatures)
			s.announced[topic] = r // so that nothing else is written
			for i := range tt.records {
				// The shard is in the data: it cannot be told from the key here.
				m := message{topic: topic, data: make([]byte, tt.data), single: true, keyed: true, key: strings.Repeat("k", tt.key), shard: uint32(i % tt.shards), acked: acked}
				if tt.shards > 1 {
					m.data = fmt.Append(nil, m.shard, " ", i)
				}
				check(t, m.prepare(s.flags))
				if !s.tryPublish(&m, r, &Future{topic: topic}) {
					t.Fatalf("%s: no room", name)
				}
				if s.queue.opened > maxOpenPacks {
					t.Fatalf("%s: %d packs are open", name, s.queue.opened)
				}
			}
			written := 0
			var frames []int
			last := make(map[int]int)
			s.mu.Lock()
			for b := s.next(); b != nil; b = s.next() {
				written++
				for rest := b; len(rest) > 0; {
					h, body, after, ok, err := wire.SplitFrame(rest, wire.MaxFrameBytes)
					var p wire.Publish
					if err != nil || !ok || p.Parse(h.Flags, body) != nil {
						t.Fatalf("%s: not a publish frame: %v", name, err)
					}
					if p.Count > 1 && len(rest)-len(after) > maxPackBytes {
						t.Errorf("%s: a frame of %d records in %d bytes", name, p.Count, len(rest)-len(after))
					}
					rest, frames = after, append(frames, int(p.Count))
					one := -1
					for record := range wire.AllRecords(p.Records) {
						var shard, i int
						if n, _ := fmt.Sscan(string(record), &shard, &i); n != 2 {
							continue
						}
						if one >= 0 && shard != one || last[shard] > i {
							t.Fatalf("%s: record %d of shard %d beside shard %d, behind record %d", name, i, shard, one, last[shard])
						}
						one, last[shard] = shard, i
					}
				}
				s.queue.wrote(len(b))
			}
			s.mu.Unlock()
			total := 0
			for _, n := range frames {
				total += n
			}
			if total != tt.records || tt.frames != nil && !slices.Equal(frames, tt.frames) {
				t.Errorf("%s: frames of %v records, want %v", name, frames, tt.frames)
			}
			// Those due go together; chunks of the queue are written one by one.
			if most := 2 + int(s.queue.queuedBytes)/minChunkBytes; written > most {
				t.Errorf("%s: %d writes for %d bytes", name, written, s.queue.queuedBytes)
			}
			c.Close()
		}
	}
}

// A record waits for what was published before it and for a turn of the window, not until the rest of the stream falls quiet.
func TestPackHasItsTurn(t *testing.T) {
	large, small := make([]byte, 2*maxPackedRecord), make([]byte, maxPackedRecord)
	for name, tt := range map[string]struct {
		window int
		acked  bool
		load   []byte
	}{
		"unacked, beside large records": {256, false, large},
		"acked, beside large records":   {256, true, large},
		"unacked, beside full packs":    {0, false, small},
		"acked, beside full packs":      {256, true, small},
		"acked, beside a full window":   {1, true, large},
		"unacked, beside a full window": {1, false, large},
	} {
		c := newClient(defaultConfig())
		topic, r := c.topicFor("default", "orders"), &route{shards: 2}
		s := handStream(c, tt.window, fakeFeatures)
		id := uint64(0)
		publish := func(data []byte, shard uint32, acked bool) {
			m := message{topic: topic, data: data, single: true, keyed: true, key: []string{"a", "b"}[shard], shard: shard, acked: acked}
			check(t, m.prepare(s.flags))
			if !s.tryPublish(&m, r, &Future{topic: topic}) {
				t.Fatalf("%s: no room", name)
			}
		}
		load := func() {
			for range 20 {
				publish(tt.load, 0, tt.window == 1 || tt.acked)
			}
		}
		load()
		publish([]byte("alone"), 1, tt.acked)
		const turns = 50 // with a window of 1, the 20 before it and the 20 that came until its turn
		for turn := 0; ; turn++ {
			s.mu.Lock()
			b := s.next()
			s.mu.Unlock()
			if bytes.Contains(b, []byte("alone")) {
				break
			}
			if turn == turns {
				t.Errorf("%s: one record was passed over %d times", name, turns)
				break
			}
			s.mu.Lock()
			s.queue.wrote(len(b))
			s.mu.Unlock()
			for s.queue.unanswered() > 0 {
				id++
				if _, problem := s.take(wire.AppendAckOK(nil, id, 0, true)); problem != nil {
					t.Fatal(problem)
				}
			}
			if turn%20 == 0 || tt.window != 1 {
				load()
			}
		}
		c.Close()
	}
}

// While the window is shut the acked records of a shard gather; what owes no answer goes out.
func TestPackWaitsForWindow(t *testing.T) {
	c := newClient(defaultConfig())
	defer c.Close()
	topic, r := c.topicFor("default", "orders"), &route{shards: 1}
	s := handStream(c, 1, fakeFeatures)
	publish := func(acked bool) {
		m := message{topic: topic, single: true, acked: acked}
		check(t, m.prepare(s.flags))
		if !s.tryPublish(&m, r, &Future{topic: topic}) {
			t.Fatal("no room")
		}
	}
	write := func() (frames, records int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.next()
		for rest := b; len(rest) > 0; {
			h, body, after, ok, err := wire.SplitFrame(rest, wire.MaxFrameBytes)
			var p wire.Publish
			if err != nil || !ok || p.Parse(h.Flags, body) != nil {
				t.Fatalf("not a publish frame: %v", err)
			}
			rest, frames, records = after, frames+1, records+int(p.Count)
		}
		if b != nil {
			s.queue.wrote(len(b))
		}
		return frames, records
	}
	expect := func(what string, frames, records int) {
		t.Helper()
		if f, n := write(); f != frames || n != records {
			t.Fatalf("%s: %d records in %d frames, want %d in %d", what, n, f, records, frames)
		}
	}
	publish(true)
	expect("the first", 1, 1)
	for range 10 {
		publish(true)
		expect("window shut", 0, 0)
	}
	_, problem := s.take(wire.AppendAckOK(nil, 1, 0, true))
	if problem != nil {
		t.Fatal(problem)
	}
	expect("window open", 1, 10)
	for range 3 {
		publish(false)
		expect("unacked", 1, 1)
	}
	publish(true)
	publish(false) // closes the pack before it, and is behind it
	expect("unacked behind acked, window shut", 0, 0)
	if _, problem := s.take(wire.AppendAckOK(nil, 2, 1, true)); problem != nil {
		t.Fatal(problem)
	}
	expect("window open again", 1, 1)
	expect("and what is behind it", 1, 1)
}

// gathering shuts the window of the one publish stream of c to the broker, which has a window of 1: what is published to stream "orders"
// from now on gathers in packs, until open is called. then decides about it; nil means that it is stored.
func gathering(b *fakeBroker, c *Client, then func(*fakePublish) fakeVerdict) (open func()) {
	b.t.Helper()
	shut, arrived := make(chan struct{}), make(chan struct{})
	b.refuse(func(p *fakePublish) fakeVerdict {
		if string(p.Records[wire.RecordHeadBytes:]) == "first" {
			close(arrived)
			return fakeVerdict{wait: shut}
		}
		if then == nil {
			return fakeVerdict{}
		}
		return then(p)
	})
	p, err := c.Publisher("orders")
	check(b.t, err)
	f := p.PublishAsync(within(b.t), []byte("first"))
	<-arrived
	return func() {
		b.t.Helper()
		close(shut)
		_, err := f.Wait(within(b.t))
		check(b.t, err)
	}
}

func newGatheringBroker(t *testing.T, shards int, opts ...Option) (*fakeBroker, *Client) {
	b := newFakeBroker(t)
	b.window = 1
	b.stream("orders", shards)
	return b, b.dial(append([]Option{WithPublishStreams(1), WithReconnect(ReconnectPolicy{Backoff: 1e6, MaxBackoff: 2e6})}, opts...)...)
}

// A broker that does not check by which width a frame was routed is given each keyed record under its own key: the client may be wrong
// about the width, or not know it at all.
func TestPackNeedsWidths(t *testing.T) {
	for name, without := range map[string]wire.Features{
		"width changed":       wire.FeaturePublishWidth,
		"width never learned": wire.FeaturePublishWidth | wire.FeatureStreamShards | wire.FeatureShardOwners,
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t)
			b.window, b.features = 1, fakeFeatures&^without
			b.stream("orders", 2)
			c := b.dial(WithPublishStreams(1))
			ctx := within(t)
			_, err := c.Publish(ctx, "orders", []byte("x"))
			check(t, err)
			b.set(func() { delete(b.streams, "orders") })
			b.stream("orders", 12)
			open := gathering(b, c, nil)
			p, err := c.Publisher("orders")
			check(t, err)
			for i := range 100 {
				p.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint("k", i)))
			}
			open()
			check(t, p.Flush(ctx))
			for shard := range 12 {
				for _, r := range b.records("orders", shard) {
					if r == "first" {
						continue
					}
					if want := wire.ShardOf(wire.RoutingModulo, []byte("k"+r), true, 12); int(want) != shard {
						t.Fatalf("record %s is in shard %d, want %d", r, shard, want)
					}
				}
			}
		})
	}
}

// The room of a stream is for all that it holds: frames, records in open packs, and the keys of packed records until they are answered.
func TestPackRoom(t *testing.T) {
	const room, most = 64 << 10, 100
	for name, tt := range map[string]struct {
		key, data int
		acked     bool
	}{
		"small records": {1, 100, true}, "empty records": {1, 0, true}, "records": {1, 1000, true}, "largest records": {1, maxPackedRecord - 1, true},
		"large keys": {3000, 0, true}, "largest packed keys": {maxPackedRecord, 0, true}, "large keys unacked": {3000, 0, false},
		"large records": {1, maxPackedRecord, true}, "largest keys": {wire.MaxKeyBytes, 0, true}, "keys and records": {1000, 3000, true},
	} {
		config := defaultConfig()
		config.perStreamBytes, config.perStreamPending = room, most
		c := newClient(config)
		topic, r := c.topicFor("default", "orders"), &route{shards: 1}
		s := handStream(c, 1, fakeFeatures)
		s.announced[topic] = r // so that nothing else is queued
		given, bytes := 0, 0
		for round := range 5 {
			for i := 0; ; i++ {
				key := strings.Repeat("k", tt.key)
				if i == 0 {
					key = "" // the key of the frame is a short one
				}
				m := message{topic: topic, data: make([]byte, tt.data), single: true, keyed: true, key: key, acked: tt.acked}
				check(t, m.prepare(s.flags))
				if !s.tryPublish(&m, r, &Future{topic: topic}) {
					break
				}
				given++
				bytes += len(key) + tt.data
				s.mu.Lock()
				if held := s.queue.heldBytes + s.queue.packedBytes; held > room && given > 1 || held < bytes && tt.acked {
					t.Fatalf("%s: %d bytes counted for %d of keys and records, the room is %d", name, held, bytes, room)
				}
				if tt.acked {
					if b := s.next(); b != nil {
						s.queue.wrote(len(b)) // one frame; the rest gathers, or waits in frames of its own
					}
				}
				s.mu.Unlock()
			}
			if tt.acked && given > most {
				t.Fatalf("%s: %d publishes, %d have room", name, given, most)
			}
			// All of it goes, and the room is there again.
			for id := s.queue.firstID; !s.queue.empty(); id++ {
				s.mu.Lock()
				for b := s.next(); b != nil; b = s.next() {
					s.queue.wrote(len(b))
				}
				s.mu.Unlock()
				if s.queue.count > 0 {
					if _, problem := s.take(wire.AppendAckOK(nil, id, 0, true)); problem != nil {
						t.Fatal(problem)
					}
				}
			}
			if q := &s.queue; q.heldBytes != 0 || q.packedBytes != 0 || q.publishes != 0 || q.packedPublishes != 0 {
				t.Fatalf("%s, round %d: %d + %d bytes, %d + %d publishes are left", name, round, q.heldBytes, q.packedBytes, q.publishes, q.packedPublishes)
			}
			given, bytes = 0, 0
		}
		c.Close()
	}
}

// An answer that makes room for some publishes lets no more of those that wait go on.
func TestPackRoomByNumber(t *testing.T) {
	const most, more = 3, 10
	config := defaultConfig()
	config.perStreamPending = most
	c := newClient(config)
	defer c.Close()
	topic, r := c.topicFor("default", "orders"), &route{shards: 1}
	s := handStream(c, 0, fakeFeatures)
	ctx := within(t)
	ended := make(chan error, more)
	publish := func() error {
		m := message{topic: topic, single: true, acked: true}
		return s.publish(ctx, &m, r, &Future{topic: topic})
	}
	for range most {
		check(t, publish())
	}
	for range more {
		go func() { ended <- publish() }()
	}
	waiting := func() (n int) {
		for w := s.waiters.first; w != nil; w = w.next {
			n++
		}
		return n
	}
	eventually(t, "all wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return waiting() == more
	})
	for id, left := uint64(1), more; left > 0; id++ {
		s.mu.Lock()
		s.queue.wrote(len(s.next()))
		s.mu.Unlock()
		if _, problem := s.take(wire.AppendAckOK(nil, id, 0, true)); problem != nil {
			t.Fatal(problem)
		}
		for range min(left, most) {
			check(t, <-ended)
		}
		left -= min(left, most)
		s.mu.Lock()
		if q := &s.queue; waiting() != left || q.publishes+q.packedPublishes > most {
			t.Fatalf("%d publishes, %d have room; %d wait, want %d", q.publishes+q.packedPublishes, most, waiting(), left)
		}
		s.mu.Unlock()
	}
}

// A refused pack is taken apart, and every record goes its own way.
func TestPackRefused(t *testing.T) {
	const n, keyed = 60, 15 // the first ones have no key
	for name, tt := range map[string]struct {
		verdict fakeVerdict
		plain   error // outcome of the records without AtLeastOnce
		again   error // and of those with it
	}{
		"fatal":           {fakeVerdict{code: wire.CodeForbidden, retry: wire.RetryFatal}, ErrForbidden, ErrForbidden},
		"retry":           {fakeVerdict{code: wire.CodeShardUnavailable, retry: wire.RetryRetry}, nil, nil},
		"retry after":     {fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter, retryAfter: 2}, nil, nil},
		"not leader":      {fakeVerdict{code: wire.CodeNotLeader, retry: wire.RetryRedirect}, nil, nil},
		"outcome unknown": {fakeVerdict{code: wire.CodeQuorumTimeout, retry: wire.RetryOutcomeUnknown}, ErrOutcomeUnknown, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, c := newGatheringBroker(t, 3)
			ctx := within(t)
			var packed atomic.Int64
			open := gathering(b, c, func(p *fakePublish) fakeVerdict {
				if p.Count > 1 {
					packed.Add(int64(p.Count))
					return tt.verdict
				}
				return fakeVerdict{}
			})
			p, err := c.Publisher("orders")
			check(t, err)
			var futures []*Future
			for i := range n {
				var opts []PublishOption
				if i >= keyed {
					opts = append(opts, Key(fmt.Sprint("k", i)))
				}
				if i%2 == 0 {
					opts = append(opts, AtLeastOnce())
				}
				futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, i), opts...))
			}
			open()
			stored := 1 // the first
			for i, f := range futures {
				ack, err := f.Wait(ctx)
				want := tt.plain
				if i%2 == 0 {
					want = tt.again
				}
				if !errors.Is(err, want) {
					t.Fatalf("record %d: %v, want %v", i, err, want)
				}
				if err != nil {
					var e *Error
					if !errors.As(err, &e) || e.Code != tt.verdict.code || e.Stream != "orders" || e.Op != "publish" {
						t.Fatalf("record %d: %v", i, err)
					}
					continue
				}
				stored++
				if want := wire.ShardOf(wire.RoutingModulo, fmt.Append(nil, "k", i), i >= keyed, 3); ack.Shard != want {
					t.Fatalf("record %d: in shard %d, want %d", i, ack.Shard, want)
				}
				if got := b.records("orders", int(ack.Shard)); !ack.HasOffset || got[ack.Offset] != fmt.Sprint(i) {
					t.Fatalf("record %d: %+v, where %q is", i, ack, got[ack.Offset])
				}
			}
			if got := b.published.Load(); int(got) != stored {
				t.Errorf("%d records stored, want %d", got, stored)
			}
			if packed.Load() != n {
				t.Errorf("%d of %d records came in packs", packed.Load(), n)
			}
		})
	}
}

// Records that share a shard by the old width and not by the new one find their shards.
func TestPackStaleWidth(t *testing.T) {
	b, c := newGatheringBroker(t, 2)
	ctx := within(t)
	_, err := c.Publish(ctx, "orders", []byte("x"), Key("k"))
	check(t, err)
	b.set(func() { delete(b.streams, "orders") })
	b.stream("orders", 12)
	var packed atomic.Int64
	open := gathering(b, c, func(p *fakePublish) fakeVerdict {
		if p.Count > 1 {
			packed.Add(int64(p.Count))
		}
		return fakeVerdict{}
	})
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 100
	var futures []*Future
	for i := range n {
		futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint("k", i))))
	}
	open()
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		check(t, err)
		if want := wire.ShardOf(wire.RoutingModulo, fmt.Append(nil, "k", i), true, 12); ack.Shard != want {
			t.Fatalf("record %d: in shard %d, want %d", i, ack.Shard, want)
		}
		if got := b.records("orders", int(ack.Shard)); got[ack.Offset] != fmt.Sprint(i) {
			t.Fatalf("record %d: at %d, where %q is", i, ack.Offset, got[ack.Offset])
		}
	}
	if got := b.published.Load(); got != n+2 || packed.Load() != n {
		t.Errorf("%d records stored, want %d; %d came in packs", got, n+2, packed.Load())
	}
}

// A lost connection: the records of the pack that was sent have no known outcome, those behind it were not sent.
func TestPackLost(t *testing.T) {
	b, c := newGatheringBroker(t, 1)
	ctx := within(t)
	packArrived, lose := make(chan struct{}), make(chan struct{})
	var sent atomic.Bool
	open := gathering(b, c, func(p *fakePublish) fakeVerdict {
		if p.Count == 1 || sent.Swap(true) {
			return fakeVerdict{}
		}
		close(packArrived)
		return fakeVerdict{wait: lose, dropConn: true}
	})
	p, err := c.Publisher("orders")
	check(t, err)
	var futures []*Future
	publish := func(n int) {
		for range n {
			var opts []PublishOption
			if len(futures)%2 == 0 {
				opts = append(opts, AtLeastOnce())
			}
			futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, len(futures)), opts...))
		}
	}
	publish(20) // one pack
	open()
	<-packArrived
	publish(20) // gather
	// And one more is closed, and waits for the window.
	batch := p.PublishBatchAsync(ctx, [][]byte{[]byte("batch")})
	publish(20)
	close(lose)
	for i, f := range futures {
		ack, err := f.Wait(ctx)
		switch {
		case i < 20 && i%2 == 1:
			if !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("record %d, which was sent: %v", i, err)
			}
		case err != nil:
			t.Errorf("record %d: %v", i, err)
		default:
			if got := b.records("orders", 0); got[ack.Offset] != fmt.Sprint(i) {
				t.Errorf("record %d: at %d, where %q is", i, ack.Offset, got[ack.Offset])
			}
		}
	}
	_, err = batch.Wait(ctx)
	check(t, err)
	count := make(map[string]int)
	for _, r := range b.records("orders", 0) {
		count[r]++
	}
	for i := range futures {
		want := 1
		if i < 20 && i%2 == 0 {
			want = 2 // stored, and once more because nobody knew
		}
		if got := count[fmt.Sprint(i)]; got != want {
			t.Errorf("record %d is stored %d times, want %d", i, got, want)
		}
	}
}

// Close gives what gathers behind a shut window an unknown outcome, once, and still sends it; the answers find nobody.
func TestPackClose(t *testing.T) {
	b, c := newGatheringBroker(t, 4)
	ctx := within(t)
	shut := make(chan struct{})
	b.refuse(func(p *fakePublish) fakeVerdict { return fakeVerdict{wait: shut} })
	p, err := c.Publisher("orders")
	check(t, err)
	const n = 40
	var futures []*Future
	for i := range n {
		futures = append(futures, p.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint("k", i))))
	}
	calls := make(chan error, n)
	for i := range n {
		go func() {
			_, err := c.Publish(ctx, "orders", fmt.Append(nil, n+i), Key(fmt.Sprint("k", i)))
			calls <- err
		}()
	}
	s := c.entries[0].slots[0].current.Load()
	eventually(t, "all are in packs", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.queue.publishes+s.queue.packedPublishes == 2*n
	})
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	for range n {
		if err := <-calls; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrClosed) {
			t.Errorf("a call at Close: %v", err)
		}
	}
	for i, f := range futures {
		if _, err := f.Wait(ctx); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrClosed) {
			t.Errorf("publish %d at Close: %v", i, err)
		}
	}
	close(shut)
	check(t, <-closed)
	if got := b.published.Load(); got != 2*n {
		t.Errorf("%d of %d records were sent", got, 2*n)
	}
	for _, f := range futures {
		if f.ack.HasOffset {
			t.Fatal("an answer changed a publish that had ended")
		}
	}
}

// Shutdown and Flush wait for what gathers, with an answer and without.
func TestPackFlush(t *testing.T) {
	b, c := newGatheringBroker(t, 4)
	ctx := within(t)
	open := gathering(b, c, nil)
	acked, err := c.Publisher("orders")
	check(t, err)
	plain, err := c.Publisher("orders", NoAck())
	check(t, err)
	const n = 100
	publish := func() {
		for i := range n {
			acked.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint("k", i)))
			plain.PublishAsync(ctx, fmt.Append(nil, i), Key(fmt.Sprint("k", i)))
		}
	}
	publish()
	gaveUp, cancel := context.WithCancel(ctx)
	flushed := make(chan error, 2)
	for _, p := range []*Publisher{acked, plain} {
		go func() { flushed <- p.Flush(gaveUp) }()
	}
	cancel()
	for range 2 {
		if err := <-flushed; !errors.Is(err, context.Canceled) {
			t.Fatalf("flush behind a shut window: %v", err)
		}
	}
	for _, p := range []*Publisher{acked, plain} {
		go func() { flushed <- p.Flush(ctx) }()
	}
	open()
	for range 2 {
		check(t, <-flushed)
	}
	if got := b.published.Load(); got != 2*n+1 {
		t.Fatalf("%d of %d records stored after Flush", got, 2*n+1)
	}
	publish()
	check(t, c.Shutdown(ctx))
	if got := b.published.Load(); got != 4*n+1 {
		t.Fatalf("%d of %d records stored after Shutdown", got, 4*n+1)
	}
}

// Calls whose context ends while their record gathers leave it to be sent, and their futures to nobody else. When it is refused, it is
// not sent again.
func TestPackAbandoned(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused=", refused), func(t *testing.T) {
			b, c := newGatheringBroker(t, 1)
			ctx := within(t)
			open := gathering(b, c, func(p *fakePublish) fakeVerdict {
				if refused && p.Count > 1 {
					return fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter}
				}
				return fakeVerdict{}
			})
			s := c.entries[0].slots[0].current.Load()
			gathered := func(n int) func() bool {
				return func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.queue.packedPublishes == n
				}
			}
			const n = 20
			gaveUp, cancel := context.WithCancel(ctx)
			results := make(chan error, n)
			for range n {
				go func() {
					_, err := c.Publish(gaveUp, "orders", []byte("abandoned"))
					results <- err
				}()
			}
			eventually(t, "they gather", gathered(n))
			cancel()
			for range n {
				if err := <-results; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
					t.Fatalf("%v", err)
				}
			}
			for i := range n {
				go func() {
					ack, err := c.Publish(ctx, "orders", fmt.Append(nil, i))
					if err == nil {
						if got := b.records("orders", 0)[ack.Offset]; got != fmt.Sprint(i) {
							err = fmt.Errorf("record %d has the answer for %q", i, got)
						}
					}
					results <- err
				}()
			}
			eventually(t, "the others gather", gathered(2*n))
			open()
			for range n {
				check(t, <-results)
			}
			check(t, c.Shutdown(ctx))
			want := 1 + 2*n
			if refused {
				want = 1 + n
			}
			if got := len(b.records("orders", 0)); got != want {
				t.Fatalf("%d records stored, want %d", got, want)
			}
		})
	}
}

// What is refused beyond the bound of the retry queue fails as it was refused.
func TestPackRetriesAreBounded(t *testing.T) {
	b, c := newGatheringBroker(t, 1)
	c.config.perStreamBytes, c.config.perStreamPending = 4*maxRetryBytes, 1<<20
	ctx := within(t)
	open := gathering(b, c, func(p *fakePublish) fakeVerdict {
		return fakeVerdict{code: wire.CodeOverloaded, retry: wire.RetryAfter, retryAfter: 3600e3}
	})
	p, err := c.Publisher("orders")
	check(t, err)
	var futures []*Future
	data := make([]byte, 4000)
	for range 2 * maxRetryBytes / len(data) {
		futures = append(futures, p.PublishAsync(ctx, data))
	}
	open()
	retries := c.entries[0].slots[0].retries
	var bytes, kept int
	eventually(t, "each to fail or to wait", func() bool {
		failed := 0
		for _, f := range futures {
			select {
			case <-f.Done():
				if _, err := f.Wait(ctx); !errors.Is(err, ErrOverloaded) {
					t.Fatalf("%v", err)
				}
				failed++
			default:
			}
		}
		retries.mu.Lock()
		defer retries.mu.Unlock()
		bytes, kept = retries.bytes, len(retries.items)
		return failed+kept == len(futures)
	})
	if bytes > maxRetryBytes || bytes < maxRetryBytes/2 {
		t.Fatalf("%d bytes of %d publishes wait", bytes, kept)
	}
	check(t, c.Close())
	for _, f := range futures {
		if _, err := f.Wait(ctx); !errors.Is(err, ErrOverloaded) {
			t.Fatalf("at Close: %v", err)
		}
	}
}
