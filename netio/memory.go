package netio

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// closeOverloaded closes a connection whose receive window is memory that the broker does not have.
const closeOverloaded quic.ApplicationErrorCode = 2

// A memory sums what peers can make the broker hold, against its budget. Each part is kept where it changes, in one atomic; nothing here
// takes a lock. Half of the budget is the frames', which rings keep by giving up their oldest records (fanout.Limits.BudgetBytes), and
// Limits.IngressBytes are the publishes'. Receive windows get what is left, but for an eighth:
//
//	| frames: 1/2 | publishes: IngressBytes | windows, pages | 1/8 |
//	                                                         ^ no window grows beyond
//
// so that windows never grow into what the others may need. A granted window cannot be taken back (quic-go v0.65.0), and what a peer has
// sent into it is held until it is read; therefore windows count as a whole. When the sum passes the budget all the same, because
// subscribers that do not read hold frames that their rings gave up, connections are refused, and those with the largest windows are closed one by one.
type memory struct {
	budget int64 // 0 bounds nothing
	room   int64 // of it, for windows and pages
	share  int64 // of room, for the window of one connection

	publishes, pages *budget
	frames           func() int64 // event frames, queued or in rings
	windows          atomic.Int64 // receive windows of connections as granted

	growthRefused, closed, refused atomic.Uint64

	pressed chan struct{} // capacity 1: the sum may be above the budget
}

// windowShares is in how many parts the room for windows is divided: one connection gets at most one.
const windowShares = 8

// MemoryConfig is the memory that a server answers for.
type MemoryConfig struct {
	// Budget bounds publishes, pages, frames and receive windows together. Zero bounds nothing.
	Budget int64
	// Frames returns what event frames take, queued or in rings. It may be called from any goroutine. Nil means none.
	Frames func() int64
}

// MemoryStats is what is held now, in bytes.
type MemoryStats struct {
	Budget    int64 // 0: none
	Publishes int64 // chunks that publishes are read into
	Pages     int64 // answers to reads without subscription
	Frames    int64 // event frames, queued or in replay rings
	Windows   int64 // receive windows of connections, filled or not

	GrowthRefused      uint64 // times a receive window was not let grow
	ConnectionsClosed  uint64 // for their windows
	ConnectionsRefused uint64 // in the handshake
}

// Held is the sum of the parts.
func (m MemoryStats) Held() int64 { return m.Publishes + m.Pages + m.Frames + m.Windows }

func newMemory(c MemoryConfig, l Limits, publishes, pages *budget) *memory {
	m := &memory{budget: c.Budget, publishes: publishes, pages: pages, frames: c.Frames, pressed: make(chan struct{}, 1)}
	if m.frames == nil {
		m.frames = func() int64 { return 0 }
	}
	m.room, m.share = math.MaxInt64, math.MaxInt64
	if m.budget > 0 {
		m.room = max(m.budget-m.budget/2-m.budget/8-l.IngressBytes, 0)
		m.share = m.room / windowShares
	}
	return m
}

func (m *memory) stats() MemoryStats {
	return MemoryStats{
		Budget: m.budget, Publishes: m.publishes.held.Load(), Pages: m.pages.held.Load(), Frames: m.frames(), Windows: m.windows.Load(),
		GrowthRefused: m.growthRefused.Load(), ConnectionsClosed: m.closed.Load(), ConnectionsRefused: m.refused.Load(),
	}
}

// over reports whether more is held than the budget.
func (m *memory) over() bool {
	return m.budget > 0 && m.publishes.held.Load()+m.pages.held.Load()+m.windows.Load()+m.frames() > m.budget
}

// press has the server look whether a connection has to be closed. It never blocks.
func (m *memory) press() {
	select {
	case m.pressed <- struct{}{}:
	default:
	}
}

// mayGrow decides whether a connection's receive window grows by delta. quic-go calls it with its flow controller locked, so it only reads
// the context value and atomics. A window that may grow does.
func (m *memory) mayGrow(conn *quic.Conn, delta uint64) bool {
	t, ok := conn.Context().Value(ticketKey{}).(*ticket)
	if !ok || !t.authenticated.Load() {
		return false
	}
	if m.budget > 0 {
		left := m.room - m.pages.held.Load() - max(m.frames()-m.budget/2, 0)
		if m.windows.Load()+int64(delta) > left || t.window.Load()+int64(delta) > m.share {
			m.growthRefused.Add(1)
			return false
		}
	}
	return t.grant(int64(delta))
}

// leftWindow is the window of a ticket whose connection has ended.
const leftWindow = math.MinInt64

// grant adds to the window of the connection; false when it has ended.
func (t *ticket) grant(n int64) bool {
	for {
		old := t.window.Load()
		if old == leftWindow {
			return false
		}
		if t.window.CompareAndSwap(old, old+n) {
			t.gate.memory.windows.Add(n)
			return true
		}
	}
}

// returnWindow takes the window out of the sum. Calls after the first do nothing.
func (t *ticket) returnWindow() {
	if n := t.window.Swap(leftWindow); n != leftWindow {
		t.gate.memory.windows.Add(-n)
	}
}

// relievePause is the time between two looks that find nothing to close.
const relievePause = 100 * time.Millisecond

// relieve closes connections while more is held than the budget: the one with the largest window first, none whose window has never grown, since
// of those there is next to nothing to gain. It runs until ctx ends.
func (s *Server) relieve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.memory.pressed:
		}
		for s.memory.over() {
			var victim *conn
			largest := int64(s.limits.InitialConnectionWindow)
			for _, c := range s.connections() {
				if n := c.ticket.window.Load(); n > largest {
					victim, largest = c, n
				}
			}
			if victim == nil {
				pause := time.NewTimer(relievePause)
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
				pause.Stop()
				break
			}
			s.memory.closed.Add(1)
			s.log.Warn("the memory budget is used up; the connection with the largest receive window is closed, and its client comes back with a small one",
				"remote", victim.quic.RemoteAddr().String(), "window", largest, "held", s.memory.stats().Held(), "budget", s.memory.budget)
			victim.quic.CloseWithError(closeOverloaded, "overloaded")
			victim.ticket.returnWindow()
		}
	}
}
