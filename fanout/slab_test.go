package fanout

import (
	"bytes"
	"sync"
	"testing"

	"felix/netio/wire"
)

func TestSlabClassesGrowFourfold(t *testing.T) {
	for class, want := range []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10} {
		check(t, "bytes", classBytes(class), want)
		check(t, "frames", classFrames(class), want/256)
	}
	check(t, "largest", maxSlabBytes, 1<<20)
	check(t, "after which a busy ring stays", classBytes(grownClass), 256<<10)
	if classMemory(0) > 2<<10 {
		t.Errorf("a quiet stream's slab takes %d bytes", classMemory(0))
	}
}

func TestSlabsAreReusedAndCountedOnce(t *testing.T) {
	p := NewSlabs(SlabsConfig{})
	a := p.get(0, 100)
	check(t, "held", p.Held(), classMemory(0))
	f := a.begin(5, 1)
	a.extend(f, batch(5, 2), 2)
	f.seal()
	f.Retain(3)
	check(t, "held with 4 references", p.Held(), classMemory(0))
	f.Release()
	f.Release()
	f.Release()
	check(t, "pooled", p.Pooled(), 0)
	f.Release()
	check(t, "held", p.Held(), 0)
	check(t, "pooled", p.Pooled(), classMemory(0))
	if b := p.get(0, 100); b != a || b.n != 0 || b.used != 0 {
		t.Fatal("the pooled slab was not reused empty")
	}
	big := p.get(0, 1200<<10)
	check(t, "size of a slab for one batch", len(big.buf), 1200<<10)
	check(t, "held", p.Held(), classMemory(0)+1200<<10+frameBytes)
	big.release(1)
	check(t, "pooled", p.Pooled(), 0)
	if big.buf != nil {
		t.Fatal("a slab that is not pooled keeps its memory")
	}
}

func TestSlabsPoolIsBounded(t *testing.T) {
	p := NewSlabs(SlabsConfig{PoolBytes: slabClasses * 3 * classMemory(3)})
	var all []*slab
	for range 8 {
		all = append(all, p.get(3, 0))
	}
	for _, s := range all {
		s.release(1)
	}
	check(t, "pooled", p.Pooled(), 3*classMemory(3))
	none := NewSlabs(SlabsConfig{PoolBytes: -1})
	none.get(0, 0).release(1)
	check(t, "pooled", none.Pooled(), 0)
}

func TestFrameReleasedTooOftenPanics(t *testing.T) {
	s := NewSlabs(SlabsConfig{PoolBytes: -1}).get(0, 0)
	f := s.begin(0, 0)
	f.Release()
	for _, misuse := range []func(){f.Release, func() { f.Retain(1) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			s.refs.Store(0)
			misuse()
		}()
	}
}

func TestFramesLieSideBySide(t *testing.T) {
	g := newTestLog(t, Limits{})
	g.publish(200, 3) // fills the first slab and more
	frames := g.ReadFrames(nil, 0, 1<<30, 1<<30)
	check(t, "frames", len(frames), 200)
	var all, joined []byte
	writes := 0
	for _, f := range frames {
		checkFrame(t, f)
		all = append(all, f.Bytes()...)
	}
	for left := frames; len(left) > 0; {
		b, n := Coalesce(left)
		for i := 1; i < n; i++ {
			if !Joinable(left[i-1], left[i]) {
				t.Fatalf("frame %d of a run is not joinable", i)
			}
		}
		joined = append(joined, b...)
		left = left[n:]
		writes++
	}
	if !bytes.Equal(all, joined) {
		t.Fatal("coalesced bytes differ from the frames")
	}
	check(t, "writes", writes, len(g.Ring.slabs))
	if b, n := Coalesce(nil); b != nil || n != 0 {
		t.Fatal("Coalesce of nothing")
	}
	if b, n := Coalesce([]*Frame{frames[0], frames[2]}); n != 1 || !bytes.Equal(b, frames[0].Bytes()) {
		t.Fatal("frames with one between them were joined")
	}
	ReleaseAll(frames)
	if frames[0] != nil {
		t.Fatal("ReleaseAll left the frames in the slice")
	}
	g.close()
}

func TestCutEncodesTheRest(t *testing.T) {
	g := newTestLog(t, Limits{})
	g.publish(1, 10)
	f := g.ReadFrames(nil, 0, 1, 1)[0]
	for from := wire.Offset(1); from < 10; from++ {
		c := g.slabs.cut(f, from)
		checkFrame(t, c)
		check(t, "base", c.Base, from)
		check(t, "end", c.End(), 10)
		c.Release()
	}
	f.Release()
	g.close()
}

func TestFramesAreReleasedFromAnyGoroutine(t *testing.T) {
	g := newTestLog(t, Limits{RingBytes: 1 << 20})
	var wg sync.WaitGroup
	for range 50 {
		g.publish(20, 30)
		frames := g.ReadFrames(nil, g.Start(), 1<<30, 1<<30)
		wg.Go(func() {
			for _, f := range frames {
				checkFrame(t, f)
			}
			ReleaseAll(frames)
		})
	}
	wg.Wait()
	g.close()
}
