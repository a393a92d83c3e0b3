package netio

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
)

// Close codes of WIRE section 1.5. A process that just ends sends none.
const (
	closeShutdown    quic.ApplicationErrorCode = 0
	closeAuthTimeout quic.ApplicationErrorCode = 1
)

// stopRefused is the code for a direction of a stream that is given up. Clients do not look at the value.
const stopRefused quic.StreamErrorCode = 1

// A conn is one client connection. It belongs to the core whose socket accepted it, and lives until the connection
// ends and every goroutine of its streams has returned.
type conn struct {
	server  *Server
	number  uint64 // from 1
	quic    *quic.Conn
	ticket  *ticket
	session core.ID
	loop    *core.Loop // of session
	ingress *ingress   // of session

	requests requestRate // of what is no publish

	bytes   *budget       // publish bytes in chunks of this connection
	preauth chan struct{} // one place per unauthenticated stream that is read

	verified atomic.Pointer[credential] // the last one that passed; streams of a connection use the same

	mu            sync.Mutex
	streams       map[*stream]struct{} // every stream with a reader; guarded by mu
	draining      bool                 // streams finish what they hold; guarded by mu
	quiet         chan struct{}        // closed when draining and no stream that had authenticated is left
	isQuiet       bool                 // quiet is closed; guarded by mu
	subscriptions int                  // open ones; guarded by mu
	ids           map[uint64]struct{}  // their ids; guarded by mu
	nextID        uint64               // guarded by mu

	goroutines sync.WaitGroup // readers, event writers, blocked answers
}

// A credential is a tenant and the token that was accepted for it.
type credential struct{ tenant, token string }

func (s *Server) serve(q *quic.Conn, session core.ID) {
	t, ok := q.Context().Value(ticketKey{}).(*ticket)
	if !ok {
		panic("BUG: netio: connection without a ticket")
	}
	c := &conn{
		server:  s,
		number:  s.counts.connNumber.Add(1),
		quic:    q,
		ticket:  t,
		session: session,
		loop:    s.group.Loop(session),
		ingress: s.ingress[session],
		bytes:   newBudget(s.limits.ConnectionBytes),
		preauth: make(chan struct{}, s.limits.PreauthStreams),
		streams: make(map[*stream]struct{}),
		ids:     make(map[uint64]struct{}),
		quiet:   make(chan struct{}),
	}
	if !s.add(c) {
		q.CloseWithError(closeShutdown, "broker shutting down")
		return
	}
	defer s.remove(c)
	if s.limits.AuthTimeout > 0 {
		deadline := time.AfterFunc(s.limits.AuthTimeout, func() {
			if !t.authenticated.Load() {
				s.counts.authTimeouts.Add(1)
				c.say(logAuthTimeout, "no stream authenticated within "+s.limits.AuthTimeout.String())
				q.CloseWithError(closeAuthTimeout, "authentication timeout")
			}
		})
		defer deadline.Stop()
	}
	c.goroutines.Go(func() {
		for {
			u, err := q.AcceptUniStream(q.Context())
			if err != nil || !c.admit() {
				return
			}
			c.start(newStream(c, u, nil))
		}
	})
	for {
		b, err := q.AcceptStream(q.Context())
		if err != nil || !c.admit() {
			break
		}
		c.start(newStream(c, b, b))
	}
	c.goroutines.Wait()
}

// admit waits for a place among the unauthenticated streams, which the stream's reader gives back. It is the accept loop that
// waits, so that a thousand streams of a peer that shows no token are not a thousand goroutines. False means that the
// connection has ended.
func (c *conn) admit() bool {
	select {
	case c.preauth <- struct{}{}:
		return true
	case <-c.quic.Context().Done():
		return false
	}
}

// start reads a new stream in a goroutine of its own. While the broker drains, its auth is refused.
func (c *conn) start(st *stream) {
	c.mu.Lock()
	c.streams[st] = struct{}{}
	draining := c.draining
	c.mu.Unlock()
	if draining {
		st.drain()
	}
	c.server.counts.streams.Add(1)
	c.goroutines.Go(func() {
		st.read()
		c.mu.Lock()
		delete(c.streams, st)
		c.settleQuiet()
		c.mu.Unlock()
	})
}

// drain makes every stream finish what it has accepted and refuses new ones.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	for st := range c.streams {
		st.drain()
	}
	c.settleQuiet()
}

// settleQuiet notes when a draining connection owes nothing more. The caller holds mu.
func (c *conn) settleQuiet() {
	if !c.draining || c.isQuiet {
		return
	}
	for st := range c.streams {
		if st.authenticated.Load() {
			return
		}
	}
	c.isQuiet = true
	close(c.quiet)
}

// verify checks a stream's credential, once per connection and credential.
func (c *conn) verify(tenant, token string) error {
	if last := c.verified.Load(); last != nil && last.tenant == tenant && last.token == token {
		return nil
	}
	if err := c.server.authenticate(tenant, token); err != nil {
		return err
	}
	c.verified.Store(&credential{tenant, token})
	return nil
}

var (
	errSubscriptionLimit = errors.New("too many subscriptions on this connection")
	errSubscriptionID    = errors.New("subscription id is in use on this connection")
)

// reserveSubscription takes a place and an id for a subscription. want 0 lets the broker choose the id.
func (c *conn) reserveSubscription(want uint64, given bool) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscriptions >= c.server.limits.Subscriptions {
		return 0, errSubscriptionLimit
	}
	id := want
	if !given {
		for {
			c.nextID++
			id = c.nextID
			if _, taken := c.ids[id]; !taken {
				break
			}
		}
	} else if _, taken := c.ids[id]; taken {
		return 0, errSubscriptionID
	}
	c.ids[id] = struct{}{}
	c.subscriptions++
	c.server.counts.subscriptions.Add(1)
	return id, nil
}

func (c *conn) releaseSubscription(id uint64) {
	c.mu.Lock()
	delete(c.ids, id)
	c.subscriptions--
	c.mu.Unlock()
	c.server.counts.subscriptions.Add(-1)
}

// postTo runs t on the loop of core to. It goes through the session's own inbox, so that every inbox has the
// goroutines of one core as its producers and every other crossing is a ring's.
func (c *conn) postTo(to core.ID, t core.Task) error {
	if to == c.session {
		return c.loop.PostOffCore(t)
	}
	return c.loop.PostOffCore(core.Func(func(l *core.Loop) { l.Send(to, t) }))
}

// shutdown makes every stream finish what it has accepted, gives the peer a moment to read what was written, and
// closes the connection. CloseWithError throws away what is written and not yet sent, hence the moment. A peer that
// does not read its answers gets no more than that; publishes that wait for their shard get all the time ctx has.
func (c *conn) shutdown(ctx context.Context, linger time.Duration) {
	c.drain()
	quiet := c.quiet
	for pause := time.NewTimer(linger); ; pause.Reset(linger) {
		select {
		case <-quiet:
			quiet = nil // then one linger more
			continue
		case <-pause.C:
			if quiet != nil && c.busy(ctx) {
				continue
			}
		case <-c.quic.Context().Done():
		case <-ctx.Done():
		}
		pause.Stop()
		break
	}
	c.quic.CloseWithError(closeShutdown, "broker shutting down")
}

// busy reports whether a publish of the connection is still on its way.
func (c *conn) busy(ctx context.Context) bool {
	c.mu.Lock()
	streams := make([]*stream, 0, len(c.streams))
	for st := range c.streams {
		streams = append(streams, st)
	}
	c.mu.Unlock()
	answer := make(chan bool, 1)
	err := c.loop.PostOffCore(core.Func(func(*core.Loop) {
		answer <- slices.ContainsFunc(streams, func(st *stream) bool {
			return st.answers.oldest != nil || st.unacked.used.Load() > 0
		})
	}))
	if err != nil {
		return false
	}
	select {
	case busy := <-answer:
		return busy
	case <-ctx.Done():
		return false
	}
}
