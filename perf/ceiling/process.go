package ceiling

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serverVariable is set in the process that is to be a server half: the probe, and the rings of Loop.
const serverVariable = "CEILING_SERVER"

// Bounds of a server process.
const (
	answerTimeout = 60 * time.Second // for it to be ready, and for each count; then the probe fails
	stopTimeout   = 60 * time.Second // from the end of its input to its end; then it is killed
)

// ready is the first line of a server process.
type ready struct {
	Address     netip.AddrPort `json:"address"`
	Certificate []byte         `json:"certificate"` // DER
}

// ServeIfAsked makes this process the server half of a probe and does not return, when another process started it for that; otherwise
// it does nothing. Programs that take probes of TwoProcesses call it before everything else.
func ServeIfAsked() {
	asked, ok := os.LookupEnv(serverVariable)
	if !ok {
		return
	}
	if err := serveAsked(asked, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ceiling: the server half:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveAsked runs a server half until in ends. It writes a line that says how to reach it, and for each line that it reads the bytes
// that it has received.
func serveAsked(asked string, in io.Reader, out io.Writer) (err error) {
	a, err := parseAsk(asked)
	if err != nil {
		return err
	}
	s, err := startServer(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	address, err := netip.ParseAddrPort(s.address().String())
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(ready{address, s.certificate}); err != nil { // with the end of the line
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, err := fmt.Fprintln(out, s.bytes.Load()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (a ask) String() string { return fmt.Sprintf("%s %d", a.probe, a.rings) }

func parseAsk(text string) (a ask, err error) {
	probe, rings, _ := strings.Cut(text, " ")
	a.probe = probe
	if a.rings, err = strconv.Atoi(rings); err != nil {
		return a, fmt.Errorf("%s is %q, want a probe and a number: %w", serverVariable, text, err)
	}
	return a, nil
}

// A process is a server half in a process of its own. Its methods are called by one goroutine.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // that it writes; closed at the end of its output
	ready ready
}

// startProcess starts this program again as the server half.
func startProcess(ctx context.Context, a ask) (*process, error) {
	if _, is := os.LookupEnv(serverVariable); is {
		return nil, fmt.Errorf("this process was itself started as a server half (%s is set); its main must call ceiling.ServeIfAsked first", serverVariable)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), lines: make(chan string)}
	p.cmd.Env = append(os.Environ(), serverVariable+"="+a.String())
	p.cmd.Stderr = os.Stderr
	// A process group of its own keeps Ctrl-C from it, so that the probe can end first; it does not outlive this process.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	line, err := p.line(ctx)
	if err == nil {
		if err = json.Unmarshal([]byte(line), &p.ready); err != nil {
			err = fmt.Errorf("it began with %.80q; does main call ceiling.ServeIfAsked first? %w", line, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// line waits for the next line that it writes.
func (p *process) line(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("it said nothing for %v", answerTimeout))
	defer cancel()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", errors.New("it ended by itself; what it said is above")
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *process) address() net.Addr { return net.UDPAddrFromAddrPort(p.ready.Address) }

func (p *process) certificates() *x509.CertPool { return trust(p.ready.Certificate) }

func (p *process) received(ctx context.Context) (int64, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return 0, err
	}
	line, err := p.line(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(line, 10, 64)
}

// close ends the process and waits for it.
func (p *process) close() error {
	_ = p.in.Close() // that is what tells it; a broken pipe says that it has ended
	kill := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	for range p.lines { // to the end of its output, before which Wait must not be called
	}
	err := p.cmd.Wait()
	if !kill.Stop() {
		return fmt.Errorf("the server half did not end within %v and was killed", stopTimeout)
	}
	if err != nil {
		return fmt.Errorf("the server half: %w", err)
	}
	return nil
}
