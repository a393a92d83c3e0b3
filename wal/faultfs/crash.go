package faultfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Survival says what a power cut leaves of writes that were not synced.
type Survival int

// The ways of losing power.
const (
	DropAll  Survival = iota // nothing unsynced survives
	KeepAll                  // everything does
	Torn512                  // everything but the last write, of which some sectors from the front survive
	Torn4K                   // the same in blocks of 4 KiB
	Shuffled                 // any set of sectors of any unsynced write survives
)

// Crash returns the disk as a machine could find it after losing power now.
func (d *Disk) Crash(s Survival, rng *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := New(d.capacity)
	out.foreign, out.NoAllocate = d.foreign, d.NoAllocate
	names := maps.Clone(d.durable)
	n := len(d.dirOps)
	switch s {
	case DropAll:
		n = 0
	case Shuffled:
		n = rng.IntN(n + 1)
	}
	for _, op := range d.dirOps[:n] {
		if op.from != "" {
			delete(names, op.from)
		}
		if op.ino == nil {
			delete(names, op.name)
			continue
		}
		names[op.name] = op.ino
	}
	for name, ino := range names {
		c := ino.crash(s, rng)
		out.live[name], out.durable[name] = c, c
	}
	return out
}

func (ino *inode) crash(s Survival, rng *rand.Rand) *inode {
	c := &inode{size: ino.durSize, blocks: slices.Clone(ino.durBlocks)}
	if s != DropAll && (s != Shuffled || rng.IntN(2) == 0) {
		c.size = ino.size
	}
	for i, w := range ino.pending {
		last := i == len(ino.pending)-1
		switch {
		case s == DropAll:
		case s == Shuffled:
			for from := 0; from < len(w.data); from += sectorSize {
				if rng.IntN(2) == 0 {
					writeBlocks(&c.blocks, w.off+int64(from), w.data[from:min(from+sectorSize, len(w.data))])
				}
			}
		case last && s == Torn512:
			writeBlocks(&c.blocks, w.off, w.data[:tear(len(w.data), sectorSize, rng)])
		case last && s == Torn4K:
			writeBlocks(&c.blocks, w.off, w.data[:tear(len(w.data), blockSize, rng)])
		default:
			writeBlocks(&c.blocks, w.off, w.data)
		}
	}
	c.size = max(c.size, 0)
	c.durSize, c.durBlocks = c.size, slices.Clone(c.blocks)
	return c
}

func tear(n, unit int, rng *rand.Rand) int {
	units := (n + unit - 1) / unit
	return min(rng.IntN(units+1)*unit, n)
}

// Kill returns the disk as it is for the next process after this one was killed: everything written is visible, what was
// not synced still is not, and no lock is held.
func (d *Disk) Kill() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := New(d.capacity)
	out.foreign, out.NoAllocate = d.foreign, d.NoAllocate
	copies := map[*inode]*inode{nil: nil}
	dup := func(ino *inode) *inode {
		if c, ok := copies[ino]; ok {
			return c
		}
		c := &inode{size: ino.size, blocks: slices.Clone(ino.blocks), durSize: ino.durSize, durBlocks: slices.Clone(ino.durBlocks), pending: slices.Clone(ino.pending)}
		copies[ino] = c
		return c
	}
	for name, ino := range d.live {
		out.live[name] = dup(ino)
	}
	for name, ino := range d.durable {
		out.durable[name] = dup(ino)
	}
	for _, op := range d.dirOps {
		out.dirOps = append(out.dirOps, dirOp{op.name, dup(op.ino), op.from})
	}
	return out
}
