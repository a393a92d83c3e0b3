package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix"
	"felix/netio/udp"
	"felix/netio/wire"
)

type churnOptions struct {
	n, workers int
	seed       uint64
}

func prepareChurn(flags *flag.FlagSet) func(context.Context, *report) error {
	var o churnOptions
	flags.IntVar(&o.n, "n", 10_000, "cycles of connect, subscribe and vanish")
	flags.IntVar(&o.workers, "workers", 16, "cycles at a time")
	flags.Uint64Var(&o.seed, "seed", 1, "of the ways to vanish")
	return func(ctx context.Context, r *report) error { return churn(ctx, r, o) }
}

// churn has clients connect, publish, subscribe and go in every way there is. Those that vanish are there for the broker until the idle
// timeout of 6 s, so connections are not limited here.
func churn(ctx context.Context, r *report, o churnOptions) (err error) {
	b, err := startBench(ctx, func(c *felix.Config) {
		c.Limits.Connections, c.Limits.ConnectionsPerIP = -1, -1
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	for _, durable := range []bool{false, true} {
		policy := felix.DropNew
		if durable {
			policy = felix.CatchUp
		}
		if err := b.stream(ctx, churnStream(durable), durable, policy); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.broker.CertificatePEM())
	var timeouts atomic.Int64
	round := func(n int) error {
		group := newCrew(ctx)
		var left atomic.Int64
		left.Store(int64(n))
		for worker := range min(o.workers, n) {
			rng := rand.New(rand.NewPCG(o.seed, uint64(worker)))
			group.do(func(ctx context.Context) error {
				for left.Add(-1) >= 0 {
					err := cycle(ctx, b.broker.Addr(), roots, rng)
					for errors.As(err, new(*quic.IdleTimeoutError)) {
						// A machine that gave one of the two no time for 6 s: one more way to vanish. It is no cycle.
						timeouts.Add(1)
						err = cycle(ctx, b.broker.Addr(), roots, rng)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		return group.wait()
	}
	// The first round leaves what a process keeps: rings, pools, and goroutines of the runtime.
	if err := round(4 * vanishings); err != nil {
		return err
	}
	quiet := func() bool {
		s := b.broker.Stats()
		return s.Connections == 0 && s.Streams == 0 && s.Subscriptions == 0 && s.IngressBytes == 0 && s.SlotsInUse == 0
	}
	if err := await(ctx, "the first clients to be gone", quiet); err != nil {
		return err
	}
	baseline, err := steady(ctx, b)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := round(o.n); err != nil {
		return err
	}
	took := time.Since(begun)
	if err := b.settle(ctx, baseline); err != nil {
		return err
	}
	s := b.broker.Stats()
	r.say("%d cycles at %.0f/s, %d timeouts; back at %+v, %v after the last", o.n, float64(o.n)/took.Seconds(), timeouts.Load(), baseline, time.Since(begun.Add(took)).Round(time.Millisecond))
	if n := timeouts.Load(); n > int64(o.n/20+16) {
		return fmt.Errorf("%d of %d connections timed out", n, o.n)
	}
	if s.Subscribes < uint64(o.n) {
		return fmt.Errorf("%d subscriptions of %d cycles", s.Subscribes, o.n)
	}
	return nil
}

func churnStream(durable bool) string {
	if durable {
		return "churn-durable"
	}
	return "churn-memory"
}

// steady returns the books once they have stayed the same for a while: timers that are about to end goroutines have then done so.
func steady(ctx context.Context, b *bench) (books, error) {
	last, err := b.books()
	for same := 0; err == nil && same < 200; {
		err = await(ctx, "a moment", pollOnce())
		var now books
		if err == nil {
			now, err = b.books()
		}
		if same++; now != last {
			last, same = now, 0
		}
	}
	return last, err
}

// pollOnce is a condition for await that holds at the second look.
func pollOnce() func() bool {
	looked := false
	return func() bool {
		before := looked
		looked = true
		return before
	}
}

// The ways to go.
const (
	closeConnection = iota // with code 0
	vanish                 // the socket is gone, nobody is told
	resetStreams           // every stream is given up first
	halfRequest            // in the middle of a frame, then like vanish
	vanishings             // their number
)

// handshakePatience is for machines that have no time; a broker is not judged by it.
const handshakePatience = time.Minute

// cycle is one client by hand.
func cycle(ctx context.Context, addr netip.AddrPort, roots *x509.CertPool, rng *rand.Rand) error {
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return err
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"felix/1"}},
		&quic.Config{HandshakeIdleTimeout: handshakePatience, MaxIdleTimeout: 6 * time.Second, MaxIncomingUniStreams: 16, InitialPacketSize: 1452, DisablePathMTUDiscovery: true})
	if err != nil {
		return err
	}
	scope := wire.Scope{TenantID: felix.DefaultName, Namespace: felix.DefaultName, Stream: churnStream(rng.IntN(2) == 0)}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	var b []byte
	b = wire.AppendMessage(b, &wire.Auth{TenantID: felix.DefaultName, ClientFlags: wire.DefaultClientFlags, HasClientFlags: true})
	b = wire.AppendMessage(b, &wire.Subscribe{Scope: scope})
	if _, err := stream.Write(b); err != nil {
		return err
	}
	events, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	publish := wire.AppendPublish(nil, &wire.Publish{
		Flags: wire.FlagPublishBatch | wire.FlagPublishAcked, RequestID: 1, AckMode: wire.AckPerBatch,
		Tenant: []byte(scope.TenantID), Namespace: []byte(scope.Namespace), Stream: []byte(scope.Stream),
		Count: 1, Records: wire.AppendRecord(nil, make([]byte, 1+rng.IntN(8<<10))),
	})
	if _, err := stream.Write(publish); err != nil {
		return err
	}
	// The hello, and what has been published by now.
	if _, err := io.ReadFull(events, make([]byte, wire.HeaderBytes)); err != nil {
		return err
	}
	switch rng.IntN(vanishings) {
	case resetStreams:
		events.CancelRead(0)
		stream.CancelRead(0)
		stream.CancelWrite(0)
		fallthrough
	case closeConnection:
		return conn.CloseWithError(0, "")
	case halfRequest:
		_, err = stream.Write(publish[:len(publish)/2])
	}
	return err // the deferred calls take the socket first: nothing is sent any more
}
