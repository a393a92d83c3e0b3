package client

import (
	"unsafe"

	"felix/netio/wire"
)

// Packing: single records that come while the writer of a stream is busy, or before it has woken, travel in one frame per shard and are
// answered by one ack. Nothing waits for a frame to fill: a pack is closed when the writer gets to where it was opened. Each record keeps
// its own future and its own offset, the frame's plus its place. A frame that is refused or lost is taken apart again, and each record is
// sent again, or fails, by itself and under its own key.
//
//	openPack  records of one topic and shard, routed by one route, keyed or not, acked or not, gathered outside the chunks
//	            closed by the writer in its turn (packIsDue), by a record for that shard that does not fit it, or to make place
//	frame     one in the stream's last chunk, under the key of its first record, and one entry if it is acked
//	pack      beside the entry until the answer, if there are several records: what takes them apart again
//
// Records of a shard stay in the order of the calls: whatever comes for a shard while its pack is open goes into it, or closes it first.
//
// A broker routes the whole frame by one key. The width by which the client routed is announced before it, so that a broker with another
// width refuses the frame; keyed records to brokers that do not serve publish_width are not packed (pubStream.push).
const (
	// maxOpenPacks is how many shards have a pack open in one publish stream; one more closes another.
	maxOpenPacks = 32
	// maxPackedRecord is the largest record that is packed, together with its key. A larger one fills packets by itself.
	maxPackedRecord = 4 << 10
	// maxPackBytes closes a pack: a frame beyond it gains nothing and waits longer for its end.
	maxPackBytes = 32 << 10
)

// MaxPackedRecords is how many single publishes, of one shard and at most 4 KiB each, may share a frame and its answer while they wait to be
// written.
const MaxPackedRecords = 512

// An openPack gathers the records of one shard. Once closed it lends its memory to the next one.
type openPack struct {
	topic        *topic
	route        *route
	shard        uint32
	acked, keyed bool
	count        uint32 // of the records
	bytes        int    // of the frame and the keys, at most; in sendQueue.packedBytes
	behind       uint64 // sendQueue.queuedBytes when it was opened
	key          []byte // of the first record; it routes the frame
	records      []byte // as they stand in the frame
	pack         *pack  // nil when no answer is owed
}

// A pack says which publishes the records of an acked frame are. It has a use until the frame is answered.
type pack struct {
	topic     *topic
	keyed     bool
	recordsAt int // where the records begin in the frame
	items     []packItem
	keys      []byte // of the items, one after the other
}

type packItem struct {
	future   *Future
	keyEnd   uint32 // in keys; it begins at the end of the one before
	from, to uint32 // the payload, counted from recordsAt
}

// packable says whether a message may share a frame. It was prepared.
func (m *message) packable() bool {
	return m.single && m.again == nil && m.json == nil && !m.idempotent && len(m.data)+len(m.key) <= maxPackedRecord
}

// packedBytes bounds what a packable message adds to an open pack.
func (m *message) packedBytes() int { return wire.RecordHeadBytes + len(m.data) + len(m.key) }

// takes says whether m, a packable message for the shard of p, belongs into p.
func (p *openPack) takes(m *message, r *route) bool {
	return p.route == r && p.acked == m.acked && p.keyed == m.keyed && p.count < MaxPackedRecords && p.bytes+m.packedBytes() <= maxPackBytes
}

// findPack returns which open pack is that of a shard, -1 when it has none.
func (q *sendQueue) findPack(t *topic, shard uint32) int {
	for i := range q.opened {
		if p := &q.open[i]; p.shard == shard && p.topic == t {
			return i
		}
	}
	return -1
}

// beginPack opens a pack for messages like m and returns which it is. Fewer than maxOpenPacks are open.
func (q *sendQueue) beginPack(m *message, r *route) int {
	if q.open == nil {
		q.open = make([]openPack, maxOpenPacks)
	}
	i := q.opened
	q.opened++
	p := &q.open[i]
	*p = openPack{
		topic: m.topic, route: r, shard: m.shard, acked: m.acked, keyed: m.keyed,
		bytes: publishFixedBytes + len(m.topic.names), behind: q.queuedBytes, key: append(p.key[:0], m.key...), records: p.records[:0],
	}
	q.packedBytes += p.bytes
	if m.acked {
		p.pack = q.newPack()
		p.pack.topic, p.pack.keyed = m.topic, m.keyed
	}
	return i
}

// addToPack adds m to open pack i, which takes it. f counts when the pack is acked.
func (q *sendQueue) addToPack(i int, m *message, f *Future) {
	p, bytes := &q.open[i], m.packedBytes()
	p.count++
	p.bytes += bytes
	q.packedBytes += bytes
	p.records = wire.AppendRecord(p.records, m.data)
	if p.pack == nil {
		return
	}
	q.packedPublishes++
	p.pack.keys = append(p.pack.keys, m.key...)
	to := uint32(len(p.records))
	p.pack.items = append(p.pack.items, packItem{f, uint32(len(p.pack.keys)), to - uint32(len(m.data)), to})
}

// packIsDue says whether the turn of open pack i has come: the writer has taken what was queued before it, and, if it is acked, the window
// is not shut. Until then the records that come share it. Waiting for the writer to have nothing left would be waiting for a pause in what
// is published to other shards.
func (q *sendQueue) packIsDue(i int) bool {
	p := &q.open[i]
	return p.behind <= q.takenBytes && !(p.acked && q.window > 0 && q.sent >= q.window)
}

// closePack makes a frame of open pack i, in the last chunk.
func (q *sendQueue) closePack(i int) {
	q.opened--
	q.open[i], q.open[q.opened] = q.open[q.opened], q.open[i]
	p := &q.open[q.opened]
	like := message{acked: p.acked, keyed: p.keyed}
	w := wire.Publish{
		Flags: like.flags(), AckMode: wire.AckPerBatch, RequestID: q.nextID(), Key: p.key,
		Tenant: p.topic.tenant, Namespace: p.topic.namespace, Stream: p.topic.stream, Count: p.count, Records: p.records,
	}
	c := q.reserve(w.FrameBytes())
	start := len(c.buf)
	c.buf = wire.AppendPublish(c.buf, &w)
	q.packedBytes -= p.bytes
	if !p.acked {
		q.pushed(c, start, nil)
		return
	}
	pack := p.pack
	p.pack = nil
	q.pushed(c, start, pack.items[0].future)
	q.packedPublishes -= len(pack.items)
	if len(pack.items) == 1 {
		q.releasePack(pack) // the frame says it all
		return
	}
	q.publishes += len(pack.items) - 1 // pushed has counted one
	pack.recordsAt = len(c.buf) - start - len(p.records)
	e := q.at(q.count - 1)
	e.pack, e.publishes, e.packKeys = pack, int32(len(pack.items)), int32(len(pack.keys)-len(p.key))
	q.heldBytes += int(e.packKeys)
}

// maxSparePacks bounds the packs that are kept to be used again.
const maxSparePacks = 2 * maxOpenPacks

func (q *sendQueue) newPack() *pack {
	if last := len(q.sparePacks) - 1; last >= 0 {
		p := q.sparePacks[last]
		q.sparePacks = q.sparePacks[:last]
		return p
	}
	return &pack{}
}

// releasePack takes back a pack that is no longer needed. It forgets the futures: they may be somebody else's soon.
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

// each calls do for every publish of a frame, with its future and a frame of its own. records is the frame from recordsAt.
func (p *pack) each(records []byte, do func(f *Future, frame []byte)) {
	from := uint32(0)
	for i := range p.items {
		item := &p.items[i]
		key := p.keys[from:item.keyEnd]
		from = item.keyEnd
		m := message{
			topic: p.topic, single: true, data: records[item.from:item.to], acked: true, keyed: p.keyed,
			key: unsafe.String(unsafe.SliceData(key), len(key)),
		}
		do(item.future, m.appendFrame(make([]byte, 0, m.frameBytes()), 0))
	}
}
