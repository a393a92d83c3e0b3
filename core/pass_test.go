package core

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// letter is a numbered task from one core to another.
type letter struct {
	from ID
	n    int
	book *letters
	hops int // answers still to come
}

// letters checks order per (from, to) and counts.
type letters struct {
	t    *testing.T
	next [][]int // [to][from], each row owned by its core
	sent [][]int // [from][to], likewise
	left atomic.Int64
	done chan struct{}
}

func newLetters(t *testing.T, cores, total int) *letters {
	b := &letters{t: t, next: make([][]int, cores), sent: make([][]int, cores), done: make(chan struct{})}
	for i := range cores {
		b.next[i], b.sent[i] = make([]int, cores), make([]int, cores)
	}
	b.left.Store(int64(total))
	return b
}

func (b *letters) send(l *Loop, to ID, hops int) {
	n := b.sent[l.id][to]
	b.sent[l.id][to]++
	l.Send(to, &letter{from: l.id, n: n, book: b, hops: hops})
}

func (m *letter) Run(l *Loop) {
	b := m.book
	if want := b.next[l.id][m.from]; m.n != want {
		b.t.Errorf("core %d got %d from core %d, want %d", l.id, m.n, m.from, want)
	}
	b.next[l.id][m.from]++
	if m.hops > 0 {
		b.send(l, m.from, m.hops-1)
	}
	if b.left.Add(-1) == 0 {
		close(b.done)
	}
}

// All cores send to all, themselves included, over rings far too small, and answer what they get: nothing is
// lost or reordered and nothing deadlocks.
func TestAllToAllThroughFullRings(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		cfg.InboxDepth, cfg.RingDepth = 4, 2
		cfg.CheckOwner = true
		g := startGroup(t, cfg)
		const posts, burst, hops = 20, 10, 3
		book := newLetters(t, cfg.Cores, cfg.Cores*cfg.Cores*posts*burst*(hops+1))
		var wg sync.WaitGroup
		for _, l := range g.Loops() {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range posts {
					post(t, l, func(l *Loop) {
						for range burst {
							for to := range cfg.Cores {
								book.send(l, ID(to), hops)
							}
						}
					})
				}
			}()
		}
		wg.Wait()
		wait(t, book.done, "the last letter")
		for _, l := range g.Loops() {
			do(t, l, func(l *Loop) {
				for j := range l.out {
					if l.blocked != 0 || l.out[j].len() != 0 {
						t.Errorf("core %d still holds %d tasks for core %d, blocked %b", l.id, l.out[j].len(), j, l.blocked)
					}
				}
			})
		}
	})
}

// With the ring to a busy core full, a loop leaves its inbox alone, goes on draining its rings, parks instead
// of spinning, and goes on when there is room.
func TestFullRingStopsInbox(t *testing.T) {
	g := startGroup(t, Config{Cores: 3, RingDepth: 2, InboxDepth: 4})
	sender, busy, third := g.Loop(0), g.Loop(1), g.Loop(2)
	release := make(chan struct{})
	entered := make(chan struct{})
	post(t, busy, func(*Loop) { close(entered); <-release })
	wait(t, entered, "the busy core")

	var got []int // owned by busy
	do(t, sender, func(l *Loop) {
		for i := range 10 {
			l.Send(busy.id, Func(func(*Loop) { got = append(got, i) }))
		}
	})
	idle(t, sender)
	ran := make(chan struct{})
	post(t, sender, func(*Loop) { close(ran) })
	for range 3 {
		if !sender.TryPostOffCore(Func(func(*Loop) {})) {
			t.Fatal("the inbox is not full yet")
		}
	}
	if sender.TryPostOffCore(Func(func(*Loop) {})) {
		t.Error("the inbox takes more than its depth")
	}
	// Rings go on.
	through := make(chan struct{})
	post(t, third, func(l *Loop) {
		l.Send(sender.id, Func(func(l *Loop) {
			if !l.Backlogged() {
				t.Error("not backlogged")
			}
			l.Send(third.id, Func(func(*Loop) { close(through) }))
		}))
	})
	wait(t, through, "the way there and back over rings")
	idle(t, sender)
	select {
	case <-ran:
		t.Error("the inbox was drained although a ring is full")
	default:
	}
	close(release)
	wait(t, ran, "the inbox")
	do(t, busy, func(*Loop) {})
	do(t, sender, func(l *Loop) {
		if l.Backlogged() {
			t.Error("still backlogged")
		}
	})
	until(t, func() (all bool) {
		do(t, busy, func(*Loop) { all = slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) })
		return all
	}, "all ten in order")
}

// passAgent notes what it sees.
type passAgent struct{ work func(l *Loop) int }

func (a *passAgent) Work(l *Loop) int { return a.work(l) }

// The order of a pass: inbox, rings, own tasks, timers, agents in order; a task for the own core runs in the same pass.
func TestPassOrder(t *testing.T) {
	g := newGroup(t, Config{Cores: 2})
	l := g.Loop(0)
	type step struct {
		name string
		pass uint64
	}
	var steps []step
	note := func(name string) { steps = append(steps, step{name, l.passCount}) }
	task := func(name string) Task { return Func(func(*Loop) { note(name) }) }
	l.AddAgent(&passAgent{func(*Loop) int { note("agent a"); l.Send(0, task("from agent")); return 0 }})
	l.AddAgent(&passAgent{func(*Loop) int { note("agent b"); return 0 }})
	var tm Timer
	l.Arm(&tm, 0, func(*Loop) { note("timer") })
	post(t, l, func(l *Loop) { note("inbox"); l.Send(0, task("self")) })
	l.in[0].ring.Push([]Task{task("ring")})
	l.sweep = l.timers.seq
	l.pass() // the test owns a loop that has not started
	want := []string{"inbox", "ring", "self", "timer", "agent a", "agent b", "from agent"}
	for i, s := range steps {
		if len(steps) != len(want) || s.name != want[i] || s.pass != 1 {
			t.Fatalf("steps %v, want %v in pass 1", steps, want)
		}
	}
}

// One pass takes a bounded number from each source, so that a flood on one does not starve the others.
func TestPassIsBounded(t *testing.T) {
	g := newGroup(t, Config{Cores: 2, InboxDepth: 1024, RingDepth: 1024})
	l := g.Loop(0)
	inbox, ring, self := 0, 0, 0
	for range 1000 {
		post(t, l, func(*Loop) { inbox++ })
		l.in[0].ring.Push([]Task{Func(func(*Loop) { ring++ })})
	}
	var again Func
	again = func(l *Loop) { self++; l.Send(0, again) }
	l.Send(0, again)
	for pass := 1; pass <= 3; pass++ {
		l.pass()
		if inbox != pass*passTasks || ring != pass*passTasks || self != 2*pass*passTasks {
			t.Fatalf("after pass %d: %d from the inbox, %d from the ring, %d own", pass, inbox, ring, self)
		}
		if !l.more() {
			t.Fatal("no further pass although work is left")
		}
	}
}
