package fanout

import (
	"fmt"

	"felix/netio/wire"
)

// A Packer makes frames of records that were read back from a log. It belongs to one goroutine, any but the loop's may be it; the
// frames lie in slabs of their own, side by side.
type Packer struct {
	slabs  *Slabs
	limits Limits
	frames []*Frame
	cur    *slab
	open   *Frame // the last of frames, while it is in cur and may grow
	handed int32  // frames of cur in frames
	size   int
}

// NewPacker makes a Packer whose frames are merged up to the limits' FrameRecords and FrameBytes.
func NewPacker(slabs *Slabs, limits Limits) *Packer {
	return &Packer{slabs: slabs, limits: limits.WithDefaults()}
}

// Add copies count records, at least one, that begin at offset base: behind the frame before if they follow it and both fit the
// limits, otherwise as a frame of their own. hintBytes is about how much follows, for the size of the slab.
func (p *Packer) Add(base wire.Offset, records []byte, count uint32, micros int64, hintBytes int) {
	f := p.open
	if !p.Joins(base, len(records), count) {
		if n := len(p.frames); n > 0 && p.frames[n-1].End() > base {
			panic(fmt.Sprintf("BUG: fanout: records from %d packed behind %d", base, p.frames[n-1].End()))
		}
		f = p.begin(base, len(records), micros, hintBytes)
	}
	f.slab.extend(f, records, count)
	p.size += len(records)
}

// Joins reports whether Add would put such records into the last frame.
func (p *Packer) Joins(base wire.Offset, sizeBytes int, count uint32) bool {
	f := p.open
	return f != nil && f.End() == base && uint64(f.Count)+uint64(count) <= uint64(p.limits.FrameRecords) &&
		f.Size()-wire.EventsHeadBytes+sizeBytes <= p.limits.FrameBytes && p.cur.room() >= sizeBytes
}

func (p *Packer) begin(base wire.Offset, size int, micros int64, hintBytes int) *Frame {
	p.seal()
	size += wire.EventsHeadBytes
	if s := p.cur; s == nil || s.n == len(s.frames) || s.room() < size {
		p.leave()
		need := max(size, min(hintBytes+hintBytes/8, classBytes(grownClass)))
		p.cur = p.slabs.get(0, need)
	}
	p.open = p.cur.begin(base, micros)
	p.frames = append(p.frames, p.open)
	p.handed++
	p.size += wire.EventsHeadBytes
	return p.open
}

func (p *Packer) seal() {
	if p.open != nil {
		p.open.seal()
		p.open = nil
	}
}

// leave turns the Packer's reference on its slab into those of the frames.
func (p *Packer) leave() {
	if p.cur != nil {
		if p.handed > 1 {
			p.cur.retain(p.handed - 1)
		}
		p.cur, p.handed = nil, 0
	}
}

// Frames returns the number of frames so far, and Size their bytes.
func (p *Packer) Frames() int { return len(p.frames) }

// Size returns the bytes of the frames so far.
func (p *Packer) Size() int { return p.size }

// Take returns the frames, which the caller releases, and leaves the Packer empty.
func (p *Packer) Take() []*Frame {
	p.seal()
	p.leave()
	frames := p.frames
	p.frames, p.size = nil, 0
	return frames
}
