package felix

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultMemoryShare is the part of the available memory that a broker plans with when it is told nothing.
const defaultMemoryShare = 25 // percent

// minMemoryBudget is the least a broker can work with: half for frames, a quarter for publishes, and an eighth each for receive windows
// and in reserve.
const minMemoryBudget = 128 << 20

// defaultIngressBytes is what publishes may hold where that is not configured: 64 MiB, and of a small budget a quarter, so that receive
// windows have room to grow. One connection must be able to hold what it may.
func defaultIngressBytes(budget, connectionBytes int64) int64 {
	return min(64<<20, max(budget/4, connectionBytes))
}

// availableMemory is what this process may use: the memory of the machine or the limit of its cgroup, whichever is
// less. Zero means that neither could be read.
func availableMemory() int64 {
	available := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		available = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // missing outside Linux and in some sandboxes
	available = min(available, cgroupMemory("/sys/fs/cgroup", string(cgroups)))
	if available == math.MaxInt64 {
		return 0
	}
	return available
}

// cgroupMemory returns the smallest memory limit of the cgroup named by the content of /proc/self/cgroup and of
// the cgroups above it, under root, MaxInt64 without one. Version 2 keeps the limit in memory.max, version 1
// in memory/.../memory.limit_in_bytes, where a number near 2^63 means none.
func cgroupMemory(root, cgroups string) int64 {
	limit := int64(math.MaxInt64)
	look := func(root, group, file string) {
		for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
			if content, err := os.ReadFile(filepath.Join(root, dir, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil && n > 0 {
					limit = min(limit, n)
				}
			}
			if dir == "/" {
				return
			}
		}
	}
	for line := range strings.Lines(cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			look(root, fields[2], "memory.max")
		case strings.Contains(","+fields[1]+",", ",memory,"):
			look(filepath.Join(root, "memory"), fields[2], "memory.limit_in_bytes")
		}
	}
	const none = 1 << 62 // version 1 writes 2^63 rounded down to a page
	if limit >= none {
		return math.MaxInt64
	}
	return limit
}
