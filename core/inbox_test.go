package core

import (
	"errors"
	"testing"
	"time"
)

func waitingAre(b *inbox, n int) func() bool {
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		count := 0
		for p := b.first; p != nil; p = p.next {
			count++
		}
		return count == n
	}
}

// Tasks of posters that wait enter in the order in which they came, and a newcomer overtakes none of them.
func TestInboxFullIsFair(t *testing.T) {
	b := newInbox(2)
	order := make(chan int, 16)
	num := func(i int) Task { return Func(func(*Loop) { order <- i }) }
	for i := range 2 {
		if ok, err := b.put(num(i), false); !ok || err != nil {
			t.Fatalf("put %d: %v %v", i, ok, err)
		}
	}
	if ok, err := b.put(num(99), false); ok || err != nil {
		t.Fatalf("put into a full inbox: %v %v", ok, err)
	}
	done := make(chan error, 5)
	for i := 2; i < 7; i++ {
		go func() { _, err := b.put(num(i), true); done <- err }()
		until(t, waitingAre(b, i-1), "a waiting poster")
	}
	spare := make([]Task, 0, 2)
	for got := 0; got < 7; {
		taken := b.swap(spare)
		if got < 4 { // every place that was freed went to one who waits
			if ok, _ := b.put(num(99), false); ok {
				t.Fatal("a newcomer overtook those who wait")
			}
		}
		for _, task := range taken {
			task.Run(nil)
			if i := <-order; i != got {
				t.Fatalf("task %d out of order, want %d", i, got)
			}
			got++
		}
		spare = taken[:0]
	}
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestInboxClose(t *testing.T) {
	b := newInbox(1)
	b.put(Func(nil), true)
	failed := make(chan error, 3)
	for i := range 3 {
		go func() { _, err := b.put(Func(nil), true); failed <- err }()
		until(t, waitingAre(b, i+1), "a waiting poster")
	}
	b.close()
	for range 3 {
		select {
		case err := <-failed:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("waiting post: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a waiting post was not sent away")
		}
	}
	if _, err := b.put(Func(nil), true); !errors.Is(err, ErrClosed) {
		t.Errorf("post after close: %v", err)
	}
	if n := len(b.swap(nil)); n != 1 {
		t.Errorf("%d accepted posts left, want 1", n)
	}
}
