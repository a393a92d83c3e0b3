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
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"felix"
	"felix/netio/udp"
	"felix/netio/wire"
)

type mutateOptions struct {
	n      int
	growth int64 // of the process's memory, in bytes
	seed   uint64
}

func prepareMutate(flags *flag.FlagSet) func(context.Context, *report) error {
	var o mutateOptions
	flags.IntVar(&o.n, "n", 1_000_000, "mutated frames")
	flags.Int64Var(&o.growth, "growth", 32<<20, "bytes that the process, clients included, may grow by")
	flags.Uint64Var(&o.seed, "seed", 1, "of the mutations")
	return func(ctx context.Context, r *report) error { return mutate(ctx, r, o) }
}

const (
	mutatedPerStream     = 40
	mutatedPerConnection = 2000
)

// mutate sends frames that have been changed at random to a broker while another client publishes to it and checks its acks.
func mutate(ctx context.Context, r *report, o mutateOptions) (err error) {
	b, err := startBench(ctx, func(c *felix.Config) {
		c.Delivery.RingBytes, c.AutoCreate = 1<<20, felix.Off // what streams keep is none of the frames' doing
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	for _, name := range []string{"updates", "other"} {
		if err := b.stream(ctx, name, false, felix.DropNew); err != nil {
			return err
		}
	}
	other, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer other.Close()
	// The other client publishes one record after the other; its latencies tell what the frames do to it.
	var lone, beside []time.Duration
	publish := func(ctx context.Context, times *[]time.Duration) error {
		begun := time.Now()
		_, err := other.Publish(ctx, "other", []byte("hello"))
		*times = append(*times, time.Since(begun))
		return err
	}
	for range 500 {
		if err := publish(ctx, &lone); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.broker.CertificatePEM())
	m := &mutator{addr: b.broker.Addr(), roots: roots, rng: rand.New(rand.NewPCG(o.seed, 0)), seeds: seedFrames()}
	if err := m.send(ctx, min(o.n, 2*mutatedPerConnection)); err != nil { // what pools and the runtime keep is there from now on
		return err
	}
	debug.FreeOSMemory()
	before, err := residentBytes(os.Getpid())
	if err != nil {
		return err
	}
	group := newCrew(ctx)
	ended := make(chan struct{})
	group.do(func(ctx context.Context) error {
		defer close(ended)
		return m.send(ctx, o.n)
	})
	group.do(func(ctx context.Context) error {
		for !isClosed(ended) {
			if err := publish(ctx, &beside); err != nil {
				return fmt.Errorf("another client's publish: %w", err)
			}
		}
		return nil
	})
	if err := group.wait(); err != nil {
		return err
	}
	err = await(ctx, "the connections to be gone", func() bool {
		s := b.broker.Stats()
		return s.Unauthenticated == 0 && s.Subscriptions == 0 && s.IngressBytes == 0 && s.SlotsInUse == 0
	})
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	after, err := residentBytes(os.Getpid())
	if err != nil {
		return err
	}
	s := b.broker.Stats()
	p99 := func(times []time.Duration) time.Duration {
		slices.Sort(times)
		return times[len(times)*99/100].Round(time.Microsecond)
	}
	r.say("%d frames: %d malformed, %d with unknown flags, %d oversized, %d publishes taken; memory %+d KiB; %d publishes of another client, p99 %v (alone %v)",
		o.n, s.MalformedFrames, s.UnknownFlags, s.OversizedFrames, s.PublishFrames, (after-before)>>10, len(beside), p99(beside), p99(lone))
	switch {
	case after-before > o.growth:
		return fmt.Errorf("the process grew by %d bytes, more than %d", after-before, o.growth)
	case s.MalformedFrames == 0 || s.UnknownFlags == 0 || s.PublishFrames == 0:
		return errors.New("the mutations reached too little to test anything")
	}
	return nil
}

type mutator struct {
	addr  netip.AddrPort
	roots *x509.CertPool
	rng   *rand.Rand
	seeds [][]byte
}

// send sends n frames, over one connection after the other.
func (m *mutator) send(ctx context.Context, n int) error {
	for sent := 0; sent < n; sent += mutatedPerConnection {
		if err := m.connection(ctx, min(n-sent, mutatedPerConnection)); err != nil {
			return fmt.Errorf("after %d mutated frames: %w", sent, err)
		}
	}
	return nil
}

func (m *mutator) connection(ctx context.Context, n int) error {
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return err
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(m.addr), &tls.Config{RootCAs: m.roots, ServerName: "localhost", NextProtos: []string{"felix/1"}},
		&quic.Config{HandshakeIdleTimeout: handshakePatience, MaxIdleTimeout: 6 * time.Second, KeepAlivePeriod: 2 * time.Second, MaxIncomingUniStreams: 1024})
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	go func() { // event streams of subscriptions that the frames happen to make; ends with the connection
		for {
			s, err := conn.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			s.CancelRead(0)
		}
	}()
	for range max(n/mutatedPerStream, 1) {
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		b := wire.AppendMessage(nil, &wire.Auth{
			TenantID: felix.DefaultName, ClientFlags: wire.DefaultClientFlags, HasClientFlags: true,
			ClientFeatures: wire.FeatureErrorCodes | wire.FeatureUnsupported | wire.FeaturePublishPipeline, HasClientFeatures: true,
		})
		for range mutatedPerStream {
			b = append(b, m.mutated()...)
		}
		stream.Write(b) // the broker may have given the stream up
		stream.Close()
		// It ends every stream: with answers, after a frame it cannot read, or at our end.
		if _, err := io.Copy(io.Discard, stream); err != nil && !errors.As(err, new(*quic.StreamError)) {
			return err
		}
	}
	return nil
}

// mutated changes 0 to 8 bytes of a frame, mostly behind the magic, so that frames get past the first check.
func (m *mutator) mutated() []byte {
	b := slices.Clone(m.seeds[m.rng.IntN(len(m.seeds))])
	for range m.rng.IntN(9) {
		at := m.rng.IntN(len(b))
		if m.rng.IntN(10) > 0 && (at < 6 || at >= 8 && at < 10) {
			continue // magic, version, and lengths that the stream would wait for until its end, teach little
		}
		b[at] = byte(m.rng.Uint32())
	}
	if m.rng.IntN(20) == 0 {
		b = b[:m.rng.IntN(len(b)+1)]
	}
	return b
}

// seedFrames are requests of every kind, and answers, which no client sends.
func seedFrames() (frames [][]byte) {
	scope := wire.Scope{TenantID: felix.DefaultName, Namespace: felix.DefaultName, Stream: "updates"}
	records := wire.AppendRecord(wire.AppendRecord(nil, []byte("one")), nil)
	for _, m := range []wire.Message{
		&wire.Subscribe{Scope: scope}, &wire.Subscribe{Scope: scope, Start: wire.StartPosition{Kind: wire.StartOffset, Offset: 7}, Shard: 1, HasShard: true},
		&wire.StreamShards{Scope: scope, RequestID: 1}, &wire.Topology{}, &wire.ProducerInit{RequestID: 2},
		&wire.ShardOwners{TenantID: scope.TenantID, Namespace: scope.Namespace, Name: scope.Stream, Kind: wire.ShardKindStream, RequestID: 3},
		&wire.ShardInspect{TenantID: scope.TenantID, Namespace: scope.Namespace, Name: scope.Stream, Kind: wire.ShardKindStream, RequestID: 4},
		&wire.SubscriptionsList{RequestID: 5, Limit: 10, HasLimit: true}, &wire.StreamRead{Scope: scope, RequestID: 6}, &wire.OffsetForTime{Scope: scope, RequestID: 7},
		&wire.PublishMessage{Scope: scope, Payload: []byte("one"), RequestID: 8, HasRequestID: true, Ack: wire.AckPerBatch},
		&wire.PublishBatch{Scope: scope, Count: 2, Records: records, Key: []byte("k"), HasKey: true},
		&wire.PublishIdempotent{Scope: scope, Count: 2, Records: records, RequestID: 9, ProducerID: 1}, &wire.PublishWidth{Scope: scope, Shards: 1},
		&wire.Extension{Name: "x", Body: []byte(`{"a":1}`)}, &wire.OK{}, &wire.Auth{TenantID: scope.TenantID}, wire.NewError(wire.CodeInternal, "no"),
	} {
		frames = append(frames, wire.AppendMessage(nil, m))
	}
	for _, flags := range []wire.Flags{0, wire.FlagPublishAcked, wire.FlagPublishKeyed, wire.FlagPublishAcked | wire.FlagPublishKeyed | wire.FlagPublishIdempotent} {
		frames = append(frames, wire.AppendPublish(nil, &wire.Publish{
			Flags: wire.FlagPublishBatch | flags, RequestID: 10, AckMode: wire.AckPerBatch, Key: []byte("k"), ProducerID: 1,
			Tenant: []byte(scope.TenantID), Namespace: []byte(scope.Namespace), Stream: []byte(scope.Stream), Count: 2, Records: records,
		}))
	}
	return append(frames, wire.AppendAckOK(nil, 1, 2, true))
}
