package replicate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"felix/netio/wire"
	"felix/wal"
)

// What a durable shard knows of its producers comes from its log: a table in a register, and the batches behind it. A shard without
// idempotent producers must not have to be read for that, so a mark in a second register says where the first idempotent batch
// since the table is:
//
//	mark at m, batches, table up to t (m <= t)        nothing to read
//	table up to t, batches, mark at m (m >= t)        read [m, end)
//
// Between mark and table the lane grows by tableEvery, or by tableShare times the table if that is more: what a start reads is
// bounded, and so is what the tables cost.
const (
	slotTable = 1
	slotMark  = 2

	tableEvery = 16 << 20
	tableShare = 16
)

// markTable says in the lane that the table is behind from here on.
func (s *Shard) markTable() error {
	log := s.log
	hl := log.lane
	hl.batch = wal.Batch{Kind: wal.KindRegister, Slot: slotMark, Shard: log.id, Base: s.appended}
	if _, err := hl.lane.Append(&hl.batch, wal.None, hl.token(s, tokenOther)); err != nil {
		return err
	}
	log.tableAt = hl.bytes + max(tableEvery, tableShare*uint64(s.producers.encodedSize()))
	s.tableBehind()
	return nil
}

func (s *Shard) tableBehind() {
	s.log.tableDirty = true
	if !s.log.tableListed {
		s.log.tableListed = true
		s.log.lane.tables = append(s.log.lane.tables, s)
	}
}

// writeTable writes the table as it is.
func (s *Shard) writeTable(mode wal.Mode) error {
	log := s.log
	hl, h := log.lane, s.host
	h.table = s.producers.appendTable(h.table[:0])
	hl.batch = wal.Batch{Kind: wal.KindRegister, Slot: slotTable, Shard: log.id, Base: s.appended, Records: h.table}
	_, err := hl.lane.Append(&hl.batch, mode, hl.token(s, tokenOther))
	hl.batch.Records = nil
	if err == nil {
		log.tableDirty = false
		hl.bytes += uint64(len(h.table))
	}
	if cap(h.table) > maxKeptTable {
		h.table = nil
	}
	return err
}

// maxKeptTable bounds the memory for the next table that a host keeps.
const maxKeptTable = 1 << 20

// A table is a byte with its version and, per producer, oldest batch first (little-endian):
//
//	u64 id, u64 next sequence, u32 n, n x (u64 digest, u64 base) for the n sequences before the next
const (
	tableVersion   = 1
	tableFixed     = 8 + 8 + 4
	tableBatchSize = 16
)

func (ps *producers) encodedSize() int {
	return 1 + ps.list.n*(tableFixed+rememberedBatches*tableBatchSize)
}

// appendTable appends the table to dst. parseTable reads it back.
func (ps *producers) appendTable(dst []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, tableVersion)
	for p := ps.list.oldest; p != nil; p = p.links[inShard].newer {
		from := p.oldestSequence()
		dst = le.AppendUint64(dst, p.id)
		dst = le.AppendUint64(dst, p.expected)
		dst = le.AppendUint32(dst, uint32(p.expected-from))
		for seq := from; seq < p.expected; seq++ {
			b := p.batches[seq%rememberedBatches]
			dst = le.AppendUint64(dst, b.digest)
			dst = le.AppendUint64(dst, uint64(b.base))
		}
	}
	return dst
}

var errTable = errors.New("the table does not parse")

// parseTable calls f with every batch of the table, producers oldest first and their batches in order, and first, with batches 0, for a
// producer without any.
func parseTable(b []byte, f func(id, sequence uint64, batch rememberedBatch)) error {
	le := binary.LittleEndian
	if len(b) == 0 || b[0] != tableVersion {
		return errTable
	}
	for b = b[1:]; len(b) > 0; {
		if len(b) < tableFixed {
			return errTable
		}
		id, next, n := le.Uint64(b), le.Uint64(b[8:]), uint64(le.Uint32(b[16:]))
		b = b[tableFixed:]
		if n == 0 || n > rememberedBatches || n > next || uint64(len(b)) < n*tableBatchSize {
			return errTable
		}
		for seq := next - n; seq < next; seq++ {
			f(id, seq, rememberedBatch{digest: le.Uint64(b), base: wire.Offset(le.Uint64(b[8:]))})
			b = b[tableBatchSize:]
		}
	}
	return nil
}

// restoreProducers reads back what the shard knew of its producers. It runs before the loops do, and waits for the disk. What cannot be
// read is told by notice; producers that are missing for it are unknown, and their clients stop.
func (s *Shard) restoreProducers(notice func(string)) {
	log := s.log
	lane := log.lane.lane
	complain := func(what string, err error) {
		notice(fmt.Sprintf("lane %d: shard %d of stream %d: idempotent producers may be unknown: %s: %v", log.lane.id, s.index, s.stream.ID, what, err))
	}
	value, tableEnd, hasTable, err := lane.RegisterOffCore(log.id, slotTable)
	if err == nil && hasTable {
		err = parseTable(value, s.note)
	}
	if err != nil {
		complain("table", err)
		hasTable = false
	}
	_, mark, marked, err := lane.RegisterOffCore(log.id, slotMark)
	if err != nil {
		complain("mark", err)
		mark, marked = tableEnd, true
	}
	if !marked || hasTable && mark < tableEnd {
		return
	}
	if hasTable {
		mark = max(mark, tableEnd)
	}
	if err := s.replay(lane, max(mark, log.start)); err != nil {
		complain("replay", err)
	}
	s.tableBehind() // and due: tableAt is 0
}

// replay notes the idempotent batches from offset from on.
func (s *Shard) replay(lane *wal.Lane, from wire.Offset) (failed error) {
	r := lane.NewReaderOffCore(s.log.id, from)
	defer r.Close()
	// A batch may come in parts, since reads are bounded.
	var whole struct {
		id, sequence uint64
		base, end    wire.Offset
		crc, size    uint32
	}
	done := func() {
		if whole.end > whole.base {
			s.note(whole.id, whole.sequence, rememberedBatch{digest: uint64(whole.crc)<<32 | uint64(whole.size), base: whole.base})
		}
		whole.end = whole.base
	}
	defer done()
	for {
		batches, err := r.Read(wal.Limits{Bytes: 1 << 20, Records: 1 << 20, To: s.appended})
		var trimmed *wal.TrimmedError
		var damaged *wal.DamageError
		switch {
		case errors.As(err, &trimmed):
			r.Seek(trimmed.Start)
			continue
		case errors.As(err, &damaged) && damaged.To > r.Offset():
			failed = err
			r.Seek(damaged.To)
			continue
		case err != nil:
			return err
		}
		if len(batches) == 0 {
			return failed
		}
		for i := range batches {
			b := &batches[i]
			if b.Producer == 0 && b.Sequence == 0 {
				done()
				continue
			}
			if whole.end == whole.base || b.Producer != whole.id || b.Sequence != whole.sequence || b.Base != whole.end {
				done()
				whole.id, whole.sequence, whole.base, whole.end, whole.crc, whole.size = b.Producer, b.Sequence, b.Base, b.Base, 0, 0
			}
			whole.crc = crc32.Update(whole.crc, castagnoli, b.Records)
			whole.size += uint32(len(b.Records))
			whole.end = b.End()
		}
	}
}
