package wal

import (
	"fmt"
	"time"
)

// writer is what the lane's goroutine owns: the tail of the log.
type writer struct {
	backend  Backend
	expecter expecter // the backend below what wraps it, where it is one
	active   *segment
	sequence uint64 // of the last group written
	durable  uint64 // highest sequence known to be on disk
	echo     []shardEnd
	// unproven says that the last group holds data and nothing after it on disk says that it was durable.
	unproven    bool
	sinceTable  int64 // log bytes since the last checkpoint
	head        []byte
	bufs        [3][]byte
	pad         [blockSize]byte
	syncTimer   *time.Timer
	syncArmed   bool
	idleTimer   *time.Timer
	jobs        chan *job
	jobBody     []byte
	jobDir      []dirEntry
	parsed      Batch
	lastWritten int64 // written time of the last group; never runs backwards
}

// job is work that the keeper asks of the lane's goroutine: batches that it made (moved ones, releases), or a sync.
type job struct {
	batches []Batch
	from    *segment // moved batches must still stand here, otherwise they are left out
	reserve bool
	reply   chan error // holds one
}

// writeLoop is the lane's goroutine. It ends when the owner has closed work and every group is written.
func (l *Lane) writeLoop() {
	defer l.ended.Done()
	w := &l.w
	w.backend = l.opts.openBackend(l.opts.Backend, l.opts.Log)
	if p, ok := w.backend.(poller); ok {
		l.poller.Store(&p)
	}
	w.expecter, _ = w.backend.(expecter) // what wraps it need not hand this on
	if l.opts.WrapBackend != nil {
		w.backend = l.opts.WrapBackend(w.backend)
	}
	defer w.backend.Close()
	name := w.backend.Name()
	l.stats.backend.Store(&name)
	w.syncTimer, w.idleTimer = stoppedTimer(), stoppedTimer()
	for {
		select {
		case g, ok := <-l.work:
			if !ok {
				l.finish()
				return
			}
			l.writeOpen(g)
			continue
		default:
		}
		select {
		case g, ok := <-l.work:
			if !ok {
				l.finish()
				return
			}
			l.writeOpen(g)
		case j := <-w.jobs:
			j.reply <- l.runJob(j)
			l.armIdle()
			l.opts.Notify() // an append may have been refused for the room that this held for a moment
		case <-w.syncTimer.C:
			w.syncArmed = false
			l.syncActive()
		case <-w.idleTimer.C:
			l.mark()
			l.opts.Notify()
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// finish proves the tail durable before the files are closed.
func (l *Lane) finish() {
	if l.Err() == nil {
		l.mark()
	}
}

// writeOpen writes an owner's group and gives it back.
func (l *Lane) writeOpen(g *openGroup) {
	cost := g.cost
	if err := l.Err(); err != nil {
		g.err = err
	} else {
		g.err = l.writeGroup(g.dir, g.body, g.sync)
		if g.err == nil {
			l.stats.batches.Add(uint64(len(g.dir)))
			l.stats.bodyBytes.Add(uint64(len(g.body)))
			if g.timed && !g.sync && !l.w.syncArmed {
				l.w.syncArmed = true
				l.w.syncTimer.Reset(l.opts.SyncInterval)
			}
			l.w.unproven = true
		}
	}
	l.done <- g
	l.promised.Add(-cost)
	l.opts.Notify()
	l.armIdle()
}

func (l *Lane) armIdle() {
	if l.w.unproven && l.Err() == nil {
		l.w.idleTimer.Reset(l.opts.MarkAfter)
	}
}

// writeGroup writes one group at the tail, rolling first when it does not fit, and applies it to the index. With sync
// it returns after the group, and all before it, is on disk. An error has poisoned the lane.
func (l *Lane) writeGroup(dir []dirEntry, body []byte, sync bool) error {
	w := &l.w
	need := alignUp(int64(groupHeadLen(len(dir), len(w.echo))) + int64(len(body)))
	if need+int64(len(dir))*echoSize > w.active.room(len(dir)) {
		if err := l.roll(); err != nil {
			return l.fail(err)
		}
	}
	return l.put(dir, body, sync)
}

// put writes one group into the active segment, where the caller has seen that it fits.
func (l *Lane) put(dir []dirEntry, body []byte, sync bool) error {
	w, seg := &l.w, l.w.active
	off := 0
	for i := range dir {
		dir[i].crc = checksum(body[off : off+int(dir[i].size)])
		off += int(dir[i].size)
	}
	now := l.now()
	w.lastWritten = max(w.lastWritten, now.UnixMicro())
	h := groupHeader{lane: seg.lane, epoch: seg.epoch, salt: seg.salt, sequence: w.sequence + 1, durable: w.durable,
		written: w.lastWritten, bodyLen: uint32(len(body)), dir: dir, echo: w.echo}
	w.head = appendGroupHeader(w.head[:0], &h)
	n := int64(len(w.head) + len(body))
	size := alignUp(n)
	w.bufs = [3][]byte{w.head, body, w.pad[:size-n]}
	bufs := w.bufs[:]
	if len(body) == 0 {
		w.bufs[1] = w.bufs[2]
		bufs = w.bufs[:2]
	}
	if size == n {
		bufs = bufs[:len(bufs)-1]
	}
	zeroed, behind := seg.zero.claim(seg.pos, size, l.opts.ZeroAhead)
	if zeroed {
		l.stats.zeroedGroups.Add(1)
	}
	if behind {
		l.keep.poke()
	}
	if w.expecter != nil && sync && len(dir) > 0 {
		w.expecter.Expect(len(dir), now)
	}
	if err := w.backend.Write(seg.file, bufs, seg.pos, sync); err != nil {
		return l.fail(fmt.Errorf("write group %d at byte %d of %s: %w", h.sequence, seg.pos, seg.name, err))
	}
	l.stats.groups.Add(1)
	l.stats.logBytes.Add(uint64(size))
	pos := seg.pos
	w.sequence++
	if sync {
		l.stats.syncs.Add(1)
		w.durable = w.sequence
	}
	w.sinceTable += size
	seg.lastTime = w.lastWritten
	if err := l.applyGroup(dir, body, pos, sync); err != nil {
		return err
	}
	seg.pos = pos + size
	l.publishRoom()
	return nil
}

// applyGroup makes the group visible.
func (l *Lane) applyGroup(dir []dirEntry, body []byte, pos int64, sync bool) error {
	w, x := &l.w, l.idx
	x.mu.Lock()
	defer x.mu.Unlock()
	off, cleanup := 0, false
	for i := range dir {
		e := &dir[i]
		if err := parseBatch(body[off:off+int(e.size)], &w.parsed); err != nil {
			panic(fmt.Sprintf("BUG: wal: group %d entry %d written and not readable", w.sequence, i))
		}
		off += int(e.size)
		if !sync && e.kind < kindRelease {
			x.noteUnsynced(e.shard)
		}
		cleanup = cleanup || e.kind >= kindStart && e.kind <= kindDelete
		x.apply(&w.parsed, e.size, w.active, pos, i)
	}
	if sync {
		clear(x.unsynced)
	}
	w.echo = x.echoOf(w.echo[:0], dir, w.sequence)
	if cleanup {
		l.keep.reclaim.Store(true)
		l.keep.poke()
	}
	return nil
}

// publishRoom tells the owner what the active segment still takes.
func (l *Lane) publishRoom() {
	l.roomActive.Store(l.w.active.room(0) - int64(len(l.w.echo))*echoSize - l.controlReserve())
}

// roll seals the active segment and goes on in the next one. The sealed segment is synced whole, so a group in a later
// segment proves all of it durable.
func (l *Lane) roll() error {
	w := &l.w
	next := l.takeNext()
	if next == nil {
		// promise and claim let nothing in that would need a segment which is not there.
		panic(fmt.Sprintf("BUG: wal: no segment after %s, %d bytes are promised of %d", w.active.name, l.promised.Load(), l.roomActive.Load()))
	}
	if err := l.sealActive(); err != nil {
		return err
	}
	w.active = next
	l.keep.add(next)
	l.publishRoom()
	l.stats.rolls.Add(1)
	l.keep.poke()
	return l.writeTable(false)
}

// sealActive writes footer and seal and syncs the segment. Without room the footer is left out; it is derived.
func (l *Lane) sealActive() error {
	w, seg := &l.w, l.w.active
	l.idx.mu.RLock()
	runs, entries := l.idx.runsOf(seg)
	l.idx.mu.RUnlock()
	footer := Batch{Kind: kindFooter, Time: l.now().UnixMicro(), Records: appendRuns(nil, runs)}
	index := Batch{Kind: kindIndex, Time: footer.Time, Records: appendIndexEntries(nil, entries)}
	body := appendBatch(nil, &footer)
	dir := []dirEntry{{kind: kindFooter, size: uint32(len(body))}, {kind: kindIndex}}
	body = appendBatch(body, &index)
	dir[1].size = uint32(len(body)) - dir[0].size
	pos := seg.pos
	fits := alignUp(int64(groupHeadLen(2, len(w.echo))+len(body))) <= seg.size-blockSize-seg.pos
	if fits {
		if err := l.put(dir, body, false); err != nil {
			return err
		}
		last := appendSeal(nil, &seal{epoch: seg.epoch, salt: seg.salt, footerPos: pos, lastSequence: w.sequence})
		last = append(last, w.pad[:blockSize-len(last)]...)
		if err := w.backend.Write(seg.file, [][]byte{last}, seg.size-blockSize, true); err != nil {
			return fmt.Errorf("seal %s: %w", seg.name, err)
		}
		l.stats.logBytes.Add(blockSize)
	} else if err := w.backend.Sync(seg.file); err != nil {
		return fmt.Errorf("seal %s: %w", seg.name, err)
	}
	l.stats.syncs.Add(1)
	w.durable = w.sequence
	l.idx.mu.Lock()
	clear(l.idx.unsynced)
	seg.sealed = true
	if fits {
		seg.footerPos = pos
		l.idx.dropEntries(seg)
	}
	l.idx.mu.Unlock()
	seg.file.unpin()
	return nil
}

// writeTable writes a checkpoint when there is room that nobody counts on. Without it recovery scans further back.
func (l *Lane) writeTable(sync bool) error {
	w := &l.w
	l.idx.mu.RLock()
	table := l.idx.table()
	l.idx.mu.RUnlock()
	table.segments = l.epochs()
	b := Batch{Kind: kindCheckpoint, Time: l.now().UnixMicro(), Records: appendCheckpoint(nil, table)}
	cost := int64(b.encodedSize()) + batchCost + groupCost
	if !l.claim(cost, false) {
		return nil
	}
	body := appendBatch(nil, &b)
	err := l.put([]dirEntry{{kind: kindCheckpoint, size: uint32(len(body))}}, body, sync)
	l.promised.Add(-cost)
	if err == nil {
		w.sinceTable = 0
	}
	return err
}

// claim reserves cost bytes of the active segment for a group of the lane's own. It fails rather than take room that an
// accepted append counts on.
func (l *Lane) claim(cost int64, reserve bool) bool {
	total := l.promised.Add(cost)
	extra := int64(0)
	if reserve {
		extra = l.controlReserve()
	}
	active := l.roomActive.Load() + extra
	if cost <= active && (total <= active || total-cost <= l.roomNext.Load()) {
		return true
	}
	l.promised.Add(-cost)
	return false
}

// mark proves the tail durable: it syncs what is not, and writes a group that says so. After enough log the group is a
// checkpoint.
func (l *Lane) mark() {
	w := &l.w
	if l.Err() != nil || !w.unproven {
		return
	}
	if w.durable < w.sequence {
		l.syncActive()
		if l.Err() != nil {
			return
		}
	}
	if w.sinceTable >= l.opts.CheckpointBytes {
		before := w.sequence
		if l.writeTable(true) != nil {
			return
		}
		w.unproven = w.sequence == before
	}
	if w.unproven && l.claim(groupCost, false) {
		err := l.put(nil, nil, true)
		l.promised.Add(-groupCost)
		if err != nil {
			return
		}
		l.stats.marks.Add(1)
	}
	w.unproven = false
}

// syncActive makes every written group durable.
func (l *Lane) syncActive() {
	w := &l.w
	if l.Err() != nil || w.durable == w.sequence {
		return
	}
	if err := w.backend.Sync(w.active.file); err != nil {
		_ = l.fail(fmt.Errorf("sync %s: %w", w.active.name, err))
		return
	}
	l.stats.syncs.Add(1)
	w.durable = w.sequence
	l.idx.mu.Lock()
	clear(l.idx.unsynced)
	l.idx.mu.Unlock()
}

// runJob writes the keeper's batches as one synced group.
func (l *Lane) runJob(j *job) error {
	if err := l.Err(); err != nil {
		return err
	}
	w := &l.w
	w.jobBody, w.jobDir = w.jobBody[:0], w.jobDir[:0]
	for i := range j.batches {
		b := &j.batches[i]
		if j.from != nil && !l.standsIn(b, j.from) {
			continue
		}
		from := len(w.jobBody)
		w.jobBody = appendBatch(w.jobBody, b)
		w.jobDir = append(w.jobDir, dirEntry{shard: b.Shard, base: b.Base, count: b.Count, size: uint32(len(w.jobBody) - from), kind: b.Kind, flags: b.diskFlags()})
	}
	if len(w.jobDir) == 0 {
		return nil
	}
	cost := int64(len(w.jobBody)) + int64(len(w.jobDir))*batchCost + groupCost
	if !l.claim(cost, j.reserve) {
		// Rolling makes room only when a whole next segment stands ready and nobody counts on this one.
		if l.roomNext.Load() < cost+l.promised.Load() {
			return ErrBusy
		}
		if err := l.roll(); err != nil {
			return l.fail(err)
		}
		if !l.claim(cost, j.reserve) {
			return ErrBusy
		}
	}
	err := l.put(w.jobDir, w.jobBody, true)
	l.promised.Add(-cost)
	if cap(w.jobBody) > 4*l.opts.MaxGroupBytes {
		w.jobBody = nil
	}
	w.unproven = true
	return err
}

// standsIn says whether seg is the place of every live offset, or of the register, that b was read from there.
func (l *Lane) standsIn(b *Batch, seg *segment) bool {
	l.idx.mu.RLock()
	defer l.idx.mu.RUnlock()
	s := l.idx.shards[b.Shard]
	if s == nil {
		return false
	}
	if b.Kind == KindRegister {
		for _, r := range s.registers {
			if r.slot == b.Slot {
				return r.seg == seg
			}
		}
		return false
	}
	at := max(b.Base, s.start)
	if at >= b.End() {
		return false
	}
	for at < b.End() {
		e, ok := s.find(at)
		if !ok || e.seg != seg {
			return false
		}
		at = e.to
	}
	return true
}
