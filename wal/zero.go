package wal

import (
	"fmt"
	"sync"
	"time"
)

// zeroState keeps the zeroing of a fresh segment and the groups written into it apart. Zeros go strictly ahead of the
// groups, a chunk at a time; the lane's goroutine waits for at most one chunk, and only when its group would meet it.
type zeroState struct {
	mu       sync.Mutex
	idle     sync.Cond
	zeroedTo int64 // blocks before this were written since the file was made
	busyFrom int64 // the chunk that is being zeroed, empty when equal
	busyTo   int64
	used     int64 // groups reach up to here
	limit    int64 // no zeros at or past this: the seal block
}

func (z *zeroState) init(s *segment) {
	z.idle.L = &z.mu
	z.zeroedTo, z.used, z.limit = segmentDataStart, s.pos, s.size-blockSize
	if s.recycled {
		z.zeroedTo = z.limit
	}
}

// claim reserves [pos, pos+n) for a group. It reports whether all of its blocks had been written before, and whether the
// zeros are less than half of distance ahead.
func (z *zeroState) claim(pos, n, distance int64) (zeroed, behind bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.used = pos + n
	for z.busyFrom < z.busyTo && pos+n > z.busyFrom {
		z.idle.Wait()
	}
	zeroed = z.zeroedTo >= pos+n
	z.zeroedTo = max(z.zeroedTo, pos+n)
	return zeroed, z.zeroedTo < z.limit && z.zeroedTo-z.used < distance/2
}

// next reserves the next chunk to zero, none when the zeros are distance ahead of the groups.
func (z *zeroState) next(distance, chunk int64) (from, to int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	from = max(z.zeroedTo, z.used)
	to = min(from+chunk, z.used+distance, z.limit)
	if from >= to {
		return 0, 0
	}
	z.busyFrom, z.busyTo = from, to
	return from, to
}

// done ends the chunk that next gave.
func (z *zeroState) done(ok bool) {
	z.mu.Lock()
	if ok {
		z.zeroedTo = max(z.zeroedTo, z.busyTo)
	} else {
		z.limit = 0
	}
	z.busyFrom, z.busyTo = 0, 0
	z.idle.Broadcast()
	z.mu.Unlock()
}

// ahead is how far the zeros reach beyond the groups.
func (z *zeroState) ahead() int64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.zeroedTo - z.used
}

const (
	// zeroUpTo is how much log a sync may make durable for zeros to be worth writing. A sync of fallocated blocks also waits for the file
	// system to note that they are written: about 100 us, which a small group feels. Above it the disk's bandwidth is what counts, of which
	// zeros take as much as the log itself.
	zeroUpTo = 128 << 10
	// zeroRest is how long the lane is idle before zeros go on after that.
	zeroRest = time.Second
	// syncShareOver is how many syncs, or how many times zeroUpTo without one, a syncShare looks back.
	syncShareOver = 8
)

// A syncShare follows how much log one sync makes durable.
type syncShare struct {
	bytes       int64 // 0 until it is known
	syncs, seen uint64
}

// update takes the counts of syncs and of bytes of log so far.
func (s *syncShare) update(syncs, bytes uint64) {
	n, grown := syncs-s.syncs, bytes-s.seen
	if n >= syncShareOver || grown >= syncShareOver*zeroUpTo {
		s.bytes = int64(grown / max(n, 1))
		s.syncs, s.seen = syncs, bytes
	}
}

// zeroAhead zeroes one chunk where the log will go and returns when to go on, 0 when the zeros are far enough ahead.
// Within the active segment it works in idle time unless the zeros are about to be caught up with, since a sync of a
// group also waits for zeros of the same file. While syncs are of much log each (zeroUpTo) it rests until the lane is idle.
func (l *Lane) zeroAhead() time.Duration {
	k := &l.keep
	if l.opts.ZeroAhead < 0 || k.noAllocate {
		return 0
	}
	k.mu.Lock()
	active, next := k.segments[len(k.segments)-1], k.next
	k.mu.Unlock()
	pace := time.Duration(int64(time.Second) * zeroChunk / l.opts.ZeroRate)
	groups := l.stats.groups.Load()
	busy := groups != k.lastSeen
	k.lastSeen = groups
	k.perSync.update(l.stats.syncs.Load(), l.stats.logBytes.Load())
	if k.perSync.bytes > zeroUpTo {
		now := l.now()
		if busy {
			k.restUntil = now.Add(zeroRest)
		}
		if left := k.restUntil.Sub(now); left > 0 && left <= zeroRest { // a clock that was set back ends the rest
			return max(left/8, pace)
		}
	}
	distance := max(l.opts.ZeroAhead, l.stats.rate(l.now(), l.opts.ZeroAhead))
	target := active
	if busy && active.zero.ahead() >= distance/4 {
		target = nil
	}
	var from, to int64
	if target != nil {
		from, to = target.zero.next(distance, zeroChunk)
	}
	if from == to {
		target = next
		left := distance - max(0, active.size-active.zero.reached())
		if next == nil || left <= 0 {
			if busy {
				return 4 * pace
			}
			return 0
		}
		if from, to = next.zero.next(left, zeroChunk); from == to {
			return 0
		}
	}
	if len(k.zeros) < int(to-from) {
		k.zeros = make([]byte, to-from)
	}
	err := l.writeZeros(target.name, k.zeros[:to-from], from)
	target.zero.done(err == nil)
	if err != nil {
		l.note("zero", fmt.Errorf("zero %s at byte %d, the segment goes on without: %w", target.name, from, err))
		return 0
	}
	l.stats.zeroedBytes.Add(uint64(to - from))
	return pace
}

// writeZeros writes and syncs through a descriptor of its own: a failed write-back is reported once per descriptor, and this
// sync must not take the report that the lane's next one is owed.
func (l *Lane) writeZeros(name string, zeros []byte, at int64) error {
	f, err := l.fs.Open(l.dir+"/"+name, false)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.keep.backend.Write(f, [][]byte{zeros}, at, true)
}

// reached is how far the segment has been written, by groups or zeros.
func (z *zeroState) reached() int64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	return max(z.zeroedTo, z.used)
}
