package netio

import (
	"fmt"
	"time"

	"felix/core"
	"felix/netio/wire"
)

// A waitList is the runs of a core's sessions whose publishes wait for their shards, for a disk above all, oldest first. It is
// owned by the core's loop.
type waitList struct {
	first, last *run
	timer       core.Timer
	onTimer     func(*core.Loop) // made once
}

func (w *waitList) push(r *run) {
	r.listed, r.prev, r.next = true, w.last, nil
	if w.last == nil {
		w.first = r
	} else {
		w.last.next = r
	}
	w.last = r
}

func (w *waitList) remove(r *run) {
	if r.prev == nil {
		w.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		w.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.listed, r.prev, r.next = false, nil, nil
}

// await has r looked at when its publishes have waited for Limits.AckWait.
func (in *ingress) await(l *core.Loop, r *run) {
	r.since = l.Now()
	in.waits.push(r)
	if !in.waits.timer.Armed() {
		in.armWaits(l)
	}
}

func (in *ingress) armWaits(l *core.Loop) {
	if in.waits.onTimer == nil {
		in.waits.onTimer = in.giveUp
	}
	l.Arm(&in.waits.timer, in.waits.first.since+in.server.limits.AckWait-l.Now(), in.waits.onTimer)
}

// giveUp answers publishes that have waited for too long with unacknowledged. The shard keeps them: what it has taken may still
// be written, so a refusal would be a lie, and their slots and bytes come back when it is done with them.
func (in *ingress) giveUp(l *core.Loop) {
	for r := in.waits.first; r != nil && r.since+in.server.limits.AckWait <= l.Now(); r = in.waits.first {
		in.waits.remove(r)
		waiting := false
		for i := range r.pubs {
			p := &r.pubs[i]
			switch {
			case !p.acked || p.answered:
			case !p.slot:
				waiting = true // for a slot: nothing was taken
			default:
				p.failed = unacknowledged(in.server.limits.AckWait)
				p.answered, p.late = true, true
				in.count(p)
				in.stale = true
			}
		}
		if waiting {
			r.since = l.Now()
			in.waits.push(r)
		}
		in.settle(r.stream)
	}
	if in.waits.first != nil {
		in.armWaits(l)
	}
}

func unacknowledged(waited time.Duration) *refusal {
	return &refusal{
		code:    wire.CodeUnacknowledged,
		message: fmt.Sprintf("the shard has not answered for %s; the records may still be written", waited),
	}
}
