package core

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/puzpuzpuz/xsync/v3"
)

// pipe is what the benchmark needs of a ring. push and drain are methods of concrete types below, so that the
// interface costs both the same.
type pipe interface {
	push(items []Task) int
	drain(dst []Task) int
}

type ownPipe struct{ *Ring[Task] }

func (p ownPipe) push(items []Task) int { return p.Push(items) }
func (p ownPipe) drain(dst []Task) int  { return p.Drain(dst) }

type xsyncPipe struct{ *xsync.SPSCQueueOf[Task] }

func (p xsyncPipe) push(items []Task) int {
	for i, t := range items {
		if !p.TryEnqueue(t) {
			return i
		}
	}
	return len(items)
}

func (p xsyncPipe) drain(dst []Task) int {
	for i := range dst {
		t, ok := p.TryDequeue()
		if !ok {
			return i
		}
		dst[i] = t
	}
	return len(dst)
}

// BenchmarkRing is the time per task through a ring of 1,024: in one goroutine (the instructions alone) and
// between two (with the cache misses).
func BenchmarkRing(b *testing.B) {
	makers := []struct {
		name string
		make func() pipe
	}{
		{"own", func() pipe { return ownPipe{NewRing[Task](1024)} }},
		{"xsync", func() pipe { return xsyncPipe{xsync.NewSPSCQueueOf[Task](1024)} }},
	}
	task := &tick{}
	for _, batch := range []int{1, 8, 64} {
		for _, m := range makers {
			b.Run(fmt.Sprintf("one-goroutine/batch-%d/%s", batch, m.name), func(b *testing.B) {
				p, in, out := m.make(), make([]Task, batch), make([]Task, batch)
				for i := range in {
					in[i] = task
				}
				b.ReportAllocs()
				for n := 0; n < b.N; n += batch {
					p.push(in)
					p.drain(out)
				}
			})
		}
		for _, m := range makers {
			b.Run(fmt.Sprintf("two-goroutines/batch-%d/%s", batch, m.name), func(b *testing.B) {
				p, in, out := m.make(), make([]Task, batch), make([]Task, batch)
				for i := range in {
					in[i] = task
				}
				b.ReportAllocs()
				done := make(chan struct{})
				go func() {
					defer close(done)
					for n := 0; n < b.N; {
						k := p.drain(out)
						if n += k; k == 0 {
							runtime.Gosched()
						}
					}
				}()
				for n := 0; n < b.N; {
					k := p.push(in[:min(batch, b.N-n)])
					if n += k; k == 0 {
						runtime.Gosched()
					}
				}
				<-done
			})
		}
	}
}
