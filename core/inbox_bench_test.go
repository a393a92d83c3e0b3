package core

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/puzpuzpuz/xsync/v3"
)

// mailbox is what the benchmark needs of a way in: many put, one takes what is there.
type mailbox interface {
	put(t Task)
	take(f func(Task)) int
}

type lockedMailbox struct {
	*inbox
	taken []Task
}

func (m *lockedMailbox) put(t Task) { m.inbox.put(t, true) }
func (m *lockedMailbox) take(f func(Task)) int {
	if m.length.Load() == 0 {
		return 0
	}
	m.taken = m.swap(m.taken)
	for i, t := range m.taken {
		m.taken[i] = nil
		f(t)
	}
	return len(m.taken)
}

type chanMailbox chan Task

func (m chanMailbox) put(t Task) { m <- t }
func (m chanMailbox) take(f func(Task)) int {
	for n := 0; ; n++ {
		select {
		case t := <-m:
			f(t)
		default:
			return n
		}
	}
}

// mpmcMailbox is a lock-free ring with a turn per slot. A full one is polled: it has no way to wait.
type mpmcMailbox struct{ *xsync.MPMCQueueOf[Task] }

func (m mpmcMailbox) put(t Task) {
	for !m.TryEnqueue(t) {
		runtime.Gosched()
	}
}

func (m mpmcMailbox) take(f func(Task)) int {
	for n := 0; ; n++ {
		t, ok := m.TryDequeue()
		if !ok {
			return n
		}
		f(t)
	}
}

// BenchmarkInbox is the time per task from posters to one consumer: alone in one goroutine in batches of 16, and
// with 1, 8 and 64 posting goroutines.
func BenchmarkInbox(b *testing.B) {
	makers := []struct {
		name string
		make func() mailbox
	}{
		{"locked", func() mailbox { return &lockedMailbox{inbox: newInbox(1024), taken: make([]Task, 0, 1024)} }},
		{"channel", func() mailbox { return make(chanMailbox, 1024) }},
		{"mpmc", func() mailbox { return mpmcMailbox{xsync.NewMPMCQueueOf[Task](1024)} }},
	}
	task := &tick{}
	for _, m := range makers {
		b.Run("one-goroutine/"+m.name, func(b *testing.B) {
			box := m.make()
			b.ReportAllocs()
			for n := 0; n < b.N; n += 16 {
				for range 16 {
					box.put(task)
				}
				box.take(func(Task) {})
			}
		})
	}
	for _, posters := range []int{1, 8, 64} {
		for _, m := range makers {
			b.Run(fmt.Sprintf("%d-posters/%s", posters, m.name), func(b *testing.B) {
				box := m.make()
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range posters {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for left.Add(-1) >= 0 {
							box.put(task)
						}
					}()
				}
				for n := 0; n < b.N; {
					k := box.take(func(Task) {})
					if n += k; k == 0 {
						runtime.Gosched()
					}
				}
				wg.Wait()
			})
		}
	}
}
