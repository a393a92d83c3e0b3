package client

import (
	"encoding/binary"
	"unsafe"

	"felix/netio/wire"
)

// A message is one publish on its way into a stream: what the caller gave, resolved. It lives on the caller's stack and holds views only.
type message struct {
	topic  *topic
	data   []byte   // the record, when single
	batch  [][]byte // the records, when not
	single bool

	key      string
	keyed    bool
	shard    uint32 // where it goes
	explicit bool   // the caller named the shard, which only the JSON form can say

	acked      bool
	idempotent bool // implies acked
	producer   uint64
	sequence   uint64

	// again is a frame that was encoded before: it is sent with a new request id and as it is otherwise. The fields above that it holds do
	// not count then, except acked.
	again []byte

	json *wire.PublishBatch // the publish in JSON, when it has to be; set by prepare
}

// Where a binary publish that is acked keeps its request id: first in the payload.
const requestIDAt = wire.HeaderBytes

// publishFixedBytes is what a binary publish frame takes besides names, key and records: header, request id, mode, producer, sequence,
// length of the key, three lengths of names, count.
const publishFixedBytes = wire.HeaderBytes + 8 + 1 + 8 + 8 + 2 + 3*2 + 4

// prepare checks the size and chooses the form: binary, unless the shard is named and is not the one that a batch without key goes to, or
// the broker cannot read a keyed or acked one.
func (m *message) prepare(flags wire.Flags) error {
	if m.idempotent && !flags.Has(wire.FlagPublishIdempotent) {
		return unsupported("publish", m.topic.scope.Stream, "idempotent publishes in binary")
	}
	if m.again != nil {
		return nil
	}
	count, size := 1, len(m.data)
	if !m.single {
		count, size = len(m.batch), 0
		for _, record := range m.batch {
			size += len(record)
		}
	}
	size += count*wire.RecordHeadBytes + publishFixedBytes + len(m.key) + len(m.topic.names)
	m.json = nil
	if (m.explicit && (m.shard != 0 || m.keyed)) || !flags.Has(m.flags()) {
		m.json = m.toJSON()
		size += size/3 + 256 + 4*count // base64, names of fields, quotes
	}
	if size > wire.MaxFrameBytes {
		return invalidf("publish", m.topic.scope.Stream, "%d records take %d bytes in a frame, at most %d fit; publish smaller batches", count, size, wire.MaxFrameBytes)
	}
	return nil
}

func (m *message) flags() wire.Flags {
	flags := wire.FlagPublishBatch
	if m.acked {
		flags |= wire.FlagPublishAcked
	}
	if m.keyed {
		flags |= wire.FlagPublishKeyed
	}
	if m.idempotent {
		flags |= wire.FlagPublishIdempotent
	}
	return flags
}

func (m *message) toJSON() *wire.PublishBatch {
	p := &wire.PublishBatch{Scope: m.topic.scope, Key: keyBytes(m.key), HasKey: m.keyed, Shard: m.shard, HasShard: m.explicit}
	m.eachRecord(func(record []byte) {
		p.Records = wire.AppendRecord(p.Records, record)
		p.Count++
	})
	if m.acked {
		p.Ack, p.HasRequestID = wire.AckPerBatch, true
	}
	return p
}

func (m *message) eachRecord(f func([]byte)) {
	if m.single {
		f(m.data)
		return
	}
	for _, record := range m.batch {
		f(record)
	}
}

// frameBytes bounds the size of the frame that appendFrame appends.
func (m *message) frameBytes() int {
	switch {
	case m.again != nil:
		return len(m.again) + 32 // a longer request id in JSON
	case m.json != nil:
		return len(wire.AppendMessage(nil, m.json)) + 32
	}
	n := publishFixedBytes + len(m.key) + len(m.topic.names)
	if m.single {
		return n + wire.RecordHeadBytes + len(m.data)
	}
	n += len(m.batch) * wire.RecordHeadBytes
	for _, record := range m.batch {
		n += len(record)
	}
	return n
}

// appendFrame appends the frame with its request id to dst, which has frameBytes to spare. It copies every record once.
func (m *message) appendFrame(dst []byte, requestID uint64) []byte {
	switch {
	case m.again != nil:
		return appendAgain(dst, m.again, requestID)
	case m.json != nil:
		m.json.RequestID = requestID
		return wire.AppendMessage(dst, m.json)
	}
	start := len(dst)
	p := wire.Publish{
		Flags: m.flags(), RequestID: requestID, AckMode: wire.AckPerBatch, ProducerID: m.producer, Sequence: m.sequence,
		Key: keyBytes(m.key), Tenant: m.topic.tenant, Namespace: m.topic.namespace, Stream: m.topic.stream, Count: 1,
	}
	if !m.single {
		p.Count = uint32(len(m.batch))
	}
	dst = wire.AppendPublish(dst, &p) // without records: they follow, so that they are copied once
	if m.single {
		dst = wire.AppendRecord(dst, m.data)
	} else {
		for _, record := range m.batch {
			dst = wire.AppendRecord(dst, record)
		}
	}
	wire.PutHeader(dst[start:], wire.Header{Flags: p.Flags, Length: uint32(len(dst) - start - wire.HeaderBytes)})
	return dst
}

// appendAgain appends a frame that was encoded before under a new request id.
func appendAgain(dst, frame []byte, requestID uint64) []byte {
	h, body, _, ok, err := wire.SplitFrame(frame, wire.MaxFrameBytes)
	if err != nil || !ok {
		panic("BUG: client: a kept frame is not whole")
	}
	if h.Flags != 0 {
		start := len(dst)
		dst = append(dst, frame...)
		if h.Flags.Has(wire.FlagPublishAcked) {
			binary.BigEndian.PutUint64(dst[start+requestIDAt:], requestID)
		}
		return dst
	}
	m, err := wire.ParseMessage(body)
	p, isBatch := m.(*wire.PublishBatch)
	if err != nil || !isBatch {
		panic("BUG: client: a kept frame is no publish")
	}
	p.RequestID = requestID
	return wire.AppendMessage(dst, p)
}

// frameKey returns the routing key of a frame that was encoded before, and whether its shard was named.
func frameKey(frame []byte) (key []byte, keyed, explicit bool) {
	h, body, _, _, _ := wire.SplitFrame(frame, wire.MaxFrameBytes)
	if h.Flags == 0 {
		if m, err := wire.ParseMessage(body); err == nil {
			if p, ok := m.(*wire.PublishBatch); ok {
				return p.Key, p.HasKey, p.HasShard
			}
		}
		return nil, false, false
	}
	var p wire.Publish
	if p.Parse(h.Flags, body) != nil {
		return nil, false, false
	}
	return p.Key, p.HasKey(), false
}

// keyBytes is a view of the key. The codec reads it only.
func keyBytes(key string) []byte { return unsafe.Slice(unsafe.StringData(key), len(key)) }
