package fanout

import (
	"math/rand/v2"
	"testing"
	"time"

	"felix/core"
	"felix/netio/wire"
)

func TestRingMergesThePassIntoOneFrame(t *testing.T) {
	g := newTestLog(t, Limits{FrameRecords: 10, FrameBytes: 1000})
	check(t, "memory before the first record", g.Memory(), 0)
	for range 4 { // 4+4 fit, the third does not
		g.Append(batch(g.Tail(), 4), 4, 7)
	}
	check(t, "readable before the frame is sealed", g.Sealed(), 8)
	g.Seal()
	g.Append(batch(g.Tail(), 25), 25, 7) // larger than a frame may be by merging: not split, and nothing joins it
	g.Append(batch(g.Tail(), 1), 1, 7)
	g.Seal()
	g.Append(batchOf(1, 900), 1, 7)
	g.Append(batchOf(1, 200), 1, 7) // too many bytes for one frame
	g.Seal()
	g.Seal()
	want := []int{8, 8, 25, 1, 1, 1}
	var got []int
	frames := g.Ring.ReadFrames(nil, 0, 1<<30, 1<<30)
	for _, f := range frames {
		got = append(got, int(f.Count))
	}
	check(t, "append time", frames[0].AppendMicros, 7)
	ReleaseAll(frames)
	check(t, "frames", len(got), len(want))
	for i := range want {
		check(t, "records of a frame", got[i], want[i])
	}
	check(t, "counter", g.local.Counters.FramesSealed.Load(), uint64(len(want)))
	g.close()
}

func TestRingSlabsGrowAndLargeBatchesGetTheirOwn(t *testing.T) {
	g := newTestLog(t, Limits{})
	var sizes []int
	for len(g.Ring.slabs) < 6 {
		if g.NeedsSlab(batchOf(1, 200), 1) {
			g.flush()
			n := len(g.Ring.slabs)
			g.Append(batchOf(1, 200), 1, 0)
			check(t, "new slabs", len(g.Ring.slabs), n+1)
			sizes = append(sizes, len(g.Ring.slabs[n].buf)>>10)
		} else {
			g.Append(batchOf(1, 200), 1, 0)
		}
		g.flush()
	}
	for i, want := range []int{1, 4, 16, 64, 256, 256} {
		check(t, "KiB of a slab", sizes[i], want)
	}
	huge := batchOf(1, 1<<20)
	g.Append(huge, 1, 0)
	g.flush()
	last := g.Ring.slabs[len(g.Ring.slabs)-1]
	check(t, "bytes for a large batch", len(last.buf), len(huge)+wire.EventsHeadBytes)
	g.Append(batchOf(1, 1), 1, 0)
	g.flush()
	check(t, "bytes after it", len(g.Ring.slabs[len(g.Ring.slabs)-1].buf), classBytes(grownClass))
	check(t, "held", g.slabs.Held(), g.Memory())
	check(t, "in rings", g.slabs.InRings(), g.Memory())
	g.close()
}

// A batch larger than the slab in turn, but not than the largest class, takes a slab of a class that holds it.
func TestRingSkipsClassesThatAreTooSmall(t *testing.T) {
	g := newTestLog(t, Limits{})
	g.Append(batchOf(1, 30<<10), 1, 0)
	check(t, "bytes", len(g.Ring.slabs[0].buf), 64<<10)
	g.close()
}

func TestRingTableRunsOutBeforeTheBytes(t *testing.T) {
	g := newTestLog(t, Limits{})
	for range 17 {
		g.Append(batchOf(1, 0), 1, 0)
		g.flush()
	}
	check(t, "slabs", len(g.Ring.slabs), 2)
	check(t, "frames of the first", g.Ring.slabs[0].n, minFrames)
	g.close()
}

func TestRingReadsFromEveryOffset(t *testing.T) {
	g := newTestLog(t, Limits{RingRecords: 700, LeastRecords: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		for range 1 + rng.IntN(3) {
			g.add(1 + rng.IntN(20))
		}
		g.flush()
	}
	g.add(3) // an open frame is not read
	if kept := g.Tail() - g.Start(); kept > 700+3 || kept < 600 {
		t.Fatalf("%d records kept", kept)
	}
	if got := g.Ring.ReadFrames(nil, g.Start()-1, 10, 1<<20); len(got) != 0 {
		t.Fatal("read below the start")
	}
	if got := g.Ring.ReadFrames(nil, g.Sealed(), 10, 1<<20); len(got) != 0 {
		t.Fatal("read the open frame")
	}
	for from := g.Start(); from < g.Sealed(); from++ {
		maxFrames, maxBytes := 1+rng.IntN(50), rng.IntN(30000)
		frames := g.Ring.ReadFrames(nil, from, maxFrames, maxBytes)
		if len(frames) == 0 || len(frames) > maxFrames {
			t.Fatalf("%d frames from %d, at most %d asked", len(frames), from, maxFrames)
		}
		next, size := frames[0].Base, 0
		for _, f := range frames {
			check(t, "base", f.Base, next)
			checkFrame(t, f)
			next = f.End()
			size += f.Size()
		}
		if frames[0].Base > from || frames[0].End() <= from {
			t.Fatalf("first frame is [%d, %d), asked from %d", frames[0].Base, frames[0].End(), from)
		}
		if len(frames) > 1 && size > maxBytes {
			t.Fatalf("%d bytes, at most %d asked", size, maxBytes)
		}
		if next < g.Sealed() && len(frames) < maxFrames {
			more := g.Ring.ReadFrames(nil, next, 1, 1)
			if size+more[0].Size() <= maxBytes {
				t.Fatalf("stopped at %d with room for the next frame", next)
			}
			ReleaseAll(more)
		}
		ReleaseAll(frames)
	}
	g.close()
}

func TestRingBounds(t *testing.T) {
	t.Run("records", func(t *testing.T) {
		g := newTestLog(t, Limits{RingRecords: 100, LeastRecords: 10})
		for range 300 {
			g.publish(1, 7)
			if kept := g.Tail() - g.Start(); kept > 100 || kept < 94 && g.Tail() > 100 {
				t.Fatalf("%d records kept", kept)
			}
		}
		g.close()
	})
	t.Run("one batch beyond the bound stays", func(t *testing.T) {
		g := newTestLog(t, Limits{RingRecords: 100, LeastRecords: 10})
		g.publish(3, 7)
		g.publish(1, 500)
		check(t, "start", g.Start(), 21)
		g.publish(1, 10)
		check(t, "start", g.Start(), 521)
		g.close()
	})
	t.Run("bytes", func(t *testing.T) {
		const bound = 1 << 20
		g := newTestLog(t, Limits{RingBytes: bound})
		for range 3000 {
			g.Append(batchOf(1, 2000), 1, 0)
			g.flush()
			if g.Memory() > bound {
				t.Fatalf("%d bytes held", g.Memory())
			}
		}
		if kept := g.Tail() - g.Start(); kept < 300 {
			t.Fatalf("only %d records of 2,000 bytes kept in 1 MiB", kept)
		}
		g.close()
	})
	t.Run("age", func(t *testing.T) {
		g := newTestLog(t, Limits{})
		g.Ring.Retain(0, 1000)
		for g.micros = 0; g.micros < 20000; g.micros += 100 {
			g.publish(1, 1)
			check(t, "kept", g.Tail()-g.Start(), min(11, g.Tail()))
		}
		g.Trim(1 << 40)
		check(t, "kept at the end", g.Tail()-g.Start(), 0)
		check(t, "memory at the end", g.Memory(), 0)
		g.publish(1, 1)
		check(t, "bytes of the next slab", len(g.Ring.slabs[0].buf), minSlabBytes)
		g.close()
	})
	t.Run("encoded size", func(t *testing.T) {
		g := newTestLog(t, Limits{})
		g.Ring.Retain(10_000, 0)
		for range 100 {
			g.Append(batchOf(1, 972), 1, 0)
			g.flush()
			if g.encoded > 10_000 {
				t.Fatalf("%d bytes kept", g.encoded)
			}
		}
		check(t, "kept", g.Tail()-g.Start(), 10)
		g.Append(batchOf(1, 20_000), 1, 0)
		g.flush()
		check(t, "kept with a large one", g.Tail()-g.Start(), 1)
		g.close()
	})
}

func TestRingKeepsWhatWasNotOffered(t *testing.T) {
	g := newTestLog(t, Limits{RingRecords: 10, RingBytes: 1, LeastRecords: 1, BudgetBytes: 1})
	for range 50 {
		g.Append(batchOf(2, 100), 2, 0)
		g.Seal()
		g.Trim(0)
	}
	check(t, "start", g.Start(), 0)
	g.local.Trim()
	check(t, "start under pressure", g.Start(), 0)
	g.Offered(60)
	g.Trim(0)
	if g.Start() == 0 || g.Start() > 60 {
		t.Fatalf("start %d", g.Start())
	}
	g.close()
}

func TestRingMemoryStaysUntilTheLastReader(t *testing.T) {
	g := newTestLog(t, Limits{RingBytes: 300 << 10})
	g.publish(1, 1)
	f := g.ReadFrames(nil, 0, 1, 1)
	for range 1000 {
		g.Append(batchOf(1, 1000), 1, 0)
		g.flush()
	}
	if g.Start() == 0 {
		t.Fatal("the ring kept everything")
	}
	checkFrame(t, f[0])
	if g.slabs.Held() <= g.slabs.InRings() {
		t.Fatal("the slab of a held frame is not accounted")
	}
	ReleaseAll(f)
	check(t, "held", g.slabs.Held(), g.slabs.InRings())
	g.close()
}

// rings makes n rings on one core.
func rings(local *Local, n int) []*Ring {
	list := make([]*Ring, n)
	for i := range list {
		list[i] = new(Ring)
		list[i].Init(local, nil, 0)
	}
	return list
}

// put appends one record of size bytes, with a frame of its own, and offers it.
func (r *Ring) put(size int, micros int64) {
	r.Append(batchOf(1, size), 1, micros)
	r.Seal()
	r.Offered(r.Sealed())
}

func TestBudgetTakesTheOldestButLeavesTheLeast(t *testing.T) {
	const budget = 2 << 20
	slabs := NewSlabs(SlabsConfig{})
	local := NewLocal(testLoop(t), slabs, Limits{BudgetBytes: budget, LeastRecords: 64})
	all := rings(local, 5)
	quiet, busy := all[:4], all[4]
	for i, r := range quiet {
		for range 30 + 40*i { // the first two have less than the least
			r.put(1000, 1)
		}
	}
	micros := int64(2)
	for range 5000 {
		busy.put(1000, micros)
		micros++
		local.Trim()
		if slabs.Held() > budget {
			t.Fatalf("%d bytes held", slabs.Held())
		}
	}
	for i, r := range all {
		kept := r.Tail() - r.Start()
		if kept < 30 || i > 1 && kept < 64 {
			t.Errorf("ring %d keeps %d records", i, kept)
		}
		if i == 2 || i == 3 {
			if r.Start() == 0 {
				t.Errorf("ring %d, older than the busy one, was spared", i)
			}
		}
	}
	if kept := busy.Tail() - busy.Start(); kept < 700 {
		t.Errorf("the busy ring keeps %d records", kept)
	}
	for _, r := range all {
		r.Free()
	}
	check(t, "held at the end", slabs.Held(), 0)
	check(t, "first of aged", local.aged.first, nil)
	check(t, "first of spared", local.spared.first, nil)
	check(t, "oldest", local.oldest.Load(), noSlab)
}

// A ring that was spared gives way once it has grown.
func TestBudgetComesBackToSparedRings(t *testing.T) {
	slabs := NewSlabs(SlabsConfig{})
	local := NewLocal(testLoop(t), slabs, Limits{BudgetBytes: 1 << 20, LeastRecords: 100})
	all := rings(local, 2)
	small, big := all[0], all[1]
	for range 90 {
		small.put(1000, 1)
	}
	for range 2000 {
		big.put(1000, 2)
		local.Trim()
	}
	check(t, "start of the small ring", small.Start(), 0)
	if local.spared.first == nil {
		t.Fatal("nothing was spared")
	}
	for range 900 {
		small.put(1000, 3)
		local.Trim()
	}
	if small.Start() == 0 {
		t.Fatal("the ring that has grown is spared still")
	}
	if slabs.Held() > 1<<20 {
		t.Fatalf("%d bytes held", slabs.Held())
	}
	small.Free()
	big.Free()
}

// Bytes win over the least number of records where rings alone exceed the budget.
func TestBudgetWinsOverTheLeast(t *testing.T) {
	slabs := NewSlabs(SlabsConfig{})
	local := NewLocal(testLoop(t), slabs, Limits{BudgetBytes: 1 << 20})
	all := rings(local, 20)
	for range 300 {
		for _, r := range all {
			r.put(1000, 1)
			local.Trim()
			if slabs.Held() > 1<<20 {
				t.Fatalf("%d bytes held", slabs.Held())
			}
		}
	}
	for _, r := range all {
		r.Free()
	}
}

// What readers hold shrinks rings to the least, not below: dropping more would bring nothing back.
func TestBudgetHeldByReadersLeavesTheLeast(t *testing.T) {
	slabs := NewSlabs(SlabsConfig{})
	local := NewLocal(testLoop(t), slabs, Limits{BudgetBytes: 1 << 20, LeastRecords: 100})
	r := rings(local, 1)[0]
	var held []*Frame
	for i := range 4000 {
		r.put(1000, 1)
		if i%100 == 0 {
			held = r.ReadFrames(held, r.Sealed()-1, 1, 1)
		}
		local.Trim()
		if kept := r.Tail() - r.Start(); i > 100 && kept < 100 {
			t.Fatalf("%d records kept", kept)
		}
	}
	if slabs.Held() < 2<<20 {
		t.Fatalf("the readers hold only %d bytes: the test shows nothing", slabs.Held())
	}
	ReleaseAll(held)
	r.Free()
	check(t, "held", slabs.Held(), 0)
}

// The core with the oldest slab gives it up, wherever the memory is needed.
func TestBudgetIsSharedByCores(t *testing.T) {
	g, err := core.NewGroup(core.Config{Cores: 2, Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	const budget = 4 << 20
	slabs := NewSlabs(SlabsConfig{})
	limits := Limits{BudgetBytes: budget, LeastRecords: 10}
	old, young := NewLocal(g.Loop(0), slabs, limits), NewLocal(g.Loop(1), slabs, limits)
	a, b := rings(old, 1)[0], rings(young, 1)[0]
	for slabs.Held() <= budget*7/8 {
		a.put(1000, 1)
	}
	for !young.OverBudget() {
		b.put(1000, 2)
	}
	young.Trim()
	check(t, "start of the young ring", b.Start(), 0)
	if !young.OverBudget() {
		t.Fatal("the young core gave memory back at once")
	}
	old.Trim() // its loop was woken to do this
	if old.OverBudget() || a.Start() == 0 {
		t.Fatal("the old core gave nothing back")
	}
	// When the old core does not come to it, the young one helps itself, a sixteenth above.
	for range 4000 {
		b.put(1000, 2)
		young.Trim()
		if slabs.Held() > budget+budget/16 {
			t.Fatalf("%d bytes held", slabs.Held())
		}
	}
	if b.Start() == 0 {
		t.Fatal("the young core kept everything")
	}
	a.Free()
	b.Free()
}

func TestLimitsAreChecked(t *testing.T) {
	if err := (Limits{}).Validate(); err != nil {
		t.Fatal(err)
	}
	bad := Limits{FrameRecords: -1, FrameBytes: 2 << 20, RingRecords: -1, RingBytes: -1, LeastRecords: -1, BudgetBytes: -1, Subscriptions: -1, MaxBlock: -1}
	err := bad.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 8 {
		t.Fatalf("got %v, want 8 problems", err)
	}
}
