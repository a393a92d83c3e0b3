package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"felix/perf/load"
	"felix/perf/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	o, err := parse([]string{"-pairs", "^lone-", "-o", t.TempDir(), "-felix", t.TempDir()}, new(strings.Builder))
	if err != nil || len(o.pairs) != 3 || o.rounds != 5 || o.command != "go run -C perf/peers . -pairs='^lone-'" {
		t.Errorf("%+v %v", o, err)
	}
	for want, args := range map[string][]string{
		`no pair is called "nothing"`: {"-pairs", "nothing"},
		"-pairs: ":                    {"-pairs", "("},
		"rounds is 0; give 1 to 200":  {"-rounds", "0"},
		"duration is 0s":              {"-duration", "0s"},
		"connections is -1":           {"-connections", "-1"},
		`"x" is no flag`:              {"x"},
		"-second is where a second":   {"-second", "x"},
	} {
		if _, err := parse(args, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestPairs wants every pair to be a load that both sides can be asked for.
func TestPairs(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range pairs() {
		if seen[p.Name] {
			t.Errorf("two pairs are called %s", p.Name)
		}
		seen[p.Name] = true
		p.config.Target = newNATSTarget(&server{}, p.mode, 1)
		if err := p.config.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		c := p.config.WithDefaults()
		if durable := c.Durability != load.Memory; durable != (p.mode == file) || p.syncAlways != (c.Durability == load.OnCommit) {
			t.Errorf("%s: NATS as %s, always synced %v, against %s", p.Name, p.mode, p.syncAlways, c.Durability)
		}
		if p.Promise == "" || len(p.NotEqual) == 0 {
			t.Errorf("%s says neither what it promises nor what is not equal", p.Name)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "77 (a (b) c) S 1 77 77 0 -1 4194560 500 0 0 0 250 50 0 0 20 0 9 0 4242 1000000 300 18446744073709551615 1 1"
	c, err := parseStat(line, 4096)
	if err != nil || c[load.CPUSeconds] != 3 || c[load.StartTime] != 4242 || c[load.RSSBytes] != 300*4096 {
		t.Errorf("%v %v", c, err)
	}
	for _, bad := range []string{"", "77 (x) S 1", strings.Replace(line, " 250 ", " many ", 1)} {
		if _, err := parseStat(bad, 4096); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if c, err := processCounters(os.Getpid()); err != nil || c[load.RSSBytes] < 1<<20 {
		t.Errorf("%v %v", c, err)
	}
}

func TestOutcomes(t *testing.T) {
	if o := outcomeOf(nil); o.Fate != load.Acked {
		t.Errorf("%+v", o)
	}
	if o := outcomeOf(errors.New("x")); o.Fate != load.Unknown || o.Err == nil {
		t.Errorf("%+v", o)
	}
}

// TestPeers runs a pair of every way to use NATS against felix, for a moment. It needs the modules of NATS, from the cache or the proxy.
func TestPeers(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "go", "mod", "download").CombinedOutput(); err != nil {
		t.Skipf("the modules of NATS are neither in the cache nor in reach: %v: %s", err, out)
	}
	names := "^(core-256B-64|jetstream-memory-256B-64|jetstream-sync-waiting-1KiB|lone-request|lone-jetstream-sync|fanout10-256B-64)$"
	if testing.Short() {
		names = "^jetstream-sync-waiting-1KiB$"
	}
	dir, second := t.TempDir(), t.TempDir()
	var out, progress strings.Builder
	err := run(t.Context(), []string{"-pairs", names, "-rounds", "1", "-duration", "300ms", "-warmup", "50ms", "-watch=false", "-o", dir, "-second", second}, &out, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	s, err := session.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.Peers.Peer, "nats-server 2.") {
		t.Errorf("the peer is %q", s.Peers.Peer)
	}
	for _, p := range s.Peers.Pairs {
		for _, side := range []*load.Report{p.Felix, p.Peer} {
			// A run this short may be too small to say something; its counts must agree all the same.
			why := session.Void(side)
			if strings.Contains(why, "buffers on the way") || strings.Contains(why, "nothing was acknowledged") {
				t.Logf("%s, %s: %s", p.Name, side.Config.Broker, why)
				continue
			}
			if why != "" || side.Offered == 0 || side.Acked+side.Refused+side.Unknown != side.Offered {
				t.Errorf("%s, %s: %s: %+v", p.Name, side.Config.Broker, why, side.Figures)
			}
			if side.BrokerCPUCores == nil {
				t.Errorf("%s, %s: the CPU of the broker is not known", p.Name, side.Config.Broker)
			}
		}
	}
	for _, dir := range []string{dir, second} {
		for _, file := range []string{"peers.md", session.PeersFile} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
	}
	if !strings.Contains(out.String(), "What is not equal") {
		t.Error(out.String())
	}
}

// sink collects outcomes.
type sink chan load.Outcome

func (s sink) Settle(_ int, o load.Outcome, _ time.Time) { s <- o }

// TestAsyncPublisher settles a batch once all of its messages are answered, by the worst of them.
func TestAsyncPublisher(t *testing.T) {
	for _, test := range []struct {
		errs []error
		want load.Fate
	}{
		{[]error{nil, nil, nil}, load.Acked},
		{[]error{nil, errors.New("x"), nil}, load.Unknown},
	} {
		outcomes := make(sink, 1)
		a := &asyncPublisher{publisher: publisher{sink: outcomes}, open: 1}
		a.batches = make([]batch, 1)
		b := &a.batches[0]
		b.left = len(test.errs)
		b.messages = append(b.messages, make([]nats.Msg, len(test.errs))...)
		a.owner = map[*nats.Msg]*batch{}
		for i := range b.messages {
			a.owner[&b.messages[i]] = b
		}
		idle := make(chan error, 1)
		a.idle = make(chan struct{})
		ended := a.idle
		go func() { <-ended; idle <- nil }()
		for i, err := range test.errs {
			if len(outcomes) > 0 {
				t.Errorf("settled after %d of %d answers", i, len(test.errs))
			}
			a.answered(&b.messages[i], err)
		}
		if o := <-outcomes; o.Fate != test.want {
			t.Errorf("%v: %+v", test.errs, o)
		}
		<-idle
		if err := a.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSubscriber hands on what was delivered, in order.
func TestSubscriber(t *testing.T) {
	s := &subscriber{more: make(chan struct{}, 1)}
	s.room.L = &s.mu
	go func() {
		for i := range 3 * maxTaken { // more than there is room for
			s.deliver(&nats.Msg{Data: fmt.Append(nil, i)})
		}
	}()
	for got := 0; got < 3*maxTaken; {
		if err := s.Receive(t.Context(), func(r load.Record) {
			if string(r.Payload) != fmt.Sprint(got) || r.HasOffset {
				t.Fatalf("record %d is %q", got, r.Payload)
			}
			got++
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Receive(ctx, func(load.Record) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
