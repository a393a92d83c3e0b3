package client

import (
	"bufio"
	"context"
	"errors"
	"sync"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// An asker is the long-lived stream on which a connection asks for widths and owners, several questions at once. It is opened together
// with the connection, so that the first question costs one round trip, and opened again after the broker has ended it.
type asker struct {
	conn *conn
	st   *quic.Stream
	r    *bufio.Reader

	write sync.Mutex // held while writing a question

	mu     sync.Mutex
	open   map[uint64]chan wire.Message // by request id; guarded by mu
	nextID uint64                       // guarded by mu
	err    error                        // not nil: the stream has ended; guarded by mu
}

// openAsker opens the stream and authenticates.
func (c *conn) openAsker(ctx context.Context) (*asker, *wire.AuthOK, error) {
	auth, token, err := c.client.authFrame(ctx)
	if err != nil {
		return nil, nil, err
	}
	a, ok, err := c.openAskerWith(ctx, auth)
	var e *Error
	if errors.As(err, &e) && e.Code == wire.CodeUnauthenticated {
		if auth, fresh, tokenErr := c.client.authFrame(ctx); tokenErr == nil && fresh != token {
			return c.openAskerWith(ctx, auth)
		}
	}
	return a, ok, err
}

func (c *conn) openAskerWith(ctx context.Context, auth []byte) (*asker, *wire.AuthOK, error) {
	st, err := c.quic.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, c.requestError(ctx, "connect", "", err)
	}
	stop := context.AfterFunc(ctx, func() { st.CancelRead(0); st.CancelWrite(0) })
	defer stop()
	if _, err := st.Write(auth); err != nil {
		return nil, nil, c.requestError(ctx, "connect", "", err)
	}
	r := bufio.NewReader(st)
	ok, err := readAuthOK(r, "connect", "")
	if err != nil {
		st.CancelRead(0)
		st.CancelWrite(0)
		return nil, nil, c.requestError(ctx, "connect", "", err)
	}
	return &asker{conn: c, st: st, r: r, open: make(map[uint64]chan wire.Message)}, ok, nil
}

func (c *conn) startAsker(a *asker) error {
	if !c.client.spawn(a.readLoop) {
		return closedError("connect", "")
	}
	return nil
}

// theAsker returns the open stream for questions, a new one when the last has ended.
func (c *conn) theAsker(ctx context.Context) (*asker, error) {
	c.mu.Lock()
	a := c.asker
	c.mu.Unlock()
	if a != nil {
		return a, nil
	}
	a, _, err := c.openAsker(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.asker != nil { // somebody was faster
		spare := a
		a = c.asker
		c.mu.Unlock()
		spare.close()
		return a, nil
	}
	c.asker = a
	c.mu.Unlock()
	return a, c.startAsker(a)
}

func (a *asker) close() {
	a.st.CancelRead(0)
	a.st.CancelWrite(0)
}

// readLoop hands answers to those who asked, by request id. An error ends the stream (WIRE section 7.4).
func (a *asker) readLoop() {
	for {
		m, err := readMessage(a.r)
		if err != nil {
			a.fail(err)
			return
		}
		var id uint64
		switch m := m.(type) {
		case *wire.StreamShardsView:
			id = m.RequestID
		case *wire.ShardOwnersView:
			id = m.RequestID
		case *wire.Unsupported:
			id = m.RequestID
		case *wire.Error:
			a.fail(refusal("route", "", m))
			return
		}
		a.mu.Lock()
		answer := a.open[id]
		delete(a.open, id)
		a.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (a *asker) fail(err error) {
	a.conn.mu.Lock()
	if a.conn.asker == a {
		a.conn.asker = nil
	}
	a.conn.mu.Unlock()
	a.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	for id, answer := range a.open {
		delete(a.open, id)
		close(answer)
	}
}

// question sends what build makes of a request id and returns the answer to it.
func (c *conn) question(ctx context.Context, op, stream string, build func(id uint64) wire.Message) (wire.Message, error) {
	a, err := c.theAsker(ctx)
	if err != nil {
		return nil, err
	}
	answer := make(chan wire.Message, 1)
	a.mu.Lock()
	if a.err != nil {
		a.mu.Unlock()
		return nil, c.requestError(ctx, op, stream, a.err)
	}
	a.nextID++
	id := a.nextID
	a.open[id] = answer
	a.mu.Unlock()

	a.write.Lock()
	_, err = a.st.Write(wire.AppendMessage(nil, build(id))) // small: it never waits for more than flow control
	a.write.Unlock()
	if err != nil {
		a.fail(err)
		return nil, c.requestError(ctx, op, stream, err)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			a.mu.Lock()
			defer a.mu.Unlock()
			return nil, c.requestError(ctx, op, stream, a.err)
		}
		if m, ok := m.(*wire.Unsupported); ok {
			return nil, unsupported(op, stream, m.RequestType)
		}
		return m, nil
	case <-ctx.Done():
		a.mu.Lock()
		delete(a.open, id)
		a.mu.Unlock()
		return nil, contextError(op, stream, ctx)
	}
}

var errWrongAnswer = errors.New("the answer is of another kind than the question")

func (c *conn) streamShards(ctx context.Context, s wire.Scope) (*wire.StreamShardsView, error) {
	m, err := c.question(ctx, "stream shards", s.Stream, func(id uint64) wire.Message {
		return &wire.StreamShards{Scope: s, RequestID: id}
	})
	if err != nil {
		return nil, err
	}
	view, ok := m.(*wire.StreamShardsView)
	if !ok {
		return nil, unavailable("stream shards", s.Stream, errWrongAnswer)
	}
	return view, nil
}

func (c *conn) shardOwners(ctx context.Context, s wire.Scope) ([]wire.ShardOwner, error) {
	m, err := c.question(ctx, "shard owners", s.Stream, func(id uint64) wire.Message {
		return &wire.ShardOwners{TenantID: s.TenantID, Namespace: s.Namespace, Name: s.Stream, Kind: wire.ShardKindStream, RequestID: id}
	})
	if err != nil {
		return nil, err
	}
	view, ok := m.(*wire.ShardOwnersView)
	if !ok {
		return nil, unavailable("shard owners", s.Stream, errWrongAnswer)
	}
	return view.Owners, nil
}

func (c *conn) topology(ctx context.Context) ([]wire.Broker, error) {
	m, err := c.ask(ctx, "topology", "", &wire.Topology{})
	if err != nil {
		return nil, err
	}
	view, ok := m.(*wire.TopologyView)
	if !ok {
		return nil, unavailable("topology", "", errWrongAnswer)
	}
	return view.Brokers, nil
}
