package core

import "fmt"

// queue is a first-in first-out list that reuses its memory. Bound: maxQueued.
type queue struct {
	items []Task
	head  int // items before it are gone
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(t Task) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		// Move down instead of growing when at least half is gone, so that a move costs O(1) per task.
		if q.head >= len(q.items)/2 {
			n := copy(q.items, q.items[q.head:])
			clear(q.items[n:])
			q.items, q.head = q.items[:n], 0
		}
	}
	q.items = append(q.items, t)
	if q.len() > maxQueued {
		panic(fmt.Sprintf("BUG: core: %d tasks wait for one destination: tasks send more than they receive", q.len()))
	}
}

// drop forgets the first n items.
func (q *queue) drop(n int) {
	clear(q.items[q.head : q.head+n])
	q.head += n
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}
