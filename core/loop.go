package core

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// passTasks bounds the tasks taken from the inbox, and from each ring, in one pass, so that timers and
	// other sources wait for a bounded amount of work. What is left makes another pass follow at once.
	passTasks = 256
	// batonPasses bounds what a poster runs for others in baton mode before it hands over.
	batonPasses = 4
	// maxQueued bounds the tasks that wait at one loop for one full ring (or for its own next turn). The
	// closed inbox and the slots keep it far below; more means that tasks send without end.
	maxQueued = 1 << 20
	// spinLooks is the number of looks between two readings of the clock while spinning.
	spinLooks = 32
)

// Task is work that crosses to a loop: from outside through the inbox, from another core through a
// ring. Implement it on a pointer to a long-lived or pooled struct, so that posting allocates nothing. The
// poster hands the struct over: from then on it belongs to the loop.
type Task interface {
	// Run runs on the loop. It does not block and does not panic: a panic takes the process down.
	Run(l *Loop)
}

// Func is a Task made of a function.
type Func func(l *Loop)

// Run calls f.
func (f Func) Run(l *Loop) { f(l) }

// Agent is a part of a loop that looks for work by itself. Its state is owned by the loop.
type Agent interface {
	// Work is called once per pass, after inbox, rings and timers. A result above 0 means that something was
	// done and another pass should follow at once; at 0 the loop may park until somebody wakes it. An agent
	// whose work comes from elsewhere arms a timer, or has the source call WakeOffCore. It returns 0 when it
	// has nothing left: Close waits for that.
	Work(l *Loop) (did int)
}

// States of a loop. Whoever moves it from parked to running owns it: there is one winner, and it either
// runs passes itself or passes ownership to the loop's goroutine with the token in wake.
const (
	running uint32 = iota // somebody owns the loop
	parked                // nobody does; nothing was left to do
)

// A Loop is one core's run loop. Everything that its tasks, timers and agents touch is owned by it.
// Methods without a suffix are called on the loop; methods ending in OffCore from any goroutine that is not
// a loop.
type Loop struct {
	id     ID
	g      *Group
	inbox  *inbox
	wake   chan struct{} // capacity 1; ownership for the loop's goroutine. Invariant: at most one token
	agents []Agent       // fixed once the loop runs; visited in order
	in     []inbound     // rings to this loop

	now     time.Duration // read at the start of the pass
	taken   []Task        // drained from the inbox; taken[next:] has not run
	next    int
	scratch []Task  // where rings are drained to
	self    queue   // sent to itself
	out     []route // by destination; the own entry is unused
	blocked uint64  // bit j: tasks wait here for the ring to core j
	timers  timers
	sweep   uint64        // timers armed after this number wait for the next pass
	again   bool          // an agent asked for another pass
	alarm   *time.Timer   // wakes the loop for its next deadline
	alarmAt time.Duration // for when alarm is set; 0 when it is not
	dirty   bool          // something was done since the last answer to a probe

	passCount, taskCount uint64 // owner's copies of the counters
	owner                owner
	_                    pad

	// Written by other goroutines from here on.
	state atomic.Uint32
	woken atomic.Bool // a pass was asked for
	rang  atomic.Bool // alarm went off and is no longer set
	probe atomic.Bool // the closing group wants an answer
	stop  atomic.Bool // everything is drained: end
	_     pad

	stats counters
}

// inbound is one ring that this loop drains.
type inbound struct {
	*link
	from *Loop
}

// link is the ring from one core to another.
type link struct {
	ring *Ring[Task]
	// full is raised by the producer before it waits for room and lowered by the consumer, which then
	// wakes the producer.
	full atomic.Bool
}

// route is what waits at the sender for one destination.
type route struct {
	*link
	queue
}

func newLoop(g *Group, id ID) *Loop {
	l := &Loop{
		id: id, g: g,
		inbox:   newInbox(g.cfg.InboxDepth),
		wake:    make(chan struct{}, 1),
		now:     g.cfg.Now(),
		taken:   make([]Task, 0, g.cfg.InboxDepth),
		scratch: make([]Task, passTasks),
		out:     make([]route, g.cfg.Cores),
	}
	// The state is running from the first, so that before Start posts only queue.
	l.alarm = time.AfterFunc(time.Hour, func() {
		l.rang.Store(true)
		l.WakeOffCore()
	})
	l.alarm.Stop()
	return l
}

// ID returns the core's number.
func (l *Loop) ID() ID { return l.id }

// Group returns the group the loop belongs to.
func (l *Loop) Group() *Group { return l.g }

// Now returns the time on the group's clock, read once at the start of the pass.
func (l *Loop) Now() time.Duration { return l.now }

// AddAgent adds a to those visited in each pass. Before Start only.
func (l *Loop) AddAgent(a Agent) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if l.g.started {
		panic(fmt.Sprintf("BUG: core: agent added to core %d, which runs", l.id))
	}
	l.agents = append(l.agents, a)
}

// PostOffCore hands t to the loop. While the inbox is full it waits for room: that is the backpressure for
// sessions. It returns ErrClosed when the group closes, also if it does so meanwhile; t was not taken
// then. Tasks posted by one goroutine run in the order of its calls. In baton mode the call may run tasks
// of the loop, its own included, before it returns.
func (l *Loop) PostOffCore(t Task) error {
	l.assertOffCore()
	if _, err := l.inbox.put(t, true); err != nil {
		return err
	}
	l.signal(l.g.cfg.Baton)
	return nil
}

// TryPostOffCore is PostOffCore that returns false instead of waiting, and after Close.
func (l *Loop) TryPostOffCore(t Task) bool {
	l.assertOffCore()
	if ok, _ := l.inbox.put(t, false); !ok {
		return false
	}
	l.signal(l.g.cfg.Baton)
	return true
}

// WakeOffCore makes the loop run a pass that begins after the call, for completions that are kept elsewhere
// and that an agent collects. Calls before that pass count as one. It never blocks and may also be called on
// a loop.
func (l *Loop) WakeOffCore() {
	if !l.woken.Load() {
		l.woken.Store(true)
	}
	l.signal(false)
}

// Send hands t to core to. Tasks from one core to another run in the order of Send; all those of a pass cross
// as one batch with one wake-up. t for the own core runs later in the same pass (at most 256 of them at each of
// two places, the rest in the next pass). Send never blocks: what does not fit the ring waits here, in order,
// and the loop takes nothing from its inbox until it fits.
func (l *Loop) Send(to ID, t Task) {
	l.AssertOwner()
	if to == l.id {
		l.self.push(t)
		return
	}
	l.out[to].push(t)
}

// Backlogged reports whether tasks wait for a full ring. Agents and timers that make work of their own
// accord make less while it is true.
func (l *Loop) Backlogged() bool { return l.blocked != 0 }

// Arm makes f run on the loop once d has passed since Now, in the first pass after that, never in the
// present one. An armed t is moved. f is kept until then: pass a function made once, not a new closure.
func (l *Loop) Arm(t *Timer, d time.Duration, f func(l *Loop)) {
	l.AssertOwner()
	l.timers.arm(t, l.now+max(d, 0), f)
}

// Disarm makes sure that t does not fire. A timer that is not armed is left alone.
func (l *Loop) Disarm(t *Timer) {
	l.AssertOwner()
	l.timers.disarm(t)
}
