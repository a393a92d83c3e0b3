package netio

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"felix/netio/wire"
	"felix/replicate"
)

// This file is the door for publishes: parsed frames become entries of a run, or refusals in their place.

// publishFrame takes a binary publish, whose bytes lie in c.
func (st *stream) publishFrame(c *chunk, flags wire.Flags, body []byte) error {
	var f wire.Publish
	if err := f.Parse(flags, body); err != nil {
		st.sawMalformed(err)
		return st.refuseFrame(flags, body, err.Error())
	}
	if st.send == nil && f.Acked() {
		return errEndStream // there is nowhere to answer
	}
	if !f.Acked() {
		if dropped, err := st.meterUnacked(len(body), f.Count, false); dropped || err != nil {
			if dropped {
				st.shedOverQuota(f.Tenant, f.Namespace, f.Stream, f.Count)
			}
			return err
		}
	}
	p, err := st.entry(c, f.Acked())
	if err != nil {
		return err
	}
	p.requestID = f.RequestID
	p.Records, p.Count = f.Records, f.Count
	p.Idempotent, p.ProducerID, p.Sequence = f.Idempotent(), f.ProducerID, f.Sequence
	p.Shard, p.failed = st.route(f.Tenant, f.Namespace, f.Stream, f.Key, f.HasKey(), 0, false)
	if p.acked && p.failed == nil {
		p.failed = st.meterAcked(len(body), f.Count)
	}
	st.keepSequence(p, f.Tenant, f.Namespace, f.Stream)
	return nil
}

// A refusedBatch is where a producer's order in a shard was broken at the door: the batches from sequence to last were refused and may be
// sent again. It is no replicate.RefusedBatches, since a batch that found no shard stands for every shard of its stream until it comes again.
type refusedBatch struct {
	producer, sequence, last uint64
	scope                    string
	shard                    *replicate.Shard // nil when the batch found none: then it stands for every shard of scope
	why                      *refusal
	until                    time.Duration // on the clock of the loops; then it is forgotten
}

// keepSequence refuses what a producer sent behind a batch that was refused at the door in the same way, until the batches come again in
// order. The shard would answer sequence_gap, which ends the producer.
func (st *stream) keepSequence(p *publish, tenant, namespace, name []byte) {
	if !p.Idempotent || p.failed == nil && len(st.refused) == 0 {
		return
	}
	now := st.conn.server.group.NowOffCore()
	st.refused = slices.DeleteFunc(st.refused, func(r refusedBatch) bool { return r.until <= now })
	scope, shard, own := scopeKey(tenant, namespace, name), p.Shard, -1
	until := now + replicate.RefusedFor
	for i := range st.refused {
		r := &st.refused[i]
		if r.producer != p.ProducerID || r.scope != scope || r.shard != nil && shard != nil && r.shard != shard {
			continue
		}
		if r.sequence < p.Sequence && p.failed == nil {
			p.failed = r.why
			until = r.until // not for longer than what it is behind
		}
		if r.shard == shard {
			own = i
		}
	}
	switch {
	case p.failed == nil:
		// It is let through: the next one may be, too.
		st.refused = slices.DeleteFunc(st.refused, func(r refusedBatch) bool {
			return r.producer == p.ProducerID && r.scope == scope && r.sequence == p.Sequence && (r.shard == nil || r.shard == shard && r.last == r.sequence)
		})
		for i := range st.refused {
			if r := &st.refused[i]; r.producer == p.ProducerID && r.scope == scope && r.shard == shard && r.sequence == p.Sequence {
				r.sequence++
			}
		}
		return
	case p.failed.class() == wire.RetryFatal:
	case own >= 0:
		r := &st.refused[own]
		if p.Sequence <= r.sequence {
			r.sequence, r.until = p.Sequence, until
		}
		r.last = max(r.last, p.Sequence)
	default:
		if len(st.refused) == replicate.MaxRefusedBatches {
			st.refused = slices.Delete(st.refused, 0, 1)
		}
		st.refused = append(st.refused, refusedBatch{p.ProducerID, p.Sequence, p.Sequence, scope, shard, p.failed, until})
	}
	p.Shard = nil
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

// refuseFrame answers a publish frame that is not taken, by the request id at the front of its body. An acked one that is too
// short for an id ends the stream, since its client waits for an answer that cannot be given.
func (st *stream) refuseFrame(flags wire.Flags, body []byte, reason string) error {
	if !flags.Has(wire.FlagPublishAcked) {
		return nil // nobody waits for an answer
	}
	id, ok := wire.PublishRequestID(body)
	if !ok {
		return errEndStream
	}
	return st.refusePublish(id, flags.Has(wire.FlagPublishIdempotent), &refusal{code: wire.CodeInvalidRequest, message: reason})
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
	if m.TenantID != st.tenant || len(m.Namespace) > replicate.MaxNameBytes || len(m.Stream) > replicate.MaxNameBytes {
		return // no batch of this QUIC stream reaches such a name
	}
	if st.widths == nil || len(st.widths) >= maxWidths {
		st.widths = make(map[string]width)
	}
	st.widths[scopeKey(m.TenantID, m.Namespace, m.Stream)] = width{m.Shards, m.Routing}
	st.scope.stream = nil // resolve again, with the width
}

// publishMessage takes a publish in JSON. Its records were made from the message and lie in memory of their own.
func (st *stream) publishMessage(c *chunk, m *wire.PublishBatch) error {
	acked := m.Ack != wire.AckNone
	if acked && !m.HasRequestID {
		return st.refuse(wire.CodeInvalidRequest, "an acked publish needs a request_id")
	}
	if !acked {
		if dropped, err := st.meterUnacked(len(m.Records), m.Count, true); dropped || err != nil {
			if dropped {
				st.shedOverQuota([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream), m.Count)
			}
			return err
		}
	}
	p, err := st.entry(c, acked)
	if err != nil {
		return err
	}
	p.json, p.requestID = true, m.RequestID
	p.Records, p.Count = m.Records, m.Count
	p.Shard, p.failed = st.route([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream), m.Key, m.HasKey, m.Shard, m.HasShard)
	if acked && p.failed == nil {
		p.failed = st.meterAcked(len(m.Records), m.Count)
	}
	return nil
}

func (st *stream) publishIdempotent(c *chunk, m *wire.PublishIdempotent) error {
	p, err := st.entry(c, true)
	if err != nil {
		return err
	}
	p.json, p.requestID = true, m.RequestID
	p.Records, p.Count = m.Records, m.Count
	p.Idempotent, p.ProducerID, p.Sequence = true, m.ProducerID, m.Sequence
	p.Shard, p.failed = st.route([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream), m.Key, m.HasKey, m.Shard, m.HasShard)
	if p.failed == nil {
		p.failed = st.meterAcked(len(m.Records), m.Count)
	}
	st.keepSequence(p, []byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream))
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
	case errors.Is(err, replicate.ErrInvalid):
		return &refusal{code: wire.CodeInvalidRequest, message: err.Error()}
	case errors.Is(err, replicate.ErrJournal):
		// The stream may be there after a restart; the request that would have made it has done nothing.
		return &refusal{code: wire.CodeStorage, retry: wire.RetryRetry, message: err.Error()}
	}
	return &refusal{code: wire.CodeInternal, retry: wire.RetryRetry, message: err.Error()}
}
