package load

import (
	"errors"
	"fmt"
	"time"
)

// A Scenario is what is driven and what is waited for.
type Scenario string

const (
	Pub    Scenario = "pub"    // publishers only
	E2E    Scenario = "e2e"    // publishers and subscribers of every shard, end-to-end latency
	FanOut Scenario = "fanout" // few publishers, many subscribers
)

// Acks is what a publisher waits for.
type Acks string

const (
	AcksNone  Acks = "none"  // nothing: fire and forget
	AcksEach  Acks = "each"  // the answer to a record before it sends the next
	AcksBatch Acks = "batch" // one answer to each batch, InFlight of them under way
)

// Durability is the promise of the stream that a run makes for itself.
type Durability string

const (
	Memory   Durability = "memory"
	OnCommit Durability = "on_commit" // an ack means on disk
	Periodic Durability = "periodic"  // an ack means written; synced every 250 ms
	NoSync   Durability = "none"      // an ack means written
)

// Bounds of a Config. Beyond them Validate refuses.
const (
	maxPublishers  = 4096
	maxInFlight    = 4096
	maxSubscribers = 1024
	maxBatch       = 65536
	maxBatchBytes  = 15 << 20
	maxKeys        = 4096
	maxShards      = 1024
	maxRuns        = 100
	maxTime        = 24 * time.Hour
	maxRate        = 1e9

	// StampBytes is the size of the two times at the front of a payload.
	StampBytes = 16
)

// Config is one measurement. The zero value of a field is its default.
type Config struct {
	// Scenario is what is driven. Required.
	Scenario Scenario
	// Target is the broker and the way to it. Required. The caller closes it.
	Target Target

	// Rate is the number of records due per second, all publishers together: an open loop. Zero means a closed loop, in which
	// each publisher sends as fast as its window allows.
	Rate float64
	// Publishers send side by side: 64 by default, 8 of e2e, 1 of fanout.
	Publishers int
	// InFlight is how many batches of a publisher are unanswered at most: 64 by default, 8 of e2e, 16 of fanout. With acks each it is
	// 1, with none it means nothing; neither may be set then.
	InFlight int
	// Size of each payload in bytes, 256 by default; NoPayload means empty ones.
	Size int
	// Batch is the number of records published together: 1 by default, 64 of fanout.
	Batch int
	// Keys is how many keys each publisher uses in turn: 48 by default, NoKeys of fanout, which means records without key, all on shard 0.
	Keys int
	// Acks is what publishers wait for, AcksBatch by default.
	Acks Acks

	// Shards and Durability are those of the stream that a run makes: 48 shards by default, 1 of fanout, in memory.
	Shards     int
	Durability Durability
	// Stream is an existing stream to use instead. It is looked up before anything is sent, and not removed.
	Stream string

	// Subscribers of the whole stream: none of pub, 1 of e2e, 10 of fanout by default. Slow of them do not read.
	Subscribers, Slow int

	// Duration is the measured time, 10 s by default. Warmup comes before it, 2 s by default; NoWarmup means none.
	Duration, Warmup time.Duration
	// Runs is the number of runs that count, 1 by default. With more than one there is another before them that does not: the
	// first on a fresh process is slower.
	Runs int
	// Seed makes payloads and the order of keys; the same one makes the same load.
	Seed uint64

	// Patience is how long answers and records are waited for at the end while none come, 10 s by default.
	Patience time.Duration
	// Interval is the time between two samples and two calls of Progress: 1 s by default, a tenth of Duration when that is less.
	Interval time.Duration
	// Progress is called after each sample, from one goroutine at a time. It holds up the samples while it runs. Nil means none.
	Progress func(Progress)
	// WallClock is the clock that may step, to notice that it did. Nil means the system's.
	WallClock func() time.Time
}

// Values that mean none where zero means the default.
const (
	NoPayload = -1
	NoKeys    = -1
	NoWarmup  = -1 * time.Nanosecond
)

// WithDefaults returns c with its zero fields filled in.
func (c Config) WithDefaults() Config {
	set := func(field *int, pub, e2e, fanout int) {
		if *field == 0 {
			*field = map[Scenario]int{Pub: pub, E2E: e2e, FanOut: fanout}[c.Scenario]
		}
	}
	set(&c.Publishers, 64, 8, 1)
	if c.Acks == "" {
		c.Acks = AcksBatch
	}
	if c.Acks == AcksBatch {
		set(&c.InFlight, 64, 8, 16)
	}
	set(&c.Size, 256, 256, 256)
	if c.Acks == AcksEach {
		set(&c.Batch, 1, 1, 1)
	}
	set(&c.Batch, 1, 1, 64)
	set(&c.Keys, 48, 48, NoKeys)
	if c.Stream == "" {
		set(&c.Shards, 48, 48, 1)
		if c.Durability == "" {
			c.Durability = Memory
		}
	}
	set(&c.Subscribers, 0, 1, 10)
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Warmup == 0 {
		c.Warmup = 2 * time.Second
	}
	set(&c.Runs, 1, 1, 1)
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Interval == 0 {
		c.Interval = min(time.Second, c.Duration/10)
	}
	if c.WallClock == nil {
		c.WallClock = time.Now
	}
	return c
}

// Validate reports every problem of c, each in a sentence with the name of the option, its value and what to do. Options have the names
// of the flags of felix bench.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	given := c
	c = c.WithDefaults()
	bound := func(name string, value, low, high int) {
		if value < low || value > high {
			bad("%s is %d; give a number from %d to %d", name, value, low, high)
		}
	}
	switch c.Scenario {
	case Pub, E2E, FanOut:
	default:
		bad("scenario %q is none of pub, e2e, fanout", c.Scenario)
	}
	if c.Target == nil {
		bad("there is no target to drive")
	}
	if c.Rate < 0 || c.Rate > maxRate || c.Rate != c.Rate {
		bad("rate is %v; give records per second, at most %.0f, or leave it out for a closed loop", c.Rate, float64(maxRate))
	}
	bound("publishers", c.Publishers, 1, maxPublishers)
	switch c.Acks {
	case AcksBatch:
		bound("in-flight", c.InFlight, 1, maxInFlight)
	case AcksEach:
		if given.InFlight > 1 {
			bad("acks each waits for every answer, and in-flight is %d; leave one of them out", given.InFlight)
		}
		if c.Batch > 1 {
			bad("acks each answers every record by itself, and batch is %d; leave one of them out", c.Batch)
		}
	case AcksNone:
		if given.InFlight != 0 {
			bad("acks none has no answers to wait for, and in-flight is %d; leave one of them out", given.InFlight)
		}
	default:
		bad("acks %q is none of none, each, batch", c.Acks)
	}
	if c.Size != NoPayload {
		bound("size", c.Size, 0, maxBatchBytes)
	}
	bound("batch", c.Batch, 1, maxBatch)
	if c.Size > 0 && c.Batch > 0 && c.Size <= maxBatchBytes && c.Batch <= maxBatch && c.Size*c.Batch > maxBatchBytes {
		bad("batches of %d records of %d bytes do not fit into a frame; give at most %d bytes in all", c.Batch, c.Size, maxBatchBytes)
	}
	if c.Keys != NoKeys {
		bound("keys", c.Keys, 1, maxKeys)
	}
	if c.Stream != "" {
		if given.Shards != 0 || given.Durability != "" {
			bad("stream %q is used as it is, and shards or durability are given; leave one of them out", c.Stream)
		}
	} else {
		bound("shards", c.Shards, 1, maxShards)
		switch c.Durability {
		case Memory, OnCommit, Periodic, NoSync:
		default:
			bad("durability %q is none of memory, on_commit, periodic, none", c.Durability)
		}
	}
	switch {
	case c.Scenario == Pub && (c.Subscribers != 0 || c.Slow != 0):
		bad("scenario pub has no subscribers, and %d are given; leave them out, or take e2e or fanout", max(c.Subscribers, c.Slow))
	case c.Scenario != Pub:
		bound("subscribers", c.Subscribers, 1, maxSubscribers)
		if c.Slow < 0 || c.Slow >= c.Subscribers {
			bad("slow is %d of %d subscribers; leave at least one that reads", c.Slow, c.Subscribers)
		}
	}
	if c.Duration < 10*time.Millisecond || c.Duration > maxTime {
		bad("duration is %v; give 10 ms to %v", c.Duration, maxTime)
	}
	if c.Warmup != NoWarmup && (c.Warmup < 0 || c.Warmup > maxTime) {
		bad("warmup is %v; give 0 to %v", c.Warmup, maxTime)
	}
	bound("runs", c.Runs, 1, maxRuns)
	if c.Patience < 0 || c.Interval < 0 {
		bad("patience is %v and interval is %v; give more than 0", c.Patience, c.Interval)
	}
	if c.Target != nil && len(problems) == 0 && c.Acks == AcksNone && c.Rate > 0 {
		if sent, least := c.Rate*(c.Duration+max(c.Warmup, 0)).Seconds()*float64(max(c.Size, 0)+recordOverhead), leastUnacked(c.Target); sent < float64(least) {
			bad("acks none at this rate sends %.0f MB, and buffers on the way hold %.0f MB: at least twice that says something; raise rate, duration or size",
				sent/1e6, float64(least)/2e6)
		}
	}
	return errors.Join(problems...)
}

// recordOverhead is what a record takes besides its payload, about.
const recordOverhead = 4

// leastUnacked is how many bytes a run without acks must send.
func leastUnacked(t Target) int64 { return 2 * t.Info().BufferBytes }

// report is the configuration as the report tells it.
func (c Config) report() ReportConfig {
	info := c.Target.Info()
	r := ReportConfig{
		Broker: info.Broker, Generator: info.Generator, Receiver: info.Receiver, CountedAt: "",
		Rate: c.Rate, Publishers: c.Publishers, InFlight: c.InFlight, Size: max(c.Size, 0), Batch: c.Batch, Keys: max(c.Keys, 0), Acks: c.Acks,
		Shards: c.Shards, Durability: c.Durability, Stream: c.Stream, Subscribers: c.Subscribers, Slow: c.Slow,
		DurationSec: c.Duration.Seconds(), WarmupSec: max(c.Warmup, 0).Seconds(), Runs: c.Runs, Seed: c.Seed, Notes: append([]string{}, info.Notes...),
	}
	switch c.Acks {
	case AcksEach:
		r.InFlight = 1
	case AcksNone:
		r.InFlight = 0
	}
	return r
}
