package client

import (
	"io"
	"sync"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// A fakeIO is a publish stream without a network: it acknowledges every acked publish that is written, in order.
type fakeIO struct {
	gate sync.Mutex // no write goes on while a test holds it

	mu      sync.Mutex
	changed *sync.Cond
	out     []byte // answers that were not read
	in      []byte // part of a frame
	ended   bool
	writes  int
	frames  int
	next    Offset // of the next record
}

func newFakeIO() *fakeIO {
	f := &fakeIO{}
	f.changed = sync.NewCond(&f.mu)
	f.out = wire.AppendMessage(nil, &wire.AuthOK{ServerFlags: 0x177F})
	return f
}

func (f *fakeIO) Write(b []byte) (int, error) {
	f.gate.Lock()
	defer f.gate.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return 0, io.ErrClosedPipe
	}
	f.writes++
	f.in = append(f.in, b...)
	rest := f.in
	for {
		h, body, after, ok, err := wire.SplitFrame(rest, wire.MaxFrameBytes)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		rest = after
		if h.Flags.Has(wire.FlagPublishAcked) {
			id, _ := wire.PublishRequestID(body)
			f.out = wire.AppendAckOK(f.out, id, f.next, true)
		}
		if h.Flags != 0 {
			var p wire.Publish
			if err := p.Parse(h.Flags, body); err != nil {
				return 0, err
			}
			f.next += Offset(p.Count)
			f.frames++
		}
	}
	f.in = f.in[:copy(f.in, rest)]
	f.changed.Broadcast()
	return len(b), nil
}

func (f *fakeIO) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.out) == 0 && !f.ended {
		f.changed.Wait()
	}
	if len(f.out) == 0 {
		return 0, io.EOF
	}
	n := copy(b, f.out)
	f.out = f.out[:copy(f.out, f.out[n:])]
	return n, nil
}

func (f *fakeIO) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.changed.Broadcast()
	return nil
}

func (f *fakeIO) CancelRead(quic.StreamErrorCode)  { f.Close() }
func (f *fakeIO) CancelWrite(quic.StreamErrorCode) { f.Close() }

// offline returns a client whose stream "orders" of 4 shards is served by fakeIOs, without connections.
func offline() (*Client, []*fakeIO) {
	c := newClient(defaultConfig())
	t := c.topicFor("default", "orders")
	t.route.Store(&route{shards: 4})
	var ios []*fakeIO
	for _, s := range c.entries[0].slots {
		io := newFakeIO()
		ios = append(ios, io)
		p := newPubStream(c, io, s.retries, 0x177F, fakeFeatures, 256, nil)
		p.run(c.spawn)
		s.current.Store(p)
	}
	return c, ios
}
