package interop

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"felix/client"
)

// slowFor is how long the publisher of TestSlowSubscriberOfADurableStream is faster than the subscriber; FELIX_INTEROP_SLOW changes it (30s
// in the nightly run).
const slowFor = 3 * time.Second

// stutter stops the driver's process for most of the time until done is closed: the client then takes less from the network than comes,
// and what it buffers by itself does not hide it.
func (d *driver) stutter(done <-chan struct{}) {
	for running := true; running; {
		d.process.Signal(syscall.SIGSTOP)
		select {
		case <-time.After(180 * time.Millisecond):
		case <-done:
			running = false
		}
		d.process.Signal(syscall.SIGCONT)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-done:
			running = false
		}
	}
}

// A published client that reads half as fast as others publish, and with a durable stream so falls far behind all buffers, receives every
// offset in order.
func TestSlowSubscriberOfADurableStream(t *testing.T) {
	duration := slowFor
	if text := os.Getenv("FELIX_INTEROP_SLOW"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil || duration <= 0 {
			t.Fatalf("FELIX_INTEROP_SLOW is %q; give a duration such as 30s", text)
		}
	}
	eachSurface(t, func(t *testing.T, surface string) {
		const stream, size, perTick, perRead = "slow", 16 << 10, 50, 50
		b := startOn(t, t.TempDir(), 1, nil)
		d := startDriver(t, surface).connect(b, b.Listen)
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "earliest"})
		c := b.dial()
		p, err := c.Publisher(stream, client.Idempotent()) // a busy disk may keep the broker from answering in time
		if err != nil {
			t.Fatal(err)
		}
		var published atomic.Int64
		progress := make(chan struct{}, 1)
		ended := make(chan error, 1)
		publisherDone, steady := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(steady)
			d.stutter(publisherDone)
		}()
		defer func() { <-steady }() // before the driver is ended
		go func() {
			defer close(publisherDone)
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			var err error
			for end := time.After(duration); err == nil; {
				select {
				case <-end:
					ended <- nil
					return
				case <-tick.C:
				}
				batch := make([][]byte, perTick)
				for i := range batch {
					batch[i] = make([]byte, size)
					binary.BigEndian.PutUint64(batch[i], uint64(published.Load())+uint64(i))
				}
				if _, err = p.PublishBatch(t.Context(), batch); err == nil {
					published.Add(perTick)
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
			ended <- err
		}()
		read, publishing, furthest, lag := int64(0), true, int64(0), 0.0
		for publishing || read < published.Load() {
			for publishing && published.Load() < 2*(read+perRead) { // never faster than half
				select {
				case <-progress:
				case err := <-ended:
					if err != nil {
						t.Fatalf("publish: %v", err)
					}
					publishing = false
					lag = b.metric("felix_sub_lag_records_max")[""]
				}
			}
			if read == published.Load() {
				break
			}
			for _, e := range d.next("s", perRead) {
				if e.Kind != "record" || e.Offset == nil || *e.Offset != uint64(read) || len(e.Payload) != size || binary.BigEndian.Uint64(e.Payload) != uint64(read) {
					t.Fatalf("%s at %s with %d bytes where offset %d comes next: %s", e.Kind, show(e.Offset), len(e.Payload), read, e.Text)
				}
				read++
			}
			furthest = max(furthest, published.Load()-read)
		}
		for labels, n := range b.metric("felix_sub_records_dropped_total") {
			if n != 0 {
				t.Errorf("%v records were dropped (%s)", n, labels)
			}
		}
		t.Logf("%d records read, at most %d (%d MiB) behind, %.0f of them not sent yet when the publisher stopped", read, furthest, furthest*size>>20, lag)
	})
}
