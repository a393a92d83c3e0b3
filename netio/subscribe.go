package netio

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
)

const (
	// openEventStream bounds the wait for stream credit. A client allows 1,024 open event streams at once.
	openEventStream = 10 * time.Second
	// eventWriteBytes is how much an event writer takes from its queue at a time, and the size of one write to the
	// stream when the frames lie side by side.
	eventWriteBytes = 256 << 10
)

// A subscription is a client's cursor on one shard and the event stream that carries it. Its goroutine is the writer
// of fanout's queue.
type subscription struct {
	fanout.Subscription
	conn   *conn
	shard  *replicate.Shard
	client *stream // for what the client can read: flags and features; nothing else of it is used
	events *quic.SendStream
	feed   feedTask
	frames []*fanout.Frame // taken and not yet written
	buffer []byte          // frames in another layout than the stored one

	number uint64         // the server's number for it
	since  time.Duration  // when it was registered, on the clock of the shard's loop; written there
	look   subscriberLook // what the last look saw; owned by LookAtSubscribers

	phase     atomic.Uint32 // of the writer; written by it
	writes    atomic.Uint64 // to the event stream, the one at work included; written by the writer
	blockedAt atomic.Uint64 // the write that a look found unfinished a second time; written by LookAtSubscribers
}

// subscribe serves a subscribe request: register, open the event stream, answer, deliver.
func (st *stream) subscribe(m *wire.Subscribe) error {
	server := st.conn.server
	s, refused := st.resolve([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream))
	if refused == nil && m.Shard >= uint32(len(s.Shards)) {
		refused = &refusal{
			code:    wire.CodeInvalidRequest,
			message: fmt.Sprintf("shard %d is out of range: stream %s has %d", m.Shard, m.Stream, len(s.Shards)),
		}
	}
	offsets := st.flags.Has(wire.FlagEventOffsets)
	start := m.Start
	if refused == nil && !offsets && start.Kind == wire.StartOffset {
		refused = &refusal{code: wire.CodeInvalidRequest, message: "a start offset needs a client that reads offsets on events"}
	}
	if refused != nil {
		server.counts.subscribeRefused.Add(1)
		return st.refuse(refused.code, refused.message)
	}
	if start.Kind == wire.StartOffset && start.Offset >= wire.LiveOffsetUnreached {
		start.Offset -= wire.LiveOffsetUnreached // a client that resumes at the live_offset it was told
	}

	id, err := st.conn.reserveSubscription(m.SubscriptionID, m.HasSubscriptionID)
	if err != nil {
		server.counts.subscribeRefused.Add(1)
		if errors.Is(err, errSubscriptionLimit) {
			return st.refuse(wire.CodeLimitExceeded, fmt.Sprintf("%v: at most %d; close some or use another connection", err, server.limits.Subscriptions))
		}
		return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("%v: %d", err, m.SubscriptionID))
	}
	sub := &subscription{conn: st.conn, shard: s.Shards[m.Shard], client: st}
	sub.ID = id
	sub.Capacity = server.limits.SubscriberQueue
	if m.HasQueueCapacity {
		sub.Capacity = int(min(max(m.QueueCapacity, 1), uint64(server.limits.SubscriberQueueMax)))
	}
	sub.Policy = s.Settings().OnSlow
	sub.EndOnDrop = s.Config.Durable && offsets && st.features.Has(wire.FeatureSubscriptionLagged)
	sub.feed.sub = sub

	from, tail, err := sub.register(start)
	if err == nil {
		server.subscribers.add(sub)
		if err = sub.open(); err != nil {
			server.subscribers.remove(sub)
		}
	}
	if err != nil {
		st.conn.releaseSubscription(id)
		server.counts.subscribeRefused.Add(1)
		return st.subscribeFailed(err, s)
	}
	server.counts.subscribes.Add(1)
	answer := &wire.Subscribed{SubscriptionID: id}
	if offsets {
		answer.StartOffset, answer.HasStartOffset = from, true
		answer.LiveOffset, answer.HasLiveOffset = wire.LiveOffsetUnreached+tail, true
	}
	if m.HasQueueCapacity {
		answer.QueueCapacity, answer.HasQueueCapacity = uint64(sub.Capacity), true
	}
	// The subscription lives on whatever becomes of the stream that asked for it.
	st.conn.goroutines.Go(sub.write)
	return st.reply(answer)
}

// register makes the subscription known to its shard. Nothing is queued before open.
func (sub *subscription) register(start wire.StartPosition) (from, tail wire.Offset, err error) {
	ctx := sub.conn.quic.Context()
	done := make(chan struct{})
	post := sub.conn.postTo(sub.shard.Owner(), core.Func(func(l *core.Loop) {
		from, tail, err = sub.shard.Topic().Subscribe(l, &sub.Subscription, start)
		sub.since = l.Now()
		close(done)
	}))
	if post != nil {
		return 0, 0, post
	}
	// A loop answers within a pass; waiting for it keeps registering and unregistering in order.
	<-done
	if err == nil && ctx.Err() != nil {
		sub.unregister()
		err = context.Cause(ctx)
	}
	return from, tail, err
}

// open opens the event stream with its hello, and lets the shard deliver.
func (sub *subscription) open() error {
	ctx, cancel := context.WithTimeout(sub.conn.quic.Context(), openEventStream)
	defer cancel()
	events, err := sub.conn.quic.OpenUniStreamSync(ctx)
	if err == nil {
		sub.events = events
		// An opened stream without a hello would hold up every later event stream of the connection.
		_, err = events.Write(wire.AppendMessage(nil, &wire.EventStreamHello{SubscriptionID: sub.ID}))
	}
	if err == nil {
		err = sub.conn.postTo(sub.shard.Owner(), core.Func(func(l *core.Loop) {
			sub.shard.Topic().Start(l, &sub.Subscription)
		}))
	}
	if err != nil {
		sub.unregister()
	}
	return err
}

// unregister takes the subscription off its shard. It may be called when the shard has ended it already.
func (sub *subscription) unregister() {
	done := make(chan struct{})
	err := sub.conn.postTo(sub.shard.Owner(), core.Func(func(l *core.Loop) {
		sub.shard.Topic().Unsubscribe(l, &sub.Subscription)
		close(done)
	}))
	if err == nil {
		<-done
	}
}

// subscribeFailed answers a subscribe that was not granted.
func (st *stream) subscribeFailed(err error, s *replicate.Stream) error {
	var cursor *fanout.CursorError
	switch {
	case errors.As(err, &cursor):
		return st.reply(&wire.SubscribeCursorError{Reason: cursor.Reason, Requested: cursor.Requested, Available: cursor.Available})
	case errors.Is(err, fanout.ErrDeleted):
		gone := notFound(s.Config.Tenant, s.Config.Namespace, s.Config.Name)
		return st.refuse(gone.code, gone.message)
	case errors.Is(err, fanout.ErrTooMany):
		return st.refuse(wire.CodeLimitExceeded, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return st.refuse(wire.CodeLimitExceeded, fmt.Sprintf("no event stream within %s: the client has as many open as it allows", openEventStream))
	}
	return err // the connection is going away
}

// write is the subscription's goroutine: it moves frames from the queue to the event stream until either ends.
func (sub *subscription) write() {
	ctx := sub.events.Context() // ends when the client stops the stream or the connection ends
	finished := false
	sub.phase.Store(writerWaiting)
	for {
		if sub.Wait(ctx) != nil {
			break
		}
		sub.frames = sub.Take(sub.frames[:0], eventWriteBytes)
		if sub.WantsFeed() && sub.conn.postTo(sub.shard.Owner(), &sub.feed) != nil {
			break
		}
		if err := sub.writeFrames(); err != nil {
			break
		}
		if reason, ended := sub.End(); ended {
			sub.finish(reason)
			finished = true
			break
		}
	}
	sub.phase.Store(writerLeaving)
	fanout.ReleaseAll(sub.frames)
	sub.unregister()
	sub.conn.server.subscribers.remove(sub)
	if !finished {
		sub.events.CancelWrite(stopRefused)
	}
	sub.conn.releaseSubscription(sub.ID)
}

// writeFrames writes what was taken, in as few writes as the frames' places in memory allow.
func (sub *subscription) writeFrames() error {
	frames := sub.frames
	plain := !sub.client.flags.Has(wire.FlagEventOffsets)
	for len(frames) > 0 {
		var (
			b []byte
			n = len(frames)
		)
		if plain {
			b = sub.encodePlain(frames)
		} else {
			b, n = fanout.Coalesce(frames)
		}
		sub.beginWrite()
		_, err := sub.events.Write(b)
		sub.endWrite()
		if err != nil {
			sub.frames = frames
			return err
		}
		for _, f := range frames[:n] {
			sub.conn.server.delivered(sub.conn.session, f)
		}
		fanout.ReleaseAll(frames[:n])
		frames = frames[n:]
	}
	sub.frames = sub.frames[:0]
	return nil
}

// encodePlain encodes the frames for a client that does not read offsets.
func (sub *subscription) encodePlain(frames []*fanout.Frame) []byte {
	b := sub.buffer[:0]
	for _, f := range frames {
		var head [wire.EventsHeadPlainBytes]byte
		records := f.Records()
		wire.PutEventsHeadPlain(head[:], f.Count, len(records))
		b = append(append(b, head[:]...), records...)
	}
	sub.buffer = nil
	if cap(b) <= 2*eventWriteBytes { // a large record would otherwise be kept for as long as the subscription
		sub.buffer = b
	}
	return b
}

// finish ends the event stream the way the client can read.
func (sub *subscription) finish(reason fanout.EndReason) {
	sub.beginWrite()
	switch {
	case reason == fanout.Deleted && sub.client.features.Has(wire.FeatureStreamDeleted):
		sub.events.Write(wire.AppendMessage(nil, &wire.StreamDeleted{SubscriptionID: sub.ID}))
	case reason == fanout.Lagged:
		sub.events.Write(wire.AppendMessage(nil, &wire.SubscriptionLagged{SubscriptionID: sub.ID, ResumeFrom: sub.Stats().Next}))
	case reason == fanout.Failed:
		sub.events.Write(wire.AppendMessage(nil, sub.client.errorFor(unreadableLog(sub.Err()))))
	}
	sub.events.Close()
}

// feedTask asks the owner's loop to go on reading the log for a subscription. There is at most one on its way: the
// queue says once per stop that it wants to be fed.
type feedTask struct{ sub *subscription }

func (t *feedTask) Run(l *core.Loop) {
	t.sub.shard.Topic().Feed(l, &t.sub.Subscription)
}
