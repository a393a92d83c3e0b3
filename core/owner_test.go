package core

import (
	"testing"
)

func TestOwnerChecks(t *testing.T) {
	g := startGroup(t, Config{Cores: 2, CheckOwner: true})
	l, other := g.Loop(0), g.Loop(1)
	var tm Timer
	for _, f := range []func(){
		l.AssertOwner,
		func() { l.Send(1, Func(func(*Loop) {})) },
		func() { l.Arm(&tm, 0, func(*Loop) {}) },
		func() { l.Disarm(&tm) },
		func() { NewSlots(1).Acquire(l, &Waiter{}) },
	} {
		mustPanic(t, f)
	}
	do(t, l, func(l *Loop) {
		l.AssertOwner()
		mustPanic(t, other.AssertOwner)
		mustPanic(t, func() { other.PostOffCore(Func(func(*Loop) {})) })
		mustPanic(t, func() { l.TryPostOffCore(Func(func(*Loop) {})) })
		mustPanic(t, g.Close)
	})
	unchecked := startGroup(t, Config{Cores: 1})
	unchecked.Loop(0).AssertOwner()
}
