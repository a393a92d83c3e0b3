package felix

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"felix/client"
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

// Receive windows have room to grow under every budget that a broker takes.
func TestSmallestBudgetLeavesRoomForWindows(t *testing.T) {
	b := mustStart(t, Config{MemoryBudget: minMemoryBudget})
	ctx := testContext(t)
	if err := b.CreateStream(ctx, StreamConfig{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b)
	p, err := c.Publisher("orders")
	if err != nil {
		t.Fatal(err)
	}
	record := make([]byte, 64<<10)
	const first = 32 << 10 // of a connection; the client has one to each core
	for m := b.Stats().Memory; m.Windows <= 8*first; m = b.Stats().Memory {
		if m.GrowthRefused > 0 {
			t.Fatalf("a window may not grow: %+v", m)
		}
		var round []*client.Future
		for range 64 {
			round = append(round, p.PublishAsync(ctx, record))
		}
		for _, f := range round {
			if _, err := f.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct{ budget, connection, want int64 }{
		{128 << 20, 0, 32 << 20}, {256 << 20, 0, 64 << 20}, {1 << 40, 0, 64 << 20}, {128 << 20, 48 << 20, 48 << 20},
	} {
		if got := defaultIngressBytes(c.budget, c.connection); got != c.want {
			t.Errorf("%s, %s a connection: %s for publishes, want %s", formatSize(c.budget), formatSize(c.connection), formatSize(got), formatSize(c.want))
		}
	}
}
