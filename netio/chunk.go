package netio

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// Chunks come in powers of two from minChunkBytes; readers grow towards maxReadChunkBytes as their reads fill
	// them. A frame that does not fit gets a chunk of its own size.
	minChunkBytes     = 4 << 10
	maxReadChunkBytes = 64 << 10
	maxPooledBytes    = 1 << 20
)

// A chunk is memory that a stream reader reads into and that publishes point into. It is counted: the reader is one
// use, each run with open publishes another. Uses end on different goroutines; the last one recycles it.
type chunk struct {
	buf     []byte
	uses    atomic.Int32
	charged budgets
	pool    *chunkPool
}

// budgets are where the bytes of a chunk are charged. A frame that is slow to arrive holds its chunk meanwhile; the bounds on large ones
// leave room for those that are smaller.
type budgets struct {
	conn  *budget // its connection's
	huge  *budget // a quarter of all, for chunks above maxPooledBytes
	large *budget // a quarter of all, for other chunks above maxReadChunkBytes
	all   *budget
}

// of returns the budgets that a chunk of n bytes is charged to, the own limits before the shared ones. Those that it is not are nil.
func (b *budgets) of(n int64) [4]*budget {
	charged := [4]*budget{b.conn, b.huge, b.large, b.all}
	if n <= maxPooledBytes {
		charged[1] = nil
	}
	if n <= maxReadChunkBytes || n > maxPooledBytes {
		charged[2] = nil
	}
	return charged
}

// reserve waits for n bytes of each. With an error nothing is held.
func (b *budgets) reserve(ctx context.Context, n int64) error {
	charged := b.of(n)
	for i, from := range charged {
		if from == nil {
			continue
		}
		if err := from.reserve(ctx, n); err != nil {
			giveBack(charged[:i], n)
			return err
		}
	}
	return nil
}

// try reserves n bytes of each, or nothing.
func (b *budgets) try(n int64) bool {
	charged := b.of(n)
	for i, from := range charged {
		if from != nil && !from.try(n) {
			giveBack(charged[:i], n)
			return false
		}
	}
	return true
}

func (b *budgets) release(n int64) {
	charged := b.of(n)
	giveBack(charged[:], n)
}

func giveBack(charged []*budget, n int64) {
	for _, to := range charged {
		if to != nil {
			to.release(n)
		}
	}
}

// A chunkPool recycles chunks by size. It may be used from any goroutine.
type chunkPool struct {
	classes [bits.UintSize]sync.Pool // by log2 of the size; only those from minChunkBytes to maxPooledBytes are used
}

// borrow waits until size bytes fit the budgets and returns a chunk of at least that size. It ends early with the
// context's error.
func (p *chunkPool) borrow(ctx context.Context, b budgets, size int) (*chunk, error) {
	size, class := chunkSize(size)
	if err := b.reserve(ctx, int64(size)); err != nil {
		return nil, err
	}
	return p.make(b, size, class), nil
}

// tryBorrow is borrow that returns nil instead of waiting.
func (p *chunkPool) tryBorrow(b budgets, size int) *chunk {
	size, class := chunkSize(size)
	if !b.try(int64(size)) {
		return nil
	}
	return p.make(b, size, class)
}

// chunkSize rounds a size up to that of a chunk, and names its class.
func chunkSize(size int) (rounded, class int) {
	size = max(size, minChunkBytes)
	class = bits.Len(uint(size - 1))
	if size <= maxPooledBytes {
		size = 1 << class
	}
	return size, class
}

// make returns a chunk whose bytes are reserved.
func (p *chunkPool) make(b budgets, size, class int) *chunk {
	var c *chunk
	if size <= maxPooledBytes {
		c, _ = p.classes[class].Get().(*chunk)
	}
	if c == nil {
		c = &chunk{buf: make([]byte, size), pool: p}
	}
	c.charged = b
	c.uses.Store(1)
	return c
}

// release ends one use. The last one gives the bytes back to the budgets and the memory to the pool.
func (c *chunk) release() {
	if c.uses.Add(-1) > 0 {
		return
	}
	size := int64(len(c.buf))
	charged := c.charged
	c.charged = budgets{}
	if size <= maxPooledBytes {
		c.pool.classes[bits.Len(uint(size-1))].Put(c)
	}
	charged.release(size)
}

// alone reports that the caller's is the only use, so that the caller may write over the chunk.
func (c *chunk) alone() bool { return c.uses.Load() == 1 }
