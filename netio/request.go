package netio

import (
	"errors"
	"fmt"
	"time"

	"felix/netio/wire"
	"felix/replicate"
)

// message serves a JSON message on an authenticated stream. c is the chunk it was read into.
func (st *stream) message(c *chunk, body []byte) error {
	m, err := wire.ParseMessage(body)
	if err != nil {
		return st.malformedMessage(err)
	}
	if st.send == nil {
		return st.unidirectional(c, m)
	}
	switch m := m.(type) {
	case *wire.PublishMessage:
		return st.publishMessage(c, batchOf(m))
	case *wire.PublishBatch:
		return st.publishMessage(c, m)
	case *wire.PublishIdempotent:
		return st.publishIdempotent(c, m)
	case *wire.PublishWidth:
		st.tellWidth(m)
		return nil
	}
	if refused := st.mayAsk(); refused != nil {
		return st.refuseFor(refused)
	}
	switch m := m.(type) {
	case *wire.ProducerInit:
		return st.reply(&wire.ProducerInitOK{RequestID: m.RequestID, ProducerID: st.conn.server.random()})
	case *wire.Subscribe:
		return st.subscribe(m)
	case *wire.StreamShards:
		return st.streamShards(m)
	case *wire.ShardOwners:
		return st.shardOwners(m)
	case *wire.StreamRead:
		return st.streamRead(m)
	case *wire.OffsetForTime:
		return st.offsetForTime(m)
	case *wire.ShardInspect:
		return st.shardInspect(m)
	case *wire.SubscriptionsList:
		return st.subscriptionsList(m)
	case *wire.Topology:
		return st.reply(&wire.TopologyView{Brokers: st.conn.server.brokers})
	case *wire.Extension:
		return st.unsupported(m.Unsupported())
	case *wire.Unknown:
		switch m.Type {
		case "cache_put", "cache_get":
			// No feature gates these two, and a cache worker stream survives only a coded error.
			return st.refuse(wire.CodeInvalidRequest, m.Type+" is not served: this broker has no caches")
		}
		return st.unsupported(m.Unsupported())
	case *wire.Auth:
		st.refuse(wire.CodeInvalidRequest, "this stream has authenticated already; open another one for another identity")
		return errEndStream
	}
	// A message that only a broker sends.
	return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("%s is not a request", m.MessageType()))
}

// mayAsk counts a request that is no publish against what a connection may ask in a second.
func (st *stream) mayAsk() *refusal {
	server := st.conn.server
	limit := server.limits.Requests
	if limit < 0 {
		return nil
	}
	wait := st.conn.requests.take(server.group.NowOffCore(), limit)
	if wait == 0 {
		return nil
	}
	server.counts.requestsRefused.Add(1)
	why := fmt.Sprintf("more than %d requests a second on one connection; ask less often, or over more connections", limit)
	st.say(logRequests, why)
	return &refusal{
		code: wire.CodeLimitExceeded, retry: wire.RetryAfter, message: why,
		retryAfterMillis: uint64((wait + time.Millisecond - 1) / time.Millisecond),
	}
}

// unidirectional serves the one thing a client's unidirectional stream may carry: publishes without ack.
func (st *stream) unidirectional(c *chunk, m wire.Message) error {
	switch m := m.(type) {
	case *wire.PublishMessage:
		if m.Ack == wire.AckNone {
			return st.publishMessage(c, batchOf(m))
		}
	case *wire.PublishBatch:
		if m.Ack == wire.AckNone {
			return st.publishMessage(c, m)
		}
	case *wire.PublishWidth:
		st.tellWidth(m)
		return nil
	}
	return errEndStream
}

func (st *stream) malformedMessage(err error) error {
	st.sawMalformed(err)
	if st.send == nil {
		return errEndStream
	}
	var bad *wire.MessageError
	if errors.As(err, &bad) {
		switch bad.Type {
		case wire.TypePublishWidth:
			return nil // never answered: an error would end the client's publish stream
		case wire.TypePublish, wire.TypePublishBatch, wire.TypePublishIdempotent:
			if bad.HasRequestID {
				return st.refusePublish(bad.RequestID, true, &refusal{code: wire.CodeInvalidRequest, message: err.Error()})
			}
		}
	}
	return st.refuse(wire.CodeInvalidRequest, err.Error())
}

// maxEchoBytes bounds the type and the name that unsupported repeats; every type that there is takes less than 32.
const maxEchoBytes = 256

func (st *stream) unsupported(m *wire.Unsupported) error {
	if !st.features.Has(wire.FeatureUnsupported) {
		return errEndStream
	}
	if n := len(m.RequestType) + len(m.Extension); n > maxEchoBytes {
		return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("a request type of %d bytes is not known", n))
	}
	return st.reply(m)
}

// batchOf is a publish of one record as a batch.
func batchOf(m *wire.PublishMessage) *wire.PublishBatch {
	return &wire.PublishBatch{
		Scope: m.Scope, Count: 1, Records: wire.AppendRecord(nil, m.Payload),
		Key: m.Key, HasKey: m.HasKey, Shard: m.Shard, HasShard: m.HasShard,
		RequestID: m.RequestID, HasRequestID: m.HasRequestID, Ack: m.Ack,
	}
}

func (st *stream) streamShards(m *wire.StreamShards) error {
	view := &wire.StreamShardsView{RequestID: m.RequestID}
	s, refused := st.resolve([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Stream))
	switch {
	case refused == nil:
		view.Shards, view.Routing = uint32(len(s.Shards)), s.Config.Routing
	case refused.code == wire.CodeForbidden:
		return st.refuse(refused.code, refused.message)
	}
	return st.reply(view) // 0 shards: not known here
}

// shardOwners names the core that owns each shard as if it were a broker, so that clients which know clusters dial the
// owner's port.
func (st *stream) shardOwners(m *wire.ShardOwners) error {
	view := &wire.ShardOwnersView{RequestID: m.RequestID}
	if m.Kind != wire.ShardKindStream {
		return st.reply(view)
	}
	s, refused := st.resolve([]byte(m.TenantID), []byte(m.Namespace), []byte(m.Name))
	switch {
	case refused == nil:
		view.Owners = make([]wire.ShardOwner, len(s.Shards))
		for i, shard := range s.Shards {
			view.Owners[i] = st.conn.server.ownerOf(shard)
		}
	case refused.code == wire.CodeForbidden:
		return st.refuse(refused.code, refused.message)
	}
	return st.reply(view)
}

// ownerOf is the announcement of a shard's owner; without announced ports only its number.
func (s *Server) ownerOf(shard *replicate.Shard) wire.ShardOwner {
	owner := wire.ShardOwner{Shard: shard.Index()}
	if s.announced() {
		b := s.brokers[int(shard.Owner())%len(s.brokers)]
		owner.NodeID, owner.Addr, owner.Generation = b.NodeID, b.Addr, 1
	}
	return owner
}
