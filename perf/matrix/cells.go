package main

import (
	"fmt"
	"slices"
	"time"

	"felix/perf/load"
	"felix/perf/session"
)

// A cell is a load and its place in the tables.
type cell struct {
	load.Cell
	group  string
	figure session.Figure

	against string        // the cell that it runs in turn with, A B B A; "" for none
	pairs   int           // runs of each that count at least, then
	settle  time.Duration // warm-up at least
	apart   bool          // the generator is a process of its own
	jumbo   bool          // broker and generator are jumbo builds; then apart
}

// minPairs is how many pairs of runs say something about a difference of a few percent: with fewer its interval is too wide.
const minPairs = 10

// Groups, in the order of the tables.
const (
	inMemory   = "In memory, acknowledged"
	unacked    = "In memory, fire and forget"
	durable    = "Durable, on_commit"
	periodic   = "Durable, periodic"
	leanly     = "In memory, from a generator that only builds frames"
	alone      = "One at a time"
	paced      = "Open loop, from publisher to subscriber"
	fannedOut  = "Fan-out"
	slowReader = "Subscribers that do not read"
	jumboGroup = "Jumbo build"
)

// cells returns all of them, in the order of the tables.
func cells() []cell {
	var all []cell
	// named takes a cell that perf/load has; panics are found by every test.
	named := func(group string, figure session.Figure, names ...string) {
		for _, name := range names {
			c, err := load.FindCell(name)
			if err != nil {
				panic(fmt.Sprintf("BUG: matrix: %v", err))
			}
			all = append(all, cell{Cell: c, group: group, figure: figure})
		}
	}
	add := func(group, name string, figure session.Figure, c load.Config) {
		all = append(all, cell{Cell: load.Cell{Name: name, Generator: load.GeneratorClient, Config: c}, group: group, figure: figure})
	}
	type shape struct {
		name        string
		size, batch int
	}
	shapes := func(sizes, batches []int) (all []shape) {
		for _, size := range sizes {
			for _, batch := range batches {
				all = append(all, shape{fmt.Sprintf("%s-%d", sizeName(size), batch), size, batch})
			}
		}
		return all
	}
	// pub adds a cell of publishers: that of perf/load where it has one of the name, so that a name means one thing everywhere.
	pub := func(group, promise string, s shape, acks load.Acks, durability load.Durability) {
		name := promise + "-" + s.name
		if _, err := load.FindCell(name); err == nil {
			named(group, session.AckedPerSec, name)
			return
		}
		add(group, name, session.AckedPerSec, load.Config{Scenario: load.Pub, Size: s.size, Batch: s.batch, Acks: acks, Durability: durability})
	}
	oneInFlight := func(group, promise string, durability load.Durability, shapes ...shape) {
		for _, s := range shapes {
			add(group, promise+"-"+s.name+"-one", session.AckedPerSec, load.Config{Scenario: load.Pub, Size: s.size, Batch: s.batch, InFlight: 1, Durability: durability})
		}
	}
	sizes, batches := []int{load.NoPayload, 256, 4096}, []int{1, 64, 100}

	for _, s := range shapes(sizes, batches) {
		pub(inMemory, "memory", s, load.AcksBatch, load.Memory)
	}
	oneInFlight(inMemory, "memory", load.Memory, shapes([]int{256, 4096}, []int{1, 64})...)
	for _, s := range shapes(sizes[1:], batches) {
		pub(unacked, "unacked", s, load.AcksNone, load.Memory)
	}
	for _, s := range shapes(sizes, batches) {
		pub(durable, "on_commit", s, load.AcksBatch, load.OnCommit)
	}
	oneInFlight(durable, "on_commit", load.OnCommit, shapes([]int{256}, []int{1, 64})...)
	oneInFlight(durable, "on_commit", load.OnCommit, shapes([]int{4096}, []int{64})...)
	named(durable, session.AckedPerSec, "waiting-on_commit-1KiB")
	named(periodic, session.AckedPerSec, "periodic-256B-1", "periodic-256B-64", "periodic-4KiB-64")
	named(leanly, session.AckedPerSec, "lean-256B-1", "lean-256B-64", "lean-4KiB-64")

	for _, promise := range []load.Durability{load.Memory, load.OnCommit} {
		named(alone, session.AckP50, "lone-"+string(promise))
		for _, size := range []int{load.NoPayload, 4096} {
			add(alone, fmt.Sprintf("lone-%s-%s", promise, sizeName(size)), session.AckP50, load.Config{Scenario: load.Pub, Publishers: 1, Acks: load.AcksEach, Size: size, Durability: promise})
		}
	}
	add(alone, "lone-periodic", session.AckP50, load.Config{Scenario: load.Pub, Publishers: 1, Acks: load.AcksEach, Durability: load.Periodic})
	named(paced, session.E2EP50, "e2e-10k-memory", "e2e-10k-on_commit")
	add(paced, "e2e-10k-periodic", session.E2EP50, load.Config{Scenario: load.E2E, Rate: 10_000, Durability: load.Periodic})
	add(paced, "e2e-100k-memory-64", session.E2EP50, load.Config{Scenario: load.E2E, Rate: 100_000, Batch: 64})

	named(fannedOut, session.DeliveredPerSec, "fanout1-256B", "fanout10-256B", "fanout10-1KiB", "fanout10-4KiB", "fanout50-256B")
	add(fannedOut, "fanout50-4KiB", session.DeliveredPerSec, load.Config{Scenario: load.FanOut, Subscribers: 50, Size: 4096})
	named(fannedOut, session.AckP50, "fanout1-paced", "fanout500-paced")
	add(slowReader, "fanout50-on_commit", session.DeliveredPerSec, load.Config{Scenario: load.FanOut, Subscribers: 50, Durability: load.OnCommit})
	named(slowReader, session.DeliveredPerSec, "slow10of50-on_commit")
	all[len(all)-1].against = "fanout50-on_commit"
	named(slowReader, session.AckP50, "fanout40-500hz", "stalled10of50-500hz")
	// What is on its way to a subscriber that does not read is 128 of these records in its window and 512 in its queue: it is behind after 1.3 s.
	all[len(all)-2].settle, all[len(all)-1].settle = 2*time.Second, 2*time.Second
	all[len(all)-1].against, all[len(all)-1].pairs = "fanout40-500hz", minPairs

	for _, name := range []string{"fanout10-4KiB", "memory-4KiB-64", "memory-256B-64"} {
		figure := session.AckedPerSec
		if name == "fanout10-4KiB" {
			figure = session.DeliveredPerSec
		}
		named(jumboGroup, figure, name, name)
		stock, jumbo := &all[len(all)-2], &all[len(all)-1]
		stock.Name, jumbo.Name = name+"-stock", name+"-jumbo"
		stock.apart, jumbo.apart, jumbo.jumbo = true, true, true
		jumbo.against = stock.Name
	}
	return all
}

// turns says which cells run together: one by itself, or two in turn, at the place of the second, when both are there.
func turns(cells []cell) (all [][]cell) {
	for _, c := range cells {
		if slices.ContainsFunc(cells, func(o cell) bool { return o.against == c.Name }) {
			continue
		}
		turn := []cell{c}
		if i := slices.IndexFunc(cells, func(o cell) bool { return o.Name == c.against }); i >= 0 {
			turn = []cell{cells[i], c}
		}
		all = append(all, turn)
	}
	return all
}

func sizeName(size int) string {
	switch {
	case size == load.NoPayload:
		return "0B"
	case size%1024 == 0:
		return fmt.Sprintf("%dKiB", size/1024)
	}
	return fmt.Sprintf("%dB", size)
}
