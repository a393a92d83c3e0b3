package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix"
	"felix/netio/udp"
)

type floodOptions struct {
	firstPackets, handshakes int // a second
	duration                 time.Duration
	share                    float64 // of its throughput that an existing client must keep; 0 means none
	seed                     uint64
}

func prepareFloods(flags *flag.FlagSet) func(context.Context, *report) error {
	var o floodOptions
	flags.IntVar(&o.firstPackets, "first", 5000, "first packets a second that nobody goes on with")
	flags.IntVar(&o.handshakes, "handshakes", 750, "whole handshakes a second")
	flags.DurationVar(&o.duration, "duration", time.Minute, "of each flood")
	flags.Float64Var(&o.share, "share", 0.5, "of its throughput that an existing client must keep")
	flags.Uint64Var(&o.seed, "seed", 1, "of the connection IDs")
	return func(ctx context.Context, r *report) error { return floods(ctx, r, o) }
}

// unauthenticatedCap is what the broker of floods allows.
const unauthenticatedCap = 512

// floods sends a broker what a client begins with, without going on, and then whole handshakes, while an existing client publishes.
func floods(ctx context.Context, r *report, o floodOptions) (err error) {
	b, err := startBench(ctx, func(c *felix.Config) {
		c.Limits.Unauthenticated, c.Limits.ConnectionsPerIP, c.Limits.Connections = unauthenticatedCap, -1, -1
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	if err := b.stream(ctx, "floods", false, felix.DropNew); err != nil {
		return err
	}
	c, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := startPump(ctx, c, "floods", 1, 256, 0)
	if err != nil {
		return err
	}
	during := func(what string, flood func(ctx context.Context) error) (rate float64, err error) {
		begun, from := time.Now(), p.acked.Load()
		if err := flood(ctx); err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
		rate = float64(p.acked.Load()-from) / time.Since(begun).Seconds()
		r.say("%s: an existing client publishes %.0f records/s", what, rate)
		return rate, nil
	}
	alone, err := during("alone", func(ctx context.Context) error { return pass(ctx, o.duration) })
	if err != nil {
		return err
	}
	first, err := during("first packets", func(ctx context.Context) error { return firstPackets(ctx, r, b, o) })
	if err != nil {
		return err
	}
	whole, err := during("handshakes", func(ctx context.Context) error { return handshakes(ctx, r, b, o) })
	if err != nil {
		return err
	}
	if _, err := p.stop(); err != nil {
		return fmt.Errorf("the existing client: %w", err)
	}
	if least := o.share * alone; first < least || whole < least {
		return fmt.Errorf("an existing client published %.0f records/s under first packets and %.0f under handshakes, less than %.2f of %.0f", first, whole, o.share, alone)
	}
	return await(ctx, "what was begun to be given up", func() bool { return b.broker.Stats().Unauthenticated == 0 })
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// paced calls f rate times a second for the duration, as far as f is fast enough.
func paced(ctx context.Context, rate int, d time.Duration, f func() error) (calls int, err error) {
	const step = 2 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	for begun := time.Now(); ctx.Err() == nil; {
		now := time.Since(begun)
		if now >= d {
			return calls, nil
		}
		for due := int(float64(rate) * now.Seconds()); calls < due; calls++ {
			if err := f(); err != nil {
				return calls, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return calls, context.Cause(ctx)
}

// floodSockets is how many source ports first packets come from.
const floodSockets = 32

// firstPackets begins handshakes and looks at what comes back: at most three times what was sent, from an address that has shown nothing.
func firstPackets(ctx context.Context, r *report, b *bench, o floodOptions) error {
	forger, err := newInitialForger(ctx, o.seed)
	if err != nil {
		return err
	}
	var sockets []*net.UDPConn
	var received, most atomic.Int64
	readers := newCrew(ctx)
	defer func() {
		for _, s := range sockets {
			s.Close()
		}
		readers.wait()
	}()
	for range floodSockets {
		s, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(b.broker.Addr()))
		if err != nil {
			return err
		}
		sockets = append(sockets, s)
		readers.do(func(context.Context) error {
			buf := make([]byte, 2048)
			for {
				n, err := s.Read(buf)
				received.Add(int64(n))
				if errors.Is(err, net.ErrClosed) {
					return nil
				}
			}
		})
	}
	sent := int64(0)
	calls, err := paced(ctx, o.firstPackets, o.duration, func() error {
		packet, err := forger.packet()
		if err != nil {
			return err
		}
		n, err := sockets[int(sent/initialBytes)%floodSockets].Write(packet)
		sent += int64(n)
		most.Store(max(most.Load(), b.broker.Stats().Unauthenticated))
		return err
	})
	if err != nil {
		return err
	}
	s := b.broker.Stats()
	r.say("%d first packets: %d bytes sent, %d came back (%.2f times); at most %d half-open, %d refused", calls, sent, received.Load(),
		float64(received.Load())/float64(max(sent, 1)), most.Load(), s.RefusedUnauthenticated)
	switch {
	case received.Load() > 3*sent:
		return fmt.Errorf("%d bytes came back for %d, more than three times as many", received.Load(), sent)
	case most.Load() > unauthenticatedCap:
		return fmt.Errorf("%d connections were half-open, more than %d", most.Load(), unauthenticatedCap)
	case most.Load() == 0:
		return errors.New("the broker took none of them for the beginning of a handshake, so nothing was tested")
	}
	return nil
}

// handshakers is how many handshakes are made at a time.
const handshakers = 16

// handshakes connects and closes.
func handshakes(ctx context.Context, r *report, b *bench, o floodOptions) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.broker.CertificatePEM())
	group := newCrew(ctx)
	var made, refused atomic.Int64
	for range handshakers {
		group.do(func(ctx context.Context) error {
			socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
			if err != nil {
				return err
			}
			defer socket.Close()
			transport := &quic.Transport{Conn: socket}
			defer transport.Close()
			_, err = paced(ctx, max(o.handshakes/handshakers, 1), o.duration, func() error {
				conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(b.broker.Addr()),
					&tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"felix/1"}}, &quic.Config{})
				if err != nil {
					refused.Add(1) // which is what a broker may do
					return ctx.Err()
				}
				made.Add(1)
				return conn.CloseWithError(0, "")
			})
			return err
		})
	}
	if err := group.wait(); err != nil {
		return err
	}
	r.say("%d handshakes made, %d refused", made.Load(), refused.Load())
	if made.Load() == 0 {
		return errors.New("no handshake was made")
	}
	return nil
}
