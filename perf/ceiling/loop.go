package ceiling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// LoopConfig is the shape of the load. Zero fields take what DESIGN's ceiling L was measured with: 8 connections of 8
// streams, 64 records in flight on each, 256 bytes, 48 rings.
type LoopConfig struct {
	Conns, Streams, InFlight int
	RecordBytes              int // at least 8
	Rings                    int // at most 4,096
	// Warmup is not counted; Duration is. Zero means 500 ms and 2 s.
	Warmup, Duration time.Duration
}

func (c *LoopConfig) defaults() {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Conns, 8)
	set(&c.Streams, 8)
	set(&c.InFlight, 64)
	set(&c.RecordBytes, 256)
	set(&c.Rings, 48)
	if c.Warmup == 0 {
		c.Warmup = 500 * time.Millisecond
	}
	if c.Duration == 0 {
		c.Duration = 2 * time.Second
	}
}

const ringRecords = 1024

// ring is the least storage that keeps a record: the last 1,024 of them.
type ring struct {
	mu      sync.Mutex
	records [ringRecords][]byte
	next    int
}

// Loop returns acknowledged records per second.
func (f Form) Loop(ctx context.Context, c LoopConfig) (perSecond float64, err error) {
	c.defaults()
	var wait sync.WaitGroup
	defer wait.Wait() // once the connections are closed, which ends a read that nobody answers
	l, err := f.open(ctx, ask{probeLoop, c.Rings})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		acked atomic.Int64
		fails = make(chan error, 2*c.Conns*c.Streams)
	)
	for range c.Conns {
		conn, err := l.dial(ctx)
		if err != nil {
			return 0, err
		}
		for range c.Streams {
			stream, err := conn.OpenStreamSync(ctx)
			if err != nil {
				return 0, err
			}
			window := make(chan struct{}, c.InFlight)
			wait.Go(func() {
				if err := publishLoop(ctx, stream, window, c.RecordBytes); err != nil && ctx.Err() == nil {
					fails <- err
				}
			})
			wait.Go(func() {
				if err := readAcks(stream, window, &acked); err != nil && ctx.Err() == nil {
					fails <- err
				}
			})
		}
	}
	if err := Sleep(ctx, c.Warmup); err != nil {
		return 0, err
	}
	from, start := acked.Load(), time.Now()
	err = Sleep(ctx, c.Duration)
	perSecond = float64(acked.Load()-from) / time.Since(start).Seconds()
	stop()
	wait.Wait()
	select {
	case failure := <-fails:
		return 0, failure
	default:
	}
	return perSecond, err
}

// serveLoop reads `u32 len, u64 id, payload`, keeps each record and answers each id.
func serveLoop(s *quic.Stream, rings []ring) {
	buf := make([]byte, 256<<10)
	var acks []byte
	have, turn := 0, 0
	for {
		n, err := s.Read(buf[have:])
		have += n
		at := 0
		acks = acks[:0]
		for have-at >= 4 {
			size := int(binary.BigEndian.Uint32(buf[at:]))
			if have-at < 4+size {
				break
			}
			record := buf[at+4 : at+4+size]
			r := &rings[turn%len(rings)]
			turn++
			r.mu.Lock()
			r.records[r.next%ringRecords] = append([]byte(nil), record...)
			r.next++
			r.mu.Unlock()
			acks = append(acks, record[:8]...)
			at += 4 + size
		}
		have = copy(buf, buf[at:have])
		if len(acks) > 0 {
			if _, err := s.Write(acks); err != nil {
				return
			}
		}
		if err != nil {
			s.Close()
			return
		}
	}
}

// publishLoop keeps the window full: what fits goes out in one write.
func publishLoop(ctx context.Context, s *quic.Stream, window chan struct{}, size int) error {
	payload := make([]byte, size)
	var buf []byte
	for id := uint64(0); ; {
		buf = buf[:0]
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
			return s.Close()
		}
		for room := true; room; {
			binary.BigEndian.PutUint64(payload, id)
			id++
			buf = binary.BigEndian.AppendUint32(buf, uint32(size))
			buf = append(buf, payload...)
			select {
			case window <- struct{}{}:
			default:
				room = false
			}
		}
		if _, err := s.Write(buf); err != nil {
			return err
		}
	}
}

func readAcks(s *quic.Stream, window chan struct{}, acked *atomic.Int64) error {
	buf := make([]byte, 64<<10)
	have := 0
	for want := uint64(0); ; {
		n, err := s.Read(buf[have:])
		have += n
		at := 0
		for ; have-at >= 8; at += 8 {
			if id := binary.BigEndian.Uint64(buf[at:]); id != want {
				return fmt.Errorf("ack for record %d, want %d", id, want)
			}
			want++
			<-window
		}
		acked.Add(int64(at / 8))
		have = copy(buf, buf[at:have])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Sleep waits for d. It returns the error of ctx when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
