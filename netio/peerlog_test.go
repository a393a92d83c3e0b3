package netio

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"felix/netio/wire"
)

// lockedBuffer is a buffer that a logger may write to from anywhere.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSuffix(b.b.String(), "\n")
	b.b.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// logLines is the default of Limits.LogLines.
const logLines = 10

func TestPeerLog(t *testing.T) {
	var out lockedBuffer
	now := time.Duration(0)
	p := &peerLog{lines: logLines, log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Duration { return now }}
	for i := range 1000 {
		p.say(logMalformed, "127.0.0.1:1", fmt.Sprintf("frame %d", i))
	}
	if lines := out.lines(); len(lines) != logLines || !strings.Contains(lines[9], "frame 9") || !strings.Contains(lines[9], "127.0.0.1:1") {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	p.say(logAuth, "127.0.0.1:2", "another cause")
	if lines := out.lines(); len(lines) != 1 {
		t.Errorf("another cause: %q", lines)
	}
	now = logWindow - 1
	p.flush()
	p.say(logMalformed, "", "")
	if lines := out.lines(); len(lines) != 0 {
		t.Errorf("within the window: %q", lines)
	}
	now = logWindow
	p.flush()
	if lines := out.lines(); len(lines) != 1 || !strings.Contains(lines[0], "lines=991") {
		t.Errorf("after it: %q", lines)
	}
	p.flush()
	p.say(logMalformed, "", strings.Repeat("x", 1000))
	if lines := out.lines(); len(lines) != 1 || len(lines[0]) > logTextBytes+200 {
		t.Errorf("in the next window: %q", lines)
	}
	// Without flush the sum comes before the next line.
	for range logLines {
		p.say(logMalformed, "", "")
	}
	out.lines()
	now += logWindow
	p.say(logMalformed, "", "again")
	if lines := out.lines(); len(lines) != 2 || !strings.Contains(lines[0], "lines=1") || !strings.Contains(lines[1], "again") {
		t.Errorf("without flush: %q", lines)
	}
	if n := p.suppressed.Load(); n != 992 {
		t.Errorf("%d lines suppressed", n)
	}
}

// Whatever a peer does over and over, the log grows by a few lines.
func TestPeersDoNotFillTheLog(t *testing.T) {
	var out lockedBuffer
	f := start(t, fixtureOptions{
		now:    func() time.Duration { return 0 }, // all within one window, however long it takes
		change: func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) },
	})
	p := f.connect()
	out.lines()
	const times = 50
	for range times {
		k := p.open()
		bad := auth()
		bad.Token = "bad"
		k.send(bad)
		k.wantError(wire.CodeUnauthenticated)
		k.mustEnd()
		k = p.authed()
		k.raw(jsonFrame("{"))
		k.wantError(wire.CodeInvalidRequest)
		k.raw(wire.AppendHeader(nil, wire.Header{Flags: 0x8000}))
		k.wantError(wire.CodeInvalidRequest)
		k.raw([]byte("no frame at all"))
		k.mustEnd()
	}
	lines := out.lines()
	if len(lines) != 3*logLines {
		t.Errorf("%d lines, want %d", len(lines), 3*logLines)
		for _, line := range lines {
			t.Log(line)
		}
	}
	if s := f.server.Stats(); s.LogLinesSuppressed != 4*times-3*logLines {
		t.Errorf("%d lines left out", s.LogLinesSuppressed)
	}
}
