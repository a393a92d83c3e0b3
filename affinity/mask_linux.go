package affinity

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxCPUs bounds the CPU numbers a mask can hold. The kernel is built for at most 8,192.
const maxCPUs = 65536

// start is the mask of the thread that starts the process. It is read before any code of ours could have
// pinned a thread, and only read afterwards.
var start = currentMask()

type mask struct {
	cpus []int // ascending
	err  error
}

// currentMask reads the calling thread's mask.
func currentMask() mask {
	// The kernel refuses a set smaller than its own mask with EINVAL, so the size doubles until it fits.
	for n := 1024; n <= maxCPUs; n *= 2 {
		set := unix.NewCPUSet(n)
		err := unix.SchedGetaffinityDynamic(0, set)
		if errors.Is(err, unix.EINVAL) && n < maxCPUs {
			continue
		}
		if err != nil {
			return mask{err: err}
		}
		var m mask
		for cpu := range n {
			if set.IsSet(cpu) {
				m.cpus = append(m.cpus, cpu)
			}
		}
		return m
	}
	panic("BUG: affinity: the loop over mask sizes ended without an answer")
}

// setThread gives the calling thread the mask cpus, which is ascending and not empty.
func setThread(cpus []int) error {
	set := unix.NewCPUSet(cpus[len(cpus)-1] + 1)
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinityDynamic(0, set)
}

// fallbackCPUs stands in when the mask could not be read (a sandbox without the call).
func fallbackCPUs() int { return runtime.NumCPU() }
