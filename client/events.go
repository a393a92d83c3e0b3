package client

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// eventIO is what an event stream needs of a *quic.ReceiveStream.
type eventIO interface {
	io.Reader
	CancelRead(quic.StreamErrorCode)
}

// An eventReader reads one event stream: large reads into fresh chunks, frames parsed where they stand. What was read into is never written
// again, so that records are views which the application may keep.
//
//	chunk   [ parsed .. at | part of a frame .. fill | room ]
//
// A frame that does not fit into the rest of a chunk moves to the next one. One goroutine at a time uses it.
type eventReader struct {
	st    eventIO
	pool  *chunkPool
	chunk *readChunk
	at    int
	fill  int
	size  int // of the next chunk
}

const (
	// Chunks start small, for the many subscriptions where little happens, and grow while reads fill them, and further for large frames,
	// so that no more than a quarter of them moves.
	minReadChunk    = 4 << 10
	maxReadChunk    = 256 << 10
	maxBigReadChunk = 1 << 20
	// minReadBytes is the least room to read into; with less a new chunk is taken.
	minReadBytes = 512
)

func newEventReader(st eventIO) *eventReader {
	return &eventReader{st: st, pool: new(chunkPool), size: minReadChunk}
}

// cancel ends a read that blocks, and tells the broker.
func (r *eventReader) cancel() { r.st.CancelRead(0) }

// hello reads the first frame of the stream.
func (r *eventReader) hello() (uint64, error) {
	for {
		h, body, ok, err := r.frame()
		if err != nil {
			return 0, err
		}
		if ok {
			if h.Flags != 0 {
				return 0, errNoHello
			}
			m, err := wire.ParseMessage(body)
			if err != nil {
				return 0, err
			}
			if hello, ok := m.(*wire.EventStreamHello); ok {
				return hello.SubscriptionID, nil
			}
			return 0, errNoHello
		}
		if err := r.read(); err != nil {
			return 0, err
		}
	}
}

var errNoHello = errors.New("an event stream without a hello")

// frame takes the next whole frame that was read. The body is a view of the chunk.
func (r *eventReader) frame() (h wire.Header, body []byte, ok bool, err error) {
	if r.chunk == nil {
		return h, nil, false, nil
	}
	h, body, rest, ok, err := wire.SplitFrame(r.chunk.buf[r.at:r.fill], wire.MaxFrameBytes)
	if ok {
		r.at = r.fill - len(rest)
	}
	return h, body, ok, err
}

// read reads more. It returns io.EOF at the end between frames.
func (r *eventReader) read() error {
	r.makeRoom()
	room := r.chunk.buf[r.fill:]
	n, err := r.st.Read(room)
	r.fill += n
	if n == len(room) && r.size < maxReadChunk {
		r.size *= 2
	}
	switch {
	case n > 0:
		return nil // the error comes again
	case err == io.EOF && r.fill > r.at:
		return io.ErrUnexpectedEOF
	}
	return err
}

// makeRoom takes a new chunk when the next frame does not fit into what is left of this one.
func (r *eventReader) makeRoom() {
	part, size := 0, r.size
	if r.chunk != nil {
		part = r.fill - r.at
		if h, err := wire.ParseHeader(r.chunk.buf[r.at:r.fill]); err == nil {
			whole := wire.HeaderBytes + int(h.Length)
			if r.at+whole <= len(r.chunk.buf) || r.at == 0 && r.fill < len(r.chunk.buf) {
				return // it fits, or the chunk is all its own and not full
			}
			if want := 1 << bits.Len(uint(4*whole)); want > r.size {
				r.size = min(want, maxBigReadChunk)
			}
			size = max(r.size, min(whole, 2*part)) // beyond maxBigReadChunk by what has arrived, not by what was declared
		} else if len(r.chunk.buf)-r.fill >= minReadBytes {
			return
		}
	}
	next := r.pool.get(size)
	if r.chunk != nil {
		copy(next.buf, r.chunk.buf[r.at:r.fill])
		r.chunk.release()
	}
	r.chunk, r.at, r.fill = next, 0, part
}

// close gives the last chunk back.
func (r *eventReader) close() {
	if r.chunk != nil {
		r.chunk.release()
		r.chunk = nil
	}
}

// A readChunk is memory that event streams are read into. It is used again only when everyone who had a view of it has released it, which
// messages never do.
type readChunk struct {
	buf  []byte
	refs atomic.Int32 // the reader, and one per delivery
	pool *chunkPool
}

func (c *readChunk) release() {
	if c.refs.Add(-1) == 0 {
		c.pool.put(c)
	}
}

// A chunkPool keeps chunks that were released, at most maxPooledChunks. It may be used from any goroutine.
type chunkPool struct {
	mu   sync.Mutex
	free []*readChunk
}

const maxPooledChunks = 16

func (p *chunkPool) get(size int) *readChunk {
	p.mu.Lock()
	for len(p.free) > 0 {
		last := len(p.free) - 1
		c := p.free[last]
		p.free[last] = nil
		p.free = p.free[:last]
		if len(c.buf) >= size { // a smaller one is left to the collector: sizes only grow
			p.mu.Unlock()
			c.refs.Store(1)
			return c
		}
	}
	p.mu.Unlock()
	c := &readChunk{buf: make([]byte, size), pool: p}
	c.refs.Store(1)
	return c
}

func (p *chunkPool) put(c *readChunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < maxPooledChunks && len(c.buf) <= maxBigReadChunk {
		p.free = append(p.free, c)
	}
}

// A delivery is what one read of one event stream brought: frames of records, in order.
type delivery struct {
	shard  int // index in the subscription
	frames []eventFrame
	end    error      // not nil: the last of this subscription
	chunk  *readChunk // where the records are; nil when they were made from JSON
	refs   atomic.Int32
	kept   bool // a message was taken from it, which nobody releases; owned by the reader of the subscription
}

// An eventFrame is records of one shard, or a gap in front of them.
type eventFrame struct {
	base      Offset
	hasOffset bool
	timed     bool
	count     uint32
	records   []byte
	gapFrom   Offset // the records [gapFrom, gapTo) were missed just before base
	gapTo     Offset
}

// streamEnd is why an event stream has ended, when the broker said so.
type streamEnd struct {
	lagged  bool
	moved   *wire.ShardMoved
	deleted bool
	refused *wire.Error
}

func (e *streamEnd) Error() string {
	switch {
	case e.lagged:
		return "the subscriber fell behind"
	case e.moved != nil:
		return fmt.Sprintf("the shard has moved to %s", e.moved.NodeID)
	case e.deleted:
		return "the stream was deleted"
	}
	return e.refused.Message
}

// parseEvents appends what one frame holds to d. next is the offset expected, and moves on; known says whether it counts. A frame that
// ends the stream gives a *streamEnd.
func parseEvents(d *delivery, h wire.Header, body []byte, next *Offset, known *bool) error {
	f := eventFrame{}
	skipped := uint64(0)
	if h.Flags.Kind() == wire.FrameEvents {
		var e wire.Events
		if err := e.Parse(h.Flags, body); err != nil {
			return err
		}
		f = eventFrame{base: e.Base, hasOffset: h.Flags.Has(wire.FlagEventOffsets), timed: h.Flags.Has(wire.FlagEventTimestamps), count: e.Count, records: e.Records}
		skipped = e.Skipped
	} else {
		if h.Flags != 0 {
			return fmt.Errorf("frame with flags %#04x on an event stream", uint16(h.Flags))
		}
		m, err := wire.ParseMessage(body)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Event:
			f = eventFrame{base: m.Offset, hasOffset: m.HasOffset, count: 1, records: wire.AppendRecord(nil, m.Payload)}
		case *wire.EventBatch:
			f = eventFrame{base: m.BaseOffset, hasOffset: m.HasBaseOffset, count: m.Count, records: m.Records}
		case *wire.SubscriptionLagged:
			return &streamEnd{lagged: true}
		case *wire.ShardMoved:
			return &streamEnd{moved: m}
		case *wire.StreamDeleted:
			return &streamEnd{deleted: true}
		case *wire.Error:
			return &streamEnd{refused: m}
		default:
			return fmt.Errorf("message %q on an event stream", m.MessageType())
		}
	}
	if f.hasOffset {
		first := f.base - min(f.base, Offset(skipped)) // offsets from here to base hold no event
		if *known && first > *next {
			f.gapFrom, f.gapTo = *next, first
		}
		*next, *known = f.base+Offset(f.count), true
	}
	if f.count > 0 || f.gapTo > 0 {
		d.frames = append(d.frames, f)
	}
	return nil
}
