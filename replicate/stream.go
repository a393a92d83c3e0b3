package replicate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

// Kind is what a stream is used for. It is recorded and not enforced.
type Kind uint8

const (
	KindStream Kind = iota
	KindQueue
)

var kindNames = [...]string{"Stream", "Queue"}

// String returns the name in the catalog's JSON.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// ParseKind reads a name.
func ParseKind(name string) (Kind, bool) {
	return parseName[Kind](kindNames[:], name)
}

// Consistency is who has a record before it is acknowledged. It is recorded; there is one copy.
type Consistency uint8

const (
	ConsistencyLeader Consistency = iota
	ConsistencyQuorum
)

var consistencyNames = [...]string{"Leader", "Quorum"}

// String returns the name in the catalog's JSON.
func (c Consistency) String() string {
	if int(c) < len(consistencyNames) {
		return consistencyNames[c]
	}
	return fmt.Sprintf("Consistency(%d)", uint8(c))
}

// ParseConsistency reads a name.
func ParseConsistency(name string) (Consistency, bool) {
	return parseName[Consistency](consistencyNames[:], name)
}

// Delivery is the promise to readers. It is recorded and read by nobody.
type Delivery uint8

const (
	AtLeastOnce Delivery = iota
	AtMostOnce
)

var deliveryNames = [...]string{"AtLeastOnce", "AtMostOnce"}

// String returns the name in the catalog's JSON.
func (d Delivery) String() string {
	if int(d) < len(deliveryNames) {
		return deliveryNames[d]
	}
	return fmt.Sprintf("Delivery(%d)", uint8(d))
}

// ParseDelivery reads a name.
func ParseDelivery(name string) (Delivery, bool) {
	return parseName[Delivery](deliveryNames[:], name)
}

func parseName[T ~uint8](names []string, name string) (T, bool) {
	for i, n := range names {
		if n == name {
			return T(i), true
		}
	}
	return 0, false
}

// Retention bounds what a stream keeps, besides the bounds of its rings. Zero fields bound nothing.
type Retention struct {
	MaxAge       time.Duration // of a record; looked at about once a second. At least one second
	MaxSizeBytes int64         // of each shard, encoded; the newest frame stays. A log keeps up to 256 KiB more, and looks once a second
}

// StreamConfig is what a stream is created with. Everything but OnSlow, FsyncMode and Retention is fixed for its life.
type StreamConfig struct {
	Tenant, Namespace, Name string

	Shards            uint32 // 1 to MaxShards; 0 means 1
	Routing           wire.Routing
	Kind              Kind
	Durable           bool          // records are kept in the log of a lane
	OnSlow            fanout.Policy // what happens to a frame for a subscriber whose queue is full
	OnSlowGiven       bool          // of a durable stream: OnSlow holds. Otherwise the zero value means catch_up
	FsyncMode         wal.Mode      // of a durable stream: what a record waits for
	FsyncGiven        bool          // FsyncMode holds. Otherwise the zero value means CatalogConfig.DefaultFsync
	Retention         Retention
	ReplicationFactor uint32 // recorded; 0 means 1
	Consistency       Consistency
	Delivery          Delivery
	Region            string // recorded
}

// A Stream is an immutable handle: it can be kept, and is good until the stream is deleted. What may change is read through
// methods, from any goroutine.
type Stream struct {
	// ID is never used again, also not for a stream of the same name. Above 0.
	ID uint64
	// Generation is the catalog revision that created the stream.
	Generation uint64
	// Config is as created, defaults filled in. What Patch changes is in Settings.
	Config StreamConfig
	// Shards are in order of their index.
	Shards []*Shard

	auto     bool // created by Ensure
	settings atomic.Pointer[Settings]
	gone     atomic.Bool
	unburied atomic.Int32 // shards that their lanes still have to delete

	shedFrames, shedRecords atomic.Uint64
}

// CountShed counts a publish without ack that was dropped before it reached its shard. Any goroutine may call it.
func (s *Stream) CountShed(records uint32) {
	s.shedFrames.Add(1)
	s.shedRecords.Add(uint64(records))
}

// Shed returns how many publishes were dropped so since the broker started, and how many records they held.
func (s *Stream) Shed() (frames, records uint64) { return s.shedFrames.Load(), s.shedRecords.Load() }

// Settings are the fields of a StreamConfig that a Patch changes.
type Settings struct {
	OnSlow    fanout.Policy // holds for subscriptions made from now on
	FsyncMode wal.Mode      // holds for appends from now on
	Retention Retention
	Revision  uint64 // of the catalog that set them
}

// newStream makes a stream with its shards: in memory on hosts, durable in lanes, one per shard. Those in memory are dealt to the hosts
// from a place that the id decides, so that the shards of a stream, and the first shards of many streams, spread evenly. An idle stream
// of one shard takes less than 1 KiB.
func newStream(id, revision uint64, cfg StreamConfig, hosts []*Host, lanes []*hostLane) *Stream {
	s := &Stream{ID: id, Generation: revision, Config: cfg, Shards: make([]*Shard, cfg.Shards)}
	s.settings.Store(&Settings{OnSlow: cfg.OnSlow, FsyncMode: cfg.FsyncMode, Retention: cfg.Retention, Revision: revision})
	first := mix(id)
	for i := range s.Shards {
		shard := &Shard{stream: s, index: uint32(i)}
		if lanes != nil {
			shard.host = lanes[i].host
			shard.log = &shardLog{lane: lanes[i], id: walShard(id, shard.index)}
			shard.ring.Init(shard.host.local, nil, 0) // what its subscriptions have not read is in the log
		} else {
			shard.host = hosts[(first+uint64(i))%uint64(len(hosts))]
			shard.ring.Init(shard.host.local, &shard.topic, 0)
			shard.ring.Retain(cfg.Retention.MaxSizeBytes, cfg.Retention.MaxAge.Microseconds())
		}
		shard.topic.Init(shard.host.local, shard, shard)
		s.Shards[i] = shard
	}
	return s
}

// recover takes up what the lane has of the shard. It runs before the loops do.
func (s *Shard) recover(state wal.ShardState) {
	s.stages = stages{appended: state.End, committed: state.End, delivered: state.End}
	s.log.start, s.log.durable = state.Start, state.End
	s.ring.Init(s.host.local, nil, state.End)
	if s.ages() {
		s.aging = true
		s.host.aging = append(s.host.aging, s)
		s.host.restored = true
	}
}

// mix spreads ids that follow each other over 64 bits: the finisher of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return (x ^ x>>31) >> 1 // room for an index on top
}

// ShardFor returns the shard of a key. Without a key it is shard 0; an empty key is a key.
func (s *Stream) ShardFor(key []byte, hasKey bool) *Shard {
	return s.Shards[wire.ShardOf(s.Config.Routing, key, hasKey, s.Config.Shards)]
}

// Settings returns what holds now.
func (s *Stream) Settings() Settings { return *s.settings.Load() }

// Gone reports whether the stream was deleted. Its shards learn it a moment later, each on its loop.
func (s *Stream) Gone() bool { return s.gone.Load() }

// current returns the configuration with what was patched.
func (s *Stream) current() StreamConfig {
	cfg, set := s.Config, s.settings.Load()
	cfg.OnSlow, cfg.FsyncMode, cfg.Retention = set.OnSlow, set.FsyncMode, set.Retention
	return cfg
}

// eachOwner calls f with every host that has shards of the stream, on the host's loop, and returns when all calls have. Loops that
// are closed are left out: nothing runs on them any more. When ctx ends first the calls go on without the caller.
func (s *Stream) eachOwner(ctx context.Context, f func(l *core.Loop, shards []*Shard)) error {
	byHost := make(map[*Host][]*Shard)
	for _, shard := range s.Shards {
		byHost[shard.host] = append(byHost[shard.host], shard)
	}
	done := make(chan struct{}, len(byHost)) // never blocks a loop
	waiting := 0
	for h, shards := range byHost {
		task := core.Func(func(l *core.Loop) {
			f(l, shards)
			done <- struct{}{}
		})
		if h.loop.PostOffCore(task) == nil {
			waiting++
		}
	}
	for range waiting {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
