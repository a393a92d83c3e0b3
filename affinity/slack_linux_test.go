package affinity

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// slackHelper makes this program the subject of TestRestartWithTimerSlack.
const slackHelper = "slack-helper"

// TestMain lets the test binary restart itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == slackHelper {
		d, err := time.ParseDuration(os.Args[2])
		if err == nil {
			err = RestartWithTimerSlack(d)
		}
		fmt.Println("error:", err)
		printSlacks()
		return
	}
	os.Exit(m.Run())
}

// printSlacks prints the slack of several threads at once, and of the process what a restart must not change.
func printSlacks() {
	const threads = 8
	all, release := make(chan time.Duration), make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread()
			d, err := timerSlack()
			if err != nil {
				d = -1
			}
			all <- d
			<-release // so that each has a thread of its own
		}()
	}
	for range threads {
		fmt.Println("slack:", <-all)
	}
	close(release)
	fmt.Println("pid:", os.Getpid(), "mark:", os.Getenv(restartedEnv))
}

// Every thread has the slack, also one that the runtime started before main, in the same process. Nobody else sees the mark.
func TestRestartWithTimerSlack(t *testing.T) {
	run := func(d time.Duration, env ...string) string {
		cmd := exec.Command(os.Args[0], slackHelper, d.String())
		cmd.Env = append(os.Environ(), env...)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if want := fmt.Sprintf("pid: %d mark: \n", cmd.Process.Pid); !strings.Contains(out.String(), want) {
			t.Errorf("it says\n%s, and not %q", &out, want)
		}
		return out.String()
	}
	for _, d := range []time.Duration{200 * time.Microsecond, 7 * time.Millisecond} {
		out := run(d)
		if !strings.Contains(out, "error: <nil>") || strings.Count(out, "slack: "+d.String()+"\n") != 8 {
			t.Errorf("with %v it says\n%s", d, out)
		}
	}
	if out := run(0); !strings.Contains(out, "error: <nil>") || strings.Contains(out, "slack: 0s") {
		t.Errorf("with 0 it says\n%s", out)
	}
	// Where a restart has not helped there is no second one.
	out := run(300*time.Microsecond, restartedEnv+"=1")
	if !strings.Contains(out, "this system does not keep it over a restart") || strings.Contains(out, "slack: 300") {
		t.Errorf("after a restart in vain it says\n%s", out)
	}
}
