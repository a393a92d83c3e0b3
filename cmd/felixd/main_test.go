package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix"
	"felix/client"
)

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// binary is felixd, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "felixd-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "felixd")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// output takes what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// daemon is a running felixd.
type daemon struct {
	felix.Ready
	t              *testing.T
	cmd            *exec.Cmd
	home, file     string
	stdout, stderr output
	ended          chan struct{} // closed when the process is gone
}

// environment is that of a process: ours without settings of felix, with a home of its own.
func environment(home string, extra ...string) []string {
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FELIX_") {
			environ = append(environ, entry)
		}
	}
	return append(append(environ, "HOME="+home, "XDG_CONFIG_HOME="+home), extra...)
}

// start runs felixd on free ports and waits until clients can connect. It is killed at the end of the test when it still runs.
func start(t *testing.T, extra []string, args ...string) *daemon {
	t.Helper()
	return startProgram(t, binary, extra, args...)
}

// startProgram is start for a program that becomes felixd.
func startProgram(t *testing.T, program string, extra []string, args ...string) *daemon {
	t.Helper()
	home := t.TempDir()
	d := &daemon{t: t, home: home, file: filepath.Join(home, "ready.json"), ended: make(chan struct{})}
	args = append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(home, "data"), "--ready-file", d.file}, args...)
	if os.Getenv("FELIX_TEST_PINNED") == "1" && !slices.Contains(args, "--core-shards") {
		args = append(args, "--core-shards", "2")
	}
	d.cmd = exec.Command(program, args...)
	d.cmd.Env = environment(home, extra...)
	d.cmd.Stderr = &d.stderr
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			fmt.Fprintln(&d.stdout, lines.Text())
			if strings.HasPrefix(lines.Text(), "  publish ") {
				close(ready) // the last line of the banner
			}
		}
		d.cmd.Wait()
	}()
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.ended
	})
	select {
	case <-ready:
	case <-d.ended:
		t.Fatalf("felixd ended: %s", d.stderr.String())
	case <-time.After(patience):
		t.Fatal("felixd is not ready")
	}
	content, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &d.Ready); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	return d
}

// end waits for the process and returns its exit code.
func (d *daemon) end() int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.t.Fatal("felixd does not end")
	}
	return d.cmd.ProcessState.ExitCode()
}

func (d *daemon) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// contexts are the notes of development brokers in the home of d.
func (d *daemon) contexts() []string {
	names, _ := filepath.Glob(filepath.Join(d.home, "felix", "contexts", "local-*.json"))
	return names
}

func (d *daemon) dial(ctx context.Context) *client.Client {
	d.t.Helper()
	c, err := client.Dial(ctx, d.Listen, client.WithCAFile(d.CAFile))
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func TestStartAndDrain(t *testing.T) {
	d := start(t, nil)
	if d.PID != d.cmd.Process.Pid || !strings.HasPrefix(d.Listen, "127.0.0.1:") || !strings.HasPrefix(d.Admin, "127.0.0.1:") || d.Ports == nil {
		t.Errorf("ready file %+v", d.Ready)
	}
	banner := d.stdout.String()
	if n := strings.Count(banner, "\n"); n > 12 {
		t.Errorf("the banner has %d lines", n)
	}
	for _, want := range []string{"felixd ", d.Listen, "http://" + d.Admin, "on_commit: an ack means on disk", filepath.Join(d.home, "data"), d.CAFile, "felix sub orders --from earliest\n", "felix pub orders hello\n"} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	note, err := os.ReadFile(filepath.Join(d.home, "felix", "contexts", fmt.Sprintf("local-%d.json", d.PID)))
	file, _ := os.ReadFile(d.file)
	if err != nil || !bytes.Equal(note, file) {
		t.Errorf("the context is %s, %v; the ready file %s", note, err, file)
	}
	response, err := http.Get("http://" + d.Admin + "/ready")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("/ready: %+v, %v", response, err)
	}
	response.Body.Close()
	http.DefaultClient.CloseIdleConnections()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := d.dial(ctx)
	if _, err := c.Publish(ctx, "orders", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	d.signal(syscall.SIGTERM)
	if code := d.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
	if left := d.contexts(); len(left) != 0 {
		t.Errorf("contexts left: %v", left)
	}
	// Standard error is no terminal here, so every line is JSON.
	for line := range strings.Lines(d.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line %q is no JSON", line)
		}
	}
}

// TestDrainKeepsWhatWasAccepted sends SIGTERM under load. What was acknowledged was appended, in order and without holes, and
// the process ends by itself with 0.
func TestDrainKeepsWhatWasAccepted(t *testing.T) {
	d := start(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := d.dial(ctx)
	defer c.Close()
	p, err := c.Publisher("orders")
	if err != nil {
		t.Fatal(err)
	}
	// The client would look for the broker again long after it is gone.
	go func() {
		<-d.ended
		cancel()
	}()
	var futures []*client.Future
	for i := 0; ctx.Err() == nil; i++ {
		futures = append(futures, p.PublishAsync(ctx, fmt.Appendf(nil, "%d", i)))
		if i == 1000 {
			if _, err := futures[0].Wait(ctx); err != nil {
				t.Fatal(err)
			}
			d.signal(syscall.SIGTERM)
		}
	}
	next := client.Offset(0)
	for i, f := range futures {
		select {
		case <-f.Done():
		default:
			continue // never answered
		}
		ack, err := f.Wait(context.Background())
		if err != nil {
			continue
		}
		if ack.Offset != next {
			t.Errorf("record %d is at %d, want %d", i, ack.Offset, next)
		}
		next++
	}
	if next == 0 {
		t.Error("nothing was acknowledged")
	}
	if code := d.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
}

// TestSecondSignal drains a broker whose client does not let go, and signals again.
func TestSecondSignal(t *testing.T) {
	ended := make(chan int, 1)
	signals := make(chan os.Signal, 2)
	exited := make(chan int, 1)
	var stdout, stderr output
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	p := process{
		args:    []string{"--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(home, "data")},
		environ: []string{}, stdout: &stdout, stderr: &stderr, signals: signals,
		exit:    func(code int) { exited <- code },
		restart: func(time.Duration) error { return errors.New("not in a test") },
	}
	// Both signals are there before the drain can be over.
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	go func() { ended <- run(p) }()
	select {
	case code := <-exited:
		if code != exitFailure || !strings.Contains(stderr.String(), "ended by a second signal") {
			t.Errorf("exit code %d\n%s", code, stderr.String())
		}
	case code := <-ended:
		if code != exitOK { // the drain was faster than the second signal
			t.Errorf("exit code %d\n%s", code, stderr.String())
		}
		ended <- code
	case <-time.After(patience):
		t.Fatal("neither signal ends felixd")
	}
	<-ended
	if left, _ := filepath.Glob(filepath.Join(home, "felix", "contexts", "*")); len(left) != 0 {
		t.Errorf("contexts left: %v", left)
	}
}

func TestWithoutHome(t *testing.T) {
	d := start(t, []string{"HOME=", "XDG_CONFIG_HOME="})
	d.signal(os.Interrupt)
	if code := d.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
	if log := d.stderr.String(); !strings.Contains(log, "will not find this broker by itself") {
		t.Errorf("the log does not warn: %s", log)
	}
	if banner := d.stdout.String(); !strings.Contains(banner, "felix pub orders hello --server "+d.Listen+" --ca "+d.CAFile+"\n") {
		t.Errorf("the lines to paste do not name the broker:\n%s", banner)
	}
}

// TestKilled ends felixd without warning: what was acknowledged is there when it starts again on its directory.
func TestKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	data := filepath.Join(t.TempDir(), "data")
	next := client.Offset(0)
	for range 3 {
		d := start(t, nil, "--data", data)
		c := d.dial(ctx)
		for i := range client.Offset(50) {
			ack, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "record %d", next))
			if err != nil || ack.Offset != next {
				t.Fatalf("record %d: %+v, %v", i, ack, err)
			}
			next++
		}
		for from := client.Offset(0); from < next; {
			page, err := c.ReadPage(ctx, "orders", 0, from, client.ReadOptions{})
			if err != nil || len(page.Records) == 0 {
				t.Fatalf("at %d of %d: %+v, %v", from, next, page, err)
			}
			for _, r := range page.Records {
				if r.Offset != from || string(r.Data) != fmt.Sprintf("record %d", from) {
					t.Fatalf("%q at %d, want record %d", r.Data, r.Offset, from)
				}
				from++
			}
		}
		c.Close()
		d.signal(syscall.SIGKILL)
		d.end()
	}
}

// TestDirectoryInUse starts a second felixd on the directory of one that runs.
func TestDirectoryInUse(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	d := start(t, nil, "--data", data)
	var stderr bytes.Buffer
	cmd := exec.Command(binary, "--listen", "127.0.0.1:0", "--admin", "off", "--data", data)
	cmd.Env = environment(t.TempDir())
	cmd.Stderr = &stderr
	cmd.Run()
	want := fmt.Sprintf("felixd: data is %q, which another running broker uses (pid %d); stop that broker or give this one a directory of its own\n", data, d.PID)
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || stderr.String() != want {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}

// TestDurabilityIsSaid starts felixd with weaker promises than it makes by itself.
func TestDurabilityIsSaid(t *testing.T) {
	d := start(t, []string{"FELIX_ACK_ON_COMMIT=0"}, "--fsync-mode", "periodic", "--fsync-interval-ms", "100")
	if want := "  durability   periodic: an ack means written; a power cut loses at most the last 100ms\n"; !strings.Contains(d.stdout.String(), want) {
		t.Errorf("the banner lacks %q:\n%s", want, d.stdout.String())
	}
	d.signal(syscall.SIGTERM)
	if code := d.end(); code != 0 { // then all of the log has come
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
	if log := d.stderr.String(); !strings.Contains(log, "FELIX_ACK_ON_COMMIT=0 is not offered") {
		t.Errorf("the log does not warn:\n%s", log)
	}
}

// TestRefused runs felixd with what it cannot start with.
func TestRefused(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	config := filepath.Join(dir, "felix.yaml")
	for name, content := range map[string]string{file: "x", config: "lissen: 127.0.0.1:1\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := []string{"--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(dir, "data")}
	tests := []struct {
		name  string
		args  []string
		env   []string
		code  int
		lines int
		want  []string
	}{
		{"port in use", []string{"--listen", udp.LocalAddr().String(), "--admin", "off", "--data", dir}, nil, 1, 1, []string{udp.LocalAddr().String(), "in use"}},
		{"bad address", []string{"--listen", "nowhere"}, nil, 1, 1, []string{`listen is "nowhere", which has no port; give IP:port`}},
		{"unreadable data directory", append(free[:4:4], "--data", file), nil, 1, 1, []string{file, "not a directory"}},
		{"certificate without key", append(free, "--tls-cert", "c.pem"), nil, 1, 1, []string{"tls_key is not set"}},
		{"everybody", []string{"--listen", "0.0.0.0:0"}, nil, 1, 1, []string{"set auth: any (--auth any, FELIX_AUTH=any)"}},
		{"ready file nowhere", append(free, "--ready-file", filepath.Join(file, "r")), nil, 1, 1, []string{"ready file", "not a directory"}},
		{"several problems", []string{"--listen", "x", "--dev-shards", "0"}, nil, 1, 2, []string{"listen is", "dev_shards is"}},
		{"environment", nil, []string{"FELIX_QUIC_BIND=x"}, 1, 1, []string{`listen is "x"`}},
		{"file", []string{"--config", config}, nil, 1, 1, []string{config + `:1:1: there is no setting "lissen"; did you mean listen?`}},
		{"unknown flag", []string{"--lissen", "x"}, nil, 2, 2, []string{"unknown flag: --lissen; did you mean --listen?", "felixd --help"}},
		{"argument", []string{"start"}, nil, 2, 2, []string{`unknown command "start"`}},
	}
	for _, test := range tests {
		var stderr bytes.Buffer
		cmd := exec.Command(binary, test.args...)
		cmd.Env = environment(dir, test.env...)
		cmd.Dir = dir
		cmd.Stderr = &stderr
		cmd.Run()
		text := stderr.String()
		if code := cmd.ProcessState.ExitCode(); code != test.code || strings.Count(text, "\n") != test.lines {
			t.Errorf("%s: exit code %d, want %d; %d lines, want %d:\n%s", test.name, code, test.code, strings.Count(text, "\n"), test.lines, text)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in:\n%s", test.name, want, text)
			}
		}
	}
}

// A broker restarts itself as the same process for the timer slack of its settings, which package affinity shows to reach every thread.
// Where it cannot, it says so and goes on.
func TestTimerSlack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("timer slack is Linux's")
	}
	restarted := func(d *daemon) bool {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if d.PID != d.cmd.Process.Pid {
			t.Errorf("process %d is ready, and %d was started", d.PID, d.cmd.Process.Pid)
		}
		return bytes.Contains(environ, []byte("FELIXD_RESTARTED=1"))
	}
	for text, want := range map[string]bool{"300": true, "0": false} {
		d := start(t, nil, "--timer-slack-us", text)
		if got := restarted(d); got != want {
			t.Errorf("with %s us it has restarted itself: %v, want %v", text, got, want)
		}
		d.signal(syscall.SIGTERM)
		if code := d.end(); code != 0 {
			t.Errorf("exit code %d\n%s", code, d.stderr.String())
		}
	}
	var asked time.Duration
	var out, errs output
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	code := run(process{
		args:   []string{"--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(home, "data")},
		stdout: &out, stderr: &errs, signals: signals,
		restart: func(d time.Duration) error {
			asked = d
			return errors.New("no such call here")
		},
	})
	if code != exitOK || asked != 200*time.Microsecond || !strings.Contains(errs.String(), "no such call here") {
		t.Errorf("exit code %d, asked for %v\n%s", code, asked, errs.String())
	}
}

// call runs the command in this process.
func call(environ []string, args ...string) (code int, stdout, stderr string) {
	var out, errs output
	code = run(process{args: args, environ: environ, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

func TestConfigShow(t *testing.T) {
	code, out, errs := call([]string{"FELIX_DEV_SHARDS=4", "FELIX_NOBODY=1"}, "config", "show", "--listen", "127.0.0.1:7000")
	const given = `KEY         VALUE           ORIGIN
listen      127.0.0.1:7000  flag --listen
dev_shards  4               environment FELIX_DEV_SHARDS
`
	if code != 0 || !strings.HasPrefix(out, given) || strings.Count(out, "\n") != 4 {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
	code, out, _ = call(nil, "config", "show", "--effective")
	if code != 0 || strings.Count(out, "\n") != 1+len(felix.Settings()) || !strings.Contains(out, "127.0.0.1:8080") {
		t.Errorf("code %d:\n%s", code, out)
	}
	if code, out, _ = call(nil, "config", "show"); code != 0 || !strings.HasPrefix(out, "Nothing is set") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

func TestConfigCheck(t *testing.T) {
	code, out, errs := call([]string{"FELIX_NOBODY=1"}, "config", "check")
	if code != 0 || out != "The configuration is good.\n" || errs != "felixd: warning: environment FELIX_NOBODY is read by nothing\n" {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
	code, out, errs = call(nil, "config", "check", "--dev-shards", "x", "--admin", "0.0.0.0:1")
	if code != 1 || out != "" || !strings.Contains(errs, "felixd: dev_shards is") || !strings.Contains(errs, "felixd: admin is") {
		t.Errorf("code %d:\n%s%s", code, out, errs)
	}
}
