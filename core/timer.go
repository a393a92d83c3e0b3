package core

import "time"

// Timer is one pending call on a loop. It is embedded in the struct it serves and owned by that
// struct's loop; the zero value is not armed.
type Timer struct {
	at    time.Duration // deadline on the group's clock
	seq   uint64        // order of arming: breaks ties, and keeps a sweep from running what it armed
	place int           // place in the heap plus one; 0 when not armed
	fire  func(l *Loop)
}

// Armed reports whether the timer is waiting for its deadline.
func (t *Timer) Armed() bool { return t.place != 0 }

// timers is a binary heap by deadline, then by order of arming. It holds pointers into the structs
// that embed the timers, so arming allocates nothing once the heap has reached its size.
type timers struct {
	heap []*Timer
	seq  uint64
}

func (h *timers) arm(t *Timer, at time.Duration, f func(l *Loop)) {
	t.fire = f
	h.seq++
	t.at, t.seq = at, h.seq
	if t.place == 0 {
		h.heap = append(h.heap, t)
		t.place = len(h.heap)
	}
	h.fix(t)
}

func (h *timers) disarm(t *Timer) {
	if t.place == 0 {
		return
	}
	i, last := t.place-1, len(h.heap)-1
	moved := h.heap[last]
	h.heap[last] = nil
	h.heap = h.heap[:last]
	t.place, t.fire = 0, nil
	if i < last {
		h.heap[i] = moved
		moved.place = i + 1
		h.fix(moved)
	}
}

// next returns the earliest deadline.
func (h *timers) next() (at time.Duration, ok bool) {
	if len(h.heap) == 0 {
		return 0, false
	}
	return h.heap[0].at, true
}

func (h *timers) before(a, b *Timer) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}

// fix moves t up or down to where its deadline belongs.
func (h *timers) fix(t *Timer) {
	i := t.place - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.before(t, h.heap[up]) {
			break
		}
		h.put(i, h.heap[up])
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(h.heap) {
			break
		}
		if right := down + 1; right < len(h.heap) && h.before(h.heap[right], h.heap[down]) {
			down = right
		}
		if h.heap[down] == t || !h.before(h.heap[down], t) {
			break
		}
		h.put(i, h.heap[down])
		i = down
	}
	h.put(i, t)
}

func (h *timers) put(i int, t *Timer) {
	h.heap[i] = t
	t.place = i + 1
}
