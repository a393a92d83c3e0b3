package core

// pass is the duty cycle. The caller owns the loop.
func (l *Loop) pass() {
	l.now = l.g.cfg.Now()
	l.passCount++
	l.stats.passes.Store(l.passCount)
	// Lowered before anything is looked at, so that a wake-up that comes later finds or raises it again.
	if l.woken.Load() {
		l.woken.Swap(false)
	}
	if l.rang.Load() {
		l.rang.Swap(false)
		l.alarmAt = 0
	}
	l.sweep = l.timers.seq
	probed := l.probe.Load()

	tasks := l.drainInbox()
	for i := range l.in {
		tasks += l.drainRing(&l.in[i])
	}
	tasks += l.drainSelf()
	fired := l.fireTimers()
	did := 0
	for _, a := range l.agents {
		did += a.Work(l)
	}
	tasks += l.drainSelf()
	l.again = did > 0
	sent := l.flush()

	if tasks > 0 {
		l.taskCount += uint64(tasks)
		l.stats.tasks.Store(l.taskCount)
	}
	if tasks > 0 || did > 0 || sent > 0 || fired > 0 {
		l.stats.progress.Store(int64(l.now))
	}
	// Timers alone do not keep a group open: one that arms itself again would do so for ever.
	l.dirty = l.dirty || tasks > 0 || did > 0 || sent > 0
	if probed {
		l.probe.Store(false)
		l.g.probes <- !l.dirty && l.blocked == 0 && l.self.len() == 0 && l.next == len(l.taken)
		l.dirty = false
	}
}

// drainInbox runs up to passTasks tasks from the inbox, none while a ring is full.
func (l *Loop) drainInbox() int {
	if l.blocked != 0 {
		return 0
	}
	if l.next == len(l.taken) {
		if l.inbox.length.Load() == 0 {
			return 0
		}
		l.taken, l.next = l.inbox.swap(l.taken), 0
	}
	n := min(passTasks, len(l.taken)-l.next)
	for range n {
		t := l.taken[l.next]
		l.taken[l.next] = nil
		l.next++
		t.Run(l)
	}
	return n
}

// drainRing runs up to passTasks tasks from one other core. The ring has room again before they run.
func (l *Loop) drainRing(in *inbound) int {
	n := in.ring.Drain(l.scratch)
	if n == 0 {
		return 0
	}
	if in.full.Load() && in.full.Swap(false) {
		in.from.signal(false)
	}
	for i := range n {
		t := l.scratch[i]
		l.scratch[i] = nil
		t.Run(l)
	}
	return n
}

// drainSelf runs what was sent to the own core, also what these tasks send, up to passTasks.
func (l *Loop) drainSelf() int {
	n := 0
	for ; n < passTasks && l.self.len() > 0; n++ {
		t := l.self.items[l.self.head]
		l.self.drop(1)
		t.Run(l)
	}
	return n
}

// fireTimers runs the timers that are due, up to passTasks, but none that was armed during the pass.
func (l *Loop) fireTimers() int {
	n := 0
	for ; n < passTasks && len(l.timers.heap) > 0; n++ {
		t := l.timers.heap[0]
		if t.at > l.now || t.seq > l.sweep {
			break
		}
		f := t.fire
		l.timers.disarm(t)
		f(l)
	}
	return n
}

// flush pushes what was sent in this pass, one batch and at most one signal per destination.
func (l *Loop) flush() (sent int) {
	for j := range l.out {
		q := &l.out[j]
		if q.len() == 0 {
			continue
		}
		n := q.ring.Push(q.items[q.head:])
		if n > 0 {
			q.drop(n)
			sent += n
			l.g.loops[j].signal(false)
		}
		if q.len() > 0 {
			l.blocked |= 1 << j
			// Raised before park looks at the ring again; lowered by the consumer after it made room.
			q.full.Store(true)
		} else {
			l.blocked &^= 1 << j
		}
	}
	return sent
}
