package client

// A roomQueue holds the publishes that wait for room in a stream, oldest first. The stream's mutex guards it. Each waiter is a goroutine
// in a call, so their number is the caller's.
type roomQueue struct {
	first, last *roomWaiter
	granted     int // bytes kept for waiters that were granted room and have not come back yet
	coming      int // number of these waiters
}

type roomWaiter struct {
	size  int
	ready chan struct{}
	state uint8
	next  *roomWaiter
}

const (
	roomWaiting uint8 = iota
	roomGranted       // size is in roomQueue.granted
	roomGone          // the stream takes nothing more
)

func (q *roomQueue) add(size int) *roomWaiter {
	w := &roomWaiter{size: size, ready: make(chan struct{})}
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	return w
}

func (q *roomQueue) unlink() *roomWaiter {
	w := q.first
	if q.first = w.next; q.first == nil {
		q.last = nil
	}
	w.next = nil
	return w
}

// grant keeps room for the first waiter and wakes it.
func (q *roomQueue) grant() {
	w := q.unlink()
	w.state = roomGranted
	q.granted += w.size
	q.coming++
	close(w.ready)
}

// grantAll wakes everybody to see that the stream has ended.
func (q *roomQueue) grantAll() {
	for q.first != nil {
		w := q.unlink()
		w.state = roomGone
		close(w.ready)
	}
}

// leave is called by each waiter once, when it comes back. It reports whether room was kept for it, which is now free.
func (q *roomQueue) leave(w *roomWaiter) bool {
	switch w.state {
	case roomGranted:
		q.granted -= w.size
		q.coming--
		return true
	case roomWaiting:
		for at := &q.first; *at != nil; at = &(*at).next {
			if *at == w {
				*at = w.next
				break
			}
		}
		q.last = nil
		for at := q.first; at != nil; at = at.next {
			q.last = at
		}
	}
	return false
}
