package affinity

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// restartedEnv marks a process that RestartWithTimerSlack has started, so that it does so once wherever the slack is not kept.
const restartedEnv = "FELIXD_RESTARTED"

// RestartWithTimerSlack gives every thread of this process the timer slack d: by how much the kernel may let a short sleep of a thread
// last longer (50 us unless somebody said otherwise). Threads inherit the slack of the one that starts them, and the Go runtime has
// threads of its own before main, so the process replaces itself with the same program, arguments, environment and process ID. Call it
// before anything is open or running. It returns nil, in the second life, where the slack was d before and where d is 0, which leaves it as
// it is; and an error when the slack could not be had: then the process goes on as it is.
func RestartWithTimerSlack(d time.Duration) error {
	if d == 0 {
		return nil
	}
	runtime.LockOSThread() // the slack that the new program starts with is that of the thread which asks for it
	defer runtime.UnlockOSThread()
	restarted := os.Getenv(restartedEnv) != ""
	if err := os.Unsetenv(restartedEnv); err != nil {
		return fmt.Errorf("affinity: timer slack of %v: %w", d, err)
	}
	slack, err := timerSlack()
	if err == nil && slack == d {
		return nil
	}
	if restarted {
		return fmt.Errorf("affinity: timer slack of %v: this system does not keep it over a restart", d)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0); err != nil {
		return fmt.Errorf("affinity: timer slack of %v: %w", d, err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("affinity: timer slack of %v: restart: %w", d, err)
	}
	err = unix.Exec(program, os.Args, append(os.Environ(), restartedEnv+"=1"))
	return fmt.Errorf("affinity: timer slack of %v: restart %s: %w", d, program, err)
}

// timerSlack is that of the calling thread.
func timerSlack() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}
