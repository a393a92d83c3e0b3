package netio

import (
	"errors"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

// onlyStream is a stream that the server reads, where there is one.
func (f *fixture) onlyStream() *stream {
	f.t.Helper()
	var found *stream
	waitFor(f.t, "a stream", func() bool {
		for _, c := range f.server.connections() {
			c.mu.Lock()
			for st := range c.streams {
				found = st
			}
			c.mu.Unlock()
		}
		return found != nil
	})
	return found
}

// write gives st answers of n bytes, as if it owed them, and reports whether they wait for the peer.
func (f *fixture) write(st *stream, n int) (waiting bool) {
	f.t.Helper()
	result := make(chan bool, 1)
	err := st.conn.loop.PostOffCore(core.Func(func(*core.Loop) {
		st.answers.encoded = append(st.answers.encoded, make([]byte, n)...)
		st.write()
		result <- st.answers.waiting
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	return <-result
}

// TestAnswersDoNotPileUp shows that the broker waits for answers to be in packets before it queues more of them, however large the
// window of the peer is.
func TestAnswersDoNotPileUp(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	k.publish(batch(1, "updates", "", "x"))
	k.ack()
	st := f.onlyStream()
	if f.write(st, maxQueuedAnswers) {
		t.Error("the first answers wait although the peer has room for them")
	}
	if !f.write(st, 1) {
		t.Error("more answers are queued behind those that may not be sent yet")
	}
	waitFor(t, "all of them to be sent", func() bool { return !f.write(st, 0) })
}

func TestPeerWithoutRoomForAnswersLosesItsStream(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.AnswerTimeout = 50 * time.Millisecond }})
	f.createStream("updates", 1, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	var reset *quic.StreamError
	for i := uint64(1); ; i++ { // never reads
		k.s.SetWriteDeadline(time.Now().Add(patience))
		_, err := k.s.Write(wire.AppendPublish(nil, batch(i, "updates", "", "x")))
		if errors.As(err, &reset) {
			break
		}
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	p.alive()
	waitFor(t, "its bytes to come back", func() bool { return f.server.Stats().IngressBytes == 0 })
}
