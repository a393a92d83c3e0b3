package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Repeats of a message beyond repeatMost in repeatSpan are left out and counted. At most repeatTexts messages are
// told apart at a time; when there are more, counting starts afresh.
const (
	repeatMost  = 10
	repeatSpan  = 10 * time.Second
	repeatTexts = 1024
)

// newLogger writes text for people on a terminal and JSON for machines elsewhere.
func newLogger(w io.Writer, terminal bool) *slog.Logger {
	var handler slog.Handler
	if terminal {
		handler = slog.NewTextHandler(w, nil)
	} else {
		handler = slog.NewJSONHandler(w, nil)
	}
	return slog.New(&repeatHandler{next: handler, seen: &repeats{since: map[string]*repeat{}}})
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// repeatHandler passes records on until the same message comes too often.
type repeatHandler struct {
	next slog.Handler
	seen *repeats // shared with the handlers derived from this one
}

// repeats counts messages by their text.
type repeats struct {
	mu    sync.Mutex
	since map[string]*repeat
}

// repeat is one text in its present span.
type repeat struct {
	start   time.Time
	passed  int
	skipped int
}

// admit reports whether a message logged at now goes out, and how many like it were left out before.
func (r *repeats) admit(text string, now time.Time) (skipped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.since[text]
	if entry == nil {
		if len(r.since) >= repeatTexts {
			clear(r.since)
		}
		entry = &repeat{start: now}
		r.since[text] = entry
	}
	if now.Sub(entry.start) >= repeatSpan {
		skipped = entry.skipped
		*entry = repeat{start: now}
	}
	if entry.passed == repeatMost {
		entry.skipped++
		return 0, false
	}
	entry.passed++
	return skipped, true
}

func (h *repeatHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *repeatHandler) Handle(ctx context.Context, record slog.Record) error {
	skipped, ok := h.seen.admit(record.Message, record.Time)
	if !ok {
		return nil
	}
	if skipped > 0 {
		record = record.Clone()
		record.AddAttrs(slog.Int("left_out", skipped))
	}
	return h.next.Handle(ctx, record)
}

func (h *repeatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatHandler{h.next.WithAttrs(attrs), h.seen}
}

func (h *repeatHandler) WithGroup(name string) slog.Handler {
	return &repeatHandler{h.next.WithGroup(name), h.seen}
}
