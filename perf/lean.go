package perf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/udp"
	"felix/netio/wire"
)

// LeanConfig is the load of a lean generator: publishers that build frames with the broker's own wire package and do
// nothing else, for the cells in which a client library would be the bottleneck.
type LeanConfig struct {
	Addr    netip.AddrPort // entry of the broker
	Roots   *x509.CertPool
	Stream  string // exists, in tenant and namespace "default"
	Streams int    // QUIC streams per owner core
	// InFlight frames are unanswered per stream at most; the broker grants 256.
	InFlight    int
	RecordBytes int
	Batch       int // records per frame
	Keys        int // keys used per stream
	// Warmup is not counted, Duration is.
	Warmup, Duration time.Duration
}

// LeanResult is what was acknowledged within the duration. Every answer was checked: in order and a success.
type LeanResult struct {
	RecordsPerSecond float64
	Records          int64 // in all, warm-up included
}

// Lean publishes acked batches until the time is over, in a closed loop. Each connection goes to the core that owns the
// shards it publishes to.
func Lean(ctx context.Context, c LeanConfig) (LeanResult, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return LeanResult{}, err
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	g := &lean{c: c, transport: transport}
	owners, err := g.owners(ctx)
	if err != nil {
		return LeanResult{}, err
	}
	var (
		wait  sync.WaitGroup
		fails = make(chan error, 1)
	)
	for addr, shards := range owners {
		conn, err := g.dial(ctx, addr)
		if err != nil {
			return LeanResult{}, err
		}
		defer conn.CloseWithError(0, "")
		for i := range c.Streams {
			stream, err := g.open(ctx, conn)
			if err != nil {
				return LeanResult{}, err
			}
			window := make(chan struct{}, c.InFlight)
			run := func(f func() error) {
				wait.Go(func() {
					if err := f(); err != nil && ctx.Err() == nil {
						select {
						case fails <- err:
							stop()
						default:
						}
					}
				})
			}
			run(func() error { return g.publish(ctx, stream, window, keysFor(shards, i, c.Keys)) })
			run(func() error { return g.answers(stream, window) })
		}
	}
	if err := pause(ctx, c.Warmup); err != nil {
		return LeanResult{}, errors.Join(err, first(fails))
	}
	from, start := g.acked.Load(), time.Now()
	err = pause(ctx, c.Duration)
	rate := float64(g.acked.Load()-from) / time.Since(start).Seconds()
	stop()
	wait.Wait()
	if failure := first(fails); failure != nil {
		return LeanResult{}, failure
	}
	return LeanResult{RecordsPerSecond: rate, Records: g.acked.Load()}, err
}

type lean struct {
	c         LeanConfig
	transport *quic.Transport
	acked     atomic.Int64
}

func first(fails chan error) error {
	select {
	case err := <-fails:
		return err
	default:
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *lean) dial(ctx context.Context, addr netip.AddrPort) (*quic.Conn, error) {
	return g.transport.Dial(ctx, net.UDPAddrFromAddrPort(addr),
		&tls.Config{RootCAs: g.c.Roots, ServerName: "localhost", NextProtos: []string{"felix/1"}, MinVersion: tls.VersionTLS13},
		&quic.Config{
			InitialPacketSize: 1452, DisablePathMTUDiscovery: true, MaxIdleTimeout: 6 * time.Second, KeepAlivePeriod: 2 * time.Second,
			InitialStreamReceiveWindow: 512 << 10, InitialConnectionReceiveWindow: 1 << 20,
		})
}

// open opens a stream and authenticates it.
func (g *lean) open(ctx context.Context, conn *quic.Conn) (*quic.Stream, error) {
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	auth := &wire.Auth{
		TenantID: "default", ClientFlags: wire.DefaultClientFlags, HasClientFlags: true,
		ClientFeatures: wire.FeaturePublishPipeline | wire.FeatureErrorCodes, HasClientFeatures: true,
	}
	m, err := ask(stream, auth)
	if err != nil {
		return nil, err
	}
	if _, ok := m.(*wire.AuthOK); !ok {
		return nil, fmt.Errorf("answer to auth is %s: %+v", m.MessageType(), m)
	}
	return stream, nil
}

func ask(stream *quic.Stream, request wire.Message) (wire.Message, error) {
	if _, err := stream.Write(wire.AppendMessage(nil, request)); err != nil {
		return nil, err
	}
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return nil, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(stream, body); err != nil {
		return nil, err
	}
	return wire.ParseMessage(body)
}

// owners returns the shards of the stream by the address of the core that owns them.
func (g *lean) owners(ctx context.Context) (map[netip.AddrPort]map[uint32]uint32, error) {
	conn, err := g.dial(ctx, g.c.Addr)
	if err != nil {
		return nil, err
	}
	defer conn.CloseWithError(0, "")
	stream, err := g.open(ctx, conn)
	if err != nil {
		return nil, err
	}
	m, err := ask(stream, &wire.ShardOwners{TenantID: "default", Namespace: "default", Name: g.c.Stream, Kind: wire.ShardKindStream})
	if err != nil {
		return nil, err
	}
	view, ok := m.(*wire.ShardOwnersView)
	if !ok || len(view.Owners) == 0 {
		return nil, fmt.Errorf("stream %q has no owners: %+v", g.c.Stream, m)
	}
	owners := make(map[netip.AddrPort]map[uint32]uint32)
	for _, o := range view.Owners {
		addr := g.c.Addr
		if o.Addr != "" {
			if addr, err = netip.ParseAddrPort(o.Addr); err != nil {
				return nil, err
			}
		}
		if owners[addr] == nil {
			owners[addr] = make(map[uint32]uint32)
		}
		owners[addr][o.Shard] = uint32(len(view.Owners))
	}
	return owners, nil
}

// keysFor returns n keys that fall on the given shards, different ones for each stream.
func keysFor(shards map[uint32]uint32, stream, n int) [][]byte {
	var width uint32
	for _, w := range shards {
		width = w
	}
	var keys [][]byte
	for i := 0; len(keys) < n; i++ {
		key := fmt.Appendf(nil, "key-%d-%d", stream, i)
		if _, ok := shards[wire.ShardOf(wire.RoutingModulo, key, true, width)]; ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// publish keeps the window full: what fits goes out in one write. It ends by finishing the stream.
func (g *lean) publish(ctx context.Context, stream *quic.Stream, window chan struct{}, keys [][]byte) error {
	var records []byte
	for range g.c.Batch {
		records = wire.AppendRecord(records, make([]byte, g.c.RecordBytes))
	}
	p := wire.Publish{
		Flags: wire.FlagPublishBatch | wire.FlagPublishAcked | wire.FlagPublishKeyed, AckMode: wire.AckPerBatch,
		Tenant: []byte("default"), Namespace: []byte("default"), Stream: []byte(g.c.Stream),
		Count: uint32(g.c.Batch), Records: records,
	}
	var buf []byte
	for {
		buf = buf[:0]
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
			return stream.Close()
		}
		for room := true; room && len(buf) < 256<<10; {
			p.RequestID++
			p.Key = keys[int(p.RequestID)%len(keys)]
			buf = wire.AppendPublish(buf, &p)
			if len(buf) >= 256<<10 {
				break
			}
			select {
			case window <- struct{}{}:
			default:
				room = false
			}
		}
		if _, err := stream.Write(buf); err != nil {
			return err
		}
	}
}

// answers checks every answer until the broker has finished the stream.
func (g *lean) answers(stream *quic.Stream, window chan struct{}) error {
	buf := make([]byte, 64<<10)
	have := 0
	want := uint64(1)
	for {
		n, err := stream.Read(buf[have:])
		have += n
		b := buf[:have]
		count := 0
		for {
			h, body, rest, ok, splitErr := wire.SplitFrame(b, wire.MaxFrameBytes)
			if splitErr != nil {
				return splitErr
			}
			if !ok {
				break
			}
			var a wire.Ack
			if err := a.Parse(h.Flags, body); err != nil {
				return err
			}
			if a.Failed || a.RequestID != want {
				return fmt.Errorf("answer %+v, want success of request %d", a, want)
			}
			want++
			count++
			<-window
			b = rest
		}
		g.acked.Add(int64(count * g.c.Batch))
		have = copy(buf, b)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Lone publishes one record at a time on one stream to the first shard's owner and returns how long each ack took, after
// a tenth of the rounds as warm-up.
func Lone(ctx context.Context, c LeanConfig, rounds int) ([]time.Duration, error) {
	socket, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{})
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	g := &lean{c: c, transport: transport}
	owners, err := g.owners(ctx)
	if err != nil {
		return nil, err
	}
	for addr, shards := range owners {
		if _, ok := shards[0]; !ok {
			continue
		}
		conn, err := g.dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		defer conn.CloseWithError(0, "")
		stream, err := g.open(ctx, conn)
		if err != nil {
			return nil, err
		}
		return g.lone(ctx, stream, rounds)
	}
	return nil, fmt.Errorf("nobody owns shard 0 of stream %q", c.Stream)
}

func (g *lean) lone(ctx context.Context, stream *quic.Stream, rounds int) ([]time.Duration, error) {
	p := wire.Publish{
		Flags: wire.FlagPublishBatch | wire.FlagPublishAcked, AckMode: wire.AckPerBatch,
		Tenant: []byte("default"), Namespace: []byte("default"), Stream: []byte(g.c.Stream),
		Count: 1, Records: wire.AppendRecord(nil, make([]byte, g.c.RecordBytes)),
	}
	took := make([]time.Duration, 0, rounds)
	var frame []byte
	answer := make([]byte, wire.MaxAckOKBytes)
	for i := range rounds + rounds/10 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.RequestID++
		start := time.Now()
		frame = wire.AppendPublish(frame[:0], &p)
		if _, err := stream.Write(frame); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(stream, answer); err != nil {
			return nil, err
		}
		if i >= rounds/10 {
			took = append(took, time.Since(start))
		}
		h, err := wire.ParseHeader(answer)
		if err != nil {
			return nil, err
		}
		var a wire.Ack
		if err := a.Parse(h.Flags, answer[wire.HeaderBytes:]); err != nil || a.Failed || a.RequestID != p.RequestID || !a.HasOffset {
			return nil, fmt.Errorf("answer %+v (%w), want success of request %d with its offset", a, err, p.RequestID)
		}
	}
	slices.Sort(took)
	return took, nil
}
