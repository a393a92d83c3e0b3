package client

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// maxTopics bounds the streams whose routes are remembered. Beyond it those not used lately are forgotten, and asked for again on use.
const maxTopics = 4096

const (
	// refreshInterval is how often the width and the owners of streams in use are asked again (WIRE section 7.4).
	refreshInterval = 5 * time.Second
	// ownersTimeout bounds the wait for shard_owners, without which the entry connection serves.
	ownersTimeout = time.Second
)

// topicKey names a stream; the tenant is the client's.
type topicKey struct{ namespace, stream string }

// A topic is what the client knows about one stream. It may be used from any goroutine.
type topic struct {
	client                    *Client
	scope                     wire.Scope
	tenant, namespace, stream []byte // the scope as bytes, for the codec
	names                     string // all three, for their length

	route atomic.Pointer[route] // nil before the first answer and after a refusal that casts doubt on it
	used  atomic.Bool           // since the last refresh

	mu     sync.Mutex
	asking *routeCall // guarded by mu
}

// A route says where the shards of a stream are. It does not change; the same pointer means the same width and routing.
type route struct {
	shards  uint32 // at least 1
	routing wire.Routing
	places  []place  // one per shard; empty when the owners are not known
	addrs   []string // addresses of the owners, to compare
}

// A place is where a shard is served. Its slot is chosen so that the shards of one owner spread over the owner's streams.
type place struct {
	target *target // nil means the entry broker
	slot   int
}

type routeCall struct {
	done  chan struct{}
	route *route
	err   error
}

// topicFor returns the topic of a stream, the same one for the same name.
func (c *Client) topicFor(namespace, stream string) *topic {
	key := topicKey{namespace, stream}
	if t := (*c.topics.Load())[key]; t != nil {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.topics.Load()
	if t := known[key]; t != nil {
		return t
	}
	scope := wire.Scope{TenantID: c.config.tenant, Namespace: namespace, Stream: stream}
	t := &topic{client: c, scope: scope, tenant: []byte(scope.TenantID), namespace: []byte(namespace), stream: []byte(stream)}
	t.names = scope.TenantID + namespace + stream
	grown := make(map[topicKey]*topic, len(known)+1)
	for k, v := range known {
		if len(known) < maxTopics || v.used.Load() {
			grown[k] = v
		}
	}
	if len(grown) >= maxTopics {
		clear(grown)
	}
	grown[key] = t
	c.topics.Store(&grown)
	return t
}

func (t *topic) touch() {
	if !t.used.Load() {
		t.used.Store(true)
	}
}

// forgetRoutes makes every stream ask for its route again.
func (c *Client) forgetRoutes() {
	for _, t := range *c.topics.Load() {
		t.route.Store(nil)
	}
}

// current returns the route, asking for it on first use. The error is of the operation op.
func (t *topic) current(ctx context.Context, op string) (*route, error) {
	t.touch()
	if r := t.route.Load(); r != nil {
		return r, nil
	}
	return t.ask(ctx, op)
}

// expire makes the next use ask again, unless somebody has replaced r already.
func (t *topic) expire(r *route) { t.route.CompareAndSwap(r, nil) }

// ask asks the broker, once for all who want to know at the same time.
func (t *topic) ask(ctx context.Context, op string) (*route, error) {
	t.mu.Lock()
	call := t.asking
	if call == nil {
		call = &routeCall{done: make(chan struct{})}
		t.asking = call
		ok := t.client.spawn(func() {
			call.route, call.err = t.fetch(t.client.ctx)
			t.mu.Lock()
			t.asking = nil
			if call.err == nil {
				t.route.Store(call.route)
			}
			t.mu.Unlock()
			close(call.done)
		})
		if !ok {
			t.asking = nil
			t.mu.Unlock()
			return nil, closedError(op, t.scope.Stream)
		}
	}
	t.mu.Unlock()
	select {
	case <-call.done:
		if call.err != nil {
			return nil, asError(op, t.scope.Stream, call.err)
		}
		return call.route, nil
	case <-ctx.Done():
		return nil, contextError(op, t.scope.Stream, ctx)
	case <-t.client.closing:
		return nil, closedError(op, t.scope.Stream)
	}
}

// fetch asks the entry broker for width and owners, both at once. It keeps the old route when nothing has changed.
func (t *topic) fetch(ctx context.Context) (*route, error) {
	ctx, cancel := context.WithTimeout(ctx, t.client.config.reconnect.Deadline)
	defer cancel()
	c, err := t.client.entries[0].get(ctx)
	if err != nil {
		return nil, err
	}
	owners := make(chan []wire.ShardOwner, 1)
	asked := c.features.Has(wire.FeatureShardOwners) && t.client.spawn(func() {
		ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
		defer cancel()
		list, _ := c.shardOwners(ctx, t.scope)
		owners <- list
	})
	r := &route{shards: 1}
	if c.features.Has(wire.FeatureStreamShards) {
		view, err := c.streamShards(ctx, t.scope)
		if err != nil {
			return nil, err
		}
		if view.Shards == 0 {
			return nil, &Error{Op: "route", Code: wire.CodeNotFound, Retry: RetryAfter, Message: "the broker does not know the stream"}
		}
		r.shards, r.routing = view.Shards, view.Routing
	}
	if asked {
		t.client.assign(r, c, <-owners)
	}
	if old := t.route.Load(); old.same(r) {
		return old, nil
	}
	return r, nil
}

// refresh asks again. A failure leaves the route as it is: a publish will notice.
func (t *topic) refresh(ctx context.Context) {
	if r, err := t.fetch(ctx); err == nil {
		t.route.Store(r)
	}
}

// assign sets the owners of r. A list of another length than the width is ignored, and so is an owner without an address.
func (c *Client) assign(r *route, entry *conn, owners []wire.ShardOwner) {
	if len(owners) != int(r.shards) {
		return
	}
	r.places, r.addrs = make([]place, r.shards), make([]string, r.shards)
	seen := make(map[string]int)
	for _, o := range owners {
		if o.Addr == "" || o.Shard >= r.shards || o.Addr == entry.remote {
			continue
		}
		if _, err := netip.ParseAddrPort(o.Addr); err != nil && !isHostPort(o.Addr) {
			continue
		}
		n := seen[o.Addr]
		seen[o.Addr]++
		r.addrs[o.Shard] = o.Addr
		r.places[o.Shard] = place{c.target(o.Addr, n%c.config.connections), n / c.config.connections}
	}
}

func (r *route) same(other *route) bool {
	if r == nil || r.shards != other.shards || r.routing != other.routing || len(r.addrs) != len(other.addrs) {
		return false
	}
	for i := range r.addrs {
		if r.addrs[i] != other.addrs[i] {
			return false
		}
	}
	return true
}

// shardOf returns the shard of a message.
func (r *route) shardOf(key string, keyed bool) uint32 {
	return wire.ShardOf(r.routing, keyBytes(key), keyed, r.shards)
}

// owner returns where to send what belongs to a shard: to its owner, or through the entry broker while the owner is unknown or cannot be
// reached.
func (r *route) owner(c *Client, shard uint32) place {
	if int(shard) < len(r.places) {
		if p := r.places[shard]; p.target != nil && !p.target.down.Load() {
			return p
		}
	}
	return c.entryPlace(shard)
}

func (c *Client) entryPlace(shard uint32) place {
	n := len(c.entries)
	return place{c.entries[int(shard)%n], int(shard) / n}
}

// StreamShards returns the number of shards of a stream of the client's namespace, 0 when the broker does not know it.
func (c *Client) StreamShards(ctx context.Context, stream string) (int, error) {
	view, err := ask(c, ctx, "stream shards", stream, wire.FeatureStreamShards, func(ctx context.Context, conn *conn) (*wire.StreamShardsView, error) {
		return conn.streamShards(ctx, c.scope(stream))
	})
	if err != nil {
		return 0, err
	}
	return int(view.Shards), nil
}

// A ShardOwner says which broker, or which core of one, owns a shard. NodeID and Addr are empty when the broker does not say.
type ShardOwner = wire.ShardOwner

// ShardOwners returns the owners of a stream's shards in order, none when the broker does not know the stream.
func (c *Client) ShardOwners(ctx context.Context, stream string) ([]ShardOwner, error) {
	return ask(c, ctx, "shard owners", stream, wire.FeatureShardOwners, func(ctx context.Context, conn *conn) ([]ShardOwner, error) {
		return conn.shardOwners(ctx, c.scope(stream))
	})
}

// A Broker is an address that clients may dial.
type Broker = wire.Broker

// Topology returns the brokers that the broker names to its clients. None is a good answer.
func (c *Client) Topology(ctx context.Context) ([]Broker, error) {
	return ask(c, ctx, "topology", "", wire.FeatureTopology, func(ctx context.Context, conn *conn) ([]Broker, error) {
		return conn.topology(ctx)
	})
}

func (c *Client) scope(stream string) wire.Scope {
	return wire.Scope{TenantID: c.config.tenant, Namespace: c.config.namespace, Stream: stream}
}

// ask puts a question that changes nothing to the entry broker, again after a lost connection, within the policy's deadline.
func ask[T any](c *Client, ctx context.Context, op, stream string, feature wire.Features, question func(context.Context, *conn) (T, error)) (T, error) {
	var none T
	caller, cancel := c.untilClosing(ctx)
	defer cancel()
	ctx = caller // until the first failure
	for try := 1; ; try++ {
		conn, err := c.entries[0].get(ctx)
		if err == nil {
			if !conn.features.Has(feature) {
				return none, unsupported(op, stream, fmt.Sprintf("%q", op))
			}
			var answer T
			if answer, err = question(ctx, conn); err == nil {
				return answer, nil
			}
		}
		e := asError(op, stream, err)
		if caller.Err() != nil {
			return none, contextError(op, stream, caller)
		}
		if e.Retry == RetryFatal || e.Retry == RetryAfter && e.Code != wire.CodeOverloaded && e.RetryAfter == 0 || try >= c.config.reconnect.Attempts {
			return none, e
		}
		if try == 1 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeoutCause(caller, c.config.reconnect.Deadline, e)
			defer stop()
		}
		if ctx.Err() != nil {
			return none, asError(op, stream, context.Cause(ctx))
		}
		if err := c.pause(ctx, op, stream, c.backoff(try, e.RetryAfter)); err != nil && caller.Err() != nil {
			return none, contextError(op, stream, caller)
		} else if err != nil {
			return none, e
		}
	}
}
