package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that should happen soon. It is generous: the machine may be busy with other tests.
const patience = 90 * time.Second

// await waits for a channel, or for the end of the process that should fill it: then ok is false.
func await[T any](t *testing.T, ch <-chan T, ended <-chan struct{}, what string) (v T, ok bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-ch:
		return v, true
	case <-ended:
		return v, false
	case <-timer.C:
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// within waits for a channel.
func within[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	v, _ := await(t, ch, nil, what)
	return v
}

// The two surfaces of the published client.
const (
	synchronous  = "sync"
	asynchronous = "async"
)

// eachSurface runs a story over both surfaces, side by side.
func eachSurface(t *testing.T, story func(t *testing.T, surface string)) {
	needClient(t)
	for _, surface := range []string{synchronous, asynchronous} {
		t.Run(surface, func(t *testing.T) {
			t.Parallel()
			story(t, surface)
		})
	}
}

// A command is one line to the driver, without its id: "do" and the arguments of that method in scripts/driver.py.
type command map[string]any

// An answer is one line from the driver. Which fields are set depends on the command.
type answer struct {
	ID        int               `json:"id"`
	Error     *failure          `json:"error"`
	Offsets   []*uint64         `json:"offsets"` // nil where the client returned None
	Shards    int               `json:"shards"`
	Events    []event           `json:"events"`
	Closed    *bool             `json:"closed"`
	Positions map[string]uint64 `json:"positions"`
	Endpoints []string          `json:"endpoints"`
}

// An event is what a subscription of the published client gave: a record, or news of a shard.
type event struct {
	Kind    string    `json:"kind"` // "record", or the client's type: ShardLost, StreamDeleted, ...
	Shard   uint32    `json:"shard"`
	Offset  *uint64   `json:"offset"`
	Skipped uint64    `json:"skipped"`
	Scope   [3]string `json:"scope"`
	Payload []byte    `json:"payload"`
	Text    string    `json:"text"`
}

// A failure is an exception that the published client raised.
type failure struct {
	Type  string `json:"type"`
	Felix bool   `json:"felix"` // it is one of the client's own
	Code  any    `json:"code"`
	Retry any    `json:"retry"`
	Text  string `json:"text"`
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s (code %v, retry %v)", f.Type, f.Text, f.Code, f.Retry)
}

// A driver is a Python process that carries out commands. Its methods belong to the test's goroutine.
type driver struct {
	t               *testing.T
	stdin           io.WriteCloser
	stderr          output
	version, module string
	process         *os.Process
	ended           chan struct{} // closed when the process is gone
	err             error         // of the process; set before ended is closed

	connected bool
	last      int // id of the last command

	mu      sync.Mutex
	waiting map[int]chan answer // by id; buffered for the one answer
}

// startDriver starts a driver and ends it with the test. It must then end with code 0.
func startDriver(t *testing.T, surface string) *driver {
	t.Helper()
	d := &driver{t: t, ended: make(chan struct{}), waiting: map[int]chan answer{}}
	cmd, stdout := pythonCommand(t, &d.stderr, "driver.py", surface)
	var err error
	if d.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.process = cmd.Process
	hello := make(chan error, 1)
	go func() {
		defer close(d.ended)
		lines := bufio.NewReader(stdout)
		hello <- decodeLine(lines, &struct {
			Version, Module *string
		}{&d.version, &d.module})
		readErr := d.read(lines)
		if readErr != nil {
			cmd.Process.Kill() // nobody reads it any more, and whoever waits for an answer should not have to give up first
		}
		d.err = errors.Join(readErr, cmd.Wait())
	}()
	t.Cleanup(d.end)
	if err := within(t, hello, "the driver to start"); err != nil {
		t.Fatalf("driver: %v\n%s", err, d.stderr.String())
	}
	return d
}

// end ends the driver's client and the driver, which must have nothing to complain about. Once more does nothing.
func (d *driver) end() {
	d.t.Helper()
	if d.connected && !d.t.Failed() {
		d.connected = false
		d.do("disconnect", nil)
	}
	d.stdin.Close()
	within(d.t, d.ended, "the driver to end")
	if d.err != nil {
		d.t.Errorf("driver: %v\n%s", d.err, d.stderr.String())
	}
}

// pythonCommand is a script in the virtual environment, not started. It is killed when it lives much longer than a test may wait.
func pythonCommand(t *testing.T, stderr io.Writer, script string, args ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	cmd := exec.CommandContext(ctx, tools.python, append([]string{filepath.Join(tools.scripts, script)}, args...)...)
	cmd.Env = append(cleanEnviron(os.Environ()), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel) // runs after those that wait for the process
	return cmd, stdout
}

// decodeLine reads a line of JSON. The error has the end of a line that is none, since that may be what somebody else printed.
func decodeLine(lines *bufio.Reader, v any) error {
	line, err := lines.ReadBytes('\n')
	if err == io.EOF && len(line) > 0 {
		return io.ErrUnexpectedEOF // the driver ends its lines
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("a line of %d bytes that ends with %q: %w", len(line), line[max(len(line)-500, 0):], err)
	}
	return nil
}

// read hands answers to whoever waits for them, until the driver has ended.
func (d *driver) read(lines *bufio.Reader) error {
	for {
		var a answer
		if err := decodeLine(lines, &a); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		d.mu.Lock()
		waiting := d.waiting[a.ID]
		delete(d.waiting, a.ID)
		d.mu.Unlock()
		if waiting == nil {
			return fmt.Errorf("an answer to %d, which is not open", a.ID)
		}
		waiting <- a
	}
}

// start sends a command and returns where its answer will be. Commands run side by side.
func (d *driver) start(do string, c command) <-chan answer {
	d.t.Helper()
	d.last++
	line := command{"id": d.last, "do": do}
	for name, value := range c {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		d.t.Fatal(err)
	}
	waiting := make(chan answer, 1)
	d.mu.Lock()
	d.waiting[d.last] = waiting
	d.mu.Unlock()
	if _, err := d.stdin.Write(append(text, '\n')); err != nil {
		d.t.Fatalf("driver: %v\n%s", err, d.stderr.String())
	}
	return waiting
}

// finish waits for the answer to a command.
func (d *driver) finish(waiting <-chan answer, what string) answer {
	d.t.Helper()
	a, ok := await(d.t, waiting, d.ended, "the answer to "+what)
	if !ok {
		d.t.Fatalf("driver ended during %s: %v\n%s", what, d.err, d.stderr.String())
	}
	return a
}

// do carries a command out; it must succeed.
func (d *driver) do(do string, c command) answer {
	d.t.Helper()
	a := d.finish(d.start(do, c), do)
	if a.Error != nil {
		d.t.Fatalf("%s: %v", do, a.Error)
	}
	return a
}

// fails carries a command out; it must fail, with an exception of the client's own of that type.
func (d *driver) fails(want, do string, c command) *failure {
	d.t.Helper()
	a := d.finish(d.start(do, c), do)
	if a.Error == nil {
		d.t.Fatalf("%s succeeded, want %s", do, want)
	}
	if a.Error.Type != want || !a.Error.Felix {
		d.t.Fatalf("%s raised %v, want %s", do, a.Error, want)
	}
	return a.Error
}

// connect makes the driver's client, with addr as its only seed.
func (d *driver) connect(b *broker, addr string) *driver {
	d.t.Helper()
	d.do("connect", command{"addrs": addr, "tenant": tenant, "token": "", "ca": b.CAFile})
	d.connected = true
	return d
}

// startNext starts to read count events of a subscription.
func (d *driver) startNext(name string, count int) <-chan answer {
	d.t.Helper()
	return d.start("next", command{"name": name, "count": count, "timeout": patience.Seconds() / 2})
}

// finishNext returns what startNext has read.
func (d *driver) finishNext(reading <-chan answer, name string, count int) []event {
	d.t.Helper()
	a := d.finish(reading, "next")
	if a.Error != nil {
		d.t.Fatalf("next of subscription %s: %v", name, a.Error)
	}
	if len(a.Events) != count {
		d.t.Fatalf("subscription %s gave %d events and then none, want %d (closed: %s)", name, len(a.Events), count, show(a.Closed))
	}
	return a.Events
}

// next returns count events of a subscription.
func (d *driver) next(name string, count int) []event {
	d.t.Helper()
	return d.finishNext(d.startNext(name, count), name, count)
}

func show[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

// output keeps the end of what a process printed, for failures.
type output struct {
	mu   sync.Mutex
	text []byte
}

// outputBytes bounds what output keeps; older text goes first.
const outputBytes = 64 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if over := len(o.text) - outputBytes; over > 0 {
		o.text = bytes.Clone(o.text[over:])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
