package affinity

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Allowed returns the CPU numbers this process may use, in ascending order: the affinity mask it was
// started with. The slice belongs to the caller. It fails only where the system does not tell.
func Allowed() ([]int, error) {
	if start.err != nil {
		return nil, fmt.Errorf("affinity: read the CPU mask: %w", start.err)
	}
	return slices.Clone(start.cpus), nil
}

// Quota returns the CPU time the cgroups of this process grant, in CPUs (1.5 is one and a half), and
// whether there is such a limit. The strictest of the group and its ancestors counts. A system without
// cgroups, without /proc or without /sys has no limit. It reads a handful of small files: call it at start.
func Quota() (float64, bool) {
	return quota(os.DirFS("/"))
}

// CPUs returns the number of CPUs worth running on: the allowed ones or the quota rounded up, whichever
// is less, and at least 1.
func CPUs() int {
	n := len(start.cpus)
	if start.err != nil {
		n = fallbackCPUs()
	}
	q, limited := Quota()
	return limit(n, q, limited)
}

// limit combines a number of CPUs with a quota.
func limit(cpus int, quota float64, limited bool) int {
	if limited && quota < float64(cpus) {
		cpus = int(math.Ceil(quota))
	}
	return max(cpus, 1)
}

// Pin ties the calling OS thread to one CPU. The caller has called runtime.LockOSThread. A CPU outside
// the allowed set is refused with an error that names both and nothing is changed.
func Pin(cpu int) error {
	allowed, err := Allowed()
	if err != nil {
		return err
	}
	if !slices.Contains(allowed, cpu) {
		return fmt.Errorf("affinity: CPU %d is not among the CPUs this process may use (%s): choose one of these, or start the process with a wider mask (taskset, cpuset)", cpu, ranges(allowed))
	}
	if err := setThread([]int{cpu}); err != nil {
		return fmt.Errorf("affinity: pin the thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// Unpin gives the calling OS thread all CPUs of the allowed set again. A thread that was never pinned is
// left as it is.
func Unpin() error {
	allowed, err := Allowed()
	if err != nil {
		return err
	}
	if err := setThread(allowed); err != nil {
		return fmt.Errorf("affinity: return the thread to CPUs %s: %w", ranges(allowed), err)
	}
	return nil
}

// ranges writes ascending CPU numbers the way the kernel and taskset do: "0-3,8".
func ranges(cpus []int) string {
	if len(cpus) == 0 {
		return "none"
	}
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}
