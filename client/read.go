package client

import (
	"context"
	"errors"
	"time"

	"felix/netio/wire"
)

// A Record is one record of a Page.
type Record struct {
	Offset Offset
	Data   []byte    // the caller's, to keep and to change
	Time   time.Time // when the broker appended it
}

// A Page is some records of one shard, in order. Offsets jump where records are no longer kept.
type Page struct {
	Records []Record // none: there is nothing from the offset on, yet or up to ReadOptions.To
	Next    Offset   // where the next page begins
}

// ReadOptions bound a page. The broker has bounds of its own, 4 MiB and 10,000 records, which 0 stands for; one larger record comes alone.
type ReadOptions struct {
	To         Offset // the first offset that is not wanted; 0 means no end
	MaxRecords int
	MaxBytes   int // of the records
}

// ReadPage reads records of a durable stream from its log, without a subscription: committed ones only, and without waiting for any to
// come. It fails with a *CursorError when from is no longer kept or not there yet, with ErrInvalid for a stream in memory, and with
// ErrStorage when the broker cannot read its disk.
func (c *Client) ReadPage(ctx context.Context, stream string, shard uint32, from Offset, o ReadOptions) (Page, error) {
	const op = "read"
	m, err := c.askOwner(ctx, op, stream, shard, wire.FeatureStreamRead, &wire.StreamRead{
		Scope: c.scope(stream), Shard: shard, From: from, End: o.To, HasEnd: o.To > 0,
		MaxRecords: uint64(max(o.MaxRecords, 0)), MaxBytes: uint64(max(o.MaxBytes, 0)),
	})
	if err != nil {
		return Page{}, err
	}
	switch m := m.(type) {
	case *wire.StreamRecords:
		p := Page{Records: make([]Record, len(m.Records)), Next: m.NextOffset}
		for i, r := range m.Records {
			p.Records[i] = Record{Offset: r.Offset, Data: r.Payload, Time: time.UnixMicro(int64(r.TimestampMicros))}
		}
		return p, nil
	case *wire.SubscribeCursorError:
		return Page{}, cursorError(op, stream, shard, m)
	}
	return Page{}, unavailable(op, stream, errWrongAnswer)
}

// OffsetForTime returns the first record of a shard that was appended at or after a time; ok is false when there is none yet. It fails
// with ErrInvalid for a stream in memory, which keeps no times.
func (c *Client) OffsetForTime(ctx context.Context, stream string, shard uint32, at time.Time) (offset Offset, ok bool, err error) {
	m, err := c.askOwner(ctx, "offset for time", stream, shard, wire.FeatureRecordTimestamps, offsetForTime(c.scope(stream), shard, at))
	if err != nil {
		return 0, false, err
	}
	v, good := m.(*wire.OffsetValue)
	if !good {
		return 0, false, unavailable("offset for time", stream, errWrongAnswer)
	}
	return v.Offset, v.HasOffset, nil
}

func offsetForTime(scope wire.Scope, shard uint32, at time.Time) *wire.OffsetForTime {
	return &wire.OffsetForTime{Scope: scope, Shard: shard, AtMicros: uint64(max(at.UnixMicro(), 0))}
}

// askOwner puts a question that changes nothing to the owner of a shard, and once more when its connection was lost.
func (c *Client) askOwner(ctx context.Context, op, stream string, shard uint32, feature wire.Features, request wire.Message) (wire.Message, error) {
	if err := checkName("stream", stream); err != nil {
		return nil, invalidf(op, stream, "%v", err)
	}
	ctx, cancel := c.untilClosing(ctx)
	defer cancel()
	t := c.topicFor(c.config.namespace, stream)
	for try := 1; ; try++ {
		m, err := c.askOwnerOnce(ctx, op, t, shard, feature, request)
		if err == nil {
			return m, nil
		}
		if e := asError(op, stream, err); try == 2 || e.Code != 0 || e.Retry != RetryRetry || ctx.Err() != nil {
			return nil, e
		}
		t.expire(t.route.Load())
	}
}

func (c *Client) askOwnerOnce(ctx context.Context, op string, t *topic, shard uint32, feature wire.Features, request wire.Message) (wire.Message, error) {
	stream := t.scope.Stream
	r, err := c.routeFor(ctx, t, op)
	if err != nil {
		return nil, err
	}
	if shard >= r.shards {
		return nil, invalidf(op, stream, "shard %d of a stream with %d shards", shard, r.shards)
	}
	conn, err := r.owner(c, shard).target.get(ctx)
	if err != nil {
		return nil, err
	}
	if !conn.features.Has(feature) {
		return nil, unsupported(op, stream, request.MessageType())
	}
	return conn.ask(ctx, op, stream, request)
}

// timeStart returns where a subscription that starts at a time begins: at the first record of that time or later, or behind the newest
// one when there is none.
func (x *shardSub) timeStart(ctx context.Context, conn *conn) (wire.StartPosition, error) {
	s := x.sub
	if !conn.features.Has(wire.FeatureRecordTimestamps) {
		return wire.StartPosition{}, unsupported("subscribe", s.stream, wire.TypeOffsetForTime+", so a subscription cannot start at a time")
	}
	var tail wire.StartPosition // known before the last question, so that no record falls between the answer and the subscription
	for {
		m, err := conn.ask(ctx, "subscribe", s.stream, offsetForTime(s.topic.scope, x.shard, x.at))
		if err != nil {
			return wire.StartPosition{}, err
		}
		v, ok := m.(*wire.OffsetValue)
		switch {
		case !ok:
			return wire.StartPosition{}, unavailable("subscribe", s.stream, errWrongAnswer)
		case v.HasOffset:
			return wire.StartPosition{Kind: wire.StartOffset, Offset: v.Offset}, nil
		case tail.Kind == wire.StartOffset:
			return tail, nil
		}
		// A start far in the future is refused with the tail, and opens nothing.
		m, err = conn.ask(ctx, "subscribe", s.stream, &wire.Subscribe{
			Scope: s.topic.scope, Shard: x.shard, HasShard: x.shard > 0,
			Start: wire.StartPosition{Kind: wire.StartOffset, Offset: wire.LiveOffsetUnreached - 1},
		})
		if err != nil {
			return wire.StartPosition{}, err
		}
		cursor, ok := m.(*wire.SubscribeCursorError)
		if !ok || cursor.Reason != wire.CursorInFuture {
			return wire.StartPosition{}, unavailable("subscribe", s.stream, errWrongAnswer)
		}
		tail = wire.StartPosition{Kind: wire.StartOffset, Offset: cursor.Available}
	}
}

func cursorError(op, stream string, shard uint32, m *wire.SubscribeCursorError) *CursorError {
	return &CursorError{Op: op, Stream: stream, Shard: shard, Requested: m.Requested, Available: m.Available, InFuture: m.Reason == wire.CursorInFuture}
}

// isTooOld reports whether err says that retention has gone past an offset.
func isTooOld(err error) (available Offset, ok bool) {
	var cursor *CursorError
	if errors.As(err, &cursor) && !cursor.InFuture {
		return cursor.Available, true
	}
	return 0, false
}
