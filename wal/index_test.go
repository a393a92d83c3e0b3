package wal

import (
	"testing"

	"felix/netio/wire"
)

// A batch that is moved while the shard's start lies inside of it leaves no extent below the start: its segment may be released, and
// nobody may come back to it.
func TestMovedAcrossTheStart(t *testing.T) {
	from, to := &segment{touched: map[uint64]struct{}{}}, &segment{touched: map[uint64]struct{}{}}
	batch := func(base wire.Offset, n uint32, flags Flags) *Batch {
		return &Batch{Kind: KindRecords, Shard: 1, Base: base, Count: n, Flags: flags}
	}
	s := &shardIndex{start: 15, end: 15}
	s.applyAppend(batch(15, 5, 0), 100, from, 0)
	s.applyAppend(batch(20, 6, 0), 100, from, 4096)
	s.setStart(23)
	s.applyMoved(batch(20, 6, flagMoved), 100, to, 0)
	if len(s.extents) != 1 || s.extents[0].from != 23 || s.extents[0].to != 26 || s.extents[0].seg != to {
		t.Fatalf("%+v", s.extents)
	}
}
