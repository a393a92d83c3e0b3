package netio

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestBudgetIsKeptInOrder(t *testing.T) {
	b := newBudget(100)
	if !b.try(60) || b.try(50) || !b.try(40) {
		t.Fatal("100 bytes are 60 and 40, not 60 and 50")
	}
	order := make(chan int, 2)
	waitQueued := func(n int32) { waitFor(t, "a waiter", func() bool { return b.waiting.Load() == n }) }
	go func() {
		b.reserve(t.Context(), 90)
		order <- 1
	}()
	waitQueued(1)
	go func() {
		b.reserve(t.Context(), 10)
		order <- 2
	}()
	waitQueued(2)
	if b.try(1) {
		t.Error("a latecomer overtook those who wait")
	}
	b.release(40) // 60 are out: the second would fit, and waits behind the first
	if len(order) != 0 {
		t.Error("the second waiter overtook the first")
	}
	b.release(60)
	if first, second := <-order, <-order; first+second != 3 {
		t.Errorf("admitted %d and %d", first, second)
	}
	b.release(100)
	if b.held.Load() != 0 || b.waiting.Load() != 0 {
		t.Errorf("%d bytes held, %d wait", b.held.Load(), b.waiting.Load())
	}
}

// Whoever goes on is not counted any more, also while others are still being let go.
func TestBudgetCountsOutFirst(t *testing.T) {
	const n = 1000
	b := newBudget(n)
	b.try(n)
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			b.reserve(t.Context(), 1)
			if waiting := b.waiting.Load(); waiting >= n {
				t.Errorf("one of %d goes on, and %d wait", n, waiting)
			}
		})
	}
	waitFor(t, "all to wait", func() bool { return b.waiting.Load() == n })
	b.release(n)
	wait.Wait()
}

func TestBudgetLargestRequestPassesAlone(t *testing.T) {
	b := newBudget(100)
	if !b.try(150) {
		t.Fatal("a request above the budget does not pass an empty one")
	}
	if b.try(1) {
		t.Error("another one fits beside it")
	}
	b.release(150)
}

func TestBudgetCanceledWaiterHoldsNothing(t *testing.T) {
	b := newBudget(10)
	b.try(10)
	ctx, cancel := context.WithCancel(t.Context())
	failed, granted := make(chan error), make(chan error)
	go func() { failed <- b.reserve(ctx, 10) }()
	waitFor(t, "the first waiter", func() bool { return b.waiting.Load() == 1 })
	go func() { granted <- b.reserve(t.Context(), 4) }()
	waitFor(t, "the second waiter", func() bool { return b.waiting.Load() == 2 })
	b.release(5) // not enough for the first; when it leaves, enough for the second
	cancel()
	if err := <-failed; err == nil {
		t.Error("canceled reserve returned nil")
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
	if got := b.held.Load(); got != 9 {
		t.Errorf("%d bytes held, want 9", got)
	}
}

func TestBudgetBalances(t *testing.T) {
	b := newBudget(1000)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				n := int64(r.IntN(600) + 1)
				if r.IntN(4) == 0 {
					go cancel()
				}
				if b.reserve(ctx, n) == nil {
					if held := b.held.Load(); held > 1000 {
						t.Errorf("%d bytes held", held)
					}
					b.release(n)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	if b.held.Load() != 0 || b.waiting.Load() != 0 {
		t.Errorf("%d bytes held, %d wait", b.held.Load(), b.waiting.Load())
	}
}

func TestWindowWakesAtHalf(t *testing.T) {
	w := newWindow(4)
	for range 4 {
		w.take()
	}
	if !w.full() {
		t.Fatal("4 of 4 are not full")
	}
	woken := make(chan error, 1)
	go func() { woken <- w.wait(t.Context()) }()
	waitFor(t, "the reader", w.waiting.Load)
	w.giveBack(1)
	if len(woken) != 0 {
		t.Error("woken above half")
	}
	w.giveBack(1)
	if err := <-woken; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.take()
	w.take()
	cancel()
	if err := w.wait(ctx); err == nil {
		t.Error("canceled wait returned nil")
	}
}
