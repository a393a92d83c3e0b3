package netio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
)

// This file answers who subscribes to what, and how far behind they are.

const (
	// inspectTask is how many subscriptions a loop looks at in one task, so that its shards go on in between.
	inspectTask = 256
	// inspectEntryBytes is at least what an entry of a list takes in JSON, with three names of the greatest length.
	inspectEntryBytes = 1 << 10
)

// subscribers are the open subscriptions of a server. It may be used from any goroutine, and is on no record's way.
type subscribers struct {
	mu   sync.Mutex
	byID map[uint64]*subscription // guarded by mu; bounded by Limits.Connections and Limits.Subscriptions
	last uint64                   // guarded by mu
}

// add gives sub its number.
func (r *subscribers) add(sub *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	sub.number = r.last
	if r.byID == nil {
		r.byID = make(map[uint64]*subscription)
	}
	r.byID[sub.number] = sub
}

func (r *subscribers) remove(sub *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, sub.number)
}

// list returns those that are chosen, in no order.
func (r *subscribers) list(chosen func(*subscription) bool) []*subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*subscription
	for _, sub := range r.byID {
		if chosen(sub) {
			list = append(list, sub)
		}
	}
	return list
}

// SubscriptionQuery chooses subscriptions. Its filters are those of the protocol.
type SubscriptionQuery struct {
	wire.SubscriptionFilter
	After    wire.SubscriptionCursor // the page begins behind it
	HasAfter bool
	Limit    int // 1 to wire.MaxSubscriptionsPage; 0 means wire.DefaultSubscriptionsPage
}

// SubscriptionInfo is one subscription.
type SubscriptionInfo struct {
	wire.SubscriptionCursor // scope, shard and the server's number for it

	SubscriptionID uint64 // on its connection
	Connection     uint64 // the server's number for the connection
	Peer           string // address of the client
	Policy         fanout.Policy
	State          string // joining, live, catching_up, blocked (holds publishes back), blocked_by_peer (the client does not read), ended
	Depth          int    // frames queued
	Capacity       int    // frames
	Dropped        uint64 // records
	Position       wire.Offset
	Tail           wire.Offset
	LagRecords     uint64 // from Position to Tail
	LagBytes       uint64 // the same, by estimate as far as they are not queued
	Age            time.Duration
}

// Subscriptions returns a page of the subscriptions that the query chooses, in order of scope, shard and number; more says that others
// follow. It asks the loops of their shards, a few at a time, and waits for them until ctx ends.
func (s *Server) Subscriptions(ctx context.Context, q SubscriptionQuery) (page []SubscriptionInfo, more bool, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = wire.DefaultSubscriptionsPage
	}
	limit = min(limit, wire.MaxSubscriptionsPage)
	// One at a time: a list of very many takes memory and a processor.
	select {
	case s.inspecting <- struct{}{}:
		defer func() { <-s.inspecting }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	subs := s.subscribers.list(q.chooses)
	subs, more = firstSubscriptions(subs, limit)
	page = make([]SubscriptionInfo, len(subs))
	err = s.inspect(ctx, subs, func(i int, now time.Duration, v replicate.SubscriptionView) {
		page[i] = subs[i].info(now, v)
	})
	if err != nil {
		return nil, false, err
	}
	return page, more, nil
}

// chooses is the filter of a query.
func (q *SubscriptionQuery) chooses(sub *subscription) bool {
	c := &sub.shard.Stream().Config
	switch {
	case q.TenantID != "" && q.TenantID != c.Tenant, q.Namespace != "" && q.Namespace != c.Namespace, q.Stream != "" && q.Stream != c.Name,
		q.HasShard && q.Shard != sub.shard.Index(), q.Dropping && sub.Stats().Dropped == 0,
		q.Principal != "": // tokens name nobody
		return false
	}
	return !q.HasAfter || compareCursors(sub.cursor(), q.After) > 0
}

// firstSubscriptions returns the first limit of subs in order; more says that there were others. It changes subs.
func firstSubscriptions(subs []*subscription, limit int) (first []*subscription, more bool) {
	order := func(a, b *subscription) int { return compareCursors(a.cursor(), b.cursor()) }
	kept := subs[:0]
	for _, sub := range subs {
		if len(kept) >= limit && more && order(sub, kept[limit-1]) > 0 {
			continue // behind a full page already
		}
		kept = append(kept, sub)
		if len(kept) == 2*limit { // sorted once per limit entries that could be on the page
			slices.SortFunc(kept, order)
			kept, more = kept[:limit], true
		}
	}
	slices.SortFunc(kept, order)
	if len(kept) > limit {
		kept, more = kept[:limit], true
	}
	return kept, more
}

func compareCursors(a, b wire.SubscriptionCursor) int {
	return cmp.Or(strings.Compare(a.TenantID, b.TenantID), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Stream, b.Stream),
		cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.SubscriberID, b.SubscriberID))
}

func (sub *subscription) cursor() wire.SubscriptionCursor {
	c := &sub.shard.Stream().Config
	return wire.SubscriptionCursor{
		Scope: wire.Scope{TenantID: c.Tenant, Namespace: c.Namespace, Stream: c.Name},
		Shard: sub.shard.Index(), SubscriberID: sub.number,
	}
}

// info is for use on the loop of the shard.
func (sub *subscription) info(now time.Duration, v replicate.SubscriptionView) SubscriptionInfo {
	return SubscriptionInfo{
		SubscriptionCursor: sub.cursor(),
		SubscriptionID:     sub.ID, Connection: sub.conn.number, Peer: sub.conn.quic.RemoteAddr().String(),
		Policy: sub.Policy, State: sub.stateName(v.State), Depth: v.Depth, Capacity: sub.Capacity, Dropped: v.Dropped,
		Position: v.Position, Tail: v.Tail, LagRecords: v.LagRecords, LagBytes: v.LagBytes, Age: now - sub.since,
	}
}

// inspect calls see for each of subs on the loop of its shard, with the loop's time. When it returns with an error, loops may still be
// calling it.
func (s *Server) inspect(ctx context.Context, subs []*subscription, see func(i int, now time.Duration, v replicate.SubscriptionView)) error {
	byCore := make([][]int, len(s.group.Loops()))
	for i, sub := range subs {
		owner := sub.shard.Owner()
		byCore[owner] = append(byCore[owner], i)
	}
	done := make(chan struct{}, len(subs)) // never blocks a loop
	waiting := 0
	for owner, places := range byCore {
		for part := range slices.Chunk(places, inspectTask) {
			err := s.post(ctx, core.ID(owner), core.Func(func(l *core.Loop) {
				for _, i := range part {
					see(i, l.Now(), subs[i].shard.Inspect(&subs[i].Subscription))
				}
				done <- struct{}{}
			}))
			if err != nil {
				return err
			}
			waiting++
		}
	}
	for range waiting {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// postRetry is how long post lets a full inbox be before it tries again.
const postRetry = 5 * time.Millisecond

// post is PostOffCore that gives up with ctx: a loop that has stopped must not hold up those who ask how it is.
func (s *Server) post(ctx context.Context, to core.ID, t core.Task) error {
	loop := s.group.Loop(to)
	for !loop.TryPostOffCore(t) {
		if s.ctx.Err() != nil {
			return core.ErrClosed
		}
		pause := time.NewTimer(postRetry)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// MaxLag returns the greatest lag of a subscription in records. It waits for the loops until ctx ends.
func (s *Server) MaxLag(ctx context.Context) (records uint64, err error) {
	subs := s.subscribers.list(func(*subscription) bool { return true })
	lags := make([]uint64, len(subs))
	if err := s.inspect(ctx, subs, func(i int, _ time.Duration, v replicate.SubscriptionView) { lags[i] = v.LagRecords }); err != nil {
		return 0, err
	}
	for _, lag := range lags {
		records = max(records, lag)
	}
	return records, nil
}

// SubscriptionStates counts the open subscriptions by SubscriptionInfo.State.
func (s *Server) SubscriptionStates() map[string]int64 {
	states := map[string]int64{statePeerBlocked: 0}
	for state := fanout.Joining; state <= fanout.Ended; state++ {
		states[state.String()] = 0
	}
	s.subscribers.list(func(sub *subscription) bool {
		states[sub.stateName(sub.Stats().State)]++
		return false
	})
	return states
}

// subscriptionsList answers with a page of the subscriptions of this broker, of every tenant. Any token may see them, as any token may read
// every stream.
func (st *stream) subscriptionsList(m *wire.SubscriptionsList) error {
	if refused := st.ownStream(m.MessageType()); refused != nil {
		return st.refuseFor(refused)
	}
	if m.HasLimit && (m.Limit < 1 || m.Limit > wire.MaxSubscriptionsPage) {
		return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("limit is %d; give a number from 1 to %d", m.Limit, wire.MaxSubscriptionsPage))
	}
	server := st.conn.server
	q := SubscriptionQuery{SubscriptionFilter: m.Filter, After: m.Cursor, HasAfter: m.HasCursor, Limit: wire.DefaultSubscriptionsPage}
	if m.HasLimit {
		q.Limit = int(m.Limit)
	}
	q.Limit = max(min(q.Limit, server.limits.FrameBytes/inspectEntryBytes-1), 1)
	ctx := st.conn.quic.Context()
	held := int64(q.Limit * 2 * inspectEntryBytes) // as entries and as JSON
	if err := server.pages.reserve(ctx, held); err != nil {
		return err
	}
	defer server.pages.release(held)
	page, more, err := server.Subscriptions(ctx, q)
	if errors.Is(err, core.ErrClosed) {
		return st.refuse(wire.CodeDraining, "broker is shutting down; ask another one")
	}
	if err != nil {
		return err // the connection is going away
	}
	answer := &wire.SubscriptionsListInfo{RequestID: m.RequestID, Subscriptions: make([]wire.SubscriptionEntry, len(page))}
	for i := range page {
		answer.Subscriptions[i] = page[i].entry()
	}
	if more {
		answer.NextCursor, answer.HasNextCursor = page[len(page)-1].SubscriptionCursor, true
	}
	return st.replyPage(wire.AppendMessage(nil, answer))
}

// entry is the subscription as the protocol has it, which knows no catch_up.
func (i *SubscriptionInfo) entry() wire.SubscriptionEntry {
	policy := i.Policy
	if policy == fanout.CatchUp {
		policy = fanout.Block
	}
	return wire.SubscriptionEntry{
		Scope: i.Scope, Shard: i.Shard, SubscriberID: i.SubscriberID, SubscriptionID: i.SubscriptionID, HasSubscriptionID: true,
		Connection: i.Connection, Peer: i.Peer, Policy: policy.String(), Depth: uint64(i.Depth), Capacity: uint64(i.Capacity),
		Dropped: i.Dropped, Position: i.Position, HasPosition: true, Tail: i.Tail, AgeMillis: uint64(max(i.Age, 0) / time.Millisecond),
	}
}

// ownStream refuses a request whose answer is too large to wait among those to publishes, which are bounded in number and not in size.
func (st *stream) ownStream(request string) *refusal {
	if st.published || st.run != nil {
		return &refusal{code: wire.CodeInvalidRequest, message: request + " needs a stream of its own, and this one publishes; open another one"}
	}
	return nil
}

// shardInspect answers where a shard of this broker, which is alone, stands. It creates nothing.
func (st *stream) shardInspect(m *wire.ShardInspect) error {
	var found *replicate.Stream
	if m.Kind == wire.ShardKindStream {
		found = st.conn.server.catalog.Resolve([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Name))
	}
	if found == nil {
		gone := notFound(m.TenantID, m.Namespace, m.Name)
		return st.refuseFor(gone)
	}
	if m.Shard >= uint32(len(found.Shards)) {
		return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("shard %d is out of range: stream %s has %d", m.Shard, m.Name, len(found.Shards)))
	}
	shard := found.Shards[m.Shard]
	answer := make(chan wire.Offset, 1)
	ctx := st.conn.quic.Context()
	if st.conn.server.post(ctx, shard.Owner(), core.Func(func(*core.Loop) { answer <- shard.Stats().Appended })) != nil {
		return st.refuse(wire.CodeDraining, "broker is shutting down; ask another one")
	}
	var tail wire.Offset
	select {
	case tail = <-answer:
	case <-ctx.Done():
		return context.Cause(ctx) // a loop that does not move must not keep the goroutine of a client that is gone
	}
	view := wire.ShardView{Shards: uint32(len(found.Shards)), Role: "leader", Phase: "active", Serving: true, Tail: tail, HasTail: true}
	switch err := shard.LogErr(); {
	case found.Gone():
		view.Phase, view.Serving, view.Reason = "closed", false, "deleted"
	case err != nil:
		view.Phase, view.Serving, view.Reason, view.Detail = "failed", false, "storage", err.Error()
	}
	return st.reply(&wire.ShardInspectInfo{View: view, RequestID: m.RequestID})
}
