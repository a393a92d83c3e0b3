package client

import (
	"unsafe"

	"felix/netio/wire"
)

// Packing: single records that come while the writer of a stream is busy, or before it has woken, travel in one frame per shard and are
// answered by one ack. Nothing waits for a frame to fill: the writer closes the packs as soon as it can write. Each record keeps its own
// future and its own offset, the frame's plus its place. A frame that is refused or lost is taken apart again, and each record is
// sent again, or fails, by itself and under its own key.
//
//	open     records of one topic and shard, routed by one route, all acked or none
//	           closed by the writer that has nothing left to write, by a record for that shard that does not fit it, or to make place
//	closed   one frame in the stream's last chunk; one entry, with the pack where futures wait
//
// So records of a shard stay in the order of the calls: whatever comes for a shard while its pack is open goes into it, or closes it first.
const (
	// maxOpenPacks is how many shards have a pack open in one publish stream; one more closes another.
	maxOpenPacks = 32
	// maxPackedRecord is the largest record that is packed. A larger one fills packets by itself.
	maxPackedRecord = 4 << 10
	// maxPackBytes closes a pack: a frame beyond it gains nothing and waits longer for its end.
	maxPackBytes = 32 << 10
)

// MaxPackedRecords is how many single publishes, of one shard and at most 4 KiB each, may share a frame and its answer while they wait to be
// written.
const MaxPackedRecords = 512

// A packing is an open pack: the frame in the making, or one to be made with the memory of the last.
type packing struct {
	topic        *topic
	route        *route
	shard        uint32
	acked, keyed bool
	count        uint32
	bytes        int    // frame and keys at most, as counted in sendQueue.packedBytes
	key          []byte // of the first record; it routes the frame
	records      []byte // as they stand in the frame
	pack         *pack  // nil without answer
}

// A pack is what is to be known of the records of an acked frame until it is answered.
type pack struct {
	topic     *topic
	keyed     bool
	recordsAt int // where they begin in the frame
	items     []packItem
	keys      []byte // one after the other
}

type packItem struct {
	future         *Future
	keyEnd         uint32 // in keys
	recordFrom, to uint32 // the payload, counted from recordsAt
}

// packable says whether a message may share a frame. It was prepared.
func (m *message) packable() bool {
	return m.single && m.again == nil && m.json == nil && !m.idempotent && len(m.data) <= maxPackedRecord
}

// takes says whether m, a packable message of its shard, belongs into the open pack.
func (p *packing) takes(m *message, r *route) bool {
	return p.route == r && p.acked == m.acked && p.keyed == m.keyed && p.bytes+len(m.data)+len(m.key) <= maxPackBytes && p.count < MaxPackedRecords
}

// openPack returns the open pack of a shard, -1 when it has none.
func (q *sendQueue) openPack(t *topic, shard uint32) int {
	for i := range q.opened {
		if p := &q.open[i]; p.shard == shard && p.topic == t {
			return i
		}
	}
	return -1
}

// pack adds m to open pack i, or begins one with it when i is -1; then there is place for it. f is nil when no answer is owed.
func (q *sendQueue) pack(i int, m *message, r *route, f *Future) {
	if i < 0 {
		if q.open == nil {
			q.open = make([]packing, maxOpenPacks)
		}
		i = q.opened
		q.opened++
	}
	p := &q.open[i]
	bytes := wire.RecordHeadBytes + len(m.data) + len(m.key)
	if p.count == 0 {
		p.topic, p.route, p.shard, p.acked, p.keyed = m.topic, r, m.shard, m.acked, m.keyed
		p.key = append(p.key[:0], m.key...)
		p.records, p.bytes = p.records[:0], 0
		bytes += publishFixedBytes + len(m.topic.names)
		if m.acked {
			p.pack = q.newPack()
			p.pack.topic, p.pack.keyed = m.topic, m.keyed
		}
	}
	p.count++
	p.bytes += bytes
	q.packedBytes += bytes
	p.records = wire.AppendRecord(p.records, m.data)
	if p.pack != nil {
		end := uint32(len(p.records))
		p.pack.keys = append(p.pack.keys, m.key...)
		p.pack.items = append(p.pack.items, packItem{f, uint32(len(p.pack.keys)), end - uint32(len(m.data)), end})
		q.packedPublishes++
	}
}

// closePack makes a frame of open pack i, in the last chunk.
func (q *sendQueue) closePack(i int) {
	q.opened--
	q.open[i], q.open[q.opened] = q.open[q.opened], q.open[i]
	p := &q.open[q.opened]
	w := wire.Publish{
		Flags: p.flags(), AckMode: wire.AckPerBatch, RequestID: q.nextID(), Key: p.key,
		Tenant: p.topic.tenant, Namespace: p.topic.namespace, Stream: p.topic.stream, Count: p.count, Records: p.records,
	}
	c := q.reserve(w.FrameBytes())
	start := len(c.buf)
	c.buf = wire.AppendPublish(c.buf, &w)
	q.packedBytes -= p.bytes
	p.count = 0
	pack := p.pack
	if p.pack = nil; pack == nil {
		q.pushed(c, start, nil)
		return
	}
	q.packedPublishes -= len(pack.items)
	q.pushed(c, start, pack.items[0].future)
	if len(pack.items) == 1 {
		q.releasePack(pack)
		return
	}
	pack.recordsAt = len(c.buf) - start - len(p.records)
	e := q.at(q.count - 1)
	e.pack, e.records = pack, int32(len(pack.items))
	q.publishes += len(pack.items) - 1
}

func (p *packing) flags() wire.Flags {
	m := message{acked: p.acked, keyed: p.keyed}
	return m.flags()
}

func (q *sendQueue) newPack() *pack {
	if last := len(q.sparePacks) - 1; last >= 0 {
		p := q.sparePacks[last]
		q.sparePacks = q.sparePacks[:last]
		return p
	}
	return &pack{}
}

// maxSparePacks bounds the packs that are kept to be used again.
const maxSparePacks = 2 * maxOpenPacks

// releasePack takes back a pack whose records have their outcome.
func (q *sendQueue) releasePack(p *pack) {
	clear(p.items)
	p.items, p.keys = p.items[:0], p.keys[:0]
	if len(q.sparePacks) < maxSparePacks {
		q.sparePacks = append(q.sparePacks, p)
	}
}

// stored gives the records of a stored frame their acks and appends their futures to good.
func (p *pack) stored(good []*Future, base Offset, hasOffset bool) []*Future {
	for i := range p.items {
		f := p.items[i].future
		if f.ghost {
			continue
		}
		f.ack.HasOffset = hasOffset
		if hasOffset {
			f.ack.Offset = base + Offset(i)
		}
		good = append(good, f)
	}
	return good
}

// each calls do for every record of a frame, with its future and a frame of its own. records is the frame from recordsAt.
func (p *pack) each(records []byte, do func(f *Future, frame []byte)) {
	from := uint32(0)
	for i := range p.items {
		item := &p.items[i]
		key := p.keys[from:item.keyEnd]
		from = item.keyEnd
		m := message{
			topic: p.topic, single: true, data: records[item.recordFrom:item.to], acked: true, keyed: p.keyed,
			key: unsafe.String(unsafe.SliceData(key), len(key)),
		}
		do(item.future, m.appendFrame(make([]byte, 0, m.frameBytes()), 0))
	}
}
