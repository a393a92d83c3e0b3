package netio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/netio/wire"
	"felix/replicate"
)

const (
	// carriedBytes is how much of an unfinished frame a stream keeps between reads without a chunk.
	carriedBytes = 4 << 10
	// maxWidths bounds the widths a stream remembers; beyond it they are forgotten, and keyed batches are
	// routed by what the broker knows.
	maxWidths = 1024
)

// receiver is the receiving side of a bidirectional or a unidirectional stream.
type receiver interface {
	io.Reader
	Peek(b []byte) (int, error)
	CancelRead(quic.StreamErrorCode)
	SetReadDeadline(time.Time) error
	StreamID() quic.StreamID
}

// A stream is one client stream: frames come in, answers go out. Its reader's goroutine owns it, except for answers,
// which the session's loop owns, and the two windows between them.
type stream struct {
	conn *conn
	recv receiver
	send *quic.Stream // nil on a unidirectional stream, which is never answered

	// Who it is and what it can read; fixed by its auth.
	authenticated atomic.Bool // read by drain
	tenant        string
	tenantID      uint64   // of tenant, for the fair order at the slots
	account       *account // of tenant
	meter         meter
	flags         wire.Flags
	features      wire.Features

	run       *run // publishes parsed and not yet posted; nil when there is none
	published bool // a run was posted: from then on answers go through the loop, in order
	carry     []byte

	// The last scope resolved, so that a run of publishes to one stream looks it up once.
	scope scopeCache

	widths  map[string]width // by scope; told by publish_width
	refused []refusedBatch   // of idempotent producers, oldest first; at most replicate.MaxRefusedBatches

	acked, unacked window
	answers        answers
	drained        atomic.Bool   // stop at the next frame boundary
	stop           chan struct{} // closed with it
}

type width struct {
	shards  uint32
	routing wire.Routing
}

type scopeCache struct {
	tenant, namespace, name []byte
	stream                  *replicate.Stream
	width                   width // told for it; shards 0 when none was
}

// errEndStream ends a stream after its answers; the peer has been told why if it could be.
var errEndStream = errors.New("netio: stream is over")

func newStream(c *conn, recv receiver, send *quic.Stream) *stream {
	st := &stream{
		conn:    c,
		recv:    recv,
		send:    send,
		acked:   newWindow(c.server.window()),
		unacked: newWindow(c.server.limits.UnackedWindow),
	}
	st.answers.ended, st.stop = make(chan struct{}), make(chan struct{})
	return st
}

// drain makes the reader stop at the next frame boundary. It may be called from any goroutine.
func (st *stream) drain() {
	if !st.drained.Swap(true) {
		close(st.stop)
	}
	// A stream that has not authenticated goes on, to be told that the broker drains; when it authenticates at this
	// moment, it sees drained.
	if st.authenticated.Load() {
		st.recv.SetReadDeadline(time.Unix(1, 0)) // wakes a reader that waits
	}
}

// read is the stream's goroutine: it reads until the stream is over and then waits until every answer is out.
func (st *stream) read() {
	defer st.conn.server.counts.streams.Add(-1)
	err := st.readAuth()
	<-st.conn.preauth // the place that conn.admit took
	if err == nil {
		err = st.readFrames()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		// The peer may go on sending; nobody reads it.
		st.recv.CancelRead(stopRefused)
	}
	st.post()
	st.finish()
	if st.account != nil {
		st.conn.server.accounts.leave(st.account)
	}
}

// readAuth reads and takes exactly one frame, so that what follows is read with chunks.
func (st *stream) readAuth() error {
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(st.recv, head[:]); err != nil {
		return err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		st.sawMalformed(err)
		return err
	}
	if int64(h.Length) > int64(st.conn.server.limits.PreauthFrameBytes) {
		st.sawOversized(h)
		return errEndStream
	}
	// Grown as bytes arrive, not by what the header declares.
	body, err := io.ReadAll(io.LimitReader(st.recv, int64(h.Length)))
	if err != nil {
		return err
	}
	if len(body) < int(h.Length) {
		st.sawMalformed(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
	return st.authenticate(h, body)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// readFrames reads frames until the stream is over.
func (st *stream) readFrames() error {
	var (
		c    *chunk
		have int // c.buf[:have] has not been parsed
		size = minChunkBytes
		part partTimer
		upTo int   // byte of c.buf up to which it is read
		end  error // of the stream, which came with what is carried
	)
	defer part.stop()
	defer func() {
		if c != nil {
			c.release()
		}
	}()
	for {
		if st.drained.Load() && !st.meter.parked {
			return errEndStream
		}
		whole := false // a frame is carried, so that there is nothing to wait for
		if c == nil {
			// Waiting at a frame boundary, or within the carried start of a frame: without a chunk.
			if !st.meter.parked {
				if err := st.peek(); err != nil {
					return st.ended(err, len(st.carry))
				}
			}
			frame, err := st.meterNext()
			if err != nil {
				return err
			}
			want := size
			if frame > 0 {
				want = max(frame, minChunkBytes)
			}
			if c, err = st.borrow(want); err != nil {
				return err
			}
			if c == nil {
				continue
			}
			upTo = min(len(c.buf), maxReadChunkBytes) // until it is known what begins here
			if frame > 0 {
				upTo, whole = want, frame <= len(st.carry)
			}
			have = copy(c.buf, st.carry)
			st.carry = st.carry[:0]
		}
		readErr := end
		if !whole {
			var n int
			n, readErr = st.recv.Read(c.buf[have:upTo])
			have += n
		}
		rest, need, err := st.parse(c, c.buf[:have])
		st.post()
		if err != nil {
			return err
		}
		if st.meter.parked {
			part.stop()
			st.carry = append(st.carry[:0], rest...)
			c.release()
			c, have, end = nil, 0, readErr
			continue
		}
		if readErr != nil {
			return st.ended(readErr, len(rest))
		}
		size = nextSize(size, have, need)
		isNew := len(rest) < have // rest is the beginning of another frame than before
		switch {
		case len(rest) == 0:
			part.stop()
			c.release()
			c, have = nil, 0
		case c.alone() && need <= len(c.buf):
			have = copy(c.buf, rest)
			if !st.meter.on { // else upTo is the end of the frame
				upTo = readTo(c, need)
			}
			part.hold(st, need, isNew)
		case len(rest) <= carriedBytes && (need <= maxReadChunkBytes || st.meter.on):
			part.stop()
			st.carry = append(st.carry[:0], rest...)
			c.release()
			c, have = nil, 0
		default:
			next := st.tryBorrow(size)
			if next != nil {
				have = copy(next.buf, rest)
				c.release()
				c = next
			} else {
				// Never wait for bytes while holding some: the frame may need the whole budget.
				st.carry = append(st.carry[:0], rest...)
				c.release()
				if c, err = st.borrow(size); err != nil {
					return err
				}
				if c == nil {
					part.stop()
					have = 0
					continue
				}
				have = copy(c.buf, st.carry)
				st.carry = nil
			}
			upTo = readTo(c, need)
			part.hold(st, need, isNew)
		}
	}
}

// readTo is up to where a chunk is filled that holds the beginning of a frame of need bytes: to the end of that frame when it is large,
// since what came behind it would have to be copied out of the chunk, which goes with the frame.
func readTo(c *chunk, need int) int {
	if need > maxReadChunkBytes {
		return need
	}
	return len(c.buf)
}

// peek waits for a byte.
func (st *stream) peek() error {
	var one [1]byte
	_, err := st.recv.Peek(one[:])
	if errors.Is(err, io.EOF) {
		// quic-go (v0.65.0) counts the stream as read to its end, and gives its credit back, only once Read has returned the
		// end; Peek does not.
		st.recv.Read(one[:])
	}
	return err
}

// nextSize is the size of the next chunk, after a read that filled have bytes of one: larger when it was full, smaller
// when it was nearly empty, and never too small for the frame that has begun, which needs need bytes.
func nextSize(size, have, need int) int {
	switch {
	case have >= size && size < maxReadChunkBytes:
		size = min(2*size, maxReadChunkBytes) // beyond it are the chunks of large frames, which have a bound of their own
	case have < size/4 && size > minChunkBytes:
		size /= 2
	}
	return max(min(size, maxPooledBytes), need)
}

// borrow waits for a chunk. In its place it returns none when the next frame was shed.
func (st *stream) borrow(size int) (*chunk, error) {
	c := st.conn
	if c.server.limits.ShedUnacked {
		if got := st.tryBorrow(size); got != nil {
			return got, nil
		}
		if shed, err := st.shedNext(); shed || err != nil {
			return nil, err
		}
	}
	return c.server.chunks.borrow(c.quic.Context(), c.budgets(), size)
}

// tryBorrow returns a chunk, nil when there is no room for one now.
func (st *stream) tryBorrow(size int) *chunk {
	return st.conn.server.chunks.tryBorrow(st.conn.budgets(), size)
}

// budgets are those that the connection's chunks are charged to.
func (c *conn) budgets() budgets {
	return budgets{conn: c.bytes, huge: c.server.huge, large: c.server.large, all: c.server.bytes}
}

// A partTimer ends a stream that keeps a part of a frame in a chunk for too long, which is room that others wait for. Its reader
// owns it.
type partTimer struct {
	timer *time.Timer // nil until it is needed
	need  int         // bytes of the frame it runs for; 0 when it does not run
}

// slowestFrame is the rate in bytes per second below which a frame that has begun is given up, once Limits.FrameTimeout has passed.
const slowestFrame = 64 << 10

// hold sees to it that a frame of need bytes arrives in time. A new one gets its own time.
func (p *partTimer) hold(st *stream, need int, isNew bool) {
	if !isNew && need == p.need {
		return
	}
	p.need = need
	limit := st.conn.server.limits.FrameTimeout + time.Duration(need)*time.Second/slowestFrame
	if p.timer == nil {
		p.timer = time.AfterFunc(limit, func() {
			st.conn.server.counts.slowFrames.Add(1)
			st.say(logSlowFrame, fmt.Sprintf("a frame that had begun was not there after %s and 1 s for each %d bytes of it", st.conn.server.limits.FrameTimeout, slowestFrame))
			st.recv.CancelRead(stopRefused)
		})
		return
	}
	p.timer.Reset(limit)
}

func (p *partTimer) stop() {
	if p.need != 0 {
		p.need = 0
		p.timer.Stop()
	}
}

// ended turns a read error into the stream's end. left are the bytes of an unfinished frame.
func (st *stream) ended(err error, left int) error {
	if st.drained.Load() && isTimeout(err) {
		return errEndStream
	}
	if errors.Is(err, io.EOF) && left > 0 {
		st.sawMalformed(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
	return err
}

// parse takes every whole frame from b, which lies in c. rest is what is left, need the bytes that rest must grow to
// before it can be parsed further.
func (st *stream) parse(c *chunk, b []byte) (rest []byte, need int, err error) {
	for {
		h, body, rest, ok, err := wire.SplitFrame(b, uint32(st.conn.server.limits.FrameBytes))
		if err != nil {
			return nil, 0, st.unreadable(h, err)
		}
		if !ok {
			return b, wire.HeaderBytes + int(h.Length), nil
		}
		frame := b
		b, st.meter.left = rest, len(frame)
		switch h.Flags.Kind() {
		case wire.FramePublish:
			err = st.publishFrame(c, h.Flags, body)
		case wire.FrameMessage:
			err = st.message(c, body)
		default:
			err = st.unknownFlags(h, body)
		}
		if err == errPark {
			return frame, wire.HeaderBytes + int(h.Length), nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// unreadable ends a stream on which no further frame can be found.
func (st *stream) unreadable(h wire.Header, err error) error {
	if errors.Is(err, wire.ErrFrameTooLarge) {
		st.sawOversized(h)
		// The body is not read, so nothing after it can be; only the reason can still be told.
		if !h.Flags.Has(wire.FlagPublishBatch) {
			st.refuse(wire.CodeInvalidRequest, err.Error())
		}
		return errEndStream
	}
	st.sawMalformed(err)
	return errEndStream
}

// sawMalformed and sawOversized count what a peer sent, and tell the log within its bounds.
func (st *stream) sawMalformed(err error) {
	st.conn.server.counts.malformed.Add(1)
	st.say(logMalformed, err.Error())
}

func (st *stream) sawOversized(h wire.Header) {
	st.conn.server.counts.oversized.Add(1)
	st.say(logOversized, fmt.Sprintf("a frame of %d bytes", h.Length))
}

// unknownFlags refuses a frame that is at a boundary but of no kind a broker takes.
func (st *stream) unknownFlags(h wire.Header, body []byte) error {
	st.conn.server.counts.unknownFlags.Add(1)
	st.say(logFlags, fmt.Sprintf("flags %#04x", uint16(h.Flags)))
	if st.send == nil {
		return errEndStream
	}
	reason := fmt.Sprintf("frame flags %#04x are not taken here", uint16(h.Flags))
	if err := h.Flags.Err(); err != nil {
		reason = err.Error()
	}
	if h.Flags.Has(wire.FlagPublishBatch) {
		return st.refuseFrame(h.Flags, body, reason)
	}
	return st.refuse(wire.CodeInvalidRequest, reason)
}

// refuse answers with a JSON error. The stream goes on.
func (st *stream) refuse(code wire.Code, message string) error {
	return st.refuseFor(&refusal{code: code, message: message})
}

// refuseFor is refuse with a class and details.
func (st *stream) refuseFor(r *refusal) error { return st.reply(st.errorFor(r)) }

// errorFor is the JSON error for the stream's client, without the parts it did not offer to read.
func (st *stream) errorFor(r *refusal) *wire.Error {
	hasCode := st.features.Has(wire.FeatureErrorCodes)
	return &wire.Error{
		Message: r.message, Code: r.code, Retry: r.class(), HasCode: hasCode,
		Reason: r.reason, RetryAfterMillis: r.retryAfterMillis, HasDetail: hasCode && r.hasDetail(),
	}
}

// reply sends an answer that is no publish's. Once the stream has published it goes through the loop, behind the
// answers owed before it; until then the reader writes it and waits for the peer to take it.
func (st *stream) reply(m wire.Message) error {
	if st.send == nil {
		return errEndStream
	}
	frame := wire.AppendMessage(nil, m)
	if st.published || st.run != nil {
		if err := st.room(&st.acked); err != nil {
			return err
		}
		st.acked.take()
		st.openRun().add().raw = frame
		return nil
	}
	return st.writeWaiting(frame)
}

// writeWaiting writes answers and waits until the peer has room for them. A peer that makes none for AnswerTimeout loses the
// stream: what waits behind its answers holds a chunk of everybody's budget.
func (st *stream) writeWaiting(b []byte) error {
	late := time.AfterFunc(st.conn.server.limits.AnswerTimeout, func() {
		st.recv.CancelRead(stopRefused)
		st.send.CancelWrite(stopRefused)
	})
	defer late.Stop()
	_, err := st.send.Write(b)
	return err
}

// room waits until the window has a place. What was parsed so far goes to the loop first.
func (st *stream) room(w *window) error {
	if !w.full() {
		return nil
	}
	st.post()
	return w.wait(st.conn.quic.Context())
}

func (st *stream) openRun() *run {
	if st.run != nil && len(st.run.pubs) >= maxRunPublishes {
		st.post()
	}
	if st.run == nil {
		st.run = st.conn.server.runs.get(st)
	}
	return st.run
}

// post hands the publishes parsed so far to the session's loop.
func (st *stream) post() {
	r := st.run
	if r == nil {
		return
	}
	st.run = nil
	st.published = true
	if err := st.conn.loop.PostOffCore(r); err != nil {
		panic(fmt.Sprintf("BUG: netio: loop of core %d is closed while its sessions run: %v", st.conn.session, err))
	}
}

// finish waits until everything owed is answered, and closes the sending side. When the server closes it waits for AckWait at most: a
// shard may wait for a disk that never answers.
func (st *stream) finish() {
	if !st.published {
		if st.send != nil {
			st.send.Close()
		}
		return
	}
	err := st.conn.loop.PostOffCore(core.Func(func(l *core.Loop) {
		st.answers.readerDone = true
		st.conn.ingress.settle(st)
	}))
	if err != nil {
		return
	}
	select {
	case <-st.answers.ended:
		return
	case <-st.conn.server.ctx.Done():
	}
	late := time.NewTimer(st.conn.server.limits.AckWait)
	defer late.Stop()
	select {
	case <-st.answers.ended:
	case <-late.C:
		st.conn.server.counts.abandoned.Add(1)
		// From here on no goroutine may start for the stream: its connection is about to be gone.
		broken := make(chan struct{})
		if st.conn.loop.PostOffCore(core.Func(func(*core.Loop) { st.answers.broken = true; close(broken) })) == nil {
			<-broken
		}
	}
}

// resolve finds the stream that a frame names, creating it where the catalog does so on first use.
func (st *stream) resolve(tenant, namespace, name []byte) (*replicate.Stream, *refusal) {
	s := &st.scope
	if s.stream != nil && !s.stream.Gone() && bytes.Equal(name, s.name) && bytes.Equal(namespace, s.namespace) && bytes.Equal(tenant, s.tenant) {
		return s.stream, nil
	}
	if string(tenant) != st.tenant {
		return nil, &refusal{
			code:    wire.CodeForbidden,
			message: fmt.Sprintf("tenant %q is not the one this stream authenticated for (%q)", brief(tenant), st.tenant),
		}
	}
	found := st.conn.server.catalog.Resolve(tenant, namespace, name)
	if found == nil {
		var err error
		found, err = st.conn.server.catalog.Ensure(st.conn.quic.Context(), string(tenant), string(namespace), string(name))
		if err != nil {
			return nil, refusalFor(err, tenant, namespace, name)
		}
	}
	s.tenant = append(s.tenant[:0], tenant...)
	s.namespace = append(s.namespace[:0], namespace...)
	s.name = append(s.name[:0], name...)
	s.stream, s.width = found, width{}
	if len(st.widths) > 0 {
		s.width = st.widths[scopeKey(tenant, namespace, name)]
	}
	return found, nil
}

// scopeKey joins a scope; names hold no NUL where they name something that exists.
func scopeKey[S ~string | ~[]byte](tenant, namespace, name S) string {
	return string(tenant) + "\x00" + string(namespace) + "\x00" + string(name)
}
