package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"felix"
)

func TestPubLineTooLong(t *testing.T) {
	f := newFixture(t, felix.Config{})
	code, stdout, stderr := call(t.Context(), f.environ, "short\n"+strings.Repeat("x", maxRecord+1)+"\n", "pub", "orders")
	if code != exitFailure || stdout != "" || !strings.HasPrefix(stderr, "felix: line 2 of standard input was not published\n  why:  it is longer than 15 MiB") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestPubLargeRecord(t *testing.T) {
	f := newFixture(t, felix.Config{})
	text := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	if got := f.ok(text+"\n", "pub", "orders"); got != "published 1 record (1.0 MiB) to orders, shard 0, offset 0\n" {
		t.Errorf("%q", got)
	}
	if got := f.ok("", "sub", "orders", "--from", "earliest", "--count", "1"); got != text+"\n" {
		t.Errorf("got %d bytes back", len(got))
	}
}

// TestPubManyLines publishes more than may be in flight and reads everything back in order.
func TestPubManyLines(t *testing.T) {
	f := newFixture(t, felix.Config{})
	var lines strings.Builder
	for i := range 3 * inFlight {
		lines.WriteString(strings.Repeat("z", i%7))
		lines.WriteString("\n")
	}
	for _, acks := range []string{"batch", "each", "none"} {
		f.ok(lines.String(), "pub", acks, "--acks", acks)
		if got := f.ok("", "sub", acks, "--from", "earliest", "--count", "768"); got != lines.String() {
			t.Errorf("acks %s: %d bytes back, want %d", acks, len(got), lines.Len())
		}
	}
}

// TestPubInterrupted ends while it waits for a line that never comes.
func TestPubInterrupted(t *testing.T) {
	f := newFixture(t, felix.Config{})
	stdin, hold := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr output
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, surroundings{args: []string{"pub", "orders", "--acks", "each"}, environ: f.environ, stdin: stdin, stdout: &stdout, stderr: &stderr})
	}()
	if _, err := io.WriteString(hold, "one\n"); err != nil {
		t.Fatal(err)
	}
	if got := f.ok("", "sub", "orders", "--from", "earliest", "--count", "1"); got != "one\n" {
		t.Errorf("%q", got)
	}
	cancel()
	if got := <-code; got != exitFailure || !strings.HasPrefix(stderr.String(), "felix: interrupted\n") {
		t.Errorf("exit code %d\n%s", got, stderr.String())
	}
	hold.Close() // the reader of standard input ends with it
}
