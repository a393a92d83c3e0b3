package netio

import (
	"context"
	"errors"
	"fmt"

	"felix/netio/wire"
	"felix/replicate"
)

// This file is the door for publishes: parsed frames become entries of a run, or refusals in their place.

// publishFrame takes a binary publish, whose bytes lie in c.
func (st *stream) publishFrame(c *chunk, flags wire.Flags, body []byte) error {
	var f wire.Publish
	if err := f.Parse(flags, body); err != nil {
		st.conn.server.counts.malformed.Add(1)
		if id, ok := wire.PublishRequestID(body); ok && flags.Has(wire.FlagPublishAcked) {
			return st.refusePublish(id, flags.Has(wire.FlagPublishIdempotent), &refusal{code: wire.CodeInvalidRequest, message: err.Error()})
		}
		return nil // nobody waits for an answer
	}
	if st.send == nil && f.Acked() {
		return errEndStream // there is nowhere to answer
	}
	p, err := st.entry(c, f.Acked())
	if err != nil {
		return err
	}
	p.requestID = f.RequestID
	p.Records, p.Count = f.Records, f.Count
	p.Idempotent, p.ProducerID, p.Sequence = f.Idempotent(), f.ProducerID, f.Sequence
	p.Shard, p.failed = st.route(f.Tenant, f.Namespace, f.Stream, f.Key, f.HasKey(), 0, false)
	return nil
}

// entry returns the next place in the run, once the window has room.
func (st *stream) entry(c *chunk, acked bool) (*publish, error) {
	w := &st.unacked
	if acked {
		w = &st.acked
	}
	if err := st.room(w); err != nil {
		return nil, err
	}
	r := st.openRun()
	if r.chunk == nil {
		r.chunk = c
		c.uses.Add(1)
	}
	w.take()
	p := r.add()
	p.acked, p.tenantID = acked, st.tenantID
	return p, nil
}

// refusePublish puts a failed answer in the place of a publish that could not be read.
func (st *stream) refusePublish(requestID uint64, asJSON bool, why *refusal) error {
	if st.send == nil {
		return errEndStream
	}
	if err := st.room(&st.acked); err != nil {
		return err
	}
	st.acked.take()
	p := st.openRun().add()
	p.acked, p.requestID, p.json, p.failed = true, requestID, asJSON, why
	return nil
}

// route picks the shard. An explicit shard beats the key; no key is shard 0.
func (st *stream) route(tenant, namespace, name, key []byte, hasKey bool, shard uint32, hasShard bool) (*replicate.Shard, *refusal) {
	s, refused := st.resolve(tenant, namespace, name)
	if refused != nil {
		return nil, refused
	}
	shards := uint32(len(s.Shards))
	switch {
	case hasShard && shard >= shards:
		return nil, &refusal{
			code:    wire.CodeInvalidRequest,
			message: fmt.Sprintf("shard %d is out of range: stream %s has %d", shard, name, shards),
		}
	case hasShard:
		return s.Shards[shard], nil
	case !hasKey:
		return s.Shards[0], nil
	}
	if w := st.scope.width; w.shards != 0 && (w.shards != shards || w.routing != s.Config.Routing) {
		return nil, &refusal{
			code:    wire.CodeStaleWidth,
			message: fmt.Sprintf("stream %s has %d shards (%s), the client routed by %d (%s); ask the width again", name, shards, s.Config.Routing, w.shards, w.routing),
		}
	}
	return s.ShardFor(key, true), nil
}

// tellWidth remembers the width that keyed batches of this QUIC stream are routed by. It is not answered.
func (st *stream) tellWidth(m *wire.PublishWidth) {
	if st.widths == nil || len(st.widths) >= maxWidths {
		st.widths = make(map[string]width)
	}
	st.widths[scopeKey(m.TenantID, m.Namespace, m.Stream)] = width{m.Shards, m.Routing}
	st.scope.stream = nil // resolve again, with the width
}

// publishMessage takes a publish in JSON. Its records were made from the message and lie in memory of their own.
func (st *stream) publishMessage(c *chunk, m *wire.PublishBatch) error {
	if m.Ack == wire.AckNone {
		if st.send == nil || !m.HasRequestID {
			m.RequestID = 0
		}
	} else if !m.HasRequestID {
		return st.refuse(wire.CodeInvalidRequest, "an acked publish needs a request_id")
	} else if st.send == nil {
		return errEndStream
	}
	p, err := st.entry(c, m.Ack != wire.AckNone)
	if err != nil {
		return err
	}
	p.json, p.requestID = true, m.RequestID
	p.Records, p.Count = m.Records, m.Count
	p.Shard, p.failed = st.route([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream), m.Key, m.HasKey, m.Shard, m.HasShard)
	return nil
}

func (st *stream) publishIdempotent(c *chunk, m *wire.PublishIdempotent) error {
	if st.send == nil {
		return errEndStream
	}
	p, err := st.entry(c, true)
	if err != nil {
		return err
	}
	p.json, p.requestID = true, m.RequestID
	p.Records, p.Count = m.Records, m.Count
	p.Idempotent, p.ProducerID, p.Sequence = true, m.ProducerID, m.Sequence
	p.Shard, p.failed = st.route([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream), m.Key, m.HasKey, m.Shard, m.HasShard)
	return nil
}

// refusalFor turns a catalog error into what the client is told.
func refusalFor(err error, tenant, namespace, name []byte) *refusal {
	var limit *replicate.LimitError
	switch {
	case errors.As(err, &limit):
		return &refusal{code: wire.CodeLimitExceeded, message: err.Error()}
	case errors.Is(err, replicate.ErrNotFound):
		return notFound(tenant, namespace, name)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{code: wire.CodeShardUnavailable, message: "the broker was busy creating the stream; try again", reason: wire.ReasonNotReady}
	}
	return &refusal{code: wire.CodeInvalidRequest, message: err.Error()}
}
