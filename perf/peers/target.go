package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"felix/perf/load"
)

// How a target uses NATS.
type mode string

const (
	core    mode = "core"              // publish and subscribe, nothing is kept
	request mode = "request"           // a request to a responder in the generator, which answers with nothing
	memory  mode = "jetstream, memory" // a stream in memory
	file    mode = "jetstream, file"   // a stream in files
)

func (m mode) jetStream() bool { return m == memory || m == file }

// Bounds.
const (
	httpTimeout  = 5 * time.Second
	maxAnswer    = 16 << 20 // of the monitor
	ringRecords  = 65536    // of a stream in memory, as in felix
	ringBytes    = 64 << 20
	clientBuffer = 64 << 10 // of nats.go and of the server, per connection
)

// natsTarget drives a nats-server.
type natsTarget struct {
	server      *server
	mode        mode
	connections int
	http        http.Client
}

var _ load.Target = (*natsTarget)(nil)

func newNATSTarget(s *server, m mode, connections int) *natsTarget {
	return &natsTarget{server: s, mode: m, connections: connections, http: http.Client{Timeout: httpTimeout}}
}

// Info is that of a Target.
func (t *natsTarget) Info() load.Info {
	return load.Info{
		Broker: "nats-server " + t.server.version + ", " + string(t.mode), Generator: "nats.go", Receiver: "nats.go",
		BufferBytes: int64(t.connections) * (clientBuffer + tcpMax("rmem") + tcpMax("wmem")),
	}
}

// tcpMax is what the kernel gives a socket at most, in one direction.
func tcpMax(which string) int64 {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_" + which)
	if fields := strings.Fields(string(text)); len(fields) == 3 {
		if n, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			return n
		}
	}
	return 8 << 20
}

// connect opens a connection.
func (t *natsTarget) connect() (*nats.Conn, error) {
	return nats.Connect(t.server.url, nats.Secure(t.server.tls.Clone()), nats.Timeout(readyTimeout),
		nats.MaxReconnects(10), nats.ReconnectWait(200*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what is lost is found by the counts
}

// A stream is the subjects of a run.
type stream struct {
	target *natsTarget
	name   string
	shards int

	mu    sync.Mutex
	conns []*nats.Conn // of publishers, used in turn; guarded by mu
	own   []*nats.Conn // of subscribers and the responder; guarded by mu
}

// Open is that of a Target.
func (t *natsTarget) Open(ctx context.Context, spec load.StreamSpec) (load.Stream, error) {
	if spec.Existing != "" {
		return nil, fmt.Errorf("%w: the target for NATS makes its own", load.ErrNoStream)
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &stream{target: t, name: "bench-" + hex.EncodeToString(random[:]), shards: spec.Shards}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *stream) open(ctx context.Context) error {
	for range s.target.connections {
		nc, err := s.target.connect()
		if err != nil {
			return err
		}
		s.conns = append(s.conns, nc)
	}
	switch {
	case s.target.mode == request:
		nc, err := s.target.connect()
		if err != nil {
			return err
		}
		s.own = append(s.own, nc)
		if _, err := nc.Subscribe(s.name+".*", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
			return err
		}
		return flush(ctx, nc)
	case s.target.mode.jetStream():
		js, err := jetstream.New(s.conns[0])
		if err != nil {
			return err
		}
		for shard := range s.shards {
			c := jetstream.StreamConfig{Name: fmt.Sprintf("%s-%d", s.name, shard), Subjects: []string{s.subject(shard)}, Storage: jetstream.FileStorage}
			if s.target.mode == memory {
				c.Storage, c.MaxMsgs, c.MaxBytes, c.Discard = jetstream.MemoryStorage, ringRecords, ringBytes, jetstream.DiscardOld
			}
			if _, err := js.CreateStream(ctx, c); err != nil {
				return fmt.Errorf("stream %s: %w", c.Name, err)
			}
		}
	}
	return nil
}

func (s *stream) subject(shard int) string { return fmt.Sprintf("%s.%d", s.name, shard) }

// Name is that of a Stream.
func (s *stream) Name() string { return s.name }

// Close is that of a Stream. The server's store goes with the server.
func (s *stream) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range append(s.conns, s.own...) {
		nc.Close()
	}
	s.conns, s.own = nil, nil
	return nil
}

// Counters is that of a Target.
func (t *natsTarget) Counters(ctx context.Context) (load.Counters, error) {
	c, err := processCounters(t.server.pid)
	if err != nil {
		return nil, err
	}
	switch {
	case t.mode == core:
		var varz struct {
			InMsgs int64 `json:"in_msgs"`
		}
		if err := t.ask(ctx, "/varz", &varz); err != nil {
			return nil, err
		}
		c[load.AppendedRecords] = float64(varz.InMsgs)
	case t.mode.jetStream():
		var jsz jsz
		if err := t.ask(ctx, "/jsz?acc=$G&streams=true", &jsz); err != nil {
			return nil, err
		}
		c[load.AppendedRecords] = float64(jsz.appended())
	}
	return c, nil
}

// jsz is what the monitor tells of streams.
type jsz struct {
	Accounts []struct {
		Streams []struct {
			State struct {
				LastSeq uint64 `json:"last_seq"`
			} `json:"state"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

// appended is how many records all streams together took: a sequence starts at 1 and has no holes.
func (j jsz) appended() (n uint64) {
	for _, account := range j.Accounts {
		for _, s := range account.Streams {
			n += s.State.LastSeq
		}
	}
	return n
}

// ask asks the monitor.
func (t *natsTarget) ask(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.server.monitor+path, nil)
	if err != nil {
		return err
	}
	response, err := t.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of nats-server answered %s", path, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(into)
}

// ticksPerSecond is the unit of times in /proc, which has not moved on Linux since there are 64-bit ones.
const ticksPerSecond = 100

// processCounters reads what the kernel tells of a process.
func processCounters(pid int) (load.Counters, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return parseStat(string(text), os.Getpagesize())
}

// parseStat reads the line of /proc/PID/stat: behind the name in parentheses, which may hold anything, follow the fields from the third on.
func parseStat(line string, pageBytes int) (load.Counters, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 22 {
		return nil, fmt.Errorf("/proc/PID/stat has %d fields behind the name, want at least 22", len(fields))
	}
	var err error
	number := func(field int) float64 { // counted from 1, as in the manual
		n, e := strconv.ParseFloat(fields[field-3], 64)
		err = errors.Join(err, e)
		return n
	}
	c := load.Counters{
		load.CPUSeconds: (number(14) + number(15)) / ticksPerSecond,
		load.StartTime:  number(22),
		load.RSSBytes:   number(24) * float64(pageBytes),
	}
	return c, err
}
