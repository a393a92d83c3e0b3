package ceiling

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Sink writes conns streams, each on a connection of its own, as fast as they go and returns the bytes per second that
// the server read. The first quarter of d comes on top and is not counted.
func Sink(ctx context.Context, conns int, d time.Duration) (bytesPerSecond float64, err error) {
	var read atomic.Int64
	l, err := newLink(func(s *quic.Stream) {
		buf := make([]byte, 256<<10)
		for {
			n, err := s.Read(buf)
			read.Add(int64(n))
			if err != nil {
				s.Close()
				return
			}
		}
	})
	if err != nil {
		return 0, err
	}
	defer l.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
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
	if err := sleep(ctx, d/4); err != nil {
		return 0, err
	}
	from, start := read.Load(), time.Now()
	err = sleep(ctx, d)
	bytesPerSecond = float64(read.Load()-from) / time.Since(start).Seconds()
	stop()
	wait.Wait()
	return bytesPerSecond, err
}
