package netio

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"

	"felix/fanout"
	"felix/netio/wire"
)

func TestDrainAnswersWhatItAccepted(t *testing.T) {
	f := start(t, fixtureOptions{cores: 2})
	f.createStream("updates", 8, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	idle := p.authed()
	var acked atomic.Int64
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			h, body, err := readFrame(k.s)
			if err != nil {
				return
			}
			var a wire.Ack
			if err := a.Parse(h.Flags, body); err != nil || a.Failed {
				t.Errorf("ack %+v, %v", a, err)
			}
			acked.Add(1)
		}
	}()
	stop := make(chan struct{})
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for i := uint64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := k.s.Write(wire.AppendPublish(nil, batch(i, "updates", "key", "payload"))); err != nil {
				return
			}
		}
	}()
	waitFor(t, "load", func() bool { return acked.Load() > 1000 })
	if err := f.server.Drain(t.Context()); err != nil {
		t.Fatalf("Drain: %v", err)
	}
	close(stop)
	<-sending
	<-read
	// What was appended was answered, and nothing else.
	if s := f.server.Stats(); int64(s.PublishFrames) != acked.Load() {
		t.Errorf("%d frames appended, %d acknowledged", s.PublishFrames, acked.Load())
	}
	<-p.conn.Context().Done()
	var closed *quic.ApplicationError
	if _, err := idle.s.Read(make([]byte, 1)); err == nil {
		t.Error("an idle stream outlived the drain")
	}
	if err := context.Cause(p.conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != closeShutdown {
		t.Errorf("connection closed with %v, want code 0", err)
	}
}

func TestDrainRefusesNewStreams(t *testing.T) {
	f := start(t, fixtureOptions{})
	p := f.connect()
	p.authed()
	f.server.draining.Store(true)
	k := p.open()
	k.send(auth())
	k.wantError(wire.CodeDraining)
	k.mustEnd()
}

func TestDrainDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	f := start(t, fixtureOptions{})
	f.createStream("updates", 1, fanout.DropNew)
	p := f.connect()
	k := p.authed()
	// Answers beyond the client's window, never read: a writer waits for the peer.
	st := f.onlyStream()
	go func() {
		for i := uint64(1); ; i++ {
			b := batch(i, "updates", "", "x")
			b.Stream = bytes.Repeat([]byte("n"), 100) // refused with a message that names it
			if _, err := k.s.Write(wire.AppendPublish(nil, b)); err != nil {
				return
			}
		}
	}()
	waitFor(t, "a full window", func() bool { return st.acked.full() && f.write(st, 0) })
	if err := f.server.Drain(t.Context()); err != nil {
		t.Fatalf("Drain: %v", err)
	}
	<-p.conn.Context().Done()
}
