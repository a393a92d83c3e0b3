package fanout

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"felix/netio/wire"
)

// A Ring is the frames that a shard keeps in memory, oldest first, in slabs. It is owned by the shard's loop. The zero value needs
// Init; it holds no memory before its first record.
//
//	slabs[0]              slabs[1]            slabs[len-1]
//	.  .  F  F  F  F      F  F  F  F  F       F  F  F  o
//	      first: start                               open: [sealed, tail)
//
// Invariants: start <= offered <= sealed <= tail. Frames follow each other without holes. open is the last frame of the last
// slab, and nil exactly when sealed == tail.
type Ring struct {
	local *Local
	topic *Topic // what its subscriptions protect is not dropped; may be nil
	slabs []*slab
	first int    // index in slabs[0] of the oldest frame kept
	open  *Frame // takes the next batch; sealed at the end of the pass
	class int    // of the next slab

	start, offered, sealed, tail wire.Offset

	memory  int64 // of slabs
	encoded int64 // bytes of sealed frames kept

	maxEncoded int64 // bound of encoded
	maxAge     int64 // microseconds
}

// Init prepares the ring of the shard that topic belongs to; topic may be nil. Its first record gets offset next.
func (r *Ring) Init(local *Local, topic *Topic, next wire.Offset) {
	*r = Ring{local: local, topic: topic, start: next, offered: next, sealed: next, tail: next, maxEncoded: math.MaxInt64, maxAge: math.MaxInt64}
}

// Retain sets bounds besides those of Limits: encoded bytes, and age in microseconds. Zero means none. They hold from the
// next Trim on.
func (r *Ring) Retain(maxBytes, maxAgeMicros int64) {
	r.maxEncoded, r.maxAge = maxBytes, maxAgeMicros
	if maxBytes == 0 {
		r.maxEncoded = math.MaxInt64
	}
	if maxAgeMicros == 0 {
		r.maxAge = math.MaxInt64
	}
}

// Start returns the oldest offset kept; the tail when nothing is.
func (r *Ring) Start() wire.Offset { return r.start }

// Tail returns the offset of the next record.
func (r *Ring) Tail() wire.Offset { return r.tail }

// Sealed returns one past the last record that ReadFrames can reach; what follows waits for Seal.
func (r *Ring) Sealed() wire.Offset { return r.sealed }

// Memory returns the bytes of the slabs held.
func (r *Ring) Memory() int64 { return r.memory }

// MeanRecordBytes returns the mean size of the sealed records kept, with their share of the frames' heads; 0 when there are none.
func (r *Ring) MeanRecordBytes() int64 {
	if r.sealed == r.start {
		return 0
	}
	return r.encoded / int64(r.sealed-r.start)
}

// NeedsSlab reports whether a batch of that size would start a new slab. What is sealed should be offered before, so that
// Trim can let go of it.
func (r *Ring) NeedsSlab(records []byte, count uint32) bool {
	return r.joins(len(records), count) == nil && r.current(len(records)) == nil
}

// joins returns the open frame when the batch can become a part of it.
func (r *Ring) joins(size int, count uint32) *Frame {
	f := r.open
	if f == nil || uint64(f.Count)+uint64(count) > uint64(r.local.limits.FrameRecords) ||
		f.Size()-wire.EventsHeadBytes+size > r.local.limits.FrameBytes || f.slab.room() < size {
		return nil
	}
	return f
}

// current returns the slab that takes a new frame of that size, nil when a new one is due.
func (r *Ring) current(size int) *slab {
	if len(r.slabs) == 0 {
		return nil
	}
	s := r.slabs[len(r.slabs)-1]
	if s.n == len(s.frames) || s.room() < wire.EventsHeadBytes+size {
		return nil
	}
	return s
}

// Append copies a batch of count records, at least one, and returns the offset of the first. The bytes of records are not kept. A
// batch is never split.
func (r *Ring) Append(records []byte, count uint32, nowMicros int64) wire.Offset {
	base := r.tail
	f := r.joins(len(records), count)
	if f == nil {
		r.Seal()
		s := r.current(len(records))
		if s == nil {
			s = r.rotate(wire.EventsHeadBytes+len(records), nowMicros)
		}
		f = s.begin(base, nowMicros)
		r.open = f
	}
	f.slab.extend(f, records, count)
	r.tail += wire.Offset(count)
	return base
}

// rotate starts a new slab.
func (r *Ring) rotate(needBytes int, nowMicros int64) *slab {
	c := r.local
	s := c.slabs.get(r.class, needBytes)
	if s.class < ownSize {
		r.class = min(int(s.class)+1, grownClass)
	}
	s.ring, s.born = r, nowMicros
	r.slabs = append(r.slabs, s)
	r.memory += s.memory()
	c.slabs.rings.Add(s.memory())
	c.aged.pushBack(s)
	c.noteOldest()
	return s
}

// Seal finishes the open frame, if any: its head is filled in and it can be read.
func (r *Ring) Seal() {
	if r.open == nil {
		return
	}
	r.open.seal()
	r.encoded += int64(r.open.Size())
	r.open = nil
	r.sealed = r.tail
	r.local.Counters.FramesSealed.Add(1)
	r.local.Counters.Encodes.Add(1)
}

// ReadFrames is Log.ReadFrames over the sealed frames.
func (r *Ring) ReadFrames(dst []*Frame, from wire.Offset, maxFrames, maxBytes int) []*Frame {
	return r.ReadFramesTo(dst, from, r.sealed, maxFrames, maxBytes)
}

// ReadFramesTo is ReadFrames without the frames that end after to.
func (r *Ring) ReadFramesTo(dst []*Frame, from, to wire.Offset, maxFrames, maxBytes int) []*Frame {
	if from < r.start || from >= min(to, r.sealed) {
		return dst
	}
	i := sort.Search(len(r.slabs), func(i int) bool { return r.slabs[i].frames[0].Base > from }) - 1
	s := r.slabs[i]
	j := sort.Search(s.n, func(j int) bool { return s.frames[j].Base > from }) - 1
	taken, size := 0, 0
	for {
		n, was := r.sealedIn(i), j
		for ; j < n && taken < maxFrames && (taken == 0 || size+s.frames[j].Size() <= maxBytes); j++ {
			f := &s.frames[j]
			if f.End() > to {
				break
			}
			dst = append(dst, f)
			size += f.Size()
			taken++
		}
		if j > was {
			s.retain(int32(j - was))
		}
		if j < n || i+1 == len(r.slabs) {
			return dst
		}
		i, j = i+1, 0
		s = r.slabs[i]
	}
}

// sealedIn returns the number of sealed frames of slabs[i], those no longer kept included.
func (r *Ring) sealedIn(i int) int {
	n := r.slabs[i].n
	if r.open != nil && i == len(r.slabs)-1 {
		n--
	}
	return n
}

// FrameEnd returns the largest offset up to upTo at which a sealed frame ends, or the first that is kept.
func (r *Ring) FrameEnd(upTo wire.Offset) wire.Offset {
	if upTo >= r.sealed {
		return r.sealed
	}
	if upTo <= r.start {
		return r.start
	}
	i := sort.Search(len(r.slabs), func(i int) bool { return r.slabs[i].frames[0].Base > upTo }) - 1
	s := r.slabs[i]
	j := sort.Search(s.n, func(j int) bool { return s.frames[j].Base > upTo }) - 1
	return s.frames[j].Base
}

// Offered says that everything below upTo has been offered, so that it may be dropped.
func (r *Ring) Offered(upTo wire.Offset) {
	if upTo < r.offered || upTo > r.sealed {
		panic(fmt.Sprintf("BUG: fanout: offered up to %d, was %d, sealed %d", upTo, r.offered, r.sealed))
	}
	r.offered = upTo
}

// droppable returns the offset up to which frames may be dropped: those that were offered and that no subscription protects.
func (r *Ring) droppable() wire.Offset {
	if r.topic == nil {
		return r.offered
	}
	return min(r.offered, r.topic.floor())
}

// Trim drops the oldest frames while a bound of the shard is exceeded. It returns true when what it had to leave because subscriptions
// protect it exceeds a bound: no more should be appended before Topic.Guard has had its say.
func (r *Ring) Trim(nowMicros int64) (short bool) {
	limits := &r.local.limits
	for r.memory > limits.RingBytes && len(r.slabs) > 1 {
		if !r.canDrop() {
			return r.start < r.offered
		}
		r.dropOldest()
	}
	upTo := r.droppable()
	for r.start < r.offered {
		f := &r.slabs[0].frames[r.first]
		left := uint64(r.tail - f.End())
		over := uint64(r.tail-r.start) > uint64(limits.RingRecords) && left >= uint64(min(limits.LeastRecords, limits.RingRecords)) ||
			r.encoded > r.maxEncoded && left > 0
		if !over && nowMicros-f.AppendMicros <= r.maxAge {
			return false
		}
		if f.End() > upTo {
			return over
		}
		r.dropFrame(f)
	}
	return false
}

// dropFrame drops the oldest frame f, and its slab with the last of its frames.
func (r *Ring) dropFrame(f *Frame) {
	r.start = f.End()
	r.encoded -= int64(f.Size())
	r.first++
	if r.first == r.slabs[0].n {
		r.dropOldest()
	}
}

// canDrop reports whether every frame of the oldest slab may be dropped.
func (r *Ring) canDrop() bool {
	s := r.slabs[0]
	return s.frames[s.n-1].End() <= r.droppable()
}

// canSpare reports whether the ring can drop its oldest slab and keep LeastRecords.
func (r *Ring) canSpare() bool {
	s := r.slabs[0]
	return r.canDrop() && uint64(r.tail-s.frames[s.n-1].End()) >= uint64(r.local.limits.LeastRecords)
}

// dropOldest gives up the oldest slab.
func (r *Ring) dropOldest() {
	c, s := r.local, r.slabs[0]
	for i := r.first; i < s.n; i++ {
		r.encoded -= int64(s.frames[i].Size())
	}
	r.start = s.frames[s.n-1].End()
	r.first = 0
	r.slabs = slices.Delete(r.slabs, 0, 1)
	if len(r.slabs) == 0 {
		r.class = 0
	}
	r.memory -= s.memory()
	c.slabs.rings.Add(-s.memory())
	s.list.remove(s)
	s.ring = nil
	c.noteOldest()
	s.release(1)
}

// Free gives up everything. The ring may be used again and goes on at the same offset.
func (r *Ring) Free() {
	r.Seal()
	r.offered = r.sealed
	for len(r.slabs) > 0 {
		r.dropOldest()
	}
}
