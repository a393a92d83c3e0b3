package load

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"felix"
	"felix/client"
)

// startBroker starts a broker with an admin listener in this process.
func startBroker(t *testing.T, config felix.Config) *felix.Broker {
	t.Helper()
	config.Admin = "127.0.0.1:0"
	if os.Getenv("FELIX_TEST_PINNED") == "1" {
		config.CoreShards = 2
	} else if config.Cores == 0 {
		config.Cores = 2
	}
	b, err := felix.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func newTarget(t *testing.T, generator string, c FelixConfig) Target {
	t.Helper()
	target, err := NewTarget(generator, c)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// brief is a closed loop of little.
func brief(scenario Scenario, target Target) Config {
	return Config{
		Scenario: scenario, Target: target, Publishers: 3, InFlight: 8, Size: 40, Batch: 5, Keys: 7, Shards: 6,
		Warmup: 30 * time.Millisecond, Duration: 200 * time.Millisecond, Patience: patience,
	}
}

// nothingMeasured is why a run is void that was too short.
const nothingMeasured = "nothing was acknowledged in the measured time"

// drive makes runs, each twice as long as the one before, until one has measured something that is enough: on a machine that is busy with
// something else a short one may have nothing to report.
func drive(t *testing.T, c Config, enough func(RunReport) bool) (*Report, RunReport) {
	t.Helper()
	for ; ; c.Duration *= 2 {
		report, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r := report.Runs[0]; enough(r) && !hasText(r.VoidReasons, nothingMeasured) || c.Duration > patience/2 {
			return report, r
		}
	}
}

// TestFelix drives a broker through real sockets, with both generators, in every scenario.
func TestFelix(t *testing.T) {
	b := startBroker(t, felix.Config{})
	remote := FelixConfig{Addr: b.Addr().String(), Admin: b.AdminAddr().String(), CAFile: b.CAFile()}
	for _, generator := range []string{"client", "lean"} {
		for name, change := range map[string]func(c *Config){
			"pub":          func(c *Config) { c.Scenario = Pub },
			"pub each":     func(c *Config) { c.Scenario, c.Acks, c.InFlight, c.Batch = Pub, AcksEach, 0, 1 },
			"pub open":     func(c *Config) { c.Scenario, c.Rate = Pub, 2000 },
			"pub unkeyed":  func(c *Config) { c.Scenario, c.Keys, c.Size, c.Batch = Pub, NoKeys, NoPayload, 1 },
			"e2e":          func(c *Config) { c.Rate = 2000 },
			"e2e unacked":  func(c *Config) { c.Acks, c.InFlight = AcksNone, 0 },
			"e2e durable":  func(c *Config) { c.Durability, c.Subscribers, c.Slow = OnCommit, 3, 1 },
			"e2e periodic": func(c *Config) { c.Durability = Periodic },
			"fanout":       func(c *Config) { c.Scenario, c.Keys, c.Shards, c.Subscribers = FanOut, NoKeys, 1, 4 },
		} {
			if testing.Short() && generator == "lean" && name != "e2e" && name != "e2e unacked" {
				continue
			}
			t.Run(generator+" "+name, func(t *testing.T) {
				target := newTarget(t, generator, remote)
				c := brief(E2E, bufferless{target})
				change(&c)
				report, r := drive(t, c, func(r RunReport) bool {
					return (r.Ack != nil && r.AckUncorrected != nil || c.Acks == AcksNone) && (r.E2EUncorrected != nil || c.Scenario == Pub) && r.AckedPerSec > 0
				})
				if r.Void || r.Acked == 0 || r.Acked != r.Offered || r.Expected != r.Acked*int64(c.WithDefaults().Subscribers-c.Slow) || r.Delivered != r.Expected {
					t.Errorf("void %q, notes %q, %+v", r.VoidReasons, r.Notes, r.Figures)
				}
				if report.Config.Generator != generator || report.Config.CountedAt != "broker" || r.AckedPerSec <= 0 {
					t.Errorf("%+v, %v/s", report.Config, r.AckedPerSec)
				}
				if (r.Ack == nil) != (c.Acks == AcksNone) || (r.E2E == nil) != (c.Scenario == Pub) || r.BrokerCPUCores == nil || r.BrokerRSSMB == nil || r.PacketBytes == nil {
					t.Errorf("%+v", r.Figures)
				}
				if r.SyncsPerSec == nil || c.Durability == OnCommit && (*r.SyncsPerSec <= 0 || r.RecordsPerSync == nil || r.ZeroedGroupShare == nil) {
					t.Errorf("durability %q: %+v", c.Durability, r.Figures)
				}
				if b.Catalog().Counts().Streams != 0 {
					t.Error("the stream of the run was left")
				}
			})
		}
	}
}

// bufferless is a target whose runs without acks may be short.
type bufferless struct{ Target }

func (b bufferless) Info() Info {
	info := b.Target.Info()
	info.BufferBytes = 0
	return info
}

func TestBuffers(t *testing.T) {
	b := startBroker(t, felix.Config{})
	for _, generator := range []string{"client", "lean"} {
		target := newTarget(t, generator, FelixConfig{Broker: b, Connections: 2})
		if n := target.Info().BufferBytes; n < 4*(64<<20) || n > 1<<30 {
			t.Errorf("%s: %d bytes on 2 connections to each of 2 cores", generator, n)
		}
		c := brief(Pub, target)
		c.Acks, c.InFlight, c.Duration = AcksNone, 0, 20*time.Millisecond
		report, err := Run(t.Context(), c)
		if err != nil || !report.Void || !hasText(report.Runs[0].VoidReasons, "at least twice that says something") {
			t.Errorf("%v %+v", err, report)
		}
	}
}

// TestEmbedded drives a broker of this process: whose CPU is whose cannot be said.
func TestEmbedded(t *testing.T) {
	b := startBroker(t, felix.Config{})
	for _, generator := range []string{"client", "lean"} {
		for _, durability := range []Durability{Memory, NoSync} {
			c := brief(E2E, newTarget(t, generator, FelixConfig{Broker: b}))
			c.Durability = durability
			report, r := drive(t, c, func(r RunReport) bool { return r.E2EUncorrected != nil })
			if r.Void || r.BrokerCPUCores != nil || r.ClientCPUCores != nil || !hasText(r.Notes, "they cannot be told apart") || report.Config.CountedAt != "broker" {
				t.Errorf("%s %s: void %q, notes %q, %v %v", generator, durability, r.VoidReasons, r.Notes, r.BrokerCPUCores, r.ClientCPUCores)
			}
		}
	}
	if b.Catalog().Counts().Streams != 0 {
		t.Error("a stream was left")
	}
}

// TestExisting uses a stream that is there, with and without the admin listener, and does not remove it.
func TestExisting(t *testing.T) {
	b := startBroker(t, felix.Config{AutoCreate: felix.Off})
	if err := b.CreateStream(t.Context(), felix.StreamConfig{Name: "orders", Shards: 4, OnSlow: felix.Block}); err != nil {
		t.Fatal(err)
	}
	for _, admin := range []string{b.AdminAddr().String(), ""} {
		for _, generator := range []string{"client", "lean"} {
			target := newTarget(t, generator, FelixConfig{Addr: b.Addr().String(), Admin: admin, CAFile: b.CAFile()})
			c := brief(E2E, target)
			c.Shards, c.Stream = 0, "orders"
			report, r := drive(t, c, func(r RunReport) bool { return r.E2EUncorrected != nil })
			if r.Void || report.Config.CountedAt != map[bool]string{true: "broker", false: "generator"}[admin != ""] {
				t.Errorf("%s, admin %q: %q %+v", generator, admin, r.VoidReasons, report.Config)
			}
			c.Stream = "nowhere"
			if _, err := Run(t.Context(), c); !errors.Is(err, ErrNoStream) || !strings.Contains(err.Error(), `"nowhere"`) {
				t.Errorf("%s, admin %q: %v", generator, admin, err)
			}
			c.Stream, c.Shards = "", 1
			if _, err := Run(t.Context(), c); admin == "" && (err == nil || !strings.Contains(err.Error(), "without the admin listener none can be made")) {
				t.Errorf("%s: %v", generator, err)
			}
		}
	}
	if n := b.Catalog().Counts().Streams; n != 1 {
		t.Errorf("%d streams, want the one that was there", n)
	}
}

// TestOthersPublish has somebody else publish to the stream of a run: its counts cannot be right, and it says so.
func TestOthersPublish(t *testing.T) {
	b := startBroker(t, felix.Config{})
	if err := b.CreateStream(t.Context(), felix.StreamConfig{Name: "orders", Shards: 4, OnSlow: felix.Block}); err != nil {
		t.Fatal(err)
	}
	other, err := client.Dial(t.Context(), b.Addr().String(), client.WithCAFile(b.CAFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c := brief(E2E, newTarget(t, "client", FelixConfig{Broker: b}))
	c.Shards, c.Stream, c.Patience = 0, "orders", time.Second
	var once sync.Once
	c.Progress = func(p Progress) {
		once.Do(func() {
			if _, err := other.Publish(t.Context(), "orders", []byte("mine")); err != nil {
				t.Error(err)
			}
		})
	}
	report, err := Run(t.Context(), c)
	if err != nil || !report.Void || !hasText(report.Runs[0].VoidReasons, "does somebody else publish to it?") {
		t.Errorf("%v %+v", err, report)
	}
}

// TestBrokerDies ends the broker in the middle of a run.
func TestBrokerDies(t *testing.T) {
	for _, generator := range []string{"client", "lean"} {
		t.Run(generator, func(t *testing.T) {
			b := startBroker(t, felix.Config{DrainLinger: time.Millisecond})
			target := newTarget(t, generator, FelixConfig{Addr: b.Addr().String(), Admin: b.AdminAddr().String(), CAFile: b.CAFile()})
			c := brief(E2E, target)
			c.Patience = time.Second
			c.Duration = patience
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			var once sync.Once
			gone := 0
			c.Interval = 50 * time.Millisecond
			c.Progress = func(p Progress) {
				if p.AckP99 > 0 {
					once.Do(func() {
						if err := b.Close(); err != nil {
							t.Error(err)
						}
					})
				}
				if p.BrokerGone && p.Refused+p.Unknown > 0 {
					if gone++; gone == 3 {
						cancel() // seen enough: it would go on to its end
					}
				}
			}
			report, err := Run(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			r := report.Runs[0]
			if !r.Void || !hasText(r.VoidReasons, "the broker could not be asked for its counts at the end") || r.Refused+r.Unknown == 0 || r.Acked == 0 ||
				r.Offered != r.Acked+r.Refused+r.Unknown || !hasText(r.Notes, "records refused") {
				t.Errorf("void %q, notes %q, %+v", r.VoidReasons, r.Notes, r.Figures)
			}
		})
	}
}

// TestBrokerRestarts ends the broker in the middle of a run and starts it again where it was.
func TestBrokerRestarts(t *testing.T) {
	dir := t.TempDir()
	config := felix.Config{DataDir: dir, DrainLinger: time.Millisecond, Cores: 1, Listeners: 1}
	b, err := felix.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	config.Listen = b.Addr().String()
	var mu sync.Mutex
	current := b // guarded by mu
	t.Cleanup(func() {
		if err := current.Close(); err != nil {
			t.Error(err)
		}
	})
	// The counts come from whichever runs, by hand: an admin listener would need its port back as well.
	target := newTarget(t, "client", FelixConfig{Addr: b.Addr().String(), CAFile: b.CAFile()}).(*ClientTarget)
	target.control = controlFunc(func() control {
		mu.Lock()
		defer mu.Unlock()
		return embedded{current, "default", "default"}
	})
	c := brief(E2E, target)
	c.Durability, c.Duration, c.Shards, c.Subscribers, c.Interval = OnCommit, 2*patience, 2, 1, 50*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	restarted, both := false, 0
	var restarts error
	c.Progress = func(p Progress) {
		switch {
		case p.AckP99 > 0 && !restarted:
			mu.Lock()
			defer mu.Unlock()
			restarted = true
			err := current.Close()
			next, startErr := felix.Start(context.WithoutCancel(t.Context()), config)
			if restarts = errors.Join(err, startErr); startErr == nil {
				current = next
			}
		case restarts != nil:
			cancel()
		case p.AckP99 > 0 && p.E2EP99 > 0:
			// The first such interval may have begun before the restart, of which an idle subscriber hears later than a publisher.
			if both++; both == 3 {
				cancel() // it goes on: seen enough
			}
		default:
			both = 0
		}
	}
	report, err := Run(ctx, c)
	if err != nil || restarts != nil {
		t.Fatal(err, restarts)
	}
	r := report.Runs[0]
	if r.Void || !hasText(r.Notes, "the broker was started again during the run") || r.Gaps+r.Duplicates > 0 || r.Delivered < r.Acked || r.Acked == 0 {
		t.Errorf("void %q, notes %q, %+v", r.VoidReasons, r.Notes, r.Figures)
	}
}

// controlFunc is the control of the broker that runs now.
type controlFunc func() control

func (f controlFunc) create(ctx context.Context, name string, spec StreamSpec) error {
	return f().create(ctx, name, spec)
}
func (f controlFunc) remove(ctx context.Context, name string) error { return f().remove(ctx, name) }
func (f controlFunc) exists(ctx context.Context, name string) (bool, error) {
	return f().exists(ctx, name)
}
func (f controlFunc) counters(ctx context.Context) (Counters, error) {
	c, err := f().counters(ctx)
	if e, ok := f().(embedded); ok && c != nil {
		// What a process tells about itself, of brokers that share one.
		c[StartTime] = float64(e.broker.Ready().PID) + float64(uintptr(unsafe.Pointer(e.broker)))
	}
	return c, err
}

func TestParseMetrics(t *testing.T) {
	c := parseMetrics([]byte("# HELP x\nfelix_publish_records_total 12\nfelix_publish_requests_total{result=\"accepted\"} 99\nfelix_publish_requests_total{result=\"ok\"} 7\n" +
		"felix_storage_groups_total{lane=\"0\"} 3\nfelix_storage_groups_total{lane=\"1\"} 4\nfelix_udp_packets_received_total 5\nfelix_udp_packets_sent_total 6\n" +
		"process_cpu_seconds_total 1.25\nfelix_unknown 1\nnonsense\n\nfelix_publish_bytes_total x\n"))
	want := Counters{AppendedRecords: 12, AckedBatches: 7, Groups: 7, Packets: 11, CPUSeconds: 1.25}
	if len(c) != len(want) {
		t.Errorf("%v", c)
	}
	for name, n := range want {
		if c[name] != n {
			t.Errorf("%s is %v, want %v", name, c[name], n)
		}
	}
	// Every name is one that the broker has.
	b := startBroker(t, felix.Config{})
	admin := newAdminControl(b.AdminAddr().String(), "default", "default")
	got, err := admin.counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, counter := range metricNames {
		if _, ok := got[counter]; !ok {
			t.Errorf("the broker does not tell %s", counter)
		}
	}
}
