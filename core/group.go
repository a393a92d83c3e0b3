package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"felix/affinity"
)

// ErrClosed is returned by posts to a loop whose group is closing or closed. The task was not taken.
var ErrClosed = errors.New("core: group is closed: no further work is taken")

// ID is the number of a core, from 0.
type ID uint16

// Limits of a Config and its defaults.
const (
	MaxCores          = 64      // one bit per core in a word
	MaxDepth          = 1 << 20 // of inboxes and rings
	DefaultInboxDepth = 1024
	DefaultRingDepth  = 1024 // above 8 cores 8,192/Cores, at least 128: rings grow with the square of Cores
)

// Config says how many loops run and how. It is copied by NewGroup and fixed from then on.
type Config struct {
	// Cores is the number of loops, 1 to 64.
	Cores int
	// Pinned locks each loop to a thread and pins the thread to a CPU. Otherwise loops are ordinary goroutines.
	Pinned bool
	// CPUs lists the CPU of each core when pinned. Cores beyond the list share in turn, with one warning.
	// Empty means every CPU this process may use.
	CPUs []int
	// Spin is how long an idle loop looks for work before it parks, 0 (default) to 1 ms. It holds its CPU
	// meanwhile: worth it only where there are more CPUs than cores.
	Spin time.Duration
	// InboxDepth bounds the tasks posted to a loop and not drained; a poster beyond it waits. As many
	// more may be in the hands of the loop. Zero means DefaultInboxDepth; at most MaxDepth.
	InboxDepth int
	// RingDepth bounds the tasks on their way from one core to another, rounded up to a power of two.
	// Beyond it they wait at the sender, which takes nothing from its inbox then. Zero means
	// DefaultRingDepth; at most MaxDepth.
	RingDepth int
	// Baton lets a goroutine that posts to an idle loop run the loop itself, for at most 4 passes, instead of
	// waking the loop's goroutine. Not with Pinned. A poster must hold no lock that a task takes; one that must
	// not run others' work, such as the goroutine that syncs a disk, uses WakeOffCore.
	Baton bool
	// Now is the monotonic clock. Required; called from any goroutine that runs a loop.
	Now func() time.Duration
	// CheckOwner turns on AssertOwner and the check that no loop posts to a loop. For tests: a microsecond a call.
	CheckOwner bool
	// Logger takes the few lines this package has to say. Nil means none.
	Logger *slog.Logger

	// Set by tests; affinity's functions otherwise.
	allowed func() ([]int, error)
	pin     func(cpu int) error
}

// validate reports every problem at once.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("core: "+format, args...)) }
	if c.Cores < 1 || c.Cores > MaxCores {
		bad("Cores is %d: use 1 to %d", c.Cores, MaxCores)
	}
	if c.Spin < 0 || c.Spin > time.Millisecond {
		bad("Spin is %v: use 0 to 1ms", c.Spin)
	}
	if c.InboxDepth < 0 || c.InboxDepth > MaxDepth {
		bad("InboxDepth is %d: use 0 (default) to %d", c.InboxDepth, MaxDepth)
	}
	if c.RingDepth < 0 || c.RingDepth > MaxDepth {
		bad("RingDepth is %d: use 0 (default) to %d", c.RingDepth, MaxDepth)
	}
	if c.Baton && c.Pinned {
		bad("Baton is set with Pinned: a pinned loop runs on its own thread only")
	}
	if c.Now == nil {
		bad("Now is nil: give a monotonic clock")
	}
	return errors.Join(errs...)
}

// Group is a fixed number of loops, each with a ring to each other one.
type Group struct {
	cfg   Config
	log   *slog.Logger
	loops []*Loop

	mu      sync.Mutex
	started bool
	closing bool
	closed  chan struct{} // closed when every loop has ended
	probes  chan bool     // answers of the loops during Close: true from a loop that was at rest
	running sync.WaitGroup
}

// NowOffCore returns the time on the group's clock. It reads the clock; on a loop use Loop.Now.
func (g *Group) NowOffCore() time.Duration { return g.cfg.Now() }

// NewGroup makes the loops; none runs until Start. It fails when cfg is not valid, naming every
// problem, or when the CPUs to pin to cannot be had.
func NewGroup(cfg Config) (*Group, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.allowed == nil {
		cfg.allowed = affinity.Allowed
	}
	if cfg.pin == nil {
		cfg.pin = affinity.Pin
	}
	if cfg.InboxDepth == 0 {
		cfg.InboxDepth = DefaultInboxDepth
	}
	if cfg.RingDepth == 0 {
		cfg.RingDepth = max(128, min(DefaultRingDepth, 8*DefaultRingDepth/cfg.Cores))
	}
	g := &Group{cfg: cfg, log: cfg.Logger, closed: make(chan struct{}), probes: make(chan bool, cfg.Cores)}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Pinned {
		if err := g.chooseCPUs(); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Cores {
		g.loops = append(g.loops, newLoop(g, ID(i)))
	}
	for _, from := range g.loops {
		for _, to := range g.loops {
			if from != to {
				r := &link{ring: NewRing[Task](cfg.RingDepth)}
				from.out[to.id].link = r
				to.in = append(to.in, inbound{link: r, from: from})
			}
		}
	}
	return g, nil
}

// chooseCPUs settles cfg.CPUs for a pinned group.
func (g *Group) chooseCPUs() error {
	allowed, err := g.cfg.allowed()
	if err != nil {
		return fmt.Errorf("core: CPUs of this process: %w", err)
	}
	if len(allowed) == 0 {
		return errors.New("core: no CPU is known to pin to: run without Pinned")
	}
	if len(g.cfg.CPUs) == 0 {
		g.cfg.CPUs = allowed
	} else {
		g.cfg.CPUs = slices.Clone(g.cfg.CPUs)
	}
	for _, cpu := range g.cfg.CPUs {
		if !slices.Contains(allowed, cpu) {
			return fmt.Errorf("core: CPU %d is not among those this process may use, %v: change CPUs or the affinity mask", cpu, allowed)
		}
	}
	if len(g.cfg.CPUs) < g.cfg.Cores {
		g.log.Warn("core: more pinned cores than CPUs; cores share CPUs in turn", "cores", g.cfg.Cores, "cpus", g.cfg.CPUs)
	}
	return nil
}

// Loops returns the loops by ID. The slice is the group's own: do not change it.
func (g *Group) Loops() []*Loop { return g.loops }

// Loop returns the loop with that ID; it panics when there is none.
func (g *Group) Loop(id ID) *Loop { return g.loops[id] }

// Start runs the loops. Agents and first timers are in place before.
func (g *Group) Start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		panic("BUG: core: group started twice")
	}
	g.started = true
	for _, l := range g.loops {
		g.running.Add(1)
		go l.main()
	}
}

// Close stops taking posts (ErrClosed, also for those who wait), runs everything that was posted and
// everything that follows from it by Send, stops the loops and waits for them. Timers still armed then never
// fire. A group that was not started is started first, so that nothing posted is lost. Close waits as long as
// tasks and agents have work: a task that does not return holds it. It is not called from a loop; further calls
// wait for the first.
func (g *Group) Close() {
	if len(g.loops) > 0 {
		g.loops[0].assertOffCore()
	}
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		<-g.closed
		return
	}
	g.closing = true
	started := g.started
	g.mu.Unlock()
	if !started {
		g.Start()
	}
	for _, l := range g.loops {
		l.inbox.close()
	}
	g.drain()
	for _, l := range g.loops {
		l.stop.Store(true)
		l.WakeOffCore()
	}
	g.running.Wait()
	for _, l := range g.loops {
		l.alarm.Stop()
	}
	close(g.closed)
}

// drain returns when no loop has anything to do.
//
// In a round each loop answers at the end of a pass that began after the round did, and says whether it has
// done or found anything since its last answer. All at rest in one round means that at the moment the round
// began every loop was idle and every ring empty: what was in a ring then would have been drained in the
// answering pass. Inboxes are closed, so nothing can begin after.
func (g *Group) drain() {
	for rest := false; !rest; {
		rest = true
		for _, l := range g.loops {
			l.probe.Store(true)
			l.WakeOffCore()
		}
		for range g.loops {
			if !<-g.probes {
				rest = false
			}
		}
	}
}
