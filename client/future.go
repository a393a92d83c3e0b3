package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// Offset is the number of a record in its shard, from 0.
type Offset = wire.Offset

// An Ack is the broker's answer to a publish, given at the level that the stream promises: of a durable stream with the fsync mode
// on_commit, which is the default, the records are on the broker's disk and survive a power cut; with periodic and none they are written
// and survive the end of the process; of a stream in memory they last as long as the process.
type Ack struct {
	// Offset is that of the first record; record i of a batch is at Offset + i. It counts with HasOffset only: a broker that answers before
	// the write does not know it.
	Offset    Offset
	HasOffset bool
	// Shard is where the records are.
	Shard uint32
}

// A Future is a publish that was started. Its methods may be called from any goroutine, any number of times.
type Future struct {
	ack Ack
	err error

	mu    sync.Mutex
	ended atomic.Bool   // written under mu, after ack and err
	ch    chan struct{} // made for the first that waits; closed at the end; guarded by mu

	// wake replaces ch in the futures that Publish recycles: one waiter, one token.
	wake chan struct{}

	// done replaces both in the futures of PublishFunc, which go back to pool as it is called.
	done func(Ack, error)
	pool *sync.Pool

	// What the client needs until the end. It is fixed once the publish is in a stream, except where a comment says more.
	epoch       *epoch // of the publisher; nil without one
	topic       *topic
	lane        *lane // of an idempotent producer; nil without one
	sequence    uint64
	via         *pubStream // the stream, when no answer is owed
	atLeastOnce bool
	ghost       bool          // stands for a publish whose outcome was given already; it has none
	abandoned   atomic.Bool   // nobody waits any more, so that a refusal is not retried
	tries       int           // failures so far; owned by whoever holds the publish
	firstFailed time.Duration // when the first was, on the client's clock; likewise
}

// Done is closed when the publish has ended and Wait does not block any more.
func (f *Future) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ch == nil {
		f.ch = make(chan struct{})
		if f.ended.Load() {
			close(f.ch)
		}
	}
	return f.ch
}

// Wait returns the answer, or the context's error as soon as that ends. A publish is not taken back by the end of a context: Wait may be
// called again. Errors are an *Error or a *ProducerError.
func (f *Future) Wait(ctx context.Context) (Ack, error) {
	if f.ended.Load() {
		return f.result()
	}
	if err := context.Cause(ctx); err != nil {
		return Ack{}, err
	}
	select {
	case <-f.Done():
		return f.result()
	case <-ctx.Done():
		return Ack{}, context.Cause(ctx)
	}
}

// result may be called after the end.
func (f *Future) result() (Ack, error) {
	if f.err != nil {
		return Ack{}, f.err
	}
	return f.ack, nil
}

// end completes the publish. ack was stored before. After it the future may be somebody else's.
func (f *Future) end(err error) {
	epoch := f.epoch
	switch {
	case f.done != nil:
		f.err = err
		f.endFunc()
	case f.wake != nil:
		f.err = err
		f.wake <- struct{}{}
	default:
		f.mu.Lock()
		f.err = err
		f.ended.Store(true)
		ch := f.ch
		f.mu.Unlock()
		if ch != nil {
			close(ch)
		}
	}
	if epoch != nil {
		epoch.release() // last, so that whoever flushed finds every future ended
	}
}

// endFunc gives the future back and calls its function.
func (f *Future) endFunc() {
	done := f.done
	ack, err := f.result()
	f.done = nil
	f.pool.Put(f)
	done(ack, err)
}

// An epoch counts the publishes that a publisher has started since its last flush. It starts with one reference, the publisher's own.
type epoch struct {
	open atomic.Int64
	done chan struct{}         // closed when open falls to 0
	prev atomic.Pointer[epoch] // the one before, until it has ended
}

func newEpoch(prev *epoch) *epoch {
	e := &epoch{done: make(chan struct{})}
	e.open.Store(1)
	e.prev.Store(prev)
	return e
}

// previous returns the epoch before if it has not ended, and forgets it otherwise, so that the chain stays short.
func (e *epoch) previous() *epoch {
	p := e.prev.Load()
	if p != nil {
		select {
		case <-p.done:
			e.prev.CompareAndSwap(p, p.prev.Load())
			return e.previous()
		default:
		}
	}
	return p
}

// enter counts one more publish, unless the epoch has ended.
func (e *epoch) enter() bool {
	for {
		n := e.open.Load()
		if n == 0 {
			return false
		}
		if e.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (e *epoch) release() {
	if e.open.Add(-1) == 0 {
		close(e.done)
	}
}
