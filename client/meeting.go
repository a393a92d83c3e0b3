package client

import (
	"context"
	"time"

	"github.com/quic-go/quic-go"
)

// A meeting is where an event stream and the subscription that it belongs to find each other by the subscription's id. Either may come
// first: the broker opens the stream, and answers the subscribe on another one. The connection's mutex guards it.
type meeting struct {
	stream chan *eventReader // capacity 1; filled under the mutex
	taken  chan struct{}     // closed when the subscription has come
}

func newMeeting() *meeting {
	return &meeting{stream: make(chan *eventReader, 1), taken: make(chan struct{})}
}

// unclaimedTimeout ends an event stream that no subscription asks for: the subscribe was given up before its answer came.
const unclaimedTimeout = 10 * time.Second

// greet reads the hello of an event stream and hands the stream to its subscription. It runs in a goroutine per new event stream, whose
// number the transport bounds.
func (c *conn) greet(st *quic.ReceiveStream) {
	r := newEventReader(st)
	stop := context.AfterFunc(c.client.ctx, func() { st.CancelRead(0) })
	id, err := r.hello()
	stop()
	if err != nil {
		st.CancelRead(0)
		return
	}
	c.mu.Lock()
	m := c.events[id]
	if m != nil && len(m.stream) > 0 {
		c.mu.Unlock()
		st.CancelRead(0) // a second stream of one id
		return
	}
	if m != nil {
		delete(c.events, id)
		m.stream <- r
		c.mu.Unlock()
		return
	}
	m = newMeeting()
	c.events[id] = m
	m.stream <- r
	c.mu.Unlock()

	timer := time.NewTimer(unclaimedTimeout)
	defer timer.Stop()
	select {
	case <-m.taken:
		return
	case <-timer.C:
	case <-c.ended:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events[id] == m {
		delete(c.events, id)
		st.CancelRead(0)
	}
}

// eventStream waits for the event stream of a subscription, whose hello may be late (WIRE section 9).
func (c *conn) eventStream(ctx context.Context, id uint64) (*eventReader, error) {
	c.mu.Lock()
	m := c.events[id]
	if m != nil {
		delete(c.events, id)
		close(m.taken)
		c.mu.Unlock()
		return <-m.stream, nil
	}
	m = newMeeting()
	c.events[id] = m
	c.mu.Unlock()

	var err error
	select {
	case r := <-m.stream:
		return r, nil
	case <-c.ended:
		err = c.cause
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events[id] == m {
		delete(c.events, id)
	}
	select {
	case r := <-m.stream:
		r.cancel()
	default:
	}
	return nil, err
}
