package netio

import (
	"context"
	"sync/atomic"
)

// A window counts the publishes of a stream that are on their way. The stream's reader takes, the loop gives back; at
// the limit the reader stops, which is how QUIC flow control reaches the publisher.
type window struct {
	limit   int32
	used    atomic.Int32
	waiting atomic.Bool   // the reader waits for room
	room    chan struct{} // capacity 1
}

func newWindow(limit int) window {
	return window{limit: int32(limit), room: make(chan struct{}, 1)}
}

// take counts one publish. Only the reader calls it, after full has said false.
func (w *window) take() { w.used.Add(1) }

func (w *window) full() bool { return w.used.Load() >= w.limit }

// wait returns when at most half the window is used, so that the reader wakes for many publishes and not for each.
func (w *window) wait(ctx context.Context) error {
	for {
		w.waiting.Store(true)
		if w.used.Load() <= w.limit/2 {
			w.waiting.Store(false)
			return nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// giveBack is called on the loop when n publishes have had their answer written, or owe none.
func (w *window) giveBack(n int32) {
	if w.used.Add(-n) <= w.limit/2 && w.waiting.Load() && w.waiting.CompareAndSwap(true, false) {
		select {
		case w.room <- struct{}{}:
		default: // a token of an earlier wait that ended by itself is there; it wakes the reader as well
		}
	}
}
