package affinity

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// onThread runs f on an OS thread of its own, which ends with it, so that a failed test leaves no pinned
// thread behind.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		f()
	}()
	<-done
}

func TestPinAndUnpin(t *testing.T) {
	allowed, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	onThread(func() {
		for _, cpu := range allowed {
			if err := Pin(cpu); err != nil {
				t.Error(err)
				return
			}
			if m := currentMask(); m.err != nil || !slices.Equal(m.cpus, []int{cpu}) {
				t.Errorf("pinned to %d: the thread's mask is %v, %v", cpu, m.cpus, m.err)
			}
			if again, _ := Allowed(); !slices.Equal(again, allowed) {
				t.Errorf("on a pinned thread Allowed() = %v, want %v", again, allowed)
			}
		}
		if err := Unpin(); err != nil {
			t.Error(err)
		}
		if m := currentMask(); !slices.Equal(m.cpus, allowed) {
			t.Errorf("after Unpin the thread's mask is %v, want %v", m.cpus, allowed)
		}
	})
	onThread(func() {
		if m := currentMask(); !slices.Equal(m.cpus, allowed) {
			t.Errorf("another thread's mask is %v, want %v", m.cpus, allowed)
		}
	})
}

func TestPinOutsideTheAllowedSet(t *testing.T) {
	onThread(func() {
		before := currentMask()
		for _, cpu := range []int{-1, 1 << 20} {
			err := Pin(cpu)
			if err == nil {
				t.Errorf("Pin(%d) succeeded", cpu)
				continue
			}
			for _, want := range []string{"CPU " + map[int]string{-1: "-1", 1 << 20: "1048576"}[cpu], "(" + ranges(before.cpus) + ")", "taskset"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Pin(%d): %q lacks %q", cpu, err, want)
				}
			}
		}
		if m := currentMask(); !slices.Equal(m.cpus, before.cpus) {
			t.Errorf("a refused Pin changed the mask from %v to %v", before.cpus, m.cpus)
		}
	})
}
