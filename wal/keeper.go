package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// keeper is what the keeper goroutine owns: segments before and after their life at the tail. It makes the next one
// while the present one fills, zeroes ahead, and recycles what retention has emptied.
type keeper struct {
	mu       sync.Mutex
	segments []*segment // that hold log, by epoch; the active one is last
	next     *segment   // ready for the lane to go on in
	dead     []*segment // released and no longer held; waiting to become spares
	closed   bool       // files are closed as they are let go
	// missing are the epochs of segments that should be there and are not, or whose headers do not read. They stay in the
	// checkpoints while any shard misses offsets, so that a file that is put back is known and not taken for a released one.
	missing []uint64

	wake    chan struct{} // there is work; holds one
	reclaim atomic.Bool   // some shard's start moved, so segments may be free

	// Only the keeper goroutine, and Open before it starts.
	pool       *filePool
	backend    Backend // writes zeros; one of its own, since the lane's belongs to the lane's goroutine
	spares     []string
	lastEpoch  uint64
	log        uint64 // see segmentHeader
	reserve    int64
	noAllocate bool
	noted      map[string]bool // troubles that last, each of which is logged once
	zeros      []byte
	lastSeen   uint64 // groups written at the last look, to tell idle time
	perSync    syncShare
	restUntil  time.Time // no zeros before it, while syncs are of much log each
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) add(s *segment) {
	k.mu.Lock()
	k.segments = append(k.segments, s)
	k.mu.Unlock()
}

// epochs lists the segments for a checkpoint, oldest first.
func (l *Lane) epochs() []uint64 {
	k := &l.keep
	k.mu.Lock()
	missing := len(k.missing) > 0
	k.mu.Unlock()
	if missing && !l.idx.anyHole() {
		k.mu.Lock()
		k.missing = nil
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.Clone(k.missing)
	for _, s := range k.segments {
		out = append(out, s.epoch)
	}
	slices.Sort(out)
	return out
}

// takeNext gives the next segment to the lane's goroutine, nil when none is ready.
func (l *Lane) takeNext() *segment {
	k := &l.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.next
	k.next = nil
	l.roomNext.Store(0)
	return s
}

func (l *Lane) setNext(s *segment) {
	k := &l.keep
	k.mu.Lock()
	k.next = s
	l.roomNext.Store(s.room(0) - l.controlReserve())
	k.mu.Unlock()
	l.opts.Notify()
}

// keepLoop is the keeper goroutine.
func (l *Lane) keepLoop() {
	defer l.ended.Done()
	l.keep.backend = newBackend(l.opts.Backend, func(string) {}) // the lane's says so where there is no ring
	defer l.keep.backend.Close()
	timer := stoppedTimer()
	defer timer.Stop()
	for {
		if wait := l.keepOnce(); wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-l.stop:
			return
		case <-l.keep.wake:
		case <-timer.C:
		}
	}
}

const (
	keepRetry = 200 * time.Millisecond // how soon a full disk is looked at again
	zeroChunk = 1 << 20                // bytes zeroed and synced at once; bounds what a group may wait for
)

// keepOnce does what can be done now and returns after which time to look again, 0 for not before a poke.
func (l *Lane) keepOnce() time.Duration {
	var wait time.Duration
	again := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	if l.Err() != nil {
		return 0
	}
	l.buryDead()
	if l.keep.reclaim.Swap(false) {
		if err := l.reclaim(); err != nil {
			l.keep.reclaim.Store(true)
			if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrClosed) {
				l.note("reclaim", err)
			}
			again(keepRetry)
		} else {
			l.note("reclaim", nil)
		}
		l.buryDead()
	}
	if l.needNext() {
		l.buryDead() // a next segment that was too small makes room for the larger one
		s, err := l.makeSegment()
		if err != nil {
			full := errors.Is(err, ErrDiskFull)
			want := l.wantRoom.Swap(0) // one large batch must not keep an ordinary segment from being made
			if full {
				l.stats.diskFull.Add(1)
			}
			news := l.diskFull.Swap(full) != full
			if least := l.noRoomFor.Load(); full && want > 0 && (least == 0 || want < least) {
				l.noRoomFor.Store(want)
				news = true
			}
			if news {
				l.opts.Notify() // whoever waits as busy is refused now
			}
			l.note("next", err)
			again(keepRetry)
		} else {
			l.diskFull.Store(false)
			l.note("next", nil)
			l.setNext(s)
		}
	}
	if l.wantRoom.Load() > 0 {
		again(keepRetry)
	}
	if l.noRoomFor.Load() > 0 && !l.roomAgain() {
		again(keepRetry)
	}
	if d := l.zeroAhead(); d > 0 {
		again(d)
	}
	return wait
}

// note logs a trouble when it begins and, where that is worth knowing, when it ends; not every try in between.
func (l *Lane) note(what string, err error) {
	k := &l.keep
	if k.noted[what] == (err != nil) {
		return
	}
	if k.noted == nil {
		k.noted = map[string]bool{}
	}
	k.noted[what] = err != nil
	switch {
	case err != nil:
		l.opts.Log(fmt.Sprintf("lane %d: %v", l.opts.Lane, err))
	case what == "next":
		l.opts.Log(fmt.Sprintf("lane %d: there is room for segments again, appends go on", l.opts.Lane))
	}
}

// needNext says whether a next segment is missing, dropping one that is too small for a batch that waits.
func (l *Lane) needNext() bool {
	k := &l.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil {
		return true
	}
	room := k.next.room(0) - l.controlReserve()
	if want := l.wantRoom.Load(); want > room {
		// Taking the room away first and looking at the promises then is the other half of what promise does: either
		// an append sees that the room is gone, or we see that it counts on it.
		l.roomNext.Store(0)
		// Without promises nobody counts on it, also where control records have used the reserve and roomActive is below 0.
		if promised := l.promised.Load(); promised <= max(0, l.roomActive.Load()) {
			k.dead = append(k.dead, k.next)
			k.next = nil
			return true
		}
		l.roomNext.Store(room)
		l.opts.Notify()
		return false
	}
	l.wantRoom.Store(0)
	return false
}

func outOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, ErrDiskFull)
}

// makeSegment makes a segment that is durable under its name, from a spare when one fits. It takes at most an eighth of
// the free space unless a single batch needs more, and leaves the reserve.
func (l *Lane) makeSegment() (*segment, error) {
	k := &l.keep
	size := l.opts.SegmentBytes
	least := max(64<<10, l.sizeFor(leastRoom))
	if want := l.wantRoom.Load(); want > 0 {
		least = l.sizeFor(want)
		size = max(size, least)
	}
	h := segmentHeader{version: formatVersion, lane: l.opts.Lane, epoch: k.lastEpoch + 1, salt: l.opts.Rand(), size: size, created: l.now().UnixMicro(), log: k.log}
	name := segmentName(h.epoch)
	f, temp, err := l.openSpare(&h)
	if err != nil {
		return nil, err
	}
	if f == nil {
		free, err := l.fs.Free(l.dir)
		if err != nil {
			return nil, fmt.Errorf("free space of %s: %w", l.dir, err)
		}
		h.size = max(min(size, free/8&^(blockSize-1)), least)
		if free < h.size+k.reserve {
			return nil, fmt.Errorf("%w: %s has %d bytes free, a segment of %d and the reserve of %d do not fit; free some space or lower retention", ErrDiskFull, l.dir, free, h.size, k.reserve)
		}
		temp = l.dir + "/" + fmt.Sprintf("%016x%s", h.epoch, freshSuffix)
		if f, err = l.allocate(temp, h.size); err != nil {
			return nil, err
		}
	}
	block := make([]byte, blockSize)
	copy(block, appendSegmentHeader(nil, &h))
	err = f.Writev([][]byte{block, block}, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err == nil {
		err = l.fs.Rename(temp, l.dir+"/"+name)
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		f.Close()
		// The temporary file holds nothing; the next open removes it if this does not.
		_ = l.fs.Remove(temp)
		if outOfSpace(err) {
			return nil, fmt.Errorf("%w: make segment %s: %w", ErrDiskFull, name, err)
		}
		return nil, fmt.Errorf("make segment %s: %w", name, err)
	}
	k.lastEpoch = h.epoch
	s := newSegment(h, name, k.pool.adopt(l.dir+"/"+name, f, true))
	s.released = l.bury
	return s, nil
}

// footerLeast is the footer of an empty segment.
const footerLeast = 2 * blockSize

// leastRoom is what the least segment takes besides control records. One without room for batches would be made and dropped for ever.
const leastRoom = 4 * blockSize

// sizeFor is the least size of a segment that takes a batch of the given cost.
func (l *Lane) sizeFor(cost int64) int64 {
	return alignUp(cost + l.controlReserve() + segmentDataStart + 2*blockSize + footerLeast)
}

// roomAgain looks whether the batches that no segment could be made for would get one now, and lets them try then. Without this a
// batch that only a small next segment stands in the way of would be told to wait for ever, while segments are made and dropped.
func (l *Lane) roomAgain() bool {
	free, err := l.fs.Free(l.dir)
	l.keep.mu.Lock()
	if l.keep.next != nil {
		free += l.keep.next.size // makes way for the larger one
	}
	l.keep.mu.Unlock()
	const margin = 64 << 10 // for what a file system takes besides the blocks of a file
	if err != nil || free < l.sizeFor(l.noRoomFor.Load())+l.keep.reserve+margin {
		return false
	}
	l.noRoomFor.Store(0)
	l.opts.Notify()
	return true
}

func (l *Lane) allocate(name string, size int64) (File, error) {
	f, err := l.fs.Create(name)
	if err != nil {
		if outOfSpace(err) {
			return nil, fmt.Errorf("%w: create %s: %w", ErrDiskFull, name, err)
		}
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	err = f.Allocate(size)
	if errors.Is(err, ErrNoAllocate) {
		if !l.keep.noAllocate {
			l.keep.noAllocate = true
			l.opts.Log(fmt.Sprintf("lane %d: the file system of %s cannot preallocate; segments grow as they are written and syncs are slower", l.opts.Lane, l.dir))
		}
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		_ = l.fs.Remove(name)
		if outOfSpace(err) {
			return nil, fmt.Errorf("%w: allocate %s of %d bytes: %w", ErrDiskFull, name, size, err)
		}
		return nil, fmt.Errorf("allocate %s of %d bytes: %w", name, size, err)
	}
	return f, nil
}
