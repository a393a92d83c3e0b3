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

// TestSubFromTime starts every shard at its first record of a time, also those that have none yet.
func TestSubFromTime(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "stream", "create", "orders", "--shards", "4")
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, key := range keys {
		f.ok("", "pub", "orders", "old", "--key", key)
	}
	at := time.Now().Format(time.RFC3339Nano)
	for _, key := range keys[:4] {
		f.ok("", "pub", "orders", "new", "--key", key)
	}
	if got := f.ok("", "sub", "orders", "--from", at, "--count", "4"); got != strings.Repeat("new\n", 4) {
		t.Errorf("from %s: %q", at, got)
	}
	if got := f.ok("", "sub", "orders", "--from", "-1h", "--count", "12"); strings.Count(got, "old") != 8 || strings.Count(got, "new") != 4 {
		t.Errorf("from an hour ago: %q", got)
	}
}

func TestParseFrom(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for from, want := range map[string]subOptions{
		"latest":                    {},
		"earliest":                  {},
		"0":                         {atOffset: true},
		"42":                        {atOffset: true, offset: 42},
		"-10m":                      {at: now.Add(-10 * time.Minute)},
		"-1h30m":                    {at: now.Add(-90 * time.Minute)},
		"2026-01-31T11:00:00Z":      {at: now.Add(-time.Hour)},
		"2026-01-31T13:00:00+01:00": {at: now},
	} {
		o := subOptions{from: from}
		if !o.parseFrom(now) || o.offset != want.offset || o.atOffset != want.atOffset || !o.at.Equal(want.at) {
			t.Errorf("%s: %+v", from, o)
		}
	}
	for _, from := range []string{"", "10m", "-10", "-0s", "yesterday", "2026-01-31", "1.5", "0001-01-01T00:00:00Z"} {
		if o := (subOptions{from: from}); o.parseFrom(now) {
			t.Errorf("%q is taken: %+v", from, o)
		}
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
