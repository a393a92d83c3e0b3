package wal

import "felix/netio/wire"

// openGroup collects appends. The owner's loop fills it, hands it to the lane's goroutine, and gets it back through
// done with err set; nobody else touches it in between, and exactly one side has it at a time.
type openGroup struct {
	body   []byte
	dir    []dirEntry
	tokens []uint64 // parallel to dir
	upTo   []wire.Offset
	sync   bool  // holds an OnCommit batch
	timed  bool  // holds a Periodic batch
	cost   int64 // room promised to it
	err    error // set by the lane's goroutine
}

func (g *openGroup) reset(maxBody int) {
	if cap(g.body) > 2*maxBody {
		g.body = nil // one large batch must not keep its buffer for ever
	}
	g.body, g.dir, g.tokens, g.upTo = g.body[:0], g.dir[:0], g.tokens[:0], g.upTo[:0]
	g.sync, g.timed, g.cost, g.err = false, false, 0, nil
}

// add copies b in. The checksum is left to the lane's goroutine.
func (g *openGroup) add(b *Batch, mode Mode, token uint64, upTo wire.Offset) {
	from := len(g.body)
	g.body = appendBatch(g.body, b)
	g.dir = append(g.dir, dirEntry{shard: b.Shard, base: b.Base, count: b.Count, size: uint32(len(g.body) - from), kind: b.Kind, flags: b.diskFlags()})
	g.tokens = append(g.tokens, token)
	g.upTo = append(g.upTo, upTo)
	switch mode {
	case OnCommit:
		g.sync = true
	case Periodic:
		g.timed = true
	}
}

// What a batch and a group take in a segment at most, besides the encoded batch: directory entry, echo, a run and an
// index entry in the footer; header and padding.
const (
	batchCost = dirEntrySize + echoSize + runSize + indexEntrySize
	groupCost = groupFixed + blockSize
)
