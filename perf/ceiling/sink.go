package ceiling

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Sink writes conns streams, each on a connection of its own, as fast as they go and returns the bytes per second that
// the server read. The first quarter of d comes on top and is not counted.
func (f Form) Sink(ctx context.Context, conns int, d time.Duration) (bytesPerSecond float64, err error) {
	var wait sync.WaitGroup
	defer wait.Wait() // once the connections are closed, which ends a write that nobody reads
	l, err := f.open(ctx, ask{probe: probeSink})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range conns {
		conn, err := l.dial(ctx)
		if err != nil {
			return 0, err
		}
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return 0, err
		}
		wait.Go(func() {
			buf := make([]byte, 128<<10)
			for ctx.Err() == nil {
				if _, err := stream.Write(buf); err != nil {
					return
				}
			}
			stream.CancelWrite(0)
		})
	}
	if err := Sleep(ctx, d/4); err != nil {
		return 0, err
	}
	from, err := l.received(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := Sleep(ctx, d); err != nil {
		return 0, err
	}
	to, err := l.received(ctx)
	return float64(to-from) / time.Since(start).Seconds(), err
}

// serveSink reads into nowhere.
func serveSink(s *quic.Stream, received *atomic.Int64) {
	buf := make([]byte, 256<<10)
	for {
		n, err := s.Read(buf)
		received.Add(int64(n))
		if err != nil {
			s.Close()
			return
		}
	}
}
