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
	buf       []byte
	uses      atomic.Int32
	conn, all *budget // where its bytes are charged
	pool      *chunkPool
}

// A chunkPool recycles chunks by size. It may be used from any goroutine.
type chunkPool struct {
	classes [bits.UintSize]sync.Pool // by log2 of the size; only those from minChunkBytes to maxPooledBytes are used
}

// borrow waits until size bytes fit both budgets and returns a chunk of at least that size. It ends early with the
// context's error.
func (p *chunkPool) borrow(ctx context.Context, conn, all *budget, size int) (*chunk, error) {
	size = max(size, minChunkBytes)
	class := bits.Len(uint(size - 1))
	if size <= maxPooledBytes {
		size = 1 << class
	}
	if err := conn.reserve(ctx, int64(size)); err != nil {
		return nil, err
	}
	if err := all.reserve(ctx, int64(size)); err != nil {
		conn.release(int64(size))
		return nil, err
	}
	var c *chunk
	if size <= maxPooledBytes {
		c, _ = p.classes[class].Get().(*chunk)
	}
	if c == nil {
		c = &chunk{buf: make([]byte, size), pool: p}
	}
	c.conn, c.all = conn, all
	c.uses.Store(1)
	return c, nil
}

// release ends one use. The last one gives the bytes back to the budgets and the memory to the pool.
func (c *chunk) release() {
	if c.uses.Add(-1) > 0 {
		return
	}
	size := int64(len(c.buf))
	conn, all := c.conn, c.all
	c.conn, c.all = nil, nil
	if size <= maxPooledBytes {
		c.pool.classes[bits.Len(uint(size-1))].Put(c)
	}
	conn.release(size)
	all.release(size)
}

// alone reports that the caller's is the only use, so that the caller may write over the chunk.
func (c *chunk) alone() bool { return c.uses.Load() == 1 }
