package load

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// short is a run of 200 batches of 4 records against a fake, in a bubble whose clock only moves when everybody waits.
func short(f *Fake) Config {
	return Config{
		Scenario: E2E, Target: f, Rate: 4000, Batch: 4, Publishers: 2, InFlight: 4, Size: 64, Keys: 3, Subscribers: 2,
		Warmup: 50 * time.Millisecond, Duration: 150 * time.Millisecond, Patience: time.Second,
	}
}

// inBubble makes a run on a fake clock and returns its only run.
func inBubble(t *testing.T, c Config) (report *Report, r RunReport) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if f := c.Target.(*Fake); f.opened != 0 || f.removed != 1 {
			t.Errorf("%d left open, %d streams closed", f.opened, f.removed)
		}
	})
	return report, report.Runs[len(report.Runs)-1]
}

func TestRun(t *testing.T) {
	f := &Fake{}
	report, r := inBubble(t, short(f))
	if r.Void || len(r.VoidReasons) > 0 || len(own(r.Notes)) > 0 {
		t.Errorf("void: %q, notes: %q", r.VoidReasons, r.Notes)
	}
	// 4,000 records per second for 200 ms.
	want := Figures{Offered: 800, Acked: 800, Expected: 1600, Delivered: 1600}
	got := Figures{Offered: r.Offered, Acked: r.Acked, Refused: r.Refused, Unknown: r.Unknown, Expected: r.Expected, Delivered: r.Delivered, Duplicates: r.Duplicates, Gaps: r.Gaps}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if r.AckedPerSec < 3500 || r.AckedPerSec > 4500 || *r.DeliveredPerSec < 7000 || *r.DeliveredPerSec > 9000 {
		t.Errorf("acked %v/s, delivered %v/s", r.AckedPerSec, *r.DeliveredPerSec)
	}
	if *r.SyncsPerSec < 900 || *r.SyncsPerSec > 1100 || *r.RecordsPerSync != 4 {
		t.Errorf("%v syncs/s of %v records", *r.SyncsPerSec, *r.RecordsPerSync)
	}
	if report.Config.CountedAt != "broker" || r.BrokerCPUCores == nil || *r.BrokerRSSMB != 5 || r.Seconds != 0.15 {
		t.Errorf("counted at %s, cores %v, rss %v, %v s", report.Config.CountedAt, r.BrokerCPUCores, *r.BrokerRSSMB, r.Seconds)
	}
	if len(f.keys) != 6 {
		t.Errorf("keys %v, want 3 for each of 2 publishers", f.keys)
	}
	if spec := f.specs[0]; spec.Shards != 48 || spec.Durability != Memory || spec.Existing != "" || spec.Slow {
		t.Errorf("stream %+v", spec)
	}
	// Nothing took any time.
	for name, l := range map[string]*Latency{"ack": r.Ack, "ack uncorrected": r.AckUncorrected, "e2e": r.E2E, "e2e uncorrected": r.E2EUncorrected} {
		if l == nil || l.Max > 0.002 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestCorrection stalls a broker for 40 ms at its 100th batch: who measures from the call sees one slow batch, who measures from the time
// that batches were due sees everyone who had to wait.
func TestCorrection(t *testing.T) {
	f := &Fake{slow: func(batch int) {
		if batch == 100 {
			<-time.After(40 * time.Millisecond)
		}
	}}
	c := short(f)
	c.Publishers, c.Batch, c.Rate, c.Size = 1, 1, 1000, 16
	_, r := inBubble(t, c)
	if r.Void {
		t.Errorf("void: %q", r.VoidReasons)
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if got < want*0.99 || got > want*1.01 {
			t.Errorf("%s is %v us, want %v", name, got, want)
		}
	}
	// 150 batches count. One took 40 ms; the 39 behind it were late by 39, 38, ... 1 ms.
	near("uncorrected max", r.AckUncorrected.Max, 40_000)
	if r.AckUncorrected.P99 > 1 {
		t.Errorf("uncorrected p99 is %v us, want nothing", r.AckUncorrected.P99)
	}
	near("corrected max", r.Ack.Max, 40_000)
	near("corrected p99", r.Ack.P99, 39_000)
	near("corrected p90", r.Ack.P90, 25_000)
	if r.Ack.P50 > 1 {
		t.Errorf("corrected p50 is %v us, want nothing", r.Ack.P50)
	}
	near("corrected e2e max", r.E2E.Max, 40_000)
	near("uncorrected e2e max", r.E2EUncorrected.Max, 40_000)
	near("corrected e2e p90", r.E2E.P90, 25_000)
	if r.E2EUncorrected.P90 > 1 {
		t.Errorf("uncorrected e2e p90 is %v us, want nothing", r.E2EUncorrected.P90)
	}
}

// TestRateNotReached gives a broker that takes a batch in 10 ms twice as many as it can take. What was due and never sent counts.
func TestRateNotReached(t *testing.T) {
	f := &Fake{slow: func(int) { <-time.After(10 * time.Millisecond) }}
	c := short(f)
	c.Publishers, c.Batch, c.Rate, c.Warmup, c.Duration = 1, 1, 200, NoWarmup, time.Second
	_, r := inBubble(t, c)
	if r.Void || !hasText(r.Notes, "the rate was not reached: 100 records were due and not sent") {
		t.Errorf("void %q, notes %q", r.VoidReasons, r.Notes)
	}
	if r.Offered != 100 || r.Ack.Max < 490_000 || r.Ack.P50 < 240_000 || r.AckUncorrected.Max > 10_100 {
		t.Errorf("offered %d, corrected %+v, uncorrected %+v", r.Offered, r.Ack, r.AckUncorrected)
	}
}

// own are the notes but for that on what the machine's other processes may have brought about.
func own(notes []string) []string {
	return slices.DeleteFunc(slices.Clone(notes), func(s string) bool { return strings.HasPrefix(s, "the kernel dropped ") })
}

func hasText(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

// TestVoid gives the run a target that lies, in one way at a time.
func TestVoid(t *testing.T) {
	never := make(chan struct{})
	for name, tt := range map[string]struct {
		set   func(f *Fake, c *Config)
		void  string // in the reasons; "" when the run is valid
		note  string
		check func(t *testing.T, r RunReport)
	}{
		"honest":                    {set: func(f *Fake, c *Config) {}},
		"takes too few":             {func(f *Fake, c *Config) { f.lie.appended = -1 }, "800 records were acknowledged, and the broker took only 799", "", nil},
		"takes too many":            {func(f *Fake, c *Config) { f.lie.appended = 1 }, "the broker took 801 records, and at most 800 of this run can be there", "", nil},
		"loses a record":            {func(f *Fake, c *Config) { f.lie.lose = 300 }, "2 of 2 subscribers have gaps, of 2 records in all", "", nil},
		"loses the last":            {func(f *Fake, c *Config) { f.lie.lose = 800 }, "2 of 2 subscribers did not get every record once: 1598 delivered, 1600 expected", "", nil},
		"tells of a gap":            {func(f *Fake, c *Config) { f.lie.lose, f.lie.gap = 300, true }, "gaps, of 2 records in all", "", nil},
		"tells of a gap at the end": {func(f *Fake, c *Config) { f.lie.lose, f.lie.gap = 800, true }, "gaps, of 2 records in all", "", nil},
		"delivers twice":            {func(f *Fake, c *Config) { f.lie.twice = 300 }, "2 of 2 subscribers got records again, 2 in all", "", nil},
		"answers twice":             {func(f *Fake, c *Config) { f.lie.double = 30 }, "settled 1 batches that were not under way", "", nil},
		"does not answer": {func(f *Fake, c *Config) { f.lie.silent = 30 }, "", "1 publishers were given up with batches under way", func(t *testing.T, r RunReport) {
			if r.Unknown != 4 || r.Acked != 796 || r.Delivered != 1600 || r.Expected != 1600 {
				t.Errorf("%+v", r.Figures)
			}
		}},
		"refuses": {func(f *Fake, c *Config) { f.lie.refuse = 30 }, "", "4 records refused, 0 unknown: too many", func(t *testing.T, r RunReport) {
			if r.Refused != 4 || r.Acked != 796 || r.Delivered != 1592 {
				t.Errorf("%+v", r.Figures)
			}
		}},
		"outcome unknown": {func(f *Fake, c *Config) { f.lie.unknown = 30 }, "", "0 records refused, 4 unknown: the answer was lost", func(t *testing.T, r RunReport) {
			if r.Unknown != 4 || r.Acked != 796 || r.Delivered != 1600 {
				t.Errorf("%+v", r.Figures)
			}
		}},
		"counts nothing":   {func(f *Fake, c *Config) { f.lie.noCounts = true }, "", "the broker counts nothing", nil},
		"dies":             {func(f *Fake, c *Config) { f.lie.gone = true }, "the broker could not be asked for its counts at the end: connection refused", "", nil},
		"starts again":     {func(f *Fake, c *Config) { f.lie.restart = true }, "", "the broker was started again during the run", nil},
		"unacked":          {func(f *Fake, c *Config) { c.Acks, c.InFlight = AcksNone, 0 }, "", "", nil},
		"unacked, too few": {func(f *Fake, c *Config) { c.Acks, c.InFlight, f.lie.appended = AcksNone, 0, -5 }, "5 of 800 records were not seen by the broker", "", nil},
		"unacked, no word": {func(f *Fake, c *Config) {
			c.Acks, c.InFlight, c.Scenario, c.Subscribers, f.lie.noCounts = AcksNone, 0, Pub, 0, true
		}, "nobody can say whether the records arrived", "", nil},
		"unacked, received": {func(f *Fake, c *Config) { c.Acks, c.InFlight, f.lie.noCounts = AcksNone, 0, true }, "", "CPU is not known", nil},
		"unacked, refused":  {func(f *Fake, c *Config) { c.Acks, c.InFlight, f.lie.refuse = AcksNone, 0, 30 }, "4 of 800 records were not seen", "", nil},
		"unacked, restart": {func(f *Fake, c *Config) {
			c.Acks, c.InFlight, c.Scenario, c.Subscribers, f.lie.restart = AcksNone, 0, Pub, 0, true
		}, "nobody can say", "started again", nil},
		"unacked, closed loop in buffers": {func(f *Fake, c *Config) {
			f.slow = func(int) { <-time.After(time.Millisecond) }
			c.Acks, c.InFlight, c.Rate, f.buffers = AcksNone, 0, 0, 1<<20
		}, "buffers on the way hold 1 MB: at least twice that says something", "", nil},
		"never answers": {func(f *Fake, c *Config) { f.lie.hold = never }, "nothing was acknowledged in the measured time", "were given up", func(t *testing.T, r RunReport) {
			if r.Acked != 0 || r.Unknown != r.Offered || r.Offered != 2*4*4 {
				t.Errorf("%+v", r.Figures)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &Fake{}
				c := short(f)
				hold := make(chan struct{})
				tt.set(f, &c)
				if f.lie.hold != nil {
					f.lie.hold = hold
					c.Scenario, c.Subscribers = Pub, 0
				}
				report, err := Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				close(hold)
				f.later.Wait()
				r := report.Runs[0]
				if r.Void != (tt.void != "") || report.Void != r.Void || tt.void != "" && !hasText(r.VoidReasons, tt.void) {
					t.Errorf("void %v: %q, want %q", r.Void, r.VoidReasons, tt.void)
				}
				if tt.note != "" && !hasText(r.Notes, tt.note) || tt.note == "" && tt.void == "" && len(own(r.Notes)) > 0 {
					t.Errorf("notes %q, want %q", r.Notes, tt.note)
				}
				if tt.check != nil {
					tt.check(t, r)
				}
			})
		})
	}
}

// TestInterrupted cuts a run short: it reports what it has.
func TestInterrupted(t *testing.T) {
	for _, at := range []time.Duration{20 * time.Millisecond, 120 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			c := short(&Fake{})
			c.Runs = 5
			report, err := Run(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			r := report.Runs[0]
			if len(report.Runs) != 1 || !r.Interrupted || !hasText(r.Notes, "cut short") || r.Offered != r.Acked || r.Offered == 0 || r.Delivered != r.Expected {
				t.Errorf("%d runs, %+v", len(report.Runs), r)
			}
			if warming := at < c.Warmup; warming != r.Void || !warming && (r.AckedPerSec < 3500 || r.AckedPerSec > 4500) {
				t.Errorf("after %v: void %q, %v/s", at, r.VoidReasons, r.AckedPerSec)
			}
		})
	}
}

// TestRuns makes one run on the fresh process that does not count.
func TestRuns(t *testing.T) {
	c := short(&Fake{})
	c.Runs = 3
	var phases []Phase
	var last int
	c.Progress = func(p Progress) {
		last = p.Run
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}
	report, _ := inBubble(t, c)
	if len(report.Runs) != 4 || !report.Runs[0].Discarded || report.Runs[1].Discarded || report.Offered != 3*800 || report.Void || last != 3 {
		t.Errorf("%d runs, offered %d, void %v, last %d", len(report.Runs), report.Offered, report.Void, last)
	}
	if len(phases) != 8 || phases[0] != Warming || phases[1] != Measuring {
		t.Errorf("phases %v", phases)
	}
}

// TestClockStep sets the wall clock by an hour in the middle.
func TestClockStep(t *testing.T) {
	var asked atomic.Int64
	c := short(&Fake{})
	c.WallClock = func() time.Time {
		if asked.Add(1) == 1 {
			return time.Now()
		}
		return time.Now().Add(-time.Hour)
	}
	_, r := inBubble(t, c)
	if r.Void || !hasText(r.Notes, "the wall clock was set by -1h0m0s") || r.Ack.Max > 1 || r.Offered != 800 {
		t.Errorf("void %q, notes %q, offered %d, %+v", r.VoidReasons, r.Notes, r.Offered, r.Ack)
	}
}

func TestSlowSubscribers(t *testing.T) {
	f := &Fake{}
	c := short(f)
	c.Subscribers, c.Slow = 3, 1
	_, r := inBubble(t, c)
	if r.Void || r.Expected != 1600 || r.Delivered != 1600 || !f.specs[0].Slow {
		t.Errorf("%q %+v", r.VoidReasons, r.Figures)
	}
	for _, s := range f.subs {
		if reads := s.reads.Load() > 0; reads == s.spec.Slow {
			t.Errorf("subscriber %+v, reads %v", s.spec, reads)
		}
	}
}

// A payload without room for the times has no end-to-end latency, and its counts hold all the same.
func TestSmallPayload(t *testing.T) {
	for _, size := range []int{NoPayload, 1, StampBytes - 1} {
		c := short(&Fake{})
		c.Size = size
		_, r := inBubble(t, c)
		if r.Void || r.E2E != nil || r.E2EUncorrected != nil || r.Ack == nil || r.Delivered != 1600 {
			t.Errorf("size %d: %q %+v", size, r.VoidReasons, r.Figures)
		}
	}
}

func TestRunErrors(t *testing.T) {
	c := short(&Fake{})
	c.Stream = "nowhere"
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrNoStream) {
		t.Errorf("%v", err)
	}
	c.Acks, c.Batch = AcksEach, 2
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "batch is 2") {
		t.Errorf("%v", err)
	}
	c = short(&Fake{})
	c.Target.(*Fake).lie.openError = errors.New("no broker")
	if _, err := Run(t.Context(), c); err == nil || err.Error() != "no broker" {
		t.Errorf("%v", err)
	}
}

// TestKeys holds the keys of the report, which scripts read.
func TestKeys(t *testing.T) {
	report, _ := inBubble(t, short(&Fake{}))
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`scenario config machine offered_msgs acked_msgs refused_msgs unknown_msgs expected_msgs delivered_msgs duplicate_msgs gap_msgs void
		acked_per_sec delivered_per_sec payload_mb_per_sec ack_us ack_us_uncorrected e2e_us e2e_us_uncorrected broker_cpu_cores client_cpu_cores
		broker_cpu_sec_per_million client_cpu_sec_per_million zeroed_group_share broker_rss_mb syncs_per_sec records_per_sync packet_bytes rcvbuf_errors runs`)
	for _, key := range want {
		if _, ok := object[key]; !ok {
			t.Errorf("key %s is missing", key)
		}
		delete(object, key)
	}
	if len(object) > 0 {
		t.Errorf("further keys: %v", object)
	}
	var latency map[string]float64
	if err := json.Unmarshal([]byte(`{"x":1}`), &latency); err != nil {
		t.Fatal(err)
	}
	clear(latency)
	if err := json.Unmarshal(mustField(t, text, "ack_us"), &latency); err != nil || len(latency) != 7 {
		t.Errorf("%v %v", latency, err)
	}
}

func mustField(t *testing.T, text []byte, key string) json.RawMessage {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object[key]
}
