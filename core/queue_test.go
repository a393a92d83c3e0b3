package core

import (
	"testing"
)

// Queue keeps order and its memory while it moves down, and has a bound.
func TestQueue(t *testing.T) {
	var q queue
	pushed, popped := 0, 0
	var got int
	for round := range 3000 {
		for range round % 7 {
			n := pushed
			q.push(Func(func(*Loop) { got = n }))
			pushed++
		}
		for range min(q.len(), round%5+1) {
			q.items[q.head].Run(nil)
			if got != popped {
				t.Fatalf("popped %d, want %d", got, popped)
			}
			q.drop(1)
			popped++
		}
		for _, task := range q.items[:q.head] {
			if task != nil {
				t.Fatal("a dropped task is kept alive")
			}
		}
	}
	if q.len() != pushed-popped || cap(q.items) > 4*max(q.len(), 16) {
		t.Errorf("%d left of %d, capacity %d", q.len(), pushed-popped, cap(q.items))
	}
	q.items, q.head = make([]Task, maxQueued), 0
	mustPanic(t, func() { q.push(nil) })
}
