package ceiling

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/quic-go/quic-go"
)

// EchoResult are percentiles of the round trip of one request at a time.
type EchoResult struct {
	P50, P99 time.Duration
	Rounds   int
}

// Echo sends requests of size bytes one after the other on one stream and returns how long the answers took. The first
// tenth is not counted.
func (f Form) Echo(ctx context.Context, size, rounds int) (r EchoResult, err error) {
	l, err := f.open(ctx, ask{probe: probeEcho})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	conn, err := l.dial(ctx)
	if err != nil {
		return r, err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return r, err
	}
	request, answer := make([]byte, size), make([]byte, size)
	took := make([]time.Duration, 0, rounds)
	for i := range rounds + rounds/10 {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		start := time.Now()
		if _, err := stream.Write(request); err != nil {
			return r, err
		}
		if _, err := io.ReadFull(stream, answer); err != nil {
			return r, err
		}
		if i >= rounds/10 {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	return EchoResult{P50: took[len(took)/2], P99: took[len(took)*99/100], Rounds: rounds}, nil
}

func serveEcho(s *quic.Stream) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			s.Close()
			return
		}
	}
}
