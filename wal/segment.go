package wal

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// segment is one file of a lane. The lane's goroutine owns the fields without a lock note.
type segment struct {
	segmentHeader
	name string // file name in the lane's directory
	file *pooledFile

	// pos is where the next group goes. Invariant: a multiple of blockSize, segmentDataStart <= pos <= size - blockSize.
	pos int64
	// footerPos is the footer's place in a sealed segment, 0 without one.
	footerPos int64
	sealed    bool
	touched   map[uint64]struct{} // shards with runs here; under index.mu
	// indexEntries counts sparse entries of this segment in memory, to bound the footer; under index.mu.
	indexEntries int
	lastTime     int64 // written time of its last group
	// damaged says that part of it did not read back. It is not freed while any shard misses offsets: the file is what
	// a repair would start from.
	damaged atomic.Bool

	// holders counts readers; a segment is recycled only when it is retired and nobody holds it. Starts at 1 for the lane.
	holders  atomic.Int32
	released func(*segment) // called once by whoever lets go last

	loadMu sync.Mutex
	loaded atomic.Pointer[segmentIndex] // sparse index of a sealed segment, read on first use

	zero zeroState
}

func newSegment(h segmentHeader, name string, f *pooledFile) *segment {
	s := &segment{segmentHeader: h, name: name, file: f, pos: segmentDataStart, touched: map[uint64]struct{}{}}
	s.holders.Store(1)
	s.zero.init(s)
	return s
}

// hold keeps the file open and unrecycled. It is called under index.mu while an extent still points here, so the lane's
// own hold is not gone yet.
func (s *segment) hold() { s.holders.Add(1) }

func (s *segment) letGo() {
	switch n := s.holders.Add(-1); {
	case n == 0:
		s.released(s)
	case n < 0:
		panic(fmt.Sprintf("BUG: wal: segment %d has %d holders", s.epoch, n))
	}
}

// footerRoom bounds what the footer of s can take when entries more directory entries are written to it, without the
// echo of the group before.
func (s *segment) footerRoom(entries int) int64 {
	n := s.indexEntries + entries
	return alignUp(int64(groupHeadLen(2, 0) + 2*batchFixed + 8 + n*(runSize+indexEntrySize)))
}

// room is what groups may still take in s when the footer and the seal must fit behind them.
func (s *segment) room(entries int) int64 {
	return s.size - blockSize - s.pos - s.footerRoom(entries)
}

// segmentIndex is the footer of a sealed segment in memory.
type segmentIndex struct {
	runs map[uint64][]sparseRun
	used atomic.Int64 // tick of last use, for eviction
}

type sparseRun struct {
	run
	index []indexEntry
}
