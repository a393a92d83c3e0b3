package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Bounds of a server.
const (
	readyTimeout = time.Minute
	stopTimeout  = 20 * time.Second
	maxLogBytes  = 64 << 10 // of what it said that is told when something is wrong
)

// buildServer builds nats-server from the pinned module into dir. It is called in this module's directory.
func buildServer(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "nats-server")
	return program, command(ctx, "", "go", "build", "-o", program, "github.com/nats-io/nats-server/v2")
}

// serverVersion asks a nats-server for its version, such as 2.15.3.
func serverVersion(ctx context.Context, program string) (string, error) {
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	_, version, ok := strings.Cut(strings.TrimSpace(string(text)), ": v")
	if err == nil && !ok {
		err = fmt.Errorf("%s --version says %q, want nats-server: vVERSION", program, text)
	}
	return version, err
}

// command runs a program and says what it said when it fails.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// A server is a nats-server in a process of its own.
type server struct {
	url     string // tls://127.0.0.1:PORT
	monitor string // http://127.0.0.1:PORT
	version string // for people
	tls     *tls.Config
	pid     int

	cmd   *exec.Cmd
	dir   string
	ended chan struct{} // closed when the process is gone
	err   error         // of the process; set before ended is closed
}

// startServer starts a server with TLS and JetStream on free ports and returns when clients can connect. syncAlways syncs a file before each
// answer; otherwise the server's default holds.
func startServer(ctx context.Context, program string, syncAlways bool) (s *server, err error) {
	dir, err := os.MkdirTemp("", "felix-peers-")
	if err != nil {
		return nil, err
	}
	s = &server{dir: dir, ended: make(chan struct{})}
	if s.tls, err = writeCertificate(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(serverConfig(dir, syncAlways)), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer log.Close()
	s.cmd = exec.Command(program, "-c", file)
	s.cmd.Stderr, s.cmd.Stdout = log, log
	// A process group of its own keeps Ctrl-C from it, so that the run can end first; it does not outlive this process.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.pid = s.cmd.Process.Pid
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	if err := s.awaitReady(ctx, filepath.Join(dir, fmt.Sprintf("%s_%d.ports", filepath.Base(program), s.pid))); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// serverConfig is what is not the server's default.
func serverConfig(dir string, syncAlways bool) string {
	sync := ""
	if syncAlways {
		sync = "\n  sync_interval: always"
	}
	return fmt.Sprintf(`server_name: peer
host: 127.0.0.1
port: -1
http: "127.0.0.1:-1"
ports_file_dir: %q
tls {
  cert_file: %q
  key_file: %q
}
jetstream {
  store_dir: %q
  max_memory_store: 8GB
  max_file_store: 64GB%s
}
`, dir, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "store"), sync)
}

// awaitReady waits for the file with the ports, which the server writes once it listens.
func (s *server) awaitReady(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("nats-server is not ready after %v: %s", readyTimeout, s.said()))
	defer cancel()
	for {
		var ports struct{ Nats, Monitoring []string }
		// The file is not written in one go: what does not parse yet is read again.
		if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &ports) == nil && len(ports.Nats) > 0 && len(ports.Monitoring) > 0 {
			s.url, s.monitor = ports.Nats[0], ports.Monitoring[0]
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("nats-server ended (%v) before it was ready: %s", s.err, s.said())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// said is the end of what the server logged.
func (s *server) said() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return strings.TrimSpace(string(text[max(len(text)-maxLogBytes, 0):]))
}

// stop ends the server and removes its files.
func (s *server) stop() (err error) {
	select {
	case <-s.ended:
		err = fmt.Errorf("nats-server had ended by itself (%v): %s", s.err, s.said())
	default:
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(stopTimeout):
			err = fmt.Errorf("nats-server did not end within %v of SIGTERM and was killed: %s", stopTimeout, s.said())
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// writeCertificate makes a certificate for loopback, in dir, and returns what a client needs to trust it.
func writeCertificate(dir string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, errors.Join(
		os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600),
	)
}
