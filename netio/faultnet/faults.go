package faultnet

import (
	"errors"
	"fmt"
	"time"
)

// A Direction is one way through the proxy.
type Direction uint8

const (
	Up   Direction = iota // from clients to the broker
	Down                  // from the broker to clients
)

func (d Direction) String() string {
	switch d {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return fmt.Sprintf("Direction(%d)", uint8(d))
}

// Faults are what happens to the datagrams of one direction. The zero value lets everything pass. Loss, Duplicate, Reorder and Corrupt are
// probabilities, 0..1, drawn for each datagram independently.
type Faults struct {
	// Loss makes a datagram vanish.
	Loss float64
	// Duplicate sends a datagram twice.
	Duplicate float64
	// Reorder sets a datagram aside until 1 to 5 later ones of its client and direction have passed, or 20 ms.
	Reorder float64
	// Corrupt flips one or three bits of a datagram. Its UDP checksum is right again, so that the receiver sees it.
	Corrupt float64
	// MaxBytes is the largest UDP payload that passes, as on a path with an MTU of 28 bytes more under IPv4. Zero means no cap.
	MaxBytes int
	// Delay is what each datagram waits, without changing their order. When it shrinks, the ones that wait still go first. Zero means none.
	Delay time.Duration
}

// Validate reports every field that is out of bounds.
func (f Faults) Validate() error {
	var problems []error
	for _, p := range []struct {
		name  string
		value float64
	}{{"Loss", f.Loss}, {"Duplicate", f.Duplicate}, {"Reorder", f.Reorder}, {"Corrupt", f.Corrupt}} {
		if !(p.value >= 0 && p.value <= 1) { // not a number fails too
			problems = append(problems, fmt.Errorf("faultnet: %s is %v; give a probability from 0 to 1", p.name, p.value))
		}
	}
	if f.MaxBytes < 0 {
		problems = append(problems, fmt.Errorf("faultnet: MaxBytes is %d; give 0 for no cap, or a number of bytes", f.MaxBytes))
	}
	if f.Delay < 0 {
		problems = append(problems, fmt.Errorf("faultnet: Delay is %v; give 0 or more", f.Delay))
	}
	return errors.Join(problems...)
}
