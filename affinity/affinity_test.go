package affinity

import (
	"math"
	"slices"
	"testing"
)

func TestAllowedBelongsToTheCaller(t *testing.T) {
	a, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	if len(a) == 0 || !slices.IsSorted(a) {
		t.Fatalf("allowed CPUs %v: want at least one, ascending", a)
	}
	a[0] = -1
	b, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	if b[0] == -1 {
		t.Error("a caller's change of the slice is seen by the next caller")
	}
}

func TestCPUsIsWithinAllowed(t *testing.T) {
	a, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	n := CPUs()
	if n < 1 || n > len(a) {
		t.Errorf("CPUs() = %d with %d allowed", n, len(a))
	}
	if q, ok := Quota(); ok && float64(n) > math.Ceil(q) {
		t.Errorf("CPUs() = %d with a quota of %v", n, q)
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		cpus    int
		quota   float64
		limited bool
		want    int
	}{
		{8, 0, false, 8},
		{8, 2, true, 2},
		{8, 1.5, true, 2},
		{8, 0.1, true, 1},
		{2, 7.5, true, 2},
		{1, 1, true, 1},
		{0, 0, false, 1},
		{4, 1e300, true, 4},
	} {
		if got := limit(c.cpus, c.quota, c.limited); got != c.want {
			t.Errorf("limit(%d, %v, %v) = %d, want %d", c.cpus, c.quota, c.limited, got, c.want)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, cpus := range map[string][]int{
		"none":      nil,
		"0":         {0},
		"0-1":       {0, 1},
		"0,2":       {0, 2},
		"0-3,8":     {0, 1, 2, 3, 8},
		"1,3-5,7-8": {1, 3, 4, 5, 7, 8},
	} {
		if got := ranges(cpus); got != want {
			t.Errorf("ranges(%v) = %q, want %q", cpus, got, want)
		}
	}
}
