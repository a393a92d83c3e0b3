package felix

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"felix/client"
)

const year = 365 * 24 * time.Hour

// TestBrokerClock steps the system's clock: the broker's time goes on as real time does, follows slowly, and is there in the end.
func TestBrokerClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, 10 * year, -10 * year, time.Second, -time.Millisecond} {
		var elapsed, stepped time.Duration
		var log bytes.Buffer
		begun := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
		c := newBrokerClock(func() time.Time { return begun.Add(elapsed + stepped) }, func() time.Duration { return elapsed }, slog.New(slog.NewTextHandler(&log, nil)))
		last := c.now()
		pass := func(d time.Duration) {
			t.Helper()
			elapsed += d
			now := c.now()
			if moved := now.Sub(last); moved < d-d/clockSlew || moved > d+d/clockSlew {
				t.Fatalf("step %v, %v after the start: the broker's time moved by %v in %v", step, elapsed, moved, d)
			}
			last = now
		}
		pass(10 * time.Second)
		if got := last.Sub(begun); got != 10*time.Second {
			t.Errorf("%v has passed after 10 s", got)
		}
		stepped = step
		for range 100 {
			pass(10 * time.Second)
		}
		if warned := strings.Count(log.String(), "the system's clock is"); warned > 1 || (warned == 1) != (step.Abs() >= time.Minute) {
			t.Errorf("step %v: %s", step, log.String())
		}
		pass(11 * step.Abs())
		pass(clockInterval)
		if left := begun.Add(elapsed + stepped).Sub(last).Abs(); left > time.Millisecond {
			t.Errorf("step %v: %v are left when there was time to follow", step, left)
		}
	}
}

// TestClockSteps steps the system's clock under a running broker by -1 h, +10 years and -10 years. Every publish is acknowledged
// and delivered, append times of a log never go back, nothing expires early, and what is old enough still expires.
func TestClockSteps(t *testing.T) {
	var stepped atomic.Int64
	wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(stepped.Load())) }
	dir := t.TempDir()
	config := Config{DataDir: dir, Cores: 1, Now: wall, Log: Log{SegmentBytes: 1 << 20}}
	b := mustStart(t, config)
	ctx := longContext(t)
	streams := []StreamConfig{
		{Name: "kept", Durable: true, Retention: Retention{MaxAge: time.Hour}},
		{Name: "periodic", Durable: true, FsyncMode: Periodic, FsyncGiven: true},
		{Name: "memory", Retention: Retention{MaxAge: time.Hour}},
		// Old within the test, in real time: every round goes on until records have expired.
		{Name: "short", Durable: true, Retention: Retention{MaxAge: time.Second}},
	}
	c := mustDial(t, b)
	subs := map[string]*client.Subscription{}
	for _, s := range streams {
		if err := b.CreateStream(ctx, s); err != nil {
			t.Fatal(err)
		}
		sub, err := c.Subscribe(ctx, s.Name, client.FromEarliest())
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs[s.Name] = sub
	}
	next := map[string]client.Offset{}
	publish := func(stream string) {
		t.Helper()
		ack, err := c.Publish(ctx, stream, fmt.Append(nil, next[stream]))
		if err != nil || ack.Offset != next[stream] {
			t.Fatalf("%s: %+v, %v, want offset %d", stream, ack, err, next[stream])
		}
		if m, err := subs[stream].Next(ctx); err != nil || m.Offset != ack.Offset || string(m.Data) != fmt.Sprint(next[stream]) {
			t.Fatalf("%s: delivered %+v, %v, want offset %d", stream, m, err, ack.Offset)
		}
		next[stream]++
	}
	start := func(stream string) client.Offset {
		t.Helper()
		_, err := c.ReadPage(ctx, stream, 0, 0, client.ReadOptions{MaxRecords: 1})
		var gone *client.CursorError
		if errors.As(err, &gone) {
			return gone.Available
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	for _, step := range []time.Duration{0, -time.Hour, 10 * year, -10 * year, 0} {
		stepped.Store(int64(step))
		for range 20 {
			for _, s := range streams {
				publish(s.Name)
			}
		}
		// Retention has looked, more than once, when the short one has lost what it had before.
		before := start("short")
		for again := time.NewTicker(50 * time.Millisecond); start("short") <= before; <-again.C {
			publish("short")
			if ctx.Err() != nil {
				t.Fatalf("step %v: nothing expires", step)
			}
		}
		var last time.Time
		for _, stream := range []string{"kept", "periodic"} {
			if at := start(stream); at != 0 {
				t.Fatalf("step %v: %s has lost the records before %d", step, stream, at)
			}
			page, err := c.ReadPage(ctx, stream, 0, 0, client.ReadOptions{})
			if err != nil || len(page.Records) != int(next[stream]) {
				t.Fatalf("step %v: %d of %d records of %s: %v", step, len(page.Records), next[stream], stream, err)
			}
			last = time.Time{}
			for _, r := range page.Records {
				if r.Time.Before(last) {
					t.Fatalf("step %v: record %d of %s was appended at %v, the one before at %v", step, r.Offset, stream, r.Time, last)
				}
				last = r.Time
			}
		}
		if at, ok, err := c.OffsetForTime(ctx, "periodic", 0, last); err != nil || !ok || at >= next["periodic"] {
			t.Errorf("step %v: the offset for the last append time is %d, %v, %v", step, at, ok, err)
		}
	}
	sub, err := c.Subscribe(ctx, "memory", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if m, err := sub.Next(ctx); err != nil || m.Offset != 0 {
		t.Errorf("the stream in memory starts with %+v, %v", m, err)
	}
	// A broker that starts after the clock was set back goes on behind its last record, and serves all.
	c.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	stepped.Store(int64(-10 * year))
	b = mustStart(t, config)
	c = mustDial(t, b)
	if ack, err := c.Publish(ctx, "kept", []byte("x")); err != nil || ack.Offset != next["kept"] {
		t.Fatalf("%+v, %v", ack, err)
	}
	page, err := c.ReadPage(ctx, "kept", 0, 0, client.ReadOptions{})
	if n := len(page.Records); err != nil || n != int(next["kept"])+1 || page.Records[n-1].Time.Before(page.Records[n-2].Time) {
		t.Errorf("after a start in the past: %d records, %v", n, err)
	}
}
