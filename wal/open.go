package wal

import (
	"fmt"
)

// recover reads the directory, carries out what that found, and leaves the lane ready to write: the torn end is cut
// and the cut is on disk before anything is appended, and a checkpoint proves what was kept. Cut short at any point it
// can be run again with the same result: it only clears headers of groups that the next run would cut as well.
func (l *Lane) recover() (*Recovered, error) {
	r := recovery{fs: l.fs, dir: l.dir, lane: l.opts.Lane}
	l.keep.wake = make(chan struct{}, 1)
	l.w.jobs = make(chan *job)
	l.w.backend = syncBackend{}
	err := r.load()
	l.idx, l.keep.pool = r.idx, r.pool
	l.keep.segments = r.segments // so that an error closes them
	for _, s := range r.segments {
		s.released = l.bury
	}
	if err != nil {
		return nil, err
	}
	if err := l.cut(&r); err != nil {
		return nil, err
	}
	if l.keep.log = r.log; r.log == 0 {
		l.keep.log = l.opts.Rand()
	}
	l.keep.lastEpoch = 0
	for _, s := range r.segments {
		l.keep.lastEpoch = max(l.keep.lastEpoch, s.epoch)
	}
	for _, name := range r.missing {
		if e, ok := parseSegmentName(name, segmentSuffix); ok {
			l.keep.lastEpoch = max(l.keep.lastEpoch, e)
			l.keep.missing = append(l.keep.missing, e)
		}
	}
	for _, name := range r.spares {
		if e, ok := parseSegmentName(name, spareSuffix); ok {
			l.keep.lastEpoch = max(l.keep.lastEpoch, e)
		}
	}
	l.keep.spares = r.spares
	l.stats.spares.Store(int64(len(r.spares)))
	if err := l.pickReserve(); err != nil {
		return nil, err
	}
	if err := l.pickActive(&r); err != nil {
		return nil, err
	}
	l.keep.reclaim.Store(true)
	return &r.rec, l.writeTable(true)
}

// cut clears the headers of groups behind the cut and syncs everything that was kept. Groups that were only in the page
// cache are durable after it.
func (l *Lane) cut(r *recovery) error {
	dirty := map[*segment]bool{}
	if r.lastSegment != nil {
		dirty[r.lastSegment] = true
	}
	clearBlock := func(s *segment, pos int64) error {
		dirty[s] = true
		if err := s.file.Writev([][]byte{l.w.pad[:]}, pos); err != nil {
			return fmt.Errorf("wal: cut %s at byte %d: %w", s.name, pos, err)
		}
		return nil
	}
	for _, g := range r.stale {
		if err := clearBlock(g.seg, g.pos); err != nil {
			return err
		}
	}
	if s := r.lastSegment; s != nil && !r.lastFooter && len(r.stale) > 0 {
		// The seal of a footer that was cut must not vouch for it.
		if err := clearBlock(s, s.size-blockSize); err != nil {
			return err
		}
	}
	if s := r.lastSegment; s != nil && r.lastFooter && s.footerPos > 0 {
		// The power may have gone between the footer and the seal that leads to it.
		last := appendSeal(nil, &seal{epoch: s.epoch, salt: s.salt, footerPos: s.footerPos, lastSequence: r.sequence})
		last = append(last, l.w.pad[:blockSize-len(last)]...)
		if err := s.file.Writev([][]byte{last}, s.size-blockSize); err != nil {
			return fmt.Errorf("wal: seal %s: %w", s.name, err)
		}
	}
	for s := range dirty {
		if err := s.file.Datasync(); err != nil {
			return fmt.Errorf("wal: sync %s after recovery: %w", s.name, err)
		}
	}
	for _, name := range r.fresh {
		if err := l.fs.Remove(l.dir + "/" + name); err != nil {
			return fmt.Errorf("wal: remove unfinished %s: %w", name, err)
		}
	}
	// A process that was killed between a rename and its sync left a name that a power cut can still take back.
	if err := l.fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("wal: sync directory %s: %w", l.dir, err)
	}
	return nil
}

func (l *Lane) pickReserve() error {
	l.keep.reserve = l.opts.ReserveBytes
	if l.keep.reserve > 0 {
		return nil
	}
	free, err := l.fs.Free(l.dir)
	if err != nil {
		return fmt.Errorf("wal: free space of %s: %w", l.dir, err)
	}
	l.keep.reserve = min(free/64, 64<<20)
	return nil
}

// pickActive chooses where the log goes on and sorts the segments into live, next and dead.
func (l *Lane) pickActive(r *recovery) error {
	w, k := &l.w, &l.keep
	w.sequence, w.durable, w.echo = r.sequence, r.sequence, r.echo
	var live, empty []*segment
	for _, s := range r.segments {
		switch {
		case r.released[s.epoch]:
			s.letGo()
			l.stats.released.Add(1)
		case r.lastSegment == nil || s.epoch > r.lastSegment.epoch:
			empty = append(empty, s)
		default:
			s.sealed = s != r.lastSegment || r.lastFooter
			live = append(live, s)
			w.lastWritten = max(w.lastWritten, s.lastTime)
		}
	}
	if r.lastSegment != nil && !r.lastFooter && !r.released[r.lastSegment.epoch] {
		w.active = r.lastSegment
		if err := w.active.file.pin(); err != nil {
			return err
		}
		size, err := w.active.file.Size()
		if err != nil {
			return fmt.Errorf("wal: size of %s: %w", w.active.name, err)
		}
		if size < w.active.size {
			if err := w.active.file.Truncate(w.active.size); err != nil {
				return fmt.Errorf("wal: extend %s: %w", w.active.name, err)
			}
		}
	}
	if w.active == nil {
		if len(empty) == 0 {
			s, err := l.makeSegment()
			if err != nil {
				return fmt.Errorf("wal: lane %d: %w", l.opts.Lane, err)
			}
			empty = append(empty, s)
		}
		w.active, empty = empty[0], empty[1:]
		if err := w.active.file.pin(); err != nil {
			return err
		}
		live = append(live, w.active)
	}
	w.active.zero.restart(w.active.pos)
	k.segments = live
	l.publishRoom()
	if len(empty) > 0 {
		if err := empty[0].file.pin(); err != nil {
			return err
		}
		l.setNext(empty[0])
		k.dead = append(k.dead, empty[1:]...)
	}
	for _, s := range live {
		if !s.sealed || s.footerPos == 0 || s == w.active {
			continue
		}
		if _, _, ok := readFooter(s.file, &s.segmentHeader, s.size); ok {
			l.idx.dropEntries(s)
		} else {
			s.footerPos = 0
		}
	}
	return nil
}

// restart takes the segment up where recovery found its end. Zeros written before may be gone, so they are written
// again from there.
func (z *zeroState) restart(pos int64) {
	z.mu.Lock()
	z.used = pos
	if z.zeroedTo < z.limit {
		z.zeroedTo = pos
	}
	z.mu.Unlock()
}

// closeFiles closes every segment file, those that a reader holds once it lets go.
func (l *Lane) closeFiles() {
	k := &l.keep
	k.mu.Lock()
	held := append([]*segment(nil), k.segments...)
	if k.next != nil {
		held = append(held, k.next)
	}
	dead := k.dead
	k.segments, k.next, k.dead, k.closed = nil, nil, nil, true
	k.mu.Unlock()
	for _, s := range held {
		s.letGo()
	}
	for _, s := range dead {
		s.file.Close()
	}
}
