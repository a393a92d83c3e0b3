package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A target is a place to send to: one of the connections to an address, or an entry, which is any broker that answers. Its connection is
// made on first use and made again after it was lost. It may be used from any goroutine and lives as long as the client.
type target struct {
	client *Client
	addr   string // empty for an entry
	slots  []*slot

	conn atomic.Pointer[conn] // the last one; it may have ended
	down atomic.Bool          // an owner that could not be reached: the entry serves until maintenance reaches it

	mu       sync.Mutex
	dialling *dialCall     // guarded by mu
	retryAt  time.Time     // when maintenance tries a target that is down again; guarded by mu
	pause    time.Duration // between such tries; guarded by mu
}

type dialCall struct {
	done chan struct{}
	conn *conn
	err  error
}

type targetKey struct {
	addr  string
	index int
}

const (
	// ownerPatience is how long an owner may keep those waiting who could be served through the entry broker.
	ownerPatience = time.Second
	// entryStagger is the wait before the next address is tried beside the ones that have not answered yet.
	entryStagger = 250 * time.Millisecond
	// maxSeeds bounds the addresses remembered: the one dialled and what topology names.
	maxSeeds = 16
	// A target that is down is tried again after minDownPause, doubling up to maxDownPause, in the background.
	minDownPause = 5 * time.Second
	maxDownPause = time.Minute
	// maxTargets bounds the addresses of owners; beyond it the entry serves.
	maxTargets = 1024
)

func newTarget(c *Client, addr string) *target {
	t := &target{client: c, addr: addr, slots: make([]*slot, c.config.publishStreams)}
	for i := range t.slots {
		t.slots[i] = newSlot(t)
	}
	return t
}

// target returns the target of an owner's address, nil when there are too many.
func (c *Client) target(addr string, index int) *target {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := targetKey{addr, index}
	t := c.targets[key]
	if t == nil && len(c.targets) < maxTargets {
		t = newTarget(c, addr)
		c.targets[key] = t
	}
	return t
}

// live returns the connection if it has not ended.
func (t *target) live() *conn {
	if c := t.conn.Load(); c != nil && !c.dead.Load() {
		return c
	}
	return nil
}

// get returns the connection, dialling once for all who wait. An owner that has not answered within ownerPatience is down, and get fails:
// ask route.owner again. The attempt goes on, and ends that state when it succeeds.
func (t *target) get(ctx context.Context) (*conn, error) {
	if c := t.live(); c != nil {
		return c, nil
	}
	call := t.dial()
	if call == nil {
		return nil, closedError("connect", "")
	}
	var late <-chan time.Time
	if t.addr != "" {
		timer := time.NewTimer(ownerPatience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-call.done:
		return call.conn, call.err
	case <-late:
		t.setDown(call)
		return nil, unavailable("connect", "", fmt.Errorf("%s: no answer within %v", t.addr, ownerPatience))
	case <-ctx.Done():
		return nil, contextError("connect", "", ctx)
	case <-t.client.closing:
		return nil, closedError("connect", "")
	}
}

// setDown lets the entry serve while an attempt goes on.
func (t *target) setDown(call *dialCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dialling == call {
		t.down.Store(true)
	}
}

// dial starts an attempt unless one is running. It is nil when the client closes.
func (t *target) dial() *dialCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dialling != nil {
		return t.dialling
	}
	call := &dialCall{done: make(chan struct{})}
	if c := t.live(); c != nil {
		call.conn = c
		close(call.done)
		return call
	}
	if !t.client.spawn(func() { t.attempt(call) }) {
		return nil
	}
	t.dialling = call
	return call
}

func (t *target) attempt(call *dialCall) {
	lost := t.conn.Load()
	if t.addr == "" {
		call.conn, call.err = t.client.connectAny(t.client.ctx, lost)
	} else {
		call.conn, call.err = t.client.connect(t.client.ctx, t.addr)
	}
	log := t.client.config.logger
	switch {
	case call.err != nil && t.addr != "":
		log.Warn("client: an owner cannot be reached, its shards are served through the entry broker", "addr", t.addr, "err", call.err)
	case call.err == nil && lost != nil:
		log.Info("client: connected again", "addr", call.conn.addr)
	}
	t.mu.Lock()
	t.dialling = nil
	if call.err == nil {
		t.conn.Store(call.conn)
		t.down.Store(false)
		t.pause = 0
	} else if t.addr != "" {
		t.down.Store(true)
		t.pause = min(max(2*t.pause, minDownPause), maxDownPause)
		t.retryAt = time.Now().Add(t.pause)
	}
	t.mu.Unlock()
	close(call.done)
	if call.err == nil {
		select {
		case <-t.client.closing: // close may have looked before the connection was stored
			call.conn.end(ErrClosed)
		default:
		}
	}
}

// watch tries a target that is down again when its time has come.
func (t *target) watch(now time.Time) {
	t.mu.Lock()
	due := t.down.Load() && t.dialling == nil && now.After(t.retryAt)
	t.mu.Unlock()
	if due {
		t.dial()
	}
	for _, s := range t.slots {
		if p := s.current.Load(); p != nil {
			p.watch(now)
		}
	}
}

// seeds returns the addresses to try, the one of the lost connection last.
func (c *Client) seeds(lost *conn) []string {
	c.mu.Lock()
	seeds := slices.Clone(c.known)
	c.mu.Unlock()
	if lost != nil {
		if i := slices.Index(seeds, lost.addr); i >= 0 {
			seeds = append(slices.Delete(seeds, i, i+1), lost.addr)
		}
	}
	return seeds
}

// learn adds addresses that topology names to the seeds.
func (c *Client) learn(brokers []Broker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range brokers {
		if len(c.known) < maxSeeds && isHostPort(b.Addr) && !slices.Contains(c.known, b.Addr) {
			c.known = append(c.known, b.Addr)
		}
	}
}

// connectAny connects to the first seed that answers. A seed that is silent holds the next one up for entryStagger only.
func (c *Client) connectAny(ctx context.Context, lost *conn) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn *conn
		err  error
	}
	seeds := c.seeds(lost)
	results := make(chan result, len(seeds))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var errs []error
	var fatal *Error
	started := 0
	for len(errs) < len(seeds) {
		next := timer.C
		if started == len(seeds) {
			next = nil
		}
		select {
		case <-next:
			addr := seeds[started]
			started++
			timer.Reset(entryStagger)
			if !c.spawn(func() {
				conn, err := c.connect(ctx, addr)
				results <- result{conn, err}
			}) {
				return nil, closedError("connect", "")
			}
		case r := <-results:
			if r.err == nil {
				cancel()
				for range started - len(errs) - 1 {
					if spare := <-results; spare.conn != nil {
						spare.conn.end(errSpare)
					}
				}
				return r.conn, nil
			}
			errs = append(errs, r.err)
			if e := asError("connect", "", r.err); e.Retry == RetryFatal && fatal == nil {
				fatal = e
			}
			timer.Reset(0)
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	if fatal != nil {
		return nil, fatal
	}
	return nil, unavailable("connect", "", fmt.Errorf("none of %d addresses answers: %w", len(seeds), errors.Join(errs...)))
}

var errSpare = errors.New("another address answered first")

// A slot is one of the publish streams of a target. The stream in it is replaced when it has ended.
type slot struct {
	target  *target
	current atomic.Pointer[pubStream]
	turn    chan struct{} // capacity 1; held while opening
	retries *retryQueue
}

func newSlot(t *target) *slot {
	return &slot{target: t, turn: make(chan struct{}, 1), retries: newRetryQueue(t.client)}
}

// open returns the publish stream of the place if there is one, which may end any time.
func (p place) open() *pubStream { return p.target.slots[p.slot%len(p.target.slots)].current.Load() }

// stream returns the publish stream of the place.
func (p place) stream(ctx context.Context) (*pubStream, error) {
	return p.target.slots[p.slot%len(p.target.slots)].stream(ctx)
}

// stream returns a stream that takes publishes, opening one if need be. A stream that is being finished is waited for first, so that
// nothing overtakes what is in it.
func (s *slot) stream(ctx context.Context) (*pubStream, error) {
	if p := s.current.Load(); p != nil && !p.gone.Load() {
		return p, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, contextError("publish", "", ctx)
	case <-s.target.client.closing:
		return nil, closedError("publish", "")
	}
	p := s.current.Load()
	if p != nil && !p.gone.Load() {
		return p, nil
	}
	if p != nil {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return nil, contextError("publish", "", ctx)
		case <-s.target.client.closing:
			return nil, closedError("publish", "")
		}
	}
	c, err := s.target.get(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.target.client.untilClosing(ctx)
	defer cancel()
	p, err = c.openPublish(ctx, s.retries)
	if err != nil {
		return nil, err
	}
	s.current.Store(p)
	return p, nil
}
