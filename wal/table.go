package wal

import (
	"errors"

	"felix/netio/wire"
)

// A checkpoint is the lane's shard table as one batch. It stands first in every segment, so that recovery reads the
// table and then only the groups after it.
type checkpoint struct {
	shards    []tableShard
	segments  []uint64 // epochs that hold log, oldest first; one that is missing on disk is damage
	registers []tableRegister
}

type tableShard struct {
	id         uint64
	start, end wire.Offset
	term       Term
	index      uint64
	lastTime   int64
}

// tableRegister says where the latest value of a register is.
type tableRegister struct {
	shard  uint64
	slot   uint8
	entry  uint16 // its place in the group's directory
	epoch  uint64
	pos    int64
	offset wire.Offset
}

const (
	checkpointFixed   = 16
	tableShardSize    = 48
	tableRegisterSize = 40
)

var errBadTable = errors.New("wal: table does not parse")

func appendCheckpoint(dst []byte, c *checkpoint) []byte {
	dst = le.AppendUint32(dst, uint32(len(c.shards)))
	dst = le.AppendUint32(dst, uint32(len(c.segments)))
	dst = le.AppendUint32(dst, uint32(len(c.registers)))
	dst = le.AppendUint32(dst, 0)
	for i := range c.shards {
		s := &c.shards[i]
		dst = le.AppendUint64(dst, s.id)
		dst = le.AppendUint64(dst, uint64(s.start))
		dst = le.AppendUint64(dst, uint64(s.end))
		dst = le.AppendUint64(dst, uint64(s.term))
		dst = le.AppendUint64(dst, s.index)
		dst = le.AppendUint64(dst, uint64(s.lastTime))
	}
	for _, e := range c.segments {
		dst = le.AppendUint64(dst, e)
	}
	for i := range c.registers {
		r := &c.registers[i]
		dst = le.AppendUint64(dst, r.shard)
		dst = le.AppendUint64(dst, r.epoch)
		dst = le.AppendUint64(dst, uint64(r.pos))
		dst = le.AppendUint64(dst, uint64(r.offset))
		dst = le.AppendUint16(dst, r.entry)
		dst = append(dst, r.slot, 0, 0, 0, 0, 0)
	}
	return dst
}

// parseCheckpoint decodes p, which the checkpoint must fill. Memory is bounded by len(p).
func parseCheckpoint(p []byte, c *checkpoint) error {
	if len(p) < checkpointFixed {
		return errBadTable
	}
	shards, segments, registers := uint64(le.Uint32(p)), uint64(le.Uint32(p[4:])), uint64(le.Uint32(p[8:]))
	if le.Uint32(p[12:]) != 0 || uint64(len(p)) != checkpointFixed+shards*tableShardSize+segments*8+registers*tableRegisterSize {
		return errBadTable
	}
	p = p[checkpointFixed:]
	*c = checkpoint{
		shards:    make([]tableShard, 0, shards),
		segments:  make([]uint64, 0, segments),
		registers: make([]tableRegister, 0, registers),
	}
	for range shards {
		s := tableShard{le.Uint64(p), wire.Offset(le.Uint64(p[8:])), wire.Offset(le.Uint64(p[16:])),
			Term(le.Uint64(p[24:])), le.Uint64(p[32:]), int64(le.Uint64(p[40:]))}
		if s.start > s.end {
			return errBadTable
		}
		c.shards = append(c.shards, s)
		p = p[tableShardSize:]
	}
	for range segments {
		c.segments = append(c.segments, le.Uint64(p))
		p = p[8:]
	}
	for range registers {
		if p[35]|p[36]|p[37]|p[38]|p[39] != 0 {
			return errBadTable
		}
		c.registers = append(c.registers, tableRegister{shard: le.Uint64(p), epoch: le.Uint64(p[8:]), pos: int64(le.Uint64(p[16:])),
			offset: wire.Offset(le.Uint64(p[24:])), entry: le.Uint16(p[32:]), slot: p[34]})
		p = p[tableRegisterSize:]
	}
	return nil
}

// A run is a range of one shard's offsets whose batches stand in one segment in this order. A footer lists the runs
// of its segment as they were when it was sealed.
type run struct {
	shard            uint64
	from, to         wire.Offset
	bytes            int64 // encoded bytes of its batches
	minTime, maxTime int64
	moved            bool // written again by retention, so it may overlap an older segment
	entries          uint32
}

// indexEntry says that the batch holding offset starts in the group at block.
type indexEntry struct {
	offset wire.Offset
	time   int64  // append time of that batch
	block  uint32 // position of the group in blocks
	before uint32 // bytes of the run before that batch
}

const (
	runSize        = 56
	indexEntrySize = 24
)

func appendRuns(dst []byte, runs []run) []byte {
	dst = le.AppendUint32(dst, uint32(len(runs)))
	dst = le.AppendUint32(dst, 0)
	for i := range runs {
		r := &runs[i]
		dst = le.AppendUint64(dst, r.shard)
		dst = le.AppendUint64(dst, uint64(r.from))
		dst = le.AppendUint64(dst, uint64(r.to))
		dst = le.AppendUint64(dst, uint64(r.bytes))
		dst = le.AppendUint64(dst, uint64(r.minTime))
		dst = le.AppendUint64(dst, uint64(r.maxTime))
		moved := uint32(0)
		if r.moved {
			moved = 1
		}
		dst = le.AppendUint32(dst, moved)
		dst = le.AppendUint32(dst, r.entries)
	}
	return dst
}

func parseRuns(p []byte) ([]run, error) {
	if len(p) < 8 || le.Uint32(p[4:]) != 0 || uint64(len(p)) != 8+uint64(le.Uint32(p))*runSize {
		return nil, errBadTable
	}
	runs := make([]run, le.Uint32(p))
	p = p[8:]
	for i := range runs {
		r := &runs[i]
		*r = run{shard: le.Uint64(p), from: wire.Offset(le.Uint64(p[8:])), to: wire.Offset(le.Uint64(p[16:])), bytes: int64(le.Uint64(p[24:])),
			minTime: int64(le.Uint64(p[32:])), maxTime: int64(le.Uint64(p[40:])), moved: le.Uint32(p[48:]) == 1, entries: le.Uint32(p[52:])}
		if r.from >= r.to || le.Uint32(p[48:]) > 1 || r.bytes < 0 {
			return nil, errBadTable
		}
		p = p[runSize:]
	}
	return runs, nil
}

func appendIndexEntries(dst []byte, entries []indexEntry) []byte {
	for i := range entries {
		e := &entries[i]
		dst = le.AppendUint64(dst, uint64(e.offset))
		dst = le.AppendUint64(dst, uint64(e.time))
		dst = le.AppendUint32(dst, e.block)
		dst = le.AppendUint32(dst, e.before)
	}
	return dst
}

func parseIndexEntries(p []byte) ([]indexEntry, error) {
	if len(p)%indexEntrySize != 0 {
		return nil, errBadTable
	}
	entries := make([]indexEntry, len(p)/indexEntrySize)
	for i := range entries {
		entries[i] = indexEntry{wire.Offset(le.Uint64(p)), int64(le.Uint64(p[8:])), le.Uint32(p[16:]), le.Uint32(p[20:])}
		p = p[indexEntrySize:]
	}
	return entries, nil
}
