package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"felix"
)

// started is a command that runs.
type started struct {
	t      *testing.T
	cancel context.CancelFunc // what Ctrl-C does
	code   chan int
	stderr *output
}

// start runs a command in the background with its output in w.
func (f *fixture) start(w io.Writer, args ...string) *started {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	s := &started{f.t, cancel, make(chan int, 1), &output{}}
	go func() {
		s.code <- run(ctx, surroundings{args: args, environ: f.environ, stdin: strings.NewReader(""), stdout: w, stderr: s.stderr})
	}()
	return s
}

// end waits for the command and returns its exit code.
func (s *started) end() int {
	s.t.Helper()
	select {
	case code := <-s.code:
		s.cancel()
		return code
	case <-time.After(patience):
		s.t.Fatalf("the command does not end\n%s", s.stderr.String())
		return 0
	}
}

// readLine reads a line of a running command.
func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line := make(chan string, 1)
	go func() {
		text, _ := r.ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		return text
	case <-time.After(patience):
		t.Fatal("no line comes")
		return ""
	}
}

func mustPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// TestSubFollows prints what is there and what comes, and ends cleanly on Ctrl-C.
func TestSubFollows(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "pub", "orders", "old")
	r, w := mustPipe(t)
	s := f.start(w, "sub", "orders", "--from", "earliest")
	lines := bufio.NewReader(r)
	if got := readLine(t, lines); got != "old\n" {
		t.Errorf("%q", got)
	}
	f.ok("", "pub", "orders", "new")
	if got := readLine(t, lines); got != "new\n" {
		t.Errorf("%q", got)
	}
	s.cancel()
	if code := s.end(); code != exitOK || s.stderr.String() != "" {
		t.Errorf("exit code %d\n%s", code, s.stderr.String())
	}
}

// TestSubClosedPipe ends when the reader goes, on a quiet stream as well as on a busy one.
func TestSubClosedPipe(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "pub", "orders", "one")
	for _, busy := range []bool{false, true} {
		r, w := mustPipe(t)
		s := f.start(w, "sub", "orders", "--from", "earliest")
		readLine(t, bufio.NewReader(r))
		r.Close()
		if busy {
			f.ok("", "pub", "orders", "two")
		}
		if code := s.end(); code != exitOK || s.stderr.String() != "" {
			t.Errorf("busy %v: exit code %d\n%s", busy, code, s.stderr.String())
		}
	}
}

// TestSubStreamDeleted deletes the stream under a subscriber.
func TestSubStreamDeleted(t *testing.T) {
	f := newFixture(t, felix.Config{AutoCreate: felix.Off})
	f.ok("", "stream", "create", "orders")
	f.ok("", "pub", "orders", "one")
	r, w := mustPipe(t)
	s := f.start(w, "sub", "orders", "--from", "earliest", "--shard", "0")
	readLine(t, bufio.NewReader(r))
	f.ok("", "stream", "rm", "orders", "--yes")
	const want = "felix: the subscription ended\n  why:  the stream was deleted\n  next: felix stream ls\n"
	if code := s.end(); code != exitNotFound || s.stderr.String() != want {
		t.Errorf("exit code %d\n%s", code, s.stderr.String())
	}
}

func TestSubReadsAllShards(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "stream", "create", "orders", "--shards", "4")
	want := map[string]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		f.ok("", "pub", "orders", "of "+key, "--key", key)
		want["of "+key] = true
	}
	shards := map[string]bool{}
	for line := range strings.Lines(f.ok("", "sub", "orders", "--from", "earliest", "--count", "8", "-o", "json")) {
		_, rest, _ := strings.Cut(line, `"shard":`)
		shards[rest[:1]] = true
		_, rest, _ = strings.Cut(line, `"payload":"`)
		delete(want, strings.TrimSuffix(rest, "\"}\n"))
	}
	if len(want) != 0 || len(shards) < 2 {
		t.Errorf("missing %v, shards %v", want, shards)
	}
}

// failingWriter fails every write.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestLateWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		l := newLateWriter(&out, func() { t.Error("a write failed") })
		io.WriteString(l, "a\n")
		io.WriteString(l, "b\n")
		if out.String() != "" {
			t.Errorf("written at once: %q", out.String())
		}
		<-time.After(2 * flushDelay)
		synctest.Wait()
		if out.String() != "a\nb\n" {
			t.Errorf("after a while: %q", out.String())
		}
		io.WriteString(l, "c\n")
		if err := l.close(); err != nil || out.String() != "a\nb\nc\n" {
			t.Errorf("after close: %q, %v", out.String(), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		told := 0
		l := newLateWriter(failingWriter{syscall.EPIPE}, func() { told++ })
		io.WriteString(l, "a\n")
		<-time.After(2 * flushDelay)
		synctest.Wait()
		if _, err := io.WriteString(l, "b"); told != 1 || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("told %d times, %v", told, err)
		}
		l.close()
	})
}
