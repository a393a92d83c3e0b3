package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// A conn is one authenticated QUIC connection. It may be used from any goroutine, and is never used again once it has ended.
type conn struct {
	client *Client
	addr   string // as dialled
	remote string // IP and port of the peer
	quic   *quic.Conn
	free   func() // closes transport and socket

	// What the broker announced on the first stream. Fixed once open has returned.
	flags    wire.Flags
	features wire.Features
	window   int // most publishes sent and unanswered on one stream

	once  sync.Once
	cause error         // why it ended; read after ended is closed
	ended chan struct{} // closed when it has ended
	dead  atomic.Bool   // the same for a quick look

	mu     sync.Mutex
	asker  *asker              // the stream for questions; nil when it has ended; guarded by mu
	events map[uint64]*meeting // by subscription id; guarded by mu
}

func newConn(c *Client, addr, remote string, q *quic.Conn, free func()) *conn {
	return &conn{client: c, addr: addr, remote: remote, quic: q, free: free, ended: make(chan struct{}), events: make(map[uint64]*meeting)}
}

// open authenticates and starts the goroutines of the connection.
func (c *conn) open(ctx context.Context) error {
	a, ok, err := c.openAsker(ctx)
	if err != nil {
		return err
	}
	c.flags, c.features, c.window = ok.ServerFlags, ok.ServerFeatures, defaultWindow
	if c.features.Has(wire.FeaturePublishPipeline) && ok.HasPublishWindow && ok.PublishWindow > 0 {
		c.window = int(min(ok.PublishWindow, 1<<16))
		if !c.features.Has(wire.FeatureStreamPublishWindow) {
			c.window = max(1, c.window/c.client.config.publishStreams) // the streams share it
		}
	}
	c.asker = a
	if !c.client.spawn(c.acceptLoop) {
		return closedError("connect", "")
	}
	return c.startAsker(a)
}

// end closes the connection. Only the first call counts. What was written and not sent yet is thrown away: whoever wants it sent finishes
// the publish streams first.
func (c *conn) end(cause error) {
	c.once.Do(func() {
		c.cause = cause
		c.dead.Store(true)
		close(c.ended)
		c.quic.CloseWithError(0, "")
		c.free()
	})
}

// acceptLoop does nothing but accept, so that the queue of accepted streams never fills; it ends with the connection.
func (c *conn) acceptLoop() {
	for {
		st, err := c.quic.AcceptUniStream(c.client.ctx)
		if err != nil {
			c.end(err)
			c.client.forgetRoutes() // the owners may be others by now, at other addresses
			return
		}
		if !c.client.spawn(func() { c.greet(st) }) {
			st.CancelRead(0)
		}
	}
}

// ask sends one request on a stream of its own and returns the answer. An error answer is an *Error of op.
func (c *conn) ask(ctx context.Context, op, stream string, request wire.Message) (wire.Message, error) {
	auth, token, err := c.client.authFrame(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.askWith(ctx, op, stream, auth, request)
	var e *Error
	if errors.As(err, &e) && e.Code == wire.CodeUnauthenticated {
		// The token may have been replaced since it was asked for.
		if auth, fresh, tokenErr := c.client.authFrame(ctx); tokenErr == nil && fresh != token {
			return c.askWith(ctx, op, stream, auth, request)
		}
	}
	return m, err
}

func (c *conn) askWith(ctx context.Context, op, stream string, auth []byte, request wire.Message) (wire.Message, error) {
	st, err := c.quic.OpenStreamSync(ctx)
	if err != nil {
		return nil, c.requestError(ctx, op, stream, err)
	}
	stop := context.AfterFunc(ctx, func() { st.CancelRead(0); st.CancelWrite(0) })
	defer stop()
	defer st.CancelRead(0) // the answer is all there is to read
	if _, err := st.Write(wire.AppendMessage(auth, request)); err != nil {
		return nil, c.requestError(ctx, op, stream, err)
	}
	st.Close()
	r := bufio.NewReader(st)
	if _, err := readAuthOK(r, op, stream); err != nil {
		return nil, c.requestError(ctx, op, stream, err)
	}
	m, err := readMessage(r)
	if err != nil {
		return nil, c.requestError(ctx, op, stream, err)
	}
	switch m := m.(type) {
	case *wire.Error:
		return nil, refusal(op, stream, m)
	case *wire.Unsupported:
		return nil, unsupported(op, stream, m.RequestType)
	}
	return m, nil
}

// requestError says why a request has no answer. Requests that come here change nothing that a repetition would change again.
func (c *conn) requestError(ctx context.Context, op, stream string, err error) error {
	if ctx.Err() != nil {
		return contextError(op, stream, ctx)
	}
	var e *Error
	if errors.As(err, &e) {
		return e.withOp(op, stream)
	}
	if err == io.EOF {
		err = errNoAnswer
	}
	return unavailable(op, stream, fmt.Errorf("%s: %w", c.addr, err))
}

// readAuthOK reads the answer to auth.
func readAuthOK(r io.Reader, op, stream string) (*wire.AuthOK, error) {
	m, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.AuthOK:
		return m, nil
	case *wire.Error:
		e := refusal(op, stream, m)
		if !m.HasCode {
			e.Code, e.Retry = wire.CodeUnauthenticated, RetryFatal
		}
		return nil, e
	}
	return nil, fmt.Errorf("message %q in answer to auth", m.MessageType())
}

// readMessage reads one frame that must be a JSON message.
func readMessage(r io.Reader) (wire.Message, error) {
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	if h.Flags != 0 || h.Length > wire.MaxFrameBytes {
		return nil, fmt.Errorf("frame with flags %#04x and %d bytes where a message was due", uint16(h.Flags), h.Length)
	}
	// Grown by what arrives, not by what the header says.
	body, err := io.ReadAll(io.LimitReader(r, int64(h.Length)))
	if err != nil {
		return nil, err
	}
	if len(body) < int(h.Length) {
		return nil, io.ErrUnexpectedEOF
	}
	return wire.ParseMessage(body)
}

// openPublish opens a publish stream. The answer to its auth is read later, by the stream.
func (c *conn) openPublish(ctx context.Context, retries *retryQueue) (*pubStream, error) {
	auth, _, err := c.client.authFrame(ctx)
	if err != nil {
		return nil, err
	}
	st, err := c.quic.OpenStreamSync(ctx)
	if err != nil {
		return nil, c.requestError(ctx, "publish", "", err)
	}
	s := newPubStream(c.client, st, retries, c.flags, c.features, c.window, auth)
	if !s.run(c.client.spawn) {
		st.CancelRead(0)
		st.CancelWrite(0)
		return nil, closedError("publish", "")
	}
	return s, nil
}
