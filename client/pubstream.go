package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// publishIO is what a publish stream needs of a *quic.Stream. Close ends the sending side.
type publishIO interface {
	io.ReadWriteCloser
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
}

// A pubStream is one QUIC stream for publishes. Publishers encode into its queue under its mutex; one goroutine writes, one reads the
// answers. It is used until it breaks or is finished, and then replaced by its slot.
//
//	open --finish--> finishing --all written, answered, FIN both ways--> ended
//	open, finishing --error, no answer for 30 s--> failed ------------> ended
type pubStream struct {
	client  *Client
	flags   wire.Flags // what the broker reads
	io      publishIO
	widths  bool        // the broker checks publish_width
	retries *retryQueue // where refused publishes wait to be sent again

	mu        sync.Mutex
	queue     sendQueue
	announced map[*topic]*route // by which the last keyed batch was routed
	waiters   roomQueue         // publishes that wait for room, oldest first; later ones queue behind them
	parked    bool              // the writer sleeps until wake
	finishing bool              // nothing is taken any more
	finSent   bool
	err       *Error // not nil: the stream has failed
	answers   uint64 // count of answers, for the watchdog

	wake  chan struct{} // capacity 1; a token per parked writer
	gone  atomic.Bool   // finishing or failed: publishers look for another stream
	loops atomic.Int32  // goroutines that run
	ended chan struct{} // closed when both have returned and every publish has its outcome

	// Owned by the reader.
	heard  bool     // auth_ok was read
	parsed []answer // of one read
	good   []*Future
	bad    []failed

	watched      uint64 // answers at the last look of the watchdog
	watchedSince time.Time
}

// answerTimeout ends a stream whose oldest publish has no answer (WIRE section 8).
const answerTimeout = 30 * time.Second

// errStreamGone says that a stream takes nothing any more; nothing was queued. The publisher looks for another one.
var errStreamGone = errors.New("publish stream has ended")

// A failed is a publish with the reason why it was not done, and its frame to do it again.
type failed struct {
	future *Future
	err    error
	frame  []byte // a copy
}

func newPubStream(c *Client, io publishIO, retries *retryQueue, flags wire.Flags, features wire.Features, window int, auth []byte) *pubStream {
	s := &pubStream{
		client: c, flags: flags, io: io, widths: features.Has(wire.FeaturePublishWidth), retries: retries, queue: newSendQueue(window),
		announced: make(map[*topic]*route), wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	first := s.queue.reserve(len(auth))
	first.buf = append(first.buf, auth...)
	s.queue.pushed(first, 0, nil)
	return s
}

// run reads and writes until the stream has ended. Each loop counts in the client's goroutines.
func (s *pubStream) run(spawn func(func()) bool) bool {
	s.loops.Store(2)
	if !spawn(s.readLoop) {
		return false
	}
	if !spawn(s.writeLoop) {
		s.fail(closedError("publish", ""))
		s.loopEnded()
	}
	return true
}

func (s *pubStream) loopEnded() {
	if s.loops.Add(-1) == 0 {
		close(s.ended)
	}
}

// publish encodes m into the stream. It blocks while the stream is full, until the context or the client ends. The error is
// errStreamGone, or says that nothing was sent.
func (s *pubStream) publish(ctx context.Context, m *message, r *route, f *Future) error {
	if err := m.prepare(s.flags); err != nil {
		return err
	}
	size := m.frameBytes()
	s.mu.Lock()
	if s.finishing || s.err != nil {
		s.mu.Unlock()
		return errStreamGone
	}
	if s.waiters.first != nil || !s.fits(size) {
		if err := s.waitForRoom(ctx, m.topic.scope.Stream, size); err != nil {
			return err
		}
	}
	s.push(m, r, f, size)
	s.unlockAndWake()
	return nil
}

// tryPublish does the same without waiting; it reports whether m was queued. m was prepared.
func (s *pubStream) tryPublish(m *message, r *route, f *Future) bool {
	size := m.frameBytes()
	s.mu.Lock()
	if s.finishing || s.err != nil || s.waiters.first != nil || !s.fits(size) {
		s.mu.Unlock()
		return false
	}
	s.push(m, r, f, size)
	s.unlockAndWake()
	return true
}

// fits says whether a frame has room now. One larger than the bound goes when nothing else is there.
func (s *pubStream) fits(size int) bool {
	held := s.queue.heldBytes + s.queue.packedBytes + s.waiters.granted
	pending := s.queue.publishes + s.queue.packedPublishes + s.waiters.coming
	return held == 0 || held+size <= s.client.config.perStreamBytes && pending < s.client.config.perStreamPending
}

// waitForRoom is entered and left with the mutex held, except with an error.
func (s *pubStream) waitForRoom(ctx context.Context, stream string, size int) error {
	w := s.waiters.add(size)
	s.mu.Unlock()
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = contextError("publish", stream, ctx)
	case <-s.client.closing:
		err = closedError("publish", stream)
	}
	s.mu.Lock()
	granted := s.waiters.leave(w)
	if err == nil && (s.finishing || s.err != nil) {
		err = errStreamGone
	}
	if err == nil {
		return nil
	}
	if granted {
		s.grantRoom() // what was kept for this one goes to the next
	}
	s.mu.Unlock()
	return err
}

// grantRoom lets waiting publishes go on, oldest first, as far as there is room.
func (s *pubStream) grantRoom() {
	for w := s.waiters.first; w != nil && s.fits(w.size); w = s.waiters.first {
		s.waiters.grant()
	}
}

// push encodes m, into the open pack of its shard where it may share a frame. The mutex is held, and there is room.
func (s *pubStream) push(m *message, r *route, f *Future, size int) {
	if !m.acked {
		f = nil
	}
	// Where the broker does not check by which width a frame was routed, a wrong one costs nothing as long as every key has its own frame.
	pack, packable := s.queue.findPack(m.topic, m.shard), m.packable() && (s.widths || !m.keyed)
	if pack >= 0 && !(packable && s.queue.open[pack].takes(m, r)) {
		s.closePack(pack) // before m, so that the shard's order stays
		pack = -1
	}
	if packable {
		if pack < 0 {
			if s.queue.opened == maxOpenPacks {
				s.closePack(maxOpenPacks - 1) // the youngest: the others have gathered more
			}
			pack = s.queue.beginPack(m, r)
		}
		s.queue.addToPack(pack, m, f)
		return
	}
	if m.keyed && !m.explicit {
		s.announceWidth(m.topic, r)
	}
	c := s.queue.reserve(size)
	start := len(c.buf)
	c.buf = m.appendFrame(c.buf, s.queue.nextID())
	s.queue.pushed(c, start, f)
}

// closePack makes a frame of open pack i.
func (s *pubStream) closePack(i int) {
	if p := &s.queue.open[i]; p.keyed {
		s.announceWidth(p.topic, p.route)
	}
	s.queue.closePack(i)
}

// closePacks makes frames of the open packs whose turn has come.
func (s *pubStream) closePacks() {
	for i := s.queue.opened - 1; i >= 0; i-- {
		if s.queue.packIsDue(i) {
			s.closePack(i)
		}
	}
}

// announceWidth tells the broker by which width the next keyed batch was routed, once per stream and change.
func (s *pubStream) announceWidth(t *topic, r *route) {
	if !s.widths || r == nil || s.announced[t] == r {
		return
	}
	if len(s.announced) >= maxTopics {
		clear(s.announced) // announcing again is harmless
	}
	s.announced[t] = r
	frame := wire.AppendMessage(nil, &wire.PublishWidth{Scope: t.scope, Shards: r.shards, Routing: r.routing})
	c := s.queue.reserve(len(frame))
	start := len(c.buf)
	c.buf = append(c.buf, frame...)
	s.queue.pushed(c, start, nil)
}

func (s *pubStream) unlockAndWake() {
	wake := s.parked
	s.parked = false
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{}
	}
}

// finish lets the stream take nothing more, send what it has, and end once the broker has answered all of it. It does not wait: see ended.
func (s *pubStream) finish() {
	s.mu.Lock()
	s.finishing = true
	s.gone.Store(true)
	s.waiters.grantAll()
	s.unlockAndWake()
}

// next returns the bytes to write next, nil when there are none now.
func (s *pubStream) next() []byte {
	s.closePacks()
	return s.queue.take()
}

// writeLoop writes what is queued, one write per wake-up where the window allows, then the FIN.
func (s *pubStream) writeLoop() {
	defer s.loopEnded()
	s.mu.Lock()
	for s.err == nil {
		b := s.next()
		if b == nil && s.finishing && s.queue.written() && s.queue.opened == 0 {
			s.finSent = true
			s.mu.Unlock()
			s.io.Close()
			return
		}
		if b == nil {
			s.parked = true
			s.mu.Unlock()
			<-s.wake
			runtime.Gosched() // who is about to publish does, and shares what is written next
			s.mu.Lock()
			continue
		}
		s.mu.Unlock()
		_, err := s.io.Write(b)
		if err != nil {
			s.fail(unavailable("publish", "", err))
			return
		}
		s.mu.Lock()
		if s.err == nil {
			s.queue.wrote(len(b))
			s.grantRoom()
		}
	}
	s.mu.Unlock()
}

// fail ends the stream. Publishes that were sent have an unknown outcome, unless cause says that the broker read none; the others were
// not applied. It may be called by several, once each; the first counts.
func (s *pubStream) fail(cause *Error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = cause
	s.gone.Store(true)
	refused := cause.Code != 0 || cause.Retry == RetryFatal
	var bad []failed
	s.queue.drain(func(f *Future, frame []byte, sent bool) {
		err := cause
		if !refused {
			if err = unavailable("publish", "", cause.Err); sent {
				err = lost("publish", "", cause.Err)
			}
		}
		bad = append(bad, failed{f, err, frame})
	})
	s.waiters.grantAll()
	s.unlockAndWake()
	s.io.CancelRead(0)
	s.io.CancelWrite(0)
	s.retries.failed(bad)
}

// failure returns why the stream failed, nil when it did not.
func (s *pubStream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return nil
}

// disown gives every publish that has no answer yet an unknown outcome, while the stream goes on sending.
func (s *pubStream) disown(err *Error) {
	var bad []*Future
	s.mu.Lock()
	if s.err == nil {
		s.queue.disown(func(f *Future) { bad = append(bad, f) })
	}
	s.mu.Unlock()
	for _, f := range bad {
		f.end(err.withOp("publish", f.topic.scope.Stream))
	}
}

// watch ends the stream when its oldest publish is not answered for too long, and gives memory back when it is idle. The client's
// maintenance calls it every few seconds.
func (s *pubStream) watch(now time.Time) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if s.queue.unanswered() == 0 || s.watched != s.answers || s.watchedSince.IsZero() {
		if s.watched == s.answers && s.queue.empty() {
			s.queue.trim()
		}
		s.watched, s.watchedSince = s.answers, now
		s.mu.Unlock()
		return
	}
	late := now.Sub(s.watchedSince) > answerTimeout
	s.mu.Unlock()
	if late {
		s.fail(lost("publish", "", fmt.Errorf("no answer for %v", answerTimeout)))
	}
}
