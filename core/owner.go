package core

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// owner remembers which goroutine runs a loop's pass. It is used only with Config.CheckOwner.
type owner struct{ goid atomic.Uint64 } // 0: no pass is running

// goroutineID reads the number of the calling goroutine from its stack header, "goroutine 18 [".
// The runtime offers no other way; about a microsecond, hence tests only.
func goroutineID() uint64 {
	var buf [64]byte
	b := buf[:runtime.Stack(buf[:], false)]
	var id uint64
	for _, c := range b[len("goroutine "):] {
		if c < '0' || c > '9' {
			break
		}
		id = id*10 + uint64(c-'0')
	}
	return id
}

// AssertOwner panics with Config.CheckOwner set when the caller is not the goroutine that is running
// a pass of this loop. Without CheckOwner it does nothing.
func (l *Loop) AssertOwner() {
	if !l.g.cfg.CheckOwner {
		return
	}
	me, own := goroutineID(), l.owner.goid.Load()
	if me != own {
		panic(fmt.Sprintf("BUG: core: state of core %d used by goroutine %d; its owner is %d (0: none)", l.id, me, own))
	}
}

// assertOffCore panics with Config.CheckOwner set when the caller runs a pass of any loop of the
// group: a loop that waits for another one can wait for itself.
func (l *Loop) assertOffCore() {
	if !l.g.cfg.CheckOwner {
		return
	}
	me := goroutineID()
	for _, other := range l.g.loops {
		if other.owner.goid.Load() == me {
			panic(fmt.Sprintf("BUG: core: loop %d makes an off-core call to loop %d: loops use Send", other.id, l.id))
		}
	}
}
