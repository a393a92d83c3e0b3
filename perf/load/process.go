package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"felix/perf/ceiling"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"felix"
)

// ProcessConfig is a broker to start as a process of its own, so that its CPU and memory can be told from the generator's.
type ProcessConfig struct {
	// Command is the program with its first arguments: felixd, or one that takes the same --listen, --admin, --data and --ready-file.
	Command []string
	// Args come behind those.
	Args []string
	// Env are entries NAME=VALUE besides the environment of this process, of which FELIX_ variables are left out.
	Env []string
	// DataDir is where the broker keeps its data. Empty means a temporary directory that Stop removes.
	DataDir string
}

// Bounds of a process.
const (
	readyTimeout = 60 * time.Second // a log of 20 GiB is read back in 10 s
	stopTimeout  = 40 * time.Second // of the drain, 25 s by default, and what follows; then it is killed
	maxStderr    = 64 << 10         // kept of what it says, from the end
)

// A Process is a broker in a process of its own. Its methods may be called from any goroutine.
type Process struct {
	felix.Ready
	cmd    *exec.Cmd
	dir    string // removed by Stop
	stderr tail
	ended  chan struct{} // closed when the process is gone
	err    error         // of the process; set before ended is closed
	stop   sync.Once
}

// StartProcess starts a broker on free ports of loopback and returns when clients can connect.
func StartProcess(ctx context.Context, c ProcessConfig) (*Process, error) {
	dir, err := os.MkdirTemp("", "felix-bench-")
	if err != nil {
		return nil, err
	}
	data := c.DataDir
	if data == "" {
		data = filepath.Join(dir, "data")
	}
	ready := filepath.Join(dir, "ready.json")
	args := append(append([]string{}, c.Command[1:]...), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", data, "--ready-file", ready)
	p := &Process{dir: dir, ended: make(chan struct{}), cmd: exec.Command(c.Command[0], append(args, c.Args...)...)}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FELIX_") {
			p.cmd.Env = append(p.cmd.Env, entry)
		}
	}
	// The note that felixd leaves for the felix command goes where no person's tools look.
	p.cmd.Env = append(append(p.cmd.Env, "HOME="+dir, "XDG_CONFIG_HOME="+dir), c.Env...)
	p.cmd.Stderr = &p.stderr
	// A process group of its own keeps Ctrl-C from it, so that the run can end first; it does not outlive this process.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.awaitReady(ctx, ready); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// awaitReady waits for the ready file, which is written whole.
func (p *Process) awaitReady(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the broker is not ready after %v", readyTimeout))
	defer cancel()
	for {
		content, err := os.ReadFile(file)
		if err == nil {
			return json.Unmarshal(content, &p.Ready)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the broker ended (%w) before it was ready: %s", p.err, p.stderr.String())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Felix is how to reach the broker.
func (p *Process) Felix() FelixConfig {
	return FelixConfig{Addr: p.Listen, Admin: p.Admin, CAFile: p.CAFile, Owners: max(len(p.Ports), 1)}
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop drains the broker, waits for its end and removes what was made for it. A broker that had ended by itself is an error, which says
// what the broker said.
func (p *Process) Stop() (err error) {
	p.stop.Do(func() {
		select {
		case <-p.ended:
			err = fmt.Errorf("the broker had ended by itself (%v): %s", p.err, p.stderr.String())
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(stopTimeout):
				err = fmt.Errorf("the broker did not end within %v of SIGTERM and was killed: %s", stopTimeout, p.stderr.String())
				p.Kill()
			}
		}
		err = errors.Join(err, os.RemoveAll(p.dir))
	})
	return err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if over := t.buf.Len() - maxStderr; over > 0 {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}

// CPU watches the broker for d and returns the CPUs it used meanwhile: 1 is one whole CPU. It ends early with the error of ctx.
func (p *Process) CPU(ctx context.Context, d time.Duration) (cores float64, err error) {
	before, err := ProcessUsage(p.PID)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := ceiling.Sleep(ctx, d); err != nil {
		return 0, err
	}
	took := time.Since(start)
	after, err := ProcessUsage(p.PID)
	return (after[CPUSeconds] - before[CPUSeconds]) / took.Seconds(), err
}
