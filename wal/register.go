package wal

import (
	"fmt"

	"felix/netio/wire"
)

// RegisterOffCore reads the latest durable value of a shard's slot and the offset up to which it folds. ok is false
// when there is none. The value is the caller's. It blocks for the disk.
func (l *Lane) RegisterOffCore(shard uint64, slot uint8) (value []byte, offset wire.Offset, ok bool, err error) {
	l.idx.mu.RLock()
	s := l.idx.shards[shard]
	var at register
	if s != nil {
		for _, r := range s.registers {
			if r.slot == slot && r.seg != nil {
				at = r
				at.seg.hold()
				ok = true
			}
		}
	}
	l.idx.mu.RUnlock()
	if !ok {
		return nil, 0, false, nil
	}
	defer at.seg.letGo()
	sc, err := l.scannerOf(at.seg)
	if err != nil {
		return nil, 0, false, fmt.Errorf("wal: %w", err)
	}
	damage := &DamageError{Shard: shard, From: at.offset, To: at.offset, Segment: at.seg.name, Byte: at.pos, Reason: fmt.Sprintf("register %d does not read back", slot)}
	g, found, err := sc.at(at.pos)
	if err != nil {
		return nil, 0, false, fmt.Errorf("wal: read %s at byte %d: %w", at.seg.name, at.pos, err)
	}
	if !found {
		at.seg.damaged.Store(true)
		return nil, 0, false, damage
	}
	good := false
	_ = g.batches(func(i int, b *Batch, _ uint32) error {
		if i == int(at.entry) && b.Kind == KindRegister && b.Shard == shard && b.Slot == slot {
			value, good = append([]byte(nil), b.Records...), true
		}
		return nil
	}, func(int) error { return nil })
	if !good {
		at.seg.damaged.Store(true)
		return nil, 0, false, damage
	}
	return value, at.offset, true, nil
}
