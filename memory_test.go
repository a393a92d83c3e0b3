package felix

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCgroupMemory(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("system/memory.max", "1073741824\n")
	write("system/felix/memory.max", "max\n")
	write("small/memory.max", "268435456\n")
	write("memory/docker/memory.limit_in_bytes", "536870912\n")
	write("memory/free/memory.limit_in_bytes", "9223372036854771712\n")
	tests := []struct {
		name, cgroups string
		want          int64
	}{
		{"none", "", math.MaxInt64},
		{"version 2, limit above", "0::/system/felix\n", 1 << 30},
		{"version 2", "0::/small\n", 256 << 20},
		{"version 2 without limit", "0::/elsewhere\n", math.MaxInt64},
		{"version 2 outside the root", "0::/../../small\n", 256 << 20},
		{"version 1", "4:cpu,cpuacct:/docker\n3:memory:/docker\n", 512 << 20},
		{"version 1 without limit", "3:memory:/free\n", math.MaxInt64},
		{"nonsense", "x\n::\n3:memoryish:/docker\n", math.MaxInt64},
	}
	for _, test := range tests {
		if got := cgroupMemory(root, test.cgroups); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestMemoryBudget(t *testing.T) {
	if got, err := memoryBudget(0, 0); err != nil || got < minMemoryBudget {
		t.Errorf("default: %d, %v", got, err)
	}
	if got, err := memoryBudget(1<<30, 64<<20); err != nil || got != 1<<30 {
		t.Errorf("1 GiB: %d, %v", got, err)
	}
	_, err := memoryBudget(128<<20, 65<<20)
	if err == nil || !strings.Contains(err.Error(), "publish_inflight_bytes is 65 MiB, more than half of the memory budget of 128 MiB") {
		t.Errorf("more in flight than fits: %v", err)
	}
}
