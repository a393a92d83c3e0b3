package netio

import (
	"sync"

	"felix/core"
	"felix/netio/wire"
	"felix/replicate"
)

// A publish is one publish frame on its way through the broker. The reader fills it in; from then on the loop it is on
// owns it: the session's, the shard owner's, the session's again. It lives in its run.
type publish struct {
	core.Waiter      // its place among those who wait for a slot
	replicate.Append // what the shard gets and what it answers

	run       *run
	requestID uint64
	tenantID  uint64 // for the fair order among waiters
	acked     bool   // an answer is owed
	json      bool   // the answer is JSON
	answered  bool   // set on the session's loop: the answer may leave in its turn
	slot      bool   // holds a slot
	late      bool   // answered as unacknowledged while the shard still has it

	// failed is set at the door when the publish never reaches a shard.
	failed *refusal
	// raw is a whole answer made by the reader: an entry that keeps its place among the answers and is no publish.
	raw []byte

	after *publish // next among the answers the stream owes
	hop   *publish // next in the parcel
}

// A refusal is why a publish is not appended, or another request not served.
type refusal struct {
	code    wire.Code
	retry   wire.Retry // what the client may do; 0 means what goes with the code
	message string
	reason  string // detail of the code; empty when there is none
	// retryAfterMillis is a detail, too: the least wait before another try; 0 when there is none.
	retryAfterMillis uint64
	// producer is the reason of a publish_refused, for idempotent producers; Kind 0 when it is none.
	producer wire.RefusalReason
}

func (r *refusal) class() wire.Retry {
	if r.retry == 0 {
		return r.code.DefaultRetry()
	}
	return r.retry
}

func (r *refusal) hasDetail() bool { return r.reason != "" || r.retryAfterMillis != 0 }

// A run is the publishes of one read of one stream: they cross to the session's loop together. It is recycled, with
// its chunk, when the last of them is finished and answered.
type run struct {
	stream *stream
	chunk  *chunk // what they were read into; nil when all of them are answers made by the reader
	pubs   []publish
	open   int // publishes not yet finished or not yet answered; owned by the session's loop

	waiting int        // acked publishes that wait for a slot
	links   [2]runLink // in the lists of the ingress, by listWaits and listQueued
}

// maxRunPublishes bounds a run, so that one stream's backlog leaves the loop to others in between.
const maxRunPublishes = 256

// A runPool recycles runs with the memory of their publishes. It may be used from any goroutine.
type runPool struct{ sync.Pool }

func (p *runPool) get(st *stream) *run {
	r, _ := p.Get().(*run)
	if r == nil {
		r = new(run)
	}
	r.stream = st
	return r
}

// add returns a zero publish at the end of r. Pointers to earlier ones may move until r is posted.
// Invariant: what lies between the length and the capacity of pubs is zero.
func (r *run) add() *publish {
	if len(r.pubs) < cap(r.pubs) {
		r.pubs = r.pubs[:len(r.pubs)+1]
	} else {
		r.pubs = append(r.pubs, publish{})
	}
	return &r.pubs[len(r.pubs)-1]
}

// Run takes the run over on the session's loop: every publish gets a slot or waits for one, in order.
func (r *run) Run(l *core.Loop) {
	in, answers := r.stream.conn.ingress, &r.stream.answers
	r.open = len(r.pubs) + 1 // one for this function, so that r is not recycled under it
	in.stale = true          // whoever waits is seen to wait
	deadline := l.Now() + in.server.limits.QueueWait
	for i := range r.pubs {
		p := &r.pubs[i]
		p.run = r
		if p.acked || p.raw != nil {
			answers.expect(p)
		}
		if p.raw == nil && p.failed == nil && p.Idempotent && len(answers.refused) > 0 {
			p.failed = answers.keepSequence(l, p)
		}
		if p.raw != nil || p.failed != nil {
			in.finish(l, p)
			continue
		}
		p.Append.Done = p
		p.Waiter.Tenant, p.Waiter.Bytes, p.Waiter.Admittee = p.tenantID, len(p.Append.Records), p
		if p.acked {
			p.Append.Deadline = deadline
		}
		switch {
		case !p.acked && in.server.limits.ShedUnacked:
			if !in.slots.TryAcquire(l, p.tenantID) {
				in.shed(l, p)
				continue
			}
			p.admitted(l)
		case in.slots.Acquire(l, &p.Waiter):
			p.admitted(l)
		case p.acked:
			r.waiting++
		}
	}
	if r.open > 1 {
		in.await(l, r)
	}
	r.finished()
}

// OnAdmit is called when a publish that waited has its slot.
func (p *publish) OnAdmit(l *core.Loop) {
	p.waitsNoMore()
	p.admitted(l)
}

// waitsNoMore is called when a publish has left the queue for a slot.
func (p *publish) waitsNoMore() {
	if r := p.run; p.acked {
		if r.waiting--; r.waiting == 0 {
			r.stream.conn.ingress.queued.remove(r)
		}
	}
}

// admitted sends the publish to its shard. It holds a slot from now on.
func (p *publish) admitted(l *core.Loop) {
	p.slot = true
	in := p.run.stream.conn.ingress
	if owner := p.Shard.Owner(); owner != l.ID() {
		in.toOwner[owner] = in.enclose(in.toOwner[owner], p, parcelToOwner)
		return
	}
	p.Shard.Append(l, &p.Append)
}

// OnAppended is called once on the owner's loop when the shard's promise is kept, or will not be.
func (p *publish) OnAppended(l *core.Loop, _ *replicate.Append) {
	c := p.run.stream.conn
	if c.session == l.ID() {
		c.ingress.finish(l, p)
		return
	}
	here := c.server.ingress[l.ID()]
	here.toSession[c.session] = here.enclose(here.toSession[c.session], p, parcelToSession)
}

// finished is called when a publish has had its answer, or owes none any more.
func (r *run) finished() {
	r.open--
	if r.open > 0 {
		return
	}
	server := r.stream.conn.server
	if r.links[listWaits].listed {
		r.stream.conn.ingress.waits.remove(r)
	}
	if r.chunk != nil {
		r.chunk.release()
	}
	r.chunk, r.stream = nil, nil
	clear(r.pubs)
	r.pubs = r.pubs[:0] // of a run that was never longer than maxRunPublishes, so its memory is bounded
	server.runs.Put(r)
}
