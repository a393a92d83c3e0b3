package core_test

import (
	"fmt"
	"time"

	"felix/core"
)

// counter is owned by core 1: only its loop touches total, so there is no lock.
type counter struct {
	total int
	done  chan int
}

// add is one request. It crosses from the poster to core 0, from there to core 1, and is answered there.
type add struct {
	to *counter
	n  int
}

func (a *add) Run(l *core.Loop) {
	if l.ID() != 1 {
		l.Send(1, a)
		return
	}
	a.to.total += a.n
	a.to.done <- a.to.total
}

func ExampleGroup() {
	start := time.Now()
	group, err := core.NewGroup(core.Config{
		Cores: 2,
		Now:   func() time.Duration { return time.Since(start) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	group.Start()
	c := &counter{done: make(chan int, 3)}
	for n := 1; n <= 3; n++ {
		if err := group.Loop(0).PostOffCore(&add{to: c, n: n}); err != nil {
			fmt.Println(err)
		}
	}
	group.Close() // runs what was posted, on both cores
	fmt.Println(<-c.done, <-c.done, <-c.done)
	// Output: 1 3 6
}
