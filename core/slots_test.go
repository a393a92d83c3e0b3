package core

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// entrant is a waiter as its users embed it.
type entrant struct {
	Waiter
	onAdmit func(l *Loop, e *entrant)
	number  int
}

func (e *entrant) OnAdmit(l *Loop) { e.onAdmit(l, e) }

func newEntrant(tenant uint64, bytes, number int, f func(l *Loop, e *entrant)) *entrant {
	e := &entrant{Waiter: Waiter{Tenant: tenant, Bytes: bytes}, onAdmit: f, number: number}
	e.Admittee = e
	return e
}

// bareLoop is a loop that does not run, for tests of what a loop owns.
func bareLoop(t testing.TB) *Loop {
	return newGroup(t, Config{Cores: 1}).Loop(0)
}

func checkStats(t *testing.T, s *Slots, want SlotStats) {
	t.Helper()
	got := s.Stats()
	got.Freed = want.Freed // TestFreed
	if got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
}

// k slots freed are exactly k admissions, the oldest first.
func TestReleaseAdmitsExactly(t *testing.T) {
	l, s := bareLoop(t), NewSlots(10)
	var admitted []int
	note := func(_ *Loop, e *entrant) { admitted = append(admitted, e.number) }
	for i := range 30 {
		if got := s.Acquire(l, &newEntrant(7, 100, i, note).Waiter); got != (i < 10) {
			t.Fatalf("arrival %d: slot %v", i, got)
		}
	}
	next := 10
	for _, k := range []int{1, 4, 0, 10, 3} {
		admitted = admitted[:0]
		s.Release(l, k)
		if len(admitted) != k {
			t.Fatalf("%d freed, %d admitted", k, len(admitted))
		}
		for _, n := range admitted {
			if n != next {
				t.Fatalf("admitted %d, want %d", n, next)
			}
			next++
		}
	}
	// Two waiters are left: eight of ten freed slots stay free.
	admitted = admitted[:0]
	s.Release(l, 10)
	if len(admitted) != 2 {
		t.Fatalf("%d admitted, want 2", len(admitted))
	}
	checkStats(t, s, SlotStats{Size: 10, InUse: 2, Admitted: 20, FreedWhileWaiting: 20})
	if !s.Acquire(l, &newEntrant(7, 1, 0, note).Waiter) {
		t.Error("no slot although eight are free")
	}
}

// While two tenants wait, their admitted bytes differ by at most one quantum plus the largest frame,
// whatever their frame sizes and however many publishers each has.
func TestTenantsShareByBytes(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b       int // largest frame
		alone      int // admissions of tenant 1 before tenant 2 comes
		publishers [2]int
	}{
		{"same sizes", 256, 256, 0, [2]int{63, 1}},
		{"small and large", 256, 60 << 10, 0, [2]int{63, 1}},
		{"larger than a quantum", 300 << 10, 1 << 10, 0, [2]int{4, 4}},
		{"the second comes late", 50 << 10, 50 << 10, 37, [2]int{63, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 4))
			l, s := bareLoop(t), NewSlots(8)
			var bytes [2]int
			largest := max(c.a, c.b)
			sizeOf := func(tenant uint64) int { return 1 + rnd.IntN([2]int{c.a, c.b}[tenant-1]) }
			counting := false
			var arrive func(tenant uint64)
			admit := func(l *Loop, e *entrant) {
				if counting {
					bytes[e.Tenant-1] += e.Bytes
					if d := bytes[0] - bytes[1]; max(d, -d) > quantumBytes+largest {
						t.Fatalf("admitted %d and %d bytes: %d apart", bytes[0], bytes[1], d)
					}
				}
				arrive(e.Tenant) // its publisher comes back at once: each tenant always waits
			}
			arrive = func(tenant uint64) {
				if s.Acquire(l, &newEntrant(tenant, sizeOf(tenant), 0, admit).Waiter) {
					t.Fatal("a slot although others wait")
				}
			}
			for range 8 {
				s.Acquire(l, &newEntrant(9, 1, 0, nil).Waiter)
			}
			for range c.publishers[0] {
				arrive(1)
			}
			for range c.alone {
				s.Release(l, 1)
			}
			for range c.publishers[1] {
				arrive(2)
			}
			counting = true
			for bytes[0] < 50*quantumBytes || bytes[1] < 50*quantumBytes {
				s.Release(l, 1+rnd.IntN(8))
			}
			if st := s.Stats(); st.Admitted != st.FreedWhileWaiting || st.InUse != 8 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// A tenant that left and comes back starts level with the one that stayed, whatever that one had left of its
// turn: the bound of TestTenantsShareByBytes holds from each return on.
func TestReturningTenantStartsLevel(t *testing.T) {
	const largest = 60 << 10
	rnd := rand.New(rand.NewPCG(6, 7))
	l, s := bareLoop(t), NewSlots(1)
	var bytes [2]int
	var queued [2]map[*entrant]bool
	var arrive func(tenant uint64)
	admit := func(l *Loop, e *entrant) {
		delete(queued[e.Tenant], e)
		bytes[e.Tenant] += e.Bytes
		if d := bytes[0] - bytes[1]; len(queued[1]) > 0 && max(d, -d) > quantumBytes+largest {
			t.Fatalf("admitted %d and %d bytes: %d apart", bytes[0], bytes[1], d)
		}
		arrive(e.Tenant)
	}
	arrive = func(tenant uint64) {
		e := newEntrant(tenant, largest/2+rnd.IntN(largest/2), 0, admit)
		s.Acquire(l, &e.Waiter)
		queued[tenant][e] = true
	}
	queued[0], queued[1] = map[*entrant]bool{}, map[*entrant]bool{}
	s.Acquire(l, &newEntrant(9, 1, 0, nil).Waiter)
	arrive(0)
	arrive(0)
	for range 500 {
		for range rnd.IntN(3) {
			s.Release(l, 1)
		}
		bytes = [2]int{}
		arrive(1)
		arrive(1)
		for range 40 + rnd.IntN(40) {
			s.Release(l, 1)
		}
		for e := range queued[1] {
			s.Cancel(&e.Waiter)
			delete(queued[1], e)
		}
	}
}

// A newcomer of a tenant with waiters queues behind them; one of another tenant queues, too.
func TestArrivalsDoNotOvertake(t *testing.T) {
	l, s := bareLoop(t), NewSlots(1)
	var admitted []int
	note := func(_ *Loop, e *entrant) { admitted = append(admitted, e.number) }
	var second *entrant
	first := newEntrant(1, 10, 1, func(l *Loop, e *entrant) {
		admitted = append(admitted, e.number)
		// Inside the admission of the first, its slot is taken and second waits: nobody may pass.
		if s.Acquire(l, &newEntrant(1, 10, 3, note).Waiter) || s.Acquire(l, &newEntrant(2, 10, 4, note).Waiter) {
			t.Error("a newcomer overtook a waiter")
		}
		if !second.Queued() {
			t.Error("second is not queued")
		}
	})
	second = newEntrant(1, 10, 2, note)
	s.Acquire(l, &newEntrant(1, 1, 0, nil).Waiter)
	s.Acquire(l, &first.Waiter)
	s.Acquire(l, &second.Waiter)
	for range 4 {
		s.Release(l, 1)
	}
	want := []int{1, 2, 3, 4}
	for i := range want {
		if len(admitted) != 4 || admitted[i] != want[i] {
			t.Fatalf("admitted %v, want %v", admitted, want)
		}
	}
}

func TestCancelKeepsSlots(t *testing.T) {
	l, s := bareLoop(t), NewSlots(4)
	admitted := 0
	count := func(*Loop, *entrant) { admitted++ }
	for range 4 {
		s.Acquire(l, &newEntrant(1, 1, 0, nil).Waiter)
	}
	waiters := make([]*entrant, 6)
	for i := range waiters {
		waiters[i] = newEntrant(uint64(i%2), 10, i, count)
		s.Acquire(l, &waiters[i].Waiter)
	}
	if !s.Cancel(&waiters[0].Waiter) || !s.Cancel(&waiters[3].Waiter) || s.Cancel(&waiters[3].Waiter) {
		t.Fatal("a queued waiter cancels once")
	}
	// An admitted waiter cancels the one that was to have the next slot: the slot goes on to the last.
	waiters[1].onAdmit = func(*Loop, *entrant) { admitted++; s.Cancel(&waiters[2].Waiter); s.Cancel(&waiters[4].Waiter) }
	waiters[2].onAdmit = func(*Loop, *entrant) { admitted++; s.Cancel(&waiters[1].Waiter); s.Cancel(&waiters[4].Waiter) }
	s.Release(l, 3)
	if admitted != 2 {
		t.Fatalf("%d admitted, want 2", admitted)
	}
	checkStats(t, s, SlotStats{Size: 4, InUse: 3, Admitted: 2, FreedWhileWaiting: 2})
	if s.Cancel(&waiters[5].Waiter) {
		t.Error("an admitted waiter cancelled")
	}
	s.Release(l, 3)
	checkStats(t, s, SlotStats{Size: 4, Admitted: 2, FreedWhileWaiting: 2})
}

// 100,000 waiters that finish as soon as they are admitted run in one loop, not in 100,000 frames.
func TestImmediateCompletionsDoNotRecurse(t *testing.T) {
	l, s := bareLoop(t), NewSlots(3)
	const total = 100_000
	for range 3 {
		s.Acquire(l, &newEntrant(1, 1, 0, nil).Waiter)
	}
	admitted, deepest := 0, 0
	pcs := make([]uintptr, 64)
	finish := func(l *Loop, e *entrant) {
		admitted++
		deepest = max(deepest, runtime.Callers(0, pcs))
		s.Release(l, 1)
	}
	for i := range total {
		s.Acquire(l, &newEntrant(uint64(i%10), i%1000, i, finish).Waiter)
	}
	s.Release(l, 1)
	if admitted != total || deepest >= 40 {
		t.Errorf("%d of %d admitted, %d frames deep", admitted, total, deepest)
	}
	checkStats(t, s, SlotStats{Size: 3, InUse: 2, Admitted: total, FreedWhileWaiting: total})
}

// A free slot that no waiter is about to get goes to a newcomer even while others are being admitted.
func TestFreeSlotWhileAdmitting(t *testing.T) {
	l, s := bareLoop(t), NewSlots(3)
	for range 3 {
		s.Acquire(l, &newEntrant(1, 1, 0, nil).Waiter)
	}
	admitted := 0
	last := newEntrant(1, 1, 2, func(*Loop, *entrant) { admitted++ })
	sameTenant := newEntrant(1, 1, 3, func(*Loop, *entrant) { admitted++ })
	first := newEntrant(1, 1, 1, func(l *Loop, _ *entrant) {
		admitted++
		if !s.Acquire(l, &newEntrant(2, 1, 4, nil).Waiter) {
			t.Error("the third slot is free")
		}
		if s.Acquire(l, &sameTenant.Waiter) {
			t.Error("overtook its own tenant")
		}
	})
	s.Acquire(l, &first.Waiter)
	s.Acquire(l, &last.Waiter)
	s.Release(l, 3)
	if admitted != 2 {
		t.Errorf("%d admitted, want 2: the third slot was taken", admitted)
	}
	s.Release(l, 1)
	if admitted != 3 {
		t.Errorf("%d admitted, want 3", admitted)
	}
	checkStats(t, s, SlotStats{Size: 3, InUse: 3, Admitted: 3, FreedWhileWaiting: 3})
}

// Random arrivals, releases, cancellations and re-entrant calls keep the books balanced.
func TestSlotsBooks(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		l, s := bareLoop(t), NewSlots(1+rnd.IntN(6))
		held, arrived, canceled, admissions, direct := 0, 0, 0, 0, 0
		var queued []*entrant
		lastOf := map[uint64]int{}
		var step func(depth int)
		admit := func(_ *Loop, e *entrant) {
			admissions++
			held++
			if e.number < lastOf[e.Tenant] {
				t.Fatalf("tenant %d: %d admitted after %d", e.Tenant, e.number, lastOf[e.Tenant])
			}
			lastOf[e.Tenant] = e.number
			step(1)
		}
		step = func(depth int) {
			switch rnd.IntN(4) {
			case 0, 1:
				arrived++
				e := newEntrant(uint64(rnd.IntN(4)), rnd.IntN(100<<10), arrived, admit)
				if s.Acquire(l, &e.Waiter) {
					direct++
					held++
					if e.number < lastOf[e.Tenant] {
						t.Fatal("overtook its tenant")
					}
					lastOf[e.Tenant] = e.number
				} else {
					queued = append(queued, e)
				}
			case 2:
				if held > 0 {
					k := 1 + rnd.IntN(held)
					held -= k
					s.Release(l, k)
				}
			case 3:
				if len(queued) > 0 {
					if s.Cancel(&queued[rnd.IntN(len(queued))].Waiter) {
						canceled++
					}
				}
			}
			st := s.Stats()
			if depth == 0 {
				if st.InUse != held || st.Waiting != arrived-direct-admissions-canceled {
					t.Fatalf("stats %+v, held %d", st, held)
				}
				if st.Waiting > 0 && st.InUse < st.Size {
					t.Fatalf("waiters beside free slots: %+v", st)
				}
				if st.Admitted != st.FreedWhileWaiting || int(st.Admitted) != admissions {
					t.Fatalf("admissions per freed slot: %+v, %d admitted", st, admissions)
				}
			}
		}
		for range 5000 {
			step(0)
		}
		if admissions == 0 || canceled == 0 || direct == 0 {
			t.Fatalf("seed %d: %d admissions, %d canceled, %d direct", seed, admissions, canceled, direct)
		}
	}
}

// TryAcquire takes what Acquire would take at once, and leaves no trace otherwise.
func TestTryAcquire(t *testing.T) {
	l, s := bareLoop(t), NewSlots(2)
	if !s.TryAcquire(l, 1) || !s.TryAcquire(l, 2) || s.TryAcquire(l, 1) {
		t.Fatal("there are two slots")
	}
	admitted := false
	w := newEntrant(1, 1, 0, func(l *Loop, _ *entrant) {
		admitted = true
		if s.TryAcquire(l, 2) {
			t.Error("a slot that the waiter got")
		}
	})
	s.Acquire(l, &w.Waiter)
	s.Release(l, 1)
	if !admitted {
		t.Fatal("the waiter was not admitted")
	}
	s.Release(l, 2)
	checkStats(t, s, SlotStats{Size: 2, Admitted: 1, FreedWhileWaiting: 1})
}

// Every freed slot counts, whoever gets it: the watchdog sees that a queue moves.
func TestFreed(t *testing.T) {
	l, s := bareLoop(t), NewSlots(2)
	w := newEntrant(1, 1, 0, func(l *Loop, _ *entrant) { s.Release(l, 1) })
	s.TryAcquire(l, 1)
	s.TryAcquire(l, 1)
	s.Acquire(l, &w.Waiter)
	for i, want := range []uint64{2, 3} { // the first one lets the waiter in, which frees its slot at once
		if s.Release(l, 1); s.Stats().Freed != want {
			t.Errorf("after %d: %d freed, want %d", i+1, s.Stats().Freed, want)
		}
	}
}

func TestSlotsBugs(t *testing.T) {
	l, s := bareLoop(t), NewSlots(1)
	mustPanic(t, func() { NewSlots(0) })
	mustPanic(t, func() { s.Release(l, 1) })
	s.Acquire(l, &Waiter{})
	mustPanic(t, func() { s.Acquire(l, &Waiter{}) }) // must wait, but nobody is to be told
	mustPanic(t, func() { s.Release(l, -1) })
	e := newEntrant(1, 1, 1, nil)
	s.Acquire(l, &e.Waiter)
	mustPanic(t, func() { s.Acquire(l, &e.Waiter) })
}

func TestSlotsAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
	l, s := bareLoop(t), NewSlots(2)
	ignore := func(*Loop, *entrant) {}
	var es [4]*entrant
	for i := range es {
		es[i] = newEntrant(uint64(i), 10, i, ignore)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, e := range es {
			s.Acquire(l, &e.Waiter)
		}
		s.Release(l, 2)
		s.Release(l, 2)
	}); n != 0 {
		t.Errorf("%v allocations per four acquisitions and releases", n)
	}
}
