package fanout

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"felix/netio/wire"
)

// Sizes of slabs by class. A shard's slabs grow from the first class to the last; a batch that fits none gets a slab of
// its own size.
const (
	slabClasses  = 6
	grownClass   = 4                                       // 256 KiB: what a busy ring takes by itself; the largest class is for batches that need it
	ownSize      = slabClasses                             // class of a slab that was made for one batch; never pooled
	minSlabBytes = 1 << 10                                 // all that a quiet stream holds: with its entry in the catalog 2.4 KiB
	maxSlabBytes = minSlabBytes << (2 * (slabClasses - 1)) // 1 MiB

	// A slab's table has one entry per frameShare bytes, at least minFrames: 284 bytes is the frame of one 256 B record.
	frameShare = 256
	minFrames  = 4
)

const frameBytes = int64(unsafe.Sizeof(Frame{}))

// A Frame is one encoded event frame with the standard layout (shared, with offsets), inside a slab. It is immutable
// once sealed. Whoever holds a *Frame holds a reference on its slab and releases it exactly once.
type Frame struct {
	Base         wire.Offset // of the first record
	Count        uint32      // records
	from, to     uint32      // the frame is slab.buf[from:to]
	AppendMicros int64       // when the first of its records was appended, microseconds since 1970
	slab         *slab
}

// Bytes returns the whole frame, header first. It is valid until Release.
func (f *Frame) Bytes() []byte { return f.slab.buf[f.from:f.to:f.to] }

// Records returns what follows the head: Count x (u32 len, payload). It is valid until Release.
func (f *Frame) Records() []byte { return f.slab.buf[f.from+wire.EventsHeadBytes : f.to : f.to] }

// Size returns len(Bytes()).
func (f *Frame) Size() int { return int(f.to - f.from) }

// End returns one past the offset of the last record.
func (f *Frame) End() wire.Offset { return f.Base + wire.Offset(f.Count) }

// Retain adds n references. The caller holds one already.
func (f *Frame) Retain(n int32) { f.slab.retain(n) }

// Release gives one reference back. The frame may not be used after. It may be called from any goroutine; the last reader's
// call recycles the slab.
func (f *Frame) Release() { f.slab.release(1) }

// ReleaseAll releases the frames and clears the slice, one atomic operation per run of frames of one slab.
func ReleaseAll(frames []*Frame) {
	for i := 0; i < len(frames); {
		s, n := frames[i].slab, int32(0)
		for ; i < len(frames) && frames[i].slab == s; i++ {
			frames[i] = nil
			n++
		}
		s.release(n)
	}
}

// Joinable reports whether b begins where a ends in memory, so that one write can carry both.
func Joinable(a, b *Frame) bool { return a.slab == b.slab && a.to == b.from }

// Coalesce returns the bytes of the first n frames, the longest run at the front of frames that lies side by side in
// memory. It returns nil, 0 for no frames. The bytes are valid until any of the n frames is released.
func Coalesce(frames []*Frame) (bytes []byte, n int) {
	if len(frames) == 0 {
		return nil, 0
	}
	n = 1
	for n < len(frames) && Joinable(frames[n-1], frames[n]) {
		n++
	}
	to := frames[n-1].to
	return frames[0].slab.buf[frames[0].from:to:to], n
}

// A slab is memory for consecutive frames of one shard. It is written by the loop that owns the shard and read by
// anyone who holds a reference: sealed frames never change, and new ones take bytes nobody reads yet.
type slab struct {
	buf    []byte  // frames side by side from 0
	frames []Frame // frames[:n] are sealed or open; the table does not grow
	n      int     // written by the owner only
	used   uint32  // bytes of buf taken; written by the owner only. Invariant: used == frames[n-1].to

	class uint8
	pool  *Slabs

	// refs counts the ring (one) and every frame held elsewhere. The slab is recycled when it reaches 0.
	refs atomic.Int64

	// While the slab is in a ring: the ring, when it began (microseconds since 1970), and its place in an age list. Owned by the loop.
	ring       *Ring
	born       int64
	list       *ageList
	prev, next *slab
}

// room returns the bytes left.
func (s *slab) room() int { return len(s.buf) - int(s.used) }

// memory returns what the slab is accounted for.
func (s *slab) memory() int64 { return int64(len(s.buf)) + int64(len(s.frames))*frameBytes }

func (s *slab) retain(n int32) {
	if refs := s.refs.Add(int64(n)); refs <= int64(n) {
		panic(fmt.Sprintf("BUG: fanout: slab with %d references retained: its frames were released before", refs-int64(n)))
	}
}

func (s *slab) release(n int32) {
	refs := s.refs.Add(-int64(n))
	if refs > 0 {
		return
	}
	if refs < 0 {
		panic(fmt.Sprintf("BUG: fanout: slab released %d times too often", -refs))
	}
	s.pool.put(s)
}

// SlabsConfig bounds a Slabs.
type SlabsConfig struct {
	// PoolBytes bounds the memory of unused slabs kept for reuse, shared evenly by the size classes; beyond it they
	// go to the garbage collector. Zero means 32 MiB. Negative means none is kept.
	PoolBytes int64
}

// Slabs is where slabs come from and go back to, and their account. One serves all cores; every method may be called from
// any goroutine.
type Slabs struct {
	held  atomic.Int64
	rings atomic.Int64            // part of held that rings hold
	free  [slabClasses]chan *slab // bounded; a full channel drops the slab

	mu     sync.Mutex
	locals atomic.Pointer[[]*Local] // replaced under mu
}

// NewSlabs makes an empty pool.
func NewSlabs(cfg SlabsConfig) *Slabs {
	if cfg.PoolBytes == 0 {
		cfg.PoolBytes = 32 << 20
	}
	p := &Slabs{}
	p.locals.Store(new([]*Local))
	for c := range p.free {
		n := max(0, cfg.PoolBytes/slabClasses/classMemory(c))
		p.free[c] = make(chan *slab, min(n, 1024))
	}
	return p
}

// join makes a core known to the others. Cores join at start and stay.
func (p *Slabs) join(c *Local) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(slices.Clone(*p.locals.Load()), c)
	p.locals.Store(&list)
}

// oldest returns the core with the oldest slab to spare, nil when none has one.
func (p *Slabs) oldest() (found *Local) {
	least := int64(noSlab)
	for _, c := range *p.locals.Load() {
		if at := c.oldest.Load(); at < least {
			least, found = at, c
		}
	}
	return found
}

// Held returns the bytes of all slabs in use, each counted once however many frames of it are held: rings, queues,
// and what writers have taken. Pooled slabs are not in it.
func (p *Slabs) Held() int64 { return p.held.Load() }

// InRings returns the part of Held that rings hold.
func (p *Slabs) InRings() int64 { return p.rings.Load() }

// Pooled returns the bytes of unused slabs kept for reuse. It is exact only while nothing moves.
func (p *Slabs) Pooled() int64 {
	var sum int64
	for c := range p.free {
		sum += int64(len(p.free[c])) * classMemory(c)
	}
	return sum
}

func classBytes(class int) int { return minSlabBytes << (2 * class) }

func classFrames(class int) int { return max(minFrames, classBytes(class)/frameShare) }

func classMemory(class int) int64 {
	return int64(classBytes(class)) + int64(classFrames(class))*frameBytes
}

// get returns an empty slab with one reference: of the given class, or of a larger one when needBytes asks for it.
func (p *Slabs) get(class, needBytes int) *slab {
	for class < slabClasses && classBytes(class) < needBytes {
		class++
	}
	var s *slab
	if class < slabClasses {
		select {
		case s = <-p.free[class]:
		default:
			s = &slab{buf: make([]byte, classBytes(class)), frames: make([]Frame, classFrames(class)), class: uint8(class), pool: p}
		}
	} else {
		s = &slab{buf: make([]byte, needBytes), frames: make([]Frame, 1), class: ownSize, pool: p}
	}
	s.n, s.used = 0, 0
	s.refs.Store(1)
	p.held.Add(s.memory())
	return s
}

// put takes back a slab nobody holds.
func (p *Slabs) put(s *slab) {
	p.held.Add(-s.memory())
	if s.class != ownSize {
		select {
		case p.free[s.class] <- s:
			return
		default:
		}
	}
	// Old entries of queues may still point to frames of this slab: they must not keep its memory alive.
	s.buf = nil
}

// cut returns a frame of its own with the records of f from offset from on, for a subscription that starts in the middle
// of f. The caller holds its only reference.
func (p *Slabs) cut(f *Frame, from wire.Offset) *Frame {
	skip := from - f.Base
	if skip == 0 || skip >= wire.Offset(f.Count) {
		panic(fmt.Sprintf("BUG: fanout: frame [%d, %d) cut at %d", f.Base, f.End(), from))
	}
	records := f.Records()
	for range skip {
		_, records = wire.NextRecord(records)
	}
	s := p.get(0, wire.EventsHeadBytes+len(records))
	c := s.begin(from, f.AppendMicros)
	s.extend(c, records, f.Count-uint32(skip))
	c.seal()
	return c
}

// begin opens the next frame: its head is reserved and filled in by seal. The caller has checked that there is room.
func (s *slab) begin(base wire.Offset, micros int64) *Frame {
	f := &s.frames[s.n]
	s.n++
	*f = Frame{Base: base, from: s.used, to: s.used + wire.EventsHeadBytes, AppendMicros: micros, slab: s}
	s.used = f.to
	return f
}

// extend copies count records to the end of the open frame f.
func (s *slab) extend(f *Frame, records []byte, count uint32) {
	f.to += uint32(copy(s.buf[f.to:], records))
	f.Count += count
	s.used = f.to
}

// seal fills the head in. From here on the frame does not change.
func (f *Frame) seal() {
	wire.PutEventsHead(f.slab.buf[f.from:f.to], f.Base, f.Count, f.Size()-wire.EventsHeadBytes)
}
