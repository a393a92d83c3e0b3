package faultnet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxReorderDepth is the most datagrams that pass one that is set aside. QUIC takes a packet for lost when the third behind it has been
	// acknowledged (RFC 9002, section 6.1.1), so both sides of that are met.
	maxReorderDepth = 5
	// reorderHold is the longest that a datagram is set aside.
	reorderHold = 20 * time.Millisecond
	// maxCorruptBits is the most bits that change in a corrupted datagram. An odd number of them changes, so that they cannot undo each other.
	maxCorruptBits = 3
	// heldOverheadBytes is counted besides the bytes of a held datagram, so that empty ones are bounded too.
	heldOverheadBytes = 64
)

// A link is one direction of one client. Its datagrams come from one socket reader at a time, but for the moment of a rebind, and leave from
// there or from timers.
type link struct {
	proxy *Proxy
	way   *way
	send  func([]byte) error // must not keep the bytes; called with mu held, so that the order of decisions is that of the socket

	datagrams, bytes atomic.Uint64 // received

	mu      sync.Mutex
	rand    *rand.Rand  // guarded by mu
	aside   []*asideOne // in the order they came; guarded by mu
	waiting [][]byte    // delayed, oldest first; a timer runs for each; guarded by mu
	closed  bool        // guarded by mu
}

// An asideOne is a datagram that others pass. It is in link.aside until it is released.
type asideOne struct {
	datagram []byte
	behind   int // datagrams that still pass it
	stop     func() bool
}

func newLink(p *Proxy, d Direction, send func([]byte) error) *link {
	return &link{proxy: p, way: &p.ways[d], send: send, rand: rand.New(rand.NewPCG(p.config.Rand.Uint64(), p.config.Rand.Uint64()))}
}

// A fate is everything that is drawn for a datagram: always the same number of values, so that the faults of the moment do not shift
// what later datagrams meet.
type fate struct {
	loss, corrupt, duplicate, reorder float64
	depth                             int // 1..maxReorderDepth
	bits                              [maxCorruptBits]uint64
	flips                             int // of bits, 1 or maxCorruptBits
}

func (l *link) draw() fate {
	f := fate{loss: l.rand.Float64(), corrupt: l.rand.Float64(), duplicate: l.rand.Float64(), reorder: l.rand.Float64()}
	small := l.rand.Uint64()
	f.depth = 1 + int(small>>32%maxReorderDepth)
	f.flips = 1 + int(small&1)*(maxCorruptBits-1)
	for i := range f.bits {
		f.bits[i] = l.rand.Uint64()
	}
	return f
}

// arrived counts a datagram.
func (c *counters) arrived(b []byte) {
	c.datagrams.Add(1)
	c.bytes.Add(uint64(len(b)))
	if isInitial(b) {
		c.initials.Add(1)
	}
}

// isInitial reports whether a datagram begins with an Initial packet of QUIC version 1 (RFC 9000, section 17.2.2).
func isInitial(b []byte) bool {
	return len(b) >= 5 && b[0]&0xf0 == 0xc0 && b[1] == 0 && b[2] == 0 && b[3] == 0 && b[4] == 1
}

// receive takes a datagram from the socket and decides what becomes of it. The bytes are the caller's again when it returns.
func (l *link) receive(b []byte) {
	faults := l.way.faults.Load()
	blocked := l.way.blocked.Load()
	c := &l.way.counts
	l.mu.Lock()
	defer l.mu.Unlock()
	fate := l.draw()
	c.arrived(b)
	l.datagrams.Add(1)
	l.bytes.Add(uint64(len(b)))
	switch {
	case blocked:
		c.blocked.Add(1)
		return
	case faults.MaxBytes > 0 && len(b) > faults.MaxBytes:
		c.tooLarge.Add(1)
		return
	case fate.loss < faults.Loss:
		c.lost.Add(1)
		return
	}
	if fate.corrupt < faults.Corrupt && len(b) > 0 {
		c.corrupted.Add(1)
		flip(b, fate.bits[:fate.flips])
	}
	duplicate := fate.duplicate < faults.Duplicate
	if duplicate {
		c.duplicated.Add(1) // before the first is sent: the books do not balance while the second is to come
	}
	if fate.reorder < faults.Reorder {
		l.setAside(b, fate.depth)
	} else {
		l.pass(b, faults.Delay)
	}
	if duplicate {
		l.pass(b, faults.Delay)
	}
}

// flip changes one bit for each of the numbers.
func flip(b []byte, bits []uint64) {
	for _, bit := range bits {
		bit %= uint64(8 * len(b))
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// pass sends a datagram on, then those that were set aside until it came.
func (l *link) pass(b []byte, delay time.Duration) {
	l.forward(b, delay)
	for _, a := range slices.Clone(l.aside) {
		if a.behind--; a.behind == 0 {
			a.stop()
			l.release(a, delay)
		}
	}
}

// setAside holds a datagram until others have passed it.
func (l *link) setAside(b []byte, depth int) {
	if !l.hold(b) {
		return
	}
	l.way.counts.reordered.Add(1)
	a := &asideOne{datagram: slices.Clone(b), behind: depth}
	l.aside = append(l.aside, a)
	a.stop = l.proxy.config.AfterFunc(reorderHold, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release(a, l.way.faults.Load().Delay)
	})
}

// release sends on what was set aside, unless that has happened.
func (l *link) release(a *asideOne, delay time.Duration) {
	i := slices.Index(l.aside, a)
	if i < 0 {
		return
	}
	l.aside = slices.Delete(l.aside, i, i+1)
	l.unhold(a.datagram)
	l.forward(a.datagram, delay)
}

// forward sends a datagram, or lets it wait. Nothing overtakes what waits.
func (l *link) forward(b []byte, delay time.Duration) {
	if delay == 0 && len(l.waiting) == 0 {
		l.write(b)
		return
	}
	if !l.hold(b) {
		return
	}
	l.way.counts.delayed.Add(1)
	l.waiting = append(l.waiting, slices.Clone(b))
	l.proxy.config.AfterFunc(delay, l.releaseOldest)
}

// releaseOldest sends the datagram that has waited longest. It runs once for each that waits.
func (l *link) releaseOldest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	b := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.unhold(b)
	l.write(b)
}

// hold reserves room for a datagram; without it the datagram is counted as overflowed.
func (l *link) hold(b []byte) bool {
	size := int64(len(b) + heldOverheadBytes)
	if l.proxy.heldBytes.Add(size) > int64(l.proxy.config.MaxHeldBytes) {
		l.proxy.heldBytes.Add(-size)
		l.way.counts.overflowed.Add(1)
		return false
	}
	l.proxy.held.Add(1)
	return true
}

func (l *link) unhold(b []byte) {
	l.proxy.heldBytes.Add(-int64(len(b) + heldOverheadBytes))
	l.proxy.held.Add(-1)
}

func (l *link) write(b []byte) {
	if err := l.send(b); err != nil {
		l.way.counts.unsent.Add(1)
		return
	}
	l.way.counts.sent.Add(1)
	l.way.counts.sentSize.Add(uint64(len(b)))
}

// close throws away what is held. Timers that still run find nothing to do.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, a := range l.aside {
		a.stop()
		l.unhold(a.datagram)
		l.way.counts.unsent.Add(1)
	}
	for _, b := range l.waiting {
		l.unhold(b)
		l.way.counts.unsent.Add(1)
	}
	l.aside, l.waiting = nil, nil
}
