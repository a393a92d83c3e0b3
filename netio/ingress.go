package netio

import (
	"sync/atomic"

	"felix/core"
	"felix/replicate"
)

// An ingress is a core's side of the publish path: its slots, the parcels that wait for the end of the pass, and the
// streams with answers to write. It is an agent of its core's loop and owned by it.
type ingress struct {
	server *Server
	slots  *core.Slots

	toOwner   []*parcel // by core: publishes of this core's sessions, to be pushed at the end of the pass
	toSession []*parcel // by core: publishes this core has appended
	parcels   int       // how many of both are open
	dirty     []*stream // streams with answers to write; each is in here once

	waits  waitList // runs with publishes that have no answer yet
	queued waitList // of these, runs with acked publishes that wait for a slot

	counts ingressCounts // the owner's copies
	stale  bool          // counts have changed since seen was written
	seen   ingressSeen
}

// ingressCounts are what an ingress counts as it works.
type ingressCounts struct {
	publishFrames, publishRecords, publishBytes uint64
	acked, refused, dropped, shed, json         uint64
}

// ingressSeen is ingressCounts as other goroutines may read them, brought up to date once per pass.
type ingressSeen struct {
	publishFrames, publishRecords, publishBytes atomic.Uint64
	acked, refused, dropped, shed, json         atomic.Uint64
	slotsInUse, slotsWaiting                    atomic.Int64
	admitted, freedWhileWaiting, freed          atomic.Uint64
}

func newIngress(s *Server, cores int) *ingress {
	in := &ingress{
		server:    s,
		slots:     core.NewSlots(s.limits.Slots),
		toOwner:   make([]*parcel, cores),
		toSession: make([]*parcel, cores),
		queued:    waitList{by: listQueued},
	}
	in.waits.onTimer, in.queued.onTimer = in.giveUp, in.refuseQueued
	return in
}

// A parcel carries publishes from one core to another: to the owner of their shards, or back to their session. The
// publishes of one pass for one core travel in one parcel.
type parcel struct {
	kind        parcelKind
	first, last *publish
}

type parcelKind uint8

const (
	parcelToOwner parcelKind = iota
	parcelToSession
)

// enclose adds p to the open parcel, which may be nil, and returns it.
func (in *ingress) enclose(open *parcel, p *publish, kind parcelKind) *parcel {
	p.hop = nil
	if open != nil {
		open.last.hop = p
		open.last = p
		return open
	}
	in.parcels++
	open, _ = in.server.parcels.Get().(*parcel)
	if open == nil {
		open = new(parcel)
	}
	open.kind, open.first, open.last = kind, p, p
	return open
}

// Run unpacks the parcel where it has arrived.
func (pc *parcel) Run(l *core.Loop) {
	p, kind := pc.first, pc.kind
	pc.first, pc.last = nil, nil
	p.run.stream.conn.server.parcels.Put(pc)
	for p != nil {
		next := p.hop
		p.hop = nil
		if kind == parcelToOwner {
			p.Shard.Append(l, &p.Append)
		} else {
			p.run.stream.conn.ingress.finish(l, p)
		}
		p = next
	}
}

// finish ends a publish on its session's loop: the slot comes back, and the answer may leave when its turn comes.
func (in *ingress) finish(l *core.Loop, p *publish) {
	in.stale = true
	if p.late {
		p.run.finished() // nobody is told any more
		in.slots.Release(l, 1)
		return
	}
	if p.answered {
		panic("BUG: netio: publish finished twice")
	}
	p.answered = true
	st := p.run.stream
	if p.raw == nil {
		in.count(p)
	}
	hadSlot := p.slot
	if p.acked || p.raw != nil {
		in.settle(st)
	} else {
		st.unacked.giveBack(1)
		p.run.finished()
		if st.answers.readerDone {
			in.settle(st)
		}
	}
	if hadSlot {
		in.slots.Release(l, 1) // may admit waiters, which may finish at once: last, so that p's memory may be reused
	}
}

func (in *ingress) count(p *publish) {
	if p.json {
		in.counts.json++
	}
	if p.failed == nil && (p.Outcome == replicate.Appended || p.Outcome == replicate.Duplicate) {
		if p.Outcome == replicate.Appended {
			in.counts.publishFrames++
			in.counts.publishRecords += uint64(p.Count)
			in.counts.publishBytes += uint64(len(p.Records) - 4*int(p.Count))
		}
		if p.acked {
			in.counts.acked++
		}
		return
	}
	if p.acked {
		in.counts.refused++
	} else {
		in.counts.dropped++
	}
}

// settle encodes the answers at the front of the stream's order that are ready.
func (in *ingress) settle(st *stream) {
	a := &st.answers
	for p := a.oldest; p != nil && p.answered; p = a.oldest {
		a.oldest = p.after
		if a.oldest == nil {
			a.newest = nil
		}
		a.encoded = p.appendAnswer(a.encoded)
		a.count++
		if !p.late {
			p.run.finished()
		}
	}
	if !a.dirty && (len(a.encoded) > 0 || st.endable()) {
		a.dirty = true
		in.dirty = append(in.dirty, st)
	}
}

// Work sends the parcels and the answers of the pass.
func (in *ingress) Work(l *core.Loop) (did int) {
	if in.parcels > 0 {
		did += in.parcels
		in.parcels = 0
		sendAll(l, in.toOwner)
		sendAll(l, in.toSession)
	}
	// Before the answers leave: whoever has one finds it counted.
	if did > 0 || in.stale || len(in.dirty) > 0 {
		in.stale = false
		in.publishCounts()
		if in.server.memory.over() {
			in.server.memory.press()
		}
	}
	if len(in.dirty) > 0 {
		did += len(in.dirty)
		for i, st := range in.dirty {
			in.dirty[i] = nil
			st.answers.dirty = false
			st.write()
		}
		in.dirty = in.dirty[:0]
	}
	return did
}

func sendAll(l *core.Loop, parcels []*parcel) {
	for to, pc := range parcels {
		if pc != nil {
			parcels[to] = nil
			l.Send(core.ID(to), pc)
		}
	}
}

func (in *ingress) publishCounts() {
	c, seen, slots := &in.counts, &in.seen, in.slots.Stats()
	seen.publishFrames.Store(c.publishFrames)
	seen.publishRecords.Store(c.publishRecords)
	seen.publishBytes.Store(c.publishBytes)
	seen.acked.Store(c.acked)
	seen.refused.Store(c.refused)
	seen.dropped.Store(c.dropped)
	seen.shed.Store(c.shed)
	seen.json.Store(c.json)
	seen.slotsInUse.Store(int64(slots.InUse))
	seen.slotsWaiting.Store(int64(slots.Waiting))
	seen.admitted.Store(slots.Admitted)
	seen.freedWhileWaiting.Store(slots.FreedWhileWaiting)
	seen.freed.Store(slots.Freed)
}
