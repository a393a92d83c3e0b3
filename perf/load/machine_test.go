package load

import (
	"os"
	"testing"
)

func TestProcessUsage(t *testing.T) {
	c, err := processUsage("123 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 4200 20 77 22 23")
	if err != nil || c[CPUSeconds] != 3 || c[StartTime] != 42 || c[RSSBytes] != 77*float64(os.Getpagesize()) {
		t.Errorf("%v %v", c, err)
	}
	for _, bad := range []string{"", "1 (a) S 1 2", "123 (a) S 1 2 3 4 5 6 7 8 9 10 x 50 13 14 15 16 17 18 4200 20 77 22 23"} {
		if c, err := processUsage(bad); err == nil {
			t.Errorf("%q: %v", bad, c)
		}
	}
	first, err := ProcessUsage(os.Getpid())
	if err != nil || first[RSSBytes] < 1<<20 || first[StartTime] <= 0 {
		t.Errorf("%v %v", first, err)
	}
	if _, err := ProcessUsage(1 << 30); err == nil {
		t.Error("a process that is not there has used something")
	}
	// What getrusage says is as much, but for the ticks.
	if used := processCPU().Seconds(); used < first[CPUSeconds]-0.05 {
		t.Errorf("%v s by getrusage, %v by /proc before", used, first[CPUSeconds])
	}
	if m := ThisMachine(); m.CPUs < 1 || m.Kernel == "" || m.MemoryMB < 1 || m.Time == "" {
		t.Errorf("%+v", m)
	}
}
