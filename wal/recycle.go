package wal

import "fmt"

// openSpare takes a spare of the size that h asks for. Others are removed: the configuration has changed.
func (l *Lane) openSpare(h *segmentHeader) (File, string, error) {
	k := &l.keep
	for len(k.spares) > 0 {
		name := l.dir + "/" + k.spares[len(k.spares)-1]
		k.spares = k.spares[:len(k.spares)-1]
		l.stats.spares.Store(int64(len(k.spares)))
		f, err := l.fs.Open(name, false)
		if err != nil {
			continue
		}
		if size, err := f.Size(); err == nil && size == h.size {
			h.recycled = true
			l.stats.recycled.Add(1)
			return f, name, nil
		}
		f.Close()
		if err := l.fs.Remove(name); err != nil {
			return nil, "", fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil, "", nil
}

// bury takes a segment that nobody holds any more. It may run on a reader's goroutine.
func (l *Lane) bury(s *segment) {
	k := &l.keep
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.dead = append(k.dead, s)
	}
	k.mu.Unlock()
	if closed {
		s.file.Close()
		return
	}
	k.poke()
}

// buryDead makes spares of dead segments, or removes them. The records that released them are durable. One sync of the directory
// serves all: whoever appends may be waiting for the next segment, which is made after this.
func (l *Lane) buryDead() {
	k := &l.keep
	k.mu.Lock()
	dead := k.dead
	k.dead = nil
	k.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	before := len(k.spares)
	for _, s := range dead {
		s.file.Close()
		from := l.dir + "/" + s.name
		var err error
		if len(k.spares) < l.opts.SpareSegments && s.size == l.opts.SegmentBytes && !k.noAllocate && s.written() {
			spare := fmt.Sprintf("%016x%s", s.epoch, spareSuffix)
			if err = l.fs.Rename(from, l.dir+"/"+spare); err == nil {
				k.spares = append(k.spares, spare)
			}
		} else {
			err = l.fs.Remove(from)
		}
		if err != nil {
			l.note("retire", fmt.Errorf("retire %s: %w", from, err))
		}
	}
	// The names are gone for good before the files' blocks get another header.
	if err := l.fs.SyncDir(l.dir); err != nil {
		k.spares = k.spares[:before]
		l.note("retire", fmt.Errorf("retire segments of %s: %w", l.dir, err))
	}
	l.stats.spares.Store(int64(len(k.spares)))
}

// written says whether every block of the segment was written, so that its next use needs no zeroing.
func (s *segment) written() bool {
	s.zero.mu.Lock()
	defer s.zero.mu.Unlock()
	return s.zero.zeroedTo >= s.size-blockSize || s.sealed
}
