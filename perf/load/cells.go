package load

import (
	"fmt"
	"slices"
)

// A Cell is a named load: what tables, profiles and comparisons are made of.
type Cell struct {
	Name      string
	Generator string // "client" or "lean"
	Config    Config // without Target and times
}

// Generators.
const (
	GeneratorClient = "client"
	GeneratorLean   = "lean"
)

// Cells returns every cell, in the order of tables. Those of one shape are beside each other.
func Cells() []Cell {
	var cells []Cell
	add := func(name, generator string, c Config) { cells = append(cells, Cell{name, generator, c}) }
	for _, promise := range []struct {
		name       string
		durability Durability
		acks       Acks
	}{
		{"memory", Memory, AcksBatch}, {"unacked", Memory, AcksNone}, {"periodic", Periodic, AcksBatch}, {"on_commit", OnCommit, AcksBatch},
	} {
		for _, shape := range []struct {
			name        string
			size, batch int
		}{{"256B-1", 256, 1}, {"256B-64", 256, 64}, {"4KiB-64", 4096, 64}} {
			c := Config{Scenario: Pub, Size: shape.size, Batch: shape.batch, Acks: promise.acks, Durability: promise.durability}
			add(promise.name+"-"+shape.name, GeneratorClient, c)
			if promise.name == "memory" {
				c.Publishers, c.InFlight = 32, 128 // two streams to each core of a small machine, each with half of what the broker grants
				add("lean-"+shape.name, GeneratorLean, c)
			}
		}
	}
	lone := Config{Scenario: Pub, Publishers: 1, Acks: AcksEach}
	add("lone-memory", GeneratorClient, lone)
	lone.Durability = OnCommit
	add("lone-on_commit", GeneratorClient, lone)
	add("waiting-on_commit-1KiB", GeneratorClient, Config{Scenario: Pub, Size: 1024, InFlight: 1, Durability: OnCommit})
	for _, n := range []int{1, 10, 50} {
		for _, shape := range []struct {
			name string
			size int
		}{{"256B", 256}, {"1KiB", 1024}, {"4KiB", 4096}} {
			if n != 10 && shape.size != 256 {
				continue
			}
			add(fmt.Sprintf("fanout%d-%s", n, shape.name), GeneratorClient, Config{Scenario: FanOut, Subscribers: n, Size: shape.size})
		}
	}
	// Many subscribers at a rate that leaves a machine of two CPUs most of its time: a closed loop has more to deliver than it can, and
	// the stream then waits for its readers longer than its rule allows. One subscriber at the same rate is what they are compared with.
	for _, n := range []int{1, 500} {
		add(fmt.Sprintf("fanout%d-paced", n), GeneratorClient, Config{Scenario: FanOut, Subscribers: n, Batch: 1, Rate: 100})
	}
	// The same 40 that read, at 500 records per second, alone and beside 10 that do not. The stream is durable, so that those 10 are left
	// to read the log later, and not synced, so that the disk has no part in the figures.
	at500 := Config{Scenario: FanOut, Subscribers: 40, Size: 4096, Batch: 1, Rate: 500, Durability: NoSync}
	add("fanout40-500hz", GeneratorClient, at500)
	at500.Subscribers, at500.Slow = 50, 10
	add("stalled10of50-500hz", GeneratorClient, at500)
	add("slow10of50-on_commit", GeneratorClient, Config{Scenario: FanOut, Subscribers: 50, Slow: 10, Durability: OnCommit})
	add("e2e-10k-memory", GeneratorClient, Config{Scenario: E2E, Rate: 10_000})
	add("e2e-10k-on_commit", GeneratorClient, Config{Scenario: E2E, Rate: 10_000, Durability: OnCommit})
	return cells
}

// FindCell returns the cell of a name.
func FindCell(name string) (Cell, error) {
	cells := Cells()
	i := slices.IndexFunc(cells, func(c Cell) bool { return c.Name == name })
	if i < 0 {
		return Cell{}, fmt.Errorf("there is no cell %q; -list names them", name)
	}
	return cells[i], nil
}

// NewTarget makes the target of the cell's generator for a felix broker.
func (c Cell) NewTarget(f FelixConfig) (Target, error) { return NewTarget(c.Generator, f) }

// NewTarget makes the target of a generator, GeneratorLean or otherwise GeneratorClient, for a felix broker. It connects to nothing yet.
func NewTarget(generator string, f FelixConfig) (Target, error) {
	if generator == GeneratorLean {
		return NewLeanTarget(f)
	}
	return NewClientTarget(f)
}
