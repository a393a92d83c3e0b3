package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// unackedWindow is how many batches without ack a target may hold between Publish and Settle.
const unackedWindow = 64

// A publisher is one of the publishers of a run: it keeps the schedule and the window, and is the Sink of its tokens.
type publisher struct {
	run      *run
	index    int
	out      Publisher
	keys     int
	payloads [][]byte
	flushErr error // set when the goroutine has ended

	// slots are the batches under way, by token. The token's holder writes to one: the publisher until Publish is called, Settle after.
	slots []slot
	mine  []int // free tokens that the publisher took

	offered atomic.Int64 // records; written by the publisher

	mu                            sync.Mutex
	free                          []int // tokens that were settled; guarded by mu, like all below
	waiting                       bool  // for a token
	wake                          chan struct{}
	sent, acked, refused, unknown int64 // records
	doubles                       int   // settled tokens that were not under way
	firstErr                      error
	failing                       int // batches that failed one after the other
}

// A slot is a batch under way.
type slot struct {
	due, sent int64 // on the run's clock
	records   int64
	open      atomic.Bool // Publish was called and Settle was not
}

func newPublisher(r *run, index int) *publisher {
	window := r.c.InFlight
	switch r.c.Acks {
	case AcksEach:
		window = 1
	case AcksNone:
		window = unackedWindow
	}
	p := &publisher{run: r, index: index, wake: make(chan struct{}, 1), slots: make([]slot, window), keys: max(r.c.Keys, 0)}
	for token := range p.slots {
		p.mine = append(p.mine, token)
	}
	random := rand.New(rand.NewPCG(r.c.Seed, uint64(index)))
	for range r.c.Batch {
		payload := make([]byte, max(r.c.Size, 0))
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		p.payloads = append(p.payloads, payload)
	}
	return p
}

// open makes the target's publisher.
func (p *publisher) open(ctx context.Context) (err error) {
	c := &p.run.c
	spec := PublisherSpec{Index: p.index, Acks: c.Acks, InFlight: len(p.slots), Batch: c.Batch, Size: max(c.Size, 0), Sink: p}
	random := rand.New(rand.NewPCG(c.Seed, 1<<32|uint64(p.index)))
	for i := range p.keys {
		spec.Keys = append(spec.Keys, fmt.Sprintf("key-%d-%d-%04x", p.index, i, random.Uint32()&0xffff))
	}
	p.out, err = p.run.stream.Publisher(ctx, spec)
	return err
}

// work publishes until the run's time is over or stop is closed, and then waits for what is under way. give ends every wait.
func (p *publisher) work(give context.Context, stop <-chan struct{}) {
	r := p.run
	for k := 0; !stopped(stop); k++ {
		due := int64(0)
		if r.schedule.open() {
			due = r.schedule.due(p.index, k)
			if due >= r.end || !p.sleepUntil(give, stop, due) {
				break
			}
		}
		token, ok := p.take(give, stop)
		now := r.now()
		if !ok || now >= r.end {
			break
		}
		if !r.schedule.open() {
			due = now
		}
		p.send(give, token, k, due, now)
	}
	p.out.Push(give)
	p.flushErr = p.out.Flush(give)
	p.settled(give)
}

// settled waits until nothing is under way: a target's Flush may be wrong about that.
func (p *publisher) settled(give context.Context) {
	for {
		p.mu.Lock()
		p.waiting = p.settledRecords() < p.offered.Load()
		waiting := p.waiting
		p.mu.Unlock()
		if !waiting {
			return
		}
		select {
		case <-p.wake:
		case <-give.Done():
			return
		}
	}
}

// stopped reports whether nothing more is to be published, whatever the time.
func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// sleepUntil waits until a batch is due. It reports false when the run has ended before.
func (p *publisher) sleepUntil(give context.Context, stop <-chan struct{}, due int64) bool {
	wait := due - p.run.now()
	if wait <= 0 {
		return true
	}
	p.out.Push(give)
	return pause(give, stop, time.Duration(wait))
}

// pause waits for d. It reports false when something ended it early.
func pause(give context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
	case <-give.Done():
	}
	return false
}

// failurePause is what a publisher waits after a failure, so that a broker that is gone is not asked as fast as it can refuse.
const failurePause = 10 * time.Millisecond

// take returns a free token, waiting for one. It is false when the run ended first.
func (p *publisher) take(give context.Context, stop <-chan struct{}) (token int, ok bool) {
	for len(p.mine) == 0 {
		p.mu.Lock()
		p.mine, p.free = p.free, p.mine
		p.waiting = len(p.mine) == 0
		waiting, failing := p.waiting, p.failing > 0
		p.mu.Unlock()
		if failing && !pause(give, stop, failurePause) {
			return 0, false
		}
		if !waiting {
			break
		}
		p.out.Push(give)
		select {
		case <-p.wake:
		case <-stop:
			return 0, false
		case <-give.Done():
			return 0, false
		}
	}
	token = p.mine[len(p.mine)-1]
	p.mine = p.mine[:len(p.mine)-1]
	return token, true
}

// send publishes batch k.
func (p *publisher) send(give context.Context, token, k int, due, now int64) {
	c := &p.run.c
	s := &p.slots[token]
	s.due, s.sent, s.records = due, now, int64(c.Batch)
	s.open.Store(true)
	if c.Size >= StampBytes {
		for _, payload := range p.payloads {
			p.run.stamps.put(payload, due, now)
		}
	}
	key := -1
	if p.keys > 0 {
		key = k % p.keys
	}
	p.offered.Add(int64(c.Batch))
	p.out.Publish(give, token, key, p.payloads)
}

// Settle takes the outcome of a batch.
func (p *publisher) Settle(token int, outcome Outcome, at time.Time) {
	r := p.run
	if token < 0 || token >= len(p.slots) || !p.slots[token].open.Swap(false) {
		p.mu.Lock()
		p.doubles++
		p.mu.Unlock()
		return
	}
	s := &p.slots[token]
	if outcome.Fate == Acked && r.counts(s.due) {
		answered := int64(at.Sub(r.epoch))
		r.latencies.add(p.index, ackRaw, answered-s.due, answered-s.sent, 1, r.schedule.open())
	}
	p.mu.Lock()
	switch outcome.Fate {
	case Sent:
		p.sent += s.records
	case Acked:
		p.acked += s.records
	case Refused:
		p.refused += s.records
	default:
		p.unknown += s.records
	}
	if outcome.Err != nil {
		if p.firstErr == nil {
			p.firstErr = outcome.Err
		}
		p.failing++
	} else {
		p.failing = 0
	}
	p.free = append(p.free, token)
	wake := p.waiting
	p.waiting = false
	p.mu.Unlock()
	if wake {
		select {
		case p.wake <- struct{}{}:
		default: // a token is there: whoever takes it looks again
		}
	}
}

// settledRecords is how many records have an outcome. mu is held.
func (p *publisher) settledRecords() int64 { return p.sent + p.acked + p.refused + p.unknown }

// maxMissedValues bounds the values that missed enters. When more batches were missed, one stands for several.
const maxMissedValues = 100_000

// missed counts the records that were due and never sent, and enters how late they are at least.
func (p *publisher) missed(stopped int64) (records int64) {
	r := p.run
	if !r.schedule.open() {
		return 0
	}
	end := min(r.end, stopped)
	first, last := int(p.offered.Load())/r.c.Batch, r.schedule.before(p.index, end)
	step := max((last-first)/maxMissedValues, 1)
	for k := first; k < last; k += step {
		n := int64(min(step, last-k))
		if due := r.schedule.due(p.index, k); r.counts(due) {
			r.latencies.addCorrected(p.index, ackRaw, end-due, n)
		}
		records += n * int64(r.c.Batch)
	}
	return records
}

// tally returns the books of the publisher. What is still under way is unknown.
func (p *publisher) tally() (t tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t = tally{offered: p.offered.Load(), sent: p.sent, acked: p.acked, refused: p.refused, unknown: p.unknown, doubles: p.doubles, err: p.firstErr}
	t.unknown += t.offered - p.settledRecords()
	if p.flushErr != nil && t.err == nil {
		t.err = p.flushErr
	}
	return t
}

// A tally is what publishers know of their records.
type tally struct {
	offered, sent, acked, refused, unknown int64
	doubles                                int
	err                                    error
}

func (t *tally) add(o tally) {
	t.offered += o.offered
	t.sent += o.sent
	t.acked += o.acked
	t.refused += o.refused
	t.unknown += o.unknown
	t.doubles += o.doubles
	if t.err == nil {
		t.err = o.err
	}
}
