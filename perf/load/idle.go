package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/quic-go/quic-go"

	"felix/client"
)

// Bounds of what idles beside a load.
const (
	maxIdleConnections = 4096
	maxIdleStreams     = 60_000 // a catalog holds 65,536
	idleWorkers        = 16     // that make them side by side: below every bound on handshakes under way
)

// An Idle is connections that do nothing but stay: each has one stream, authenticated and open, as a Go client has that neither publishes nor
// subscribes. Both ends keep them alive.
type Idle struct {
	dialer *leanDialer
	conns  []*quic.Conn
}

// OpenIdle opens n connections, at most 4,096, from one socket to the address of c, which may also be a server that answers an auth and does
// nothing else. The caller closes them.
func OpenIdle(ctx context.Context, c FelixConfig, n int) (*Idle, error) {
	if n < 0 || n > maxIdleConnections {
		return nil, fmt.Errorf("%d idle connections; give 0 to %d", n, maxIdleConnections)
	}
	b, err := newFelixBroker(c, maxLeanConnections)
	if err != nil {
		return nil, err
	}
	d, err := b.newDialer()
	if err != nil {
		return nil, err
	}
	idle := &Idle{dialer: d, conns: make([]*quic.Conn, n)}
	err = sideBySide(ctx, n, func(ctx context.Context, i int) error {
		conn, err := d.dial(ctx, d.entry)
		if err != nil {
			return fmt.Errorf("idle connection %d of %d: %w", i+1, n, err)
		}
		idle.conns[i] = conn
		if _, _, err = d.open(ctx, conn); err != nil {
			return fmt.Errorf("idle connection %d of %d: %w", i+1, n, err)
		}
		return nil
	})
	if err != nil {
		idle.Close()
		return nil, err
	}
	return idle, nil
}

// Lost is how many of the connections have ended.
func (i *Idle) Lost() (n int) {
	for _, conn := range i.conns {
		n += count(conn.Context().Err() != nil)
	}
	return n
}

// Close ends the connections.
func (i *Idle) Close() {
	for _, conn := range i.conns {
		if conn != nil {
			_ = conn.CloseWithError(0, "")
		}
	}
	i.dialer.close()
}

// MakeStreams makes n streams in memory, at most 60,000, of one shard each, called idle-0, idle-1, ..., and publishes one record of size
// bytes to each, unless size is NoPayload. They stay. c must name the admin listener.
func MakeStreams(ctx context.Context, c FelixConfig, n, size int) error {
	if n < 0 || n > maxIdleStreams {
		return fmt.Errorf("%d idle streams; give 0 to %d", n, maxIdleStreams)
	}
	b, err := newFelixBroker(c, maxClientConnections)
	if err != nil {
		return err
	}
	admin := newAdminControl(c.Admin, b.config.Tenant, b.config.Namespace)
	transport := &http.Transport{MaxConnsPerHost: idleWorkers, MaxIdleConnsPerHost: idleWorkers}
	admin.http.Transport = transport
	defer transport.CloseIdleConnections()
	if err := admin.createScope(ctx); err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("idle-%d", i) }
	err = sideBySide(ctx, n, func(ctx context.Context, i int) error {
		return admin.post(ctx, "stream "+name(i), admin.streams(), map[string]any{"stream": name(i), "shards": 1, "durable": false})
	})
	if err != nil || size == NoPayload || n == 0 {
		return err
	}
	out, err := (&clientStream{broker: b}).dial(ctx, 1)
	if err != nil {
		return err
	}
	payload := make([]byte, size)
	err = sideBySide(ctx, n, func(ctx context.Context, i int) error {
		if _, err := out.Publish(ctx, name(i), payload); err != nil {
			return fmt.Errorf("the record of stream %s: %w", name(i), err)
		}
		return nil
	})
	return errors.Join(err, out.Close())
}

// An Audience is subscribers that wait for records.
type Audience struct {
	clients []*client.Client
}

// OpenAudience connects an audience to the broker of c: clients share what subscribes, and have one connection each, to each core that owns
// a shard. The caller closes it.
func OpenAudience(ctx context.Context, c FelixConfig, clients int) (*Audience, error) {
	b, err := newFelixBroker(c, maxClientConnections)
	if err != nil {
		return nil, err
	}
	a := &Audience{}
	for range clients {
		in, err := (&clientStream{broker: b}).dial(ctx, 1)
		if err != nil {
			a.Close()
			return nil, err
		}
		a.clients = append(a.clients, in)
	}
	return a, nil
}

// Subscribe adds n subscribers of a stream, the clients in turn. It returns when all are registered.
func (a *Audience) Subscribe(ctx context.Context, stream string, n int) error {
	return sideBySide(ctx, n, func(ctx context.Context, i int) error {
		if _, err := a.clients[i%len(a.clients)].Subscribe(ctx, stream, client.FromLatest()); err != nil {
			return fmt.Errorf("subscriber %d of %d: %w", i+1, n, err)
		}
		return nil
	})
}

// Close ends subscribers and clients.
func (a *Audience) Close() {
	var closing sync.WaitGroup
	for _, c := range a.clients {
		closing.Go(func() { _ = c.Close() })
	}
	closing.Wait()
}

// sideBySide calls do for 0 to n-1, some at a time, until one fails.
func sideBySide(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for w := range min(idleWorkers, n) {
		working.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += idleWorkers {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}
