package wal

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spareLook is how long an answer of spareProcessor stands: a look costs a microsecond, and a lane that waits the wrong way for so long
// costs little.
const spareLook = 10 * time.Millisecond

// spareProcessor says whether the process leaves one of the runtime's processors unused, so that a goroutine may keep one while it waits in a
// system call. One goroutine uses it.
type spareProcessor struct {
	cpu  func() time.Duration // time that the process has used on all CPUs
	at   time.Time            // of the last look
	used time.Duration        // by then
	is   bool
}

// look returns the answer over the time since the last look, which is at least spareLook ago. Before the second look there is none to spare.
func (s *spareProcessor) look(now time.Time) bool {
	elapsed := now.Sub(s.at)
	if elapsed >= 0 && elapsed < spareLook {
		return s.is
	}
	used := s.cpu()
	s.is = !s.at.IsZero() && used-s.used < time.Duration(runtime.GOMAXPROCS(0)-1)*elapsed
	s.at, s.used = now, used
	return s.is
}

// processTime is the CPU time of this process, in user and kernel.
func processTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic("BUG: wal: getrusage of this process: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
