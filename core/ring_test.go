package core

import (
	"runtime"
	"testing"
)

func TestRingBatches(t *testing.T) {
	for depth, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 1000: 1024} {
		if got := NewRing[int](depth).Cap(); got != want {
			t.Errorf("depth %d: capacity %d, want %d", depth, got, want)
		}
	}
	r := NewRing[int](8)
	pushed, drained := 0, 0
	dst := make([]int, 8)
	// Every combination of batch sizes at every position: wraps, partial pushes and partial drains.
	for round := range 2000 {
		batch := make([]int, round%11)
		for i := range batch {
			batch[i] = pushed + i
		}
		room := r.Cap() - r.Len()
		n := r.Push(batch)
		if n != min(room, len(batch)) {
			t.Fatalf("push of %d into room for %d took %d", len(batch), room, n)
		}
		pushed += n
		waiting, limit := r.Len(), round%9
		n = r.Drain(dst[:limit])
		if n != min(waiting, limit) {
			t.Fatalf("drain of %d from %d gave %d", limit, waiting, n)
		}
		for _, v := range dst[:n] {
			if v != drained {
				t.Fatalf("drained %d, want %d", v, drained)
			}
			drained++
		}
	}
	if pushed-drained != r.Len() || pushed < 1000 {
		t.Errorf("pushed %d, drained %d, in the ring %d", pushed, drained, r.Len())
	}
}

func TestRingKeepsNothingAlive(t *testing.T) {
	r := NewRing[*int](4)
	for range 3 { // over the wrap
		r.Push([]*int{new(int), new(int), new(int)})
		r.Drain(make([]*int, 3))
		for i, p := range r.slots {
			if p != nil {
				t.Fatalf("slot %d still holds what was drained", i)
			}
		}
	}
}

func TestRingTwoGoroutines(t *testing.T) {
	const total = 200_000
	r := NewRing[int](64)
	go func() {
		batch := make([]int, 0, 17)
		for next := 0; next < total; {
			batch = batch[:0]
			for i := 0; i < 1+next%17 && next+i < total; i++ {
				batch = append(batch, next+i)
			}
			n := r.Push(batch)
			next += n
			if n == 0 {
				runtime.Gosched()
			}
		}
	}()
	dst := make([]int, 23)
	for want := 0; want < total; {
		n := r.Drain(dst)
		for _, v := range dst[:n] {
			if v != want {
				t.Fatalf("drained %d, want %d", v, want)
			}
			want++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	if r.Len() != 0 {
		t.Errorf("%d left", r.Len())
	}
}

func TestRingAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
	r := NewRing[Task](16)
	in, out := make([]Task, 5), make([]Task, 5)
	if n := testing.AllocsPerRun(1000, func() { r.Push(in); r.Drain(out) }); n != 0 {
		t.Errorf("%v allocations per push and drain", n)
	}
}
