package netio

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"

	"felix/fanout"
	"felix/netio/wire"
)

// tight starts a broker with a budget of 16 MiB: 8 for frames, 4 for publishes, 2 for windows.
func tight(t *testing.T, frames func() int64) *fixture {
	f := start(t, fixtureOptions{change: func(c *Config) {
		c.Limits.FrameBytes, c.Limits.ConnectionBytes, c.Limits.IngressBytes = 1<<20, 1<<20, 4<<20
		c.Memory = MemoryConfig{Budget: 16 << 20, Frames: frames}
	}})
	f.createStream("updates", 4, fanout.DropNew)
	return f
}

// Whatever peers send and however many streams they open, windows and publishes stay within their parts of the budget: at first while
// the broker reads all it can, then while it reads nothing.
func TestMemoryIsBounded(t *testing.T) {
	f := tight(t, nil)
	const peers, streams, each = 6, 6, 20
	var wait sync.WaitGroup
	all := bytes.Repeat(wire.AppendPublish(nil, plain("updates", "", strings.Repeat("x", 30<<10))), each)
	var most atomic.Int64
	look := func() {
		m := f.server.Stats().Memory
		if m.Windows > 2<<20+peers*32<<10 || m.Publishes > 4<<20+64<<10 {
			t.Errorf("memory %+v", m)
		}
		most.Store(max(most.Load(), m.Windows))
	}
	var ends []*quic.Stream
	for range peers {
		p := f.connect()
		for range streams {
			k := p.authed()
			ends = append(ends, k.s)
			wait.Go(func() {
				if _, err := k.s.Write(all); err != nil {
					t.Errorf("write: %v", err)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	waitFor(t, "everything to be published", func() bool {
		look()
		select {
		case <-done:
			return f.server.Stats().PublishRecords == peers*streams*each
		default:
			return false
		}
	})
	if m := f.server.Stats().Memory; m.GrowthRefused == 0 || most.Load() <= peers*32<<10 {
		t.Errorf("windows grew to %d, %d times they did not: the test shows nothing", most.Load(), m.GrowthRefused)
	}
	var free []func()
	for id := range f.server.ingress {
		free = append(free, f.fillCore(id))
	}
	for _, s := range ends {
		wait.Go(func() { s.Write(all) })
	}
	waitFor(t, "publishes to fill their part", func() bool { look(); return f.server.bytes.waiting.Load() > 0 })
	look()
	for _, f := range free {
		f()
	}
	wait.Wait()
	waitFor(t, "the rest", func() bool { look(); return f.server.Stats().PublishRecords == 2*peers*streams*each })
	if s := f.server.Stats(); s.Memory.ConnectionsClosed != 0 || s.Memory.ConnectionsRefused != 0 {
		t.Errorf("memory %+v", s.Memory)
	}
}

// Above the budget connections are refused and those with the largest windows closed, as many as it takes.
func TestMemoryHardLimit(t *testing.T) {
	var frames atomic.Int64
	f := tight(t, frames.Load)
	var peers []*peer
	for i := range 3 {
		p := f.connect()
		k := p.authed()
		for n := 0; f.server.Stats().Memory.Windows < int64(i+1)*(160<<10); n++ { // the first frames make it grow
			if n == 1000 {
				t.Fatalf("memory %+v", f.server.Stats().Memory)
			}
			k.publish(batch(1, "updates", "", strings.Repeat("x", 200<<10)))
			k.ack()
		}
		peers = append(peers, p)
	}
	small := f.connect()
	waitFor(t, "windows alone to be held", func() bool { m := f.server.Stats().Memory; return m.Held() == m.Windows })
	held := f.server.Stats().Memory.Held()
	frames.Store(16<<20 - held + 1) // one connection's worth too much
	look := small.authed()
	look.publish(batch(1, "updates", "", "x")) // a pass
	waitFor(t, "a connection to be closed", func() bool { return f.server.Stats().Memory.ConnectionsClosed == 1 })
	waitFor(t, "its memory", func() bool { return !f.server.memory.over() })
	closed := 0
	for _, p := range peers {
		var e *quic.ApplicationError
		select {
		case <-p.conn.Context().Done():
			if _, err := p.conn.OpenStream(); !errors.As(err, &e) || e.ErrorCode != closeOverloaded || e.ErrorMessage != "overloaded" {
				t.Errorf("closed with %v", err)
			}
			closed++
		default:
		}
	}
	frames.Store(32 << 20) // more than all of them
	k := small.authed()
	k.publish(batch(1, "updates", "", "x"))
	if a := k.ack(); a.Failed {
		t.Fatalf("ack %+v", a)
	}
	for _, p := range peers {
		<-p.conn.Context().Done()
	}
	if _, err := f.dialer().dial(); err == nil {
		t.Error("a connection was let in")
	}
	m := f.server.Stats().Memory
	if m.ConnectionsClosed != 3 || m.ConnectionsRefused == 0 {
		t.Errorf("memory %+v", m)
	}
	frames.Store(0)
	f.connect().alive()
	small.alive() // its window is not worth it
	small.conn.CloseWithError(0, "")
}

// What a connection is granted comes back when it ends, once.
func TestWindowsComeBack(t *testing.T) {
	f := tight(t, nil)
	for range 3 {
		p := f.connect()
		k := p.authed()
		k.publish(batch(1, "updates", "", strings.Repeat("x", 200<<10)))
		k.ack()
		p.conn.CloseWithError(0, "")
	}
	waitFor(t, "no window to be left", func() bool { m := f.server.Stats().Memory; return m.Windows == 0 && m.Publishes == 0 })
}
