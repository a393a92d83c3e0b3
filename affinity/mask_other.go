//go:build !linux

package affinity

import (
	"errors"
	"fmt"
	"runtime"
)

// start numbers the CPUs the runtime found: these systems tell no mask.
var start = func() mask {
	var m mask
	for cpu := range runtime.NumCPU() {
		m.cpus = append(m.cpus, cpu)
	}
	return m
}()

type mask struct {
	cpus []int // ascending
	err  error
}

func setThread([]int) error {
	return fmt.Errorf("threads cannot be pinned on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func fallbackCPUs() int { return runtime.NumCPU() }
