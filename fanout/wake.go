package fanout

import "context"

// wakeRoots is how many writers the loop wakes by itself after a burst of frames. Each of them wakes two more, and so on: with 500
// subscribers the loop pays for 8 wake-ups, and the last writer is seven hops away.
//
// A wait goes through these steps. Since a claim is made once per park, and each claim brings one token that the writer takes
// before it parks again, a token never meets a full channel and is never left over.
//
//	writer: raise parked, look           nothing ready: wait for the token
//	                                     ready, or ctx done: lower parked; if it was lowered already, a token is on its way: take it
//	loop:   push, then lower parked      it was raised: the writer is claimed; a token follows, from the loop or from another writer
//	writer: token                        hand on to the two writers that the loop noted at the claim
const wakeRoots = 8

// Park announces that the writer is about to wait for Wake. It returns false when it need not: something is ready. After true Wake is
// called once there is, possibly before Park returns. For writers with a Wake only; others call Wait.
func (s *Subscription) Park() bool {
	// Raised before the last look, while the loop pushes before it looks at the flag: one of the two sees the other.
	s.parked.Store(true)
	if s.Ready() {
		s.unpark()
		return false
	}
	return true
}

// Wait parks until something is queued, the subscription has ended or ctx is done, whose error it returns. Only the writer calls
// it, and only without a Wake.
func (s *Subscription) Wait(ctx context.Context) error {
	for !s.Ready() {
		if !s.Park() {
			return nil
		}
		select {
		case <-s.token:
			s.handOn()
		case <-ctx.Done():
			s.unpark()
			return ctx.Err()
		}
	}
	return nil
}

// unpark ends a wait that was not ended by a token.
func (s *Subscription) unpark() {
	if !s.parked.Swap(false) && s.Wake == nil {
		<-s.token
		s.handOn()
	}
}

// handOn passes the wake-up on to the writers that depend on this one.
func (s *Subscription) handOn() {
	for i, next := range s.wakes {
		if next != nil {
			s.wakes[i] = nil
			next.give()
		}
	}
}

// give ends a wait that was claimed.
func (s *Subscription) give() {
	select {
	case s.token <- struct{}{}:
	default:
		panic("BUG: fanout: a writer was woken twice")
	}
}

// claim reports whether the writer waits and is now the caller's to wake.
func (s *Subscription) claim() bool { return s.parked.Load() && s.parked.Swap(false) }

// A burst is the writers to wake after frames have been pushed. It is owned by the loop and empty between uses.
type burst struct{ claimed []*Subscription }

// add notes s if its writer waits.
func (b *burst) add(s *Subscription) {
	if !s.claim() {
		return
	}
	if s.Wake != nil {
		s.Wake()
		return
	}
	b.claimed = append(b.claimed, s)
}

// wake wakes them all.
func (b *burst) wake() {
	list := b.claimed
	if len(list) == 0 {
		return
	}
	// Every link stands before the first token is given.
	for i := wakeRoots; i < len(list); i++ {
		k := i - wakeRoots
		list[k/2].wakes[k%2] = list[i]
	}
	for _, s := range list[:min(len(list), wakeRoots)] {
		s.give()
	}
	clear(list)
	b.claimed = list[:0]
}
