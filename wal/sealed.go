package wal

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"felix/netio/wire"
)

// indexCache bounds the sealed segments whose sparse index is in memory.
type indexCache struct {
	mu     sync.Mutex
	loaded []*segment
	tick   atomic.Int64
}

// sealedEntry returns where to start walking in a sealed segment for the offset, reading the segment's footer when it
// is not in memory, and scanning the segment when the footer does not read back.
func (l *Lane) sealedEntry(s *segment, shard uint64, at wire.Offset) (indexEntry, error) {
	ix, err := l.loadIndex(s)
	if err != nil {
		return indexEntry{}, err
	}
	ix.used.Store(l.cache.tick.Add(1))
	for _, r := range ix.runs[shard] {
		if r.from <= at && at < r.to {
			if e, ok := entryAt(r.index, at); ok {
				return e, nil
			}
		}
	}
	return indexEntry{}, &DamageError{Shard: shard, From: at, To: at + 1, Segment: s.name, Reason: "the segment's index does not know the offset"}
}

func (l *Lane) loadIndex(s *segment) (*segmentIndex, error) {
	if ix := s.loaded.Load(); ix != nil {
		return ix, nil
	}
	s.loadMu.Lock()
	defer s.loadMu.Unlock()
	if ix := s.loaded.Load(); ix != nil {
		return ix, nil
	}
	size, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("wal: size of %s: %w", s.name, err)
	}
	ix := &segmentIndex{runs: map[uint64][]sparseRun{}}
	runs, g, ok := readFooter(s.file, &s.segmentHeader, size)
	if ok {
		ok = ix.fill(runs, g)
	}
	if !ok {
		if ix, err = l.rebuildIndex(s); err != nil {
			return nil, err
		}
		l.opts.Log(fmt.Sprintf("lane %d: the footer of %s does not read back, its index was rebuilt from the log", l.opts.Lane, s.name))
	}
	s.loaded.Store(ix)
	l.cache.keep(s, l.opts.IndexCache)
	return ix, nil
}

// fill takes the runs and their entries from a footer group.
func (ix *segmentIndex) fill(runs []run, g *group) bool {
	var entries []indexEntry
	err := g.batches(func(_ int, b *Batch, _ uint32) (err error) {
		if b.Kind == kindIndex {
			entries, err = parseIndexEntries(b.Records)
		}
		return err
	}, func(int) error { return errBadTable })
	if err != nil {
		return false
	}
	for _, r := range runs {
		if int(r.entries) > len(entries) {
			return false
		}
		ix.runs[r.shard] = append(ix.runs[r.shard], sparseRun{r, entries[:r.entries:r.entries]})
		entries = entries[r.entries:]
	}
	return len(entries) == 0
}

// rebuildIndex scans a segment and makes every batch a run of its own, the last one first: where a truncated batch and
// the one that replaced it stand in the same segment, the later is the one that the index means.
func (l *Lane) rebuildIndex(s *segment) (*segmentIndex, error) {
	sc, err := l.scannerOf(s)
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	ix := &segmentIndex{runs: map[uint64][]sparseRun{}}
	for pos := int64(segmentDataStart); ; {
		g, err := sc.next(pos)
		if err != nil {
			return nil, fmt.Errorf("wal: read %s: %w", s.name, err)
		}
		if g == nil {
			break
		}
		pos = g.pos + g.diskLen()
		for i := range g.dir {
			if e := &g.dir[i]; e.kind.takesOffsets() {
				entry := indexEntry{offset: e.base, time: g.written, block: uint32(g.pos / blockSize)}
				ix.runs[e.shard] = append(ix.runs[e.shard], sparseRun{run{shard: e.shard, from: e.base, to: e.end()}, []indexEntry{entry}})
			}
		}
	}
	for _, runs := range ix.runs {
		slices.Reverse(runs)
	}
	return ix, nil
}

// keep counts s among the loaded and drops the longest unused one when there are too many.
func (c *indexCache) keep(s *segment, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = append(c.loaded, s)
	for len(c.loaded) > limit {
		oldest := 0
		for i, o := range c.loaded {
			if a, b := o.loaded.Load(), c.loaded[oldest].loaded.Load(); o != s && (a == nil || b != nil && a.used.Load() < b.used.Load()) {
				oldest = i
			}
		}
		c.loaded[oldest].loaded.Store(nil)
		c.loaded = slices.Delete(c.loaded, oldest, oldest+1)
	}
}
