package client

// A sendQueue holds what one publish stream has to send and what it waits for: encoded frames in chunks, in the order of the stream, and
// one entry per acked frame until it is answered. Frames are encoded straight into the last chunk and written from where they stand, so
// a payload is copied once; a chunk stays until its last acked frame is answered, so that a refused one can be sent again.
//
//	chunks    [..written..|..to write..] -> [...] -> [..filled..|free]
//	           head                                    tail
//	entries   answered | sent, unanswered | not sent        in request order; entry i has request id firstID + i
//	                     0 ..               sent ..
//
// Invariants: the writer writes only bytes of head between written and the end it was given by take; entries[:sent] have been handed to
// the writer whole; at most window of them, when it is not 0. heldBytes is the sum of the frames that are acked and unanswered, with the
// keys in their packs, and of those that are not acked and not yet written.
//
// It has no lock: the publish stream's mutex guards it.
type sendQueue struct {
	head, tail *chunk
	spare      []*chunk // to be used again, smallest use first
	chunkBytes int      // size of the next chunk; grows while chunks fill up

	entries   []entry // a ring; its length is a power of two
	first     int     // index of the oldest entry
	count     int
	sent      int    // entries, from the oldest, whose frames were taken for writing
	firstID   uint64 // request id of the oldest entry
	heldBytes int
	window    int // most entries sent and unanswered; 0 means no bound

	plainTaken int // bytes of frames without answer that the last take holds

	queuedBytes, takenBytes uint64 // of the stream so far, in chunks and by take

	publishes int // that the entries stand for

	// Packs, see pack.go. What they hold is in none of the above until they are closed.
	open            []openPack // maxOpenPacks, nil before the first
	opened          int        // of them, from the first, that are open
	packedBytes     int        // in them
	packedPublishes int        // in them, of those that are acked
	sparePacks      []*pack    // to be used again
}

// A chunk is a piece of the stream's bytes.
type chunk struct {
	buf     []byte // filled part; its capacity is the chunk's size
	written int
	open    int // acked frames in it that are not answered
	plain   int // bytes of frames without answer that are not written
	next    *chunk
	passed  bool // the writer has gone on to the next one
}

type entry struct {
	future     *Future // of the first record; nil once answered, while an older entry is not
	pack       *pack   // nil unless several records were packed into the frame
	chunk      *chunk
	start, end int32 // of the frame in the chunk
	publishes  int32 // that it stands for: 1, or those of the pack
	packKeys   int32 // bytes of the pack's keys besides the one in the frame
}

const (
	minChunkBytes   = 16 << 10
	maxChunkBytes   = 256 << 10 // and of one write; a larger frame gets a chunk of its own
	maxSpareBytes   = 1 << 20   // chunks above it are left to the collector
	maxSpareChunks  = 16
	minEntries      = 64
	chunkGrowFactor = 2
)

func newSendQueue(window int) sendQueue {
	return sendQueue{chunkBytes: minChunkBytes, entries: make([]entry, minEntries), firstID: 1, window: window}
}

func (q *sendQueue) at(i int) *entry { return &q.entries[(q.first+i)&(len(q.entries)-1)] }

// reserve returns the last chunk with room for size bytes behind its filled part.
func (q *sendQueue) reserve(size int) *chunk {
	c := q.tail
	if c != nil {
		if c.written == len(c.buf) && c.open == 0 {
			c.buf, c.written = c.buf[:0], 0 // nothing in it is needed any more, and the writer is not in it
		}
		if cap(c.buf)-len(c.buf) >= size {
			return c
		}
		if len(c.buf) > 0 && q.chunkBytes < maxChunkBytes {
			q.chunkBytes *= chunkGrowFactor
		}
	}
	c = q.newChunk(max(size, q.chunkBytes))
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
	return c
}

func (q *sendQueue) newChunk(size int) *chunk {
	for i, c := range q.spare {
		if cap(c.buf) >= size {
			last := len(q.spare) - 1
			q.spare[i], q.spare[last] = q.spare[last], nil
			q.spare = q.spare[:last]
			*c = chunk{buf: c.buf[:0]}
			return c
		}
	}
	return &chunk{buf: make([]byte, 0, size)}
}

// release keeps a chunk that nothing refers to for another use.
func (q *sendQueue) release(c *chunk) {
	if cap(c.buf) <= maxSpareBytes && cap(c.buf) >= q.chunkBytes && len(q.spare) < maxSpareChunks {
		c.next = nil
		q.spare = append(q.spare, c)
	}
}

// trim gives memory back when the queue is empty.
func (q *sendQueue) trim() {
	if !q.empty() {
		return
	}
	clear(q.spare)
	q.spare = q.spare[:0]
	q.sparePacks, q.open = nil, nil
	q.chunkBytes = minChunkBytes
	q.head, q.tail = nil, nil
	if len(q.entries) > minEntries {
		q.entries, q.first = make([]entry, minEntries), 0
	}
}

// nextID is the request id of the next acked frame.
func (q *sendQueue) nextID() uint64 { return q.firstID + uint64(q.count) }

// pushed records that c was filled up from start with one frame; f is its future, nil when no answer is owed.
func (q *sendQueue) pushed(c *chunk, start int, f *Future) {
	size := len(c.buf) - start
	q.queuedBytes += uint64(size)
	q.heldBytes += size
	if f == nil {
		c.plain += size
		return
	}
	if q.count == len(q.entries) {
		grown := make([]entry, 2*len(q.entries))
		n := copy(grown, q.entries[q.first:])
		copy(grown[n:], q.entries[:q.first])
		q.entries, q.first = grown, 0
	}
	*q.at(q.count) = entry{future: f, chunk: c, start: int32(start), end: int32(len(c.buf)), publishes: 1}
	q.count++
	q.publishes++
	c.open++
}

// take returns the bytes to write next: all there is in one chunk, up to the first frame that the window does not admit. It is nil when
// there is nothing to write now. The bytes count as written when wrote is called, and their frames as sent from now on.
func (q *sendQueue) take() []byte {
	for q.head != nil && q.head.written == len(q.head.buf) {
		if q.head == q.tail {
			return nil
		}
		c := q.head
		q.head, c.passed = c.next, true
		if c.open == 0 {
			q.release(c)
		}
	}
	c := q.head
	if c == nil {
		return nil
	}
	limit := len(c.buf)
	if q.window > 0 && q.count > q.window {
		if e := q.at(q.window); e.chunk == c {
			limit = int(e.start)
		}
	}
	if limit <= c.written {
		return nil
	}
	q.plainTaken = 0
	if limit == len(c.buf) {
		q.plainTaken = c.plain // else they count once the rest of the chunk is written
	}
	for q.sent < q.count {
		e := q.at(q.sent)
		if e.chunk != c || int(e.end) > limit {
			break
		}
		q.sent++
	}
	q.takenBytes += uint64(limit - c.written)
	return c.buf[c.written:limit]
}

// wrote records that the bytes of the last take, n of them, were written.
func (q *sendQueue) wrote(n int) {
	q.head.written += n
	q.head.plain -= q.plainTaken
	q.heldBytes -= q.plainTaken
	q.plainTaken = 0
}

// An answered is what an answer is about.
type answered struct {
	future *Future // of the first record
	pack   *pack   // nil unless several records were packed into the frame; whoever has it gives it back with releasePack
	frame  []byte  // a view, valid until the next call of pop
}

// each calls do for every publish in the frame, with a copy of the frame or, out of a pack, one of its own.
func (a *answered) each(do func(f *Future, frame []byte)) {
	if a.pack == nil {
		do(a.future, append([]byte(nil), a.frame...))
		return
	}
	a.pack.each(a.frame[a.pack.recordsAt:], do)
}

// answer takes the frame with this request id out of the queue. ok is false when no such frame is out.
func (q *sendQueue) answer(requestID uint64) (a answered, ok bool) {
	i := requestID - q.firstID
	if requestID < q.firstID || i >= uint64(q.sent) {
		return a, false
	}
	e := q.at(int(i))
	if e.future == nil {
		return a, false
	}
	a = answered{e.future, e.pack, e.chunk.buf[e.start:e.end]}
	e.future, e.pack = nil, nil
	return a, true
}

// pop forgets the oldest entries that were answered.
func (q *sendQueue) pop() {
	for q.sent > 0 {
		e := q.at(0)
		if e.future != nil {
			return
		}
		q.heldBytes -= int(e.end-e.start) + int(e.packKeys)
		q.publishes -= int(e.publishes)
		e.chunk.open--
		if e.chunk.open == 0 && e.chunk.passed {
			q.release(e.chunk)
		}
		e.chunk = nil
		q.first = (q.first + 1) & (len(q.entries) - 1)
		q.firstID++
		q.count--
		q.sent--
	}
}

// unanswered returns how many entries are sent and not answered, the answered ones behind an older one included.
func (q *sendQueue) unanswered() int { return q.sent }

// disown gives every publish that is not answered to f and puts a ghost in its place, whose answer nobody waits for.
func (q *sendQueue) disown(f func(*Future)) {
	ghost := &Future{ghost: true}
	disown := func(future **Future) {
		if *future != nil && !(*future).ghost {
			f(*future)
			*future = ghost
		}
	}
	for i := range q.count {
		e := q.at(i)
		if e.pack == nil {
			disown(&e.future)
			continue
		}
		for j := range e.pack.items {
			disown(&e.pack.items[j].future)
		}
		e.future = ghost
	}
	for i := range q.opened {
		if pack := q.open[i].pack; pack != nil {
			for j := range pack.items {
				disown(&pack.items[j].future)
			}
		}
	}
}

// written reports whether the writer has nothing left.
func (q *sendQueue) written() bool {
	return q.tail == nil || (q.head == q.tail && q.tail.written == len(q.tail.buf))
}

// empty reports whether everything was written and answered.
func (q *sendQueue) empty() bool { return q.count == 0 && q.written() && q.opened == 0 }

// drain calls f for every publish that is not answered, oldest first in each shard, with a copy of its frame and whether it was handed to
// the writer, and empties the queue.
func (q *sendQueue) drain(f func(future *Future, frame []byte, sent bool)) {
	for i := range q.count {
		if e := q.at(i); e.future != nil {
			a := answered{e.future, e.pack, e.chunk.buf[e.start:e.end]}
			a.each(func(future *Future, frame []byte) { f(future, frame, i < q.sent) })
		}
	}
	for i := range q.opened {
		if p := &q.open[i]; p.pack != nil {
			p.pack.each(p.records, func(future *Future, frame []byte) { f(future, frame, false) })
		}
	}
	*q = sendQueue{}
}
