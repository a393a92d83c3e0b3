package replicate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

// A Journal keeps the commands of a catalog.
type Journal interface {
	// Append makes a record durable. It is called before the command takes effect, one call at a time, never on a loop, and may
	// block for the disk. With an error the command is refused, although the record may be there after a restart.
	Append(record []byte) error
}

// ErrJournal is wrapped by the errors of commands that the journal did not take. Nothing was changed; whether a restart will find the
// change is not known.
var ErrJournal = errors.New("the catalog's journal failed")

// Kinds of entries. They are on disk.
const (
	opCreateTenant    = "create_tenant"
	opDeleteTenant    = "delete_tenant"
	opCreateNamespace = "create_namespace"
	opDeleteNamespace = "delete_namespace"
	opCreateStream    = "create_stream"
	opPatchStream     = "patch_stream"
	opDeleteStream    = "delete_stream"
	opSnapshot        = "snapshot" // stands first: everything before is in what follows
	opDeletedNames    = "deleted_names"
	opDeletedStream   = "deleted_stream" // a lane may still have its shards
)

// An entry is one record of a journal, as JSON. What it does not know of a newer version makes Restore fail, so that nothing is lost by
// being left out.
type entry struct {
	Revision    uint64         `json:"revision"`
	Op          string         `json:"op"`
	Tenant      string         `json:"tenant,omitempty"`
	Namespace   string         `json:"namespace,omitempty"`
	Stream      string         `json:"stream,omitempty"`
	DisplayName string         `json:"display_name,omitempty"`
	ID          uint64         `json:"id,omitempty"`      // of a stream
	LastID      uint64         `json:"last_id,omitempty"` // opSnapshot
	Names       []string       `json:"names,omitempty"`   // opDeletedNames, oldest first
	Config      *configEntry   `json:"config,omitempty"`  // opCreateStream
	Settings    *settingsValue `json:"settings,omitempty"`
}

// configEntry is what is fixed of a stream. Names stand for values, so that a person can read a journal.
type configEntry struct {
	Generation        uint64   `json:"generation"`
	Shards            uint32   `json:"shards"`
	Routing           uint8    `json:"routing"`
	Kind              string   `json:"kind"`
	Durable           bool     `json:"durable"`
	Auto              bool     `json:"auto,omitempty"`
	ReplicationFactor uint32   `json:"replication_factor"`
	Consistency       string   `json:"consistency"`
	Delivery          string   `json:"delivery"`
	Region            string   `json:"region,omitempty"`
	Lanes             []uint64 `json:"lanes,omitempty"` // of the shards of a durable stream, in their order
}

type settingsValue struct {
	OnSlow       string `json:"on_slow"`
	FsyncMode    string `json:"fsync_mode"`
	MaxAgeMicros int64  `json:"max_age_micros,omitempty"`
	MaxSizeBytes int64  `json:"max_size_bytes,omitempty"`
}

func settingsEntry(s Settings) *settingsValue {
	return &settingsValue{OnSlow: s.OnSlow.String(), FsyncMode: s.FsyncMode.String(),
		MaxAgeMicros: s.Retention.MaxAge.Microseconds(), MaxSizeBytes: s.Retention.MaxSizeBytes}
}

func (v *settingsValue) parse() (set Settings, err error) {
	if v == nil {
		return set, errors.New("settings are missing")
	}
	policy, ok := fanout.ParsePolicy(v.OnSlow)
	if !ok {
		return set, fmt.Errorf("on_slow is %q", v.OnSlow)
	}
	mode, err := wal.ParseMode(v.FsyncMode)
	if err != nil {
		return set, err
	}
	return Settings{OnSlow: policy, FsyncMode: mode, Retention: Retention{
		MaxAge: time.Duration(v.MaxAgeMicros) * time.Microsecond, MaxSizeBytes: v.MaxSizeBytes}}, nil
}

// createEntry describes a stream as it is now.
func createEntry(s *Stream) entry {
	c := s.Config
	cfg := &configEntry{Generation: s.Generation, Shards: c.Shards, Routing: uint8(c.Routing), Kind: c.Kind.String(), Durable: c.Durable, Auto: s.auto,
		ReplicationFactor: c.ReplicationFactor, Consistency: c.Consistency.String(), Delivery: c.Delivery.String(), Region: c.Region}
	for _, shard := range s.Shards {
		if shard.log != nil {
			cfg.Lanes = append(cfg.Lanes, shard.log.lane.id)
		}
	}
	return entry{Op: opCreateStream, ID: s.ID, Config: cfg, Settings: settingsEntry(s.Settings())}
}

func (v *configEntry) parse(e *entry, set Settings) (cfg StreamConfig, err error) {
	kind, ok1 := ParseKind(v.Kind)
	consistency, ok2 := ParseConsistency(v.Consistency)
	delivery, ok3 := ParseDelivery(v.Delivery)
	if !ok1 || !ok2 || !ok3 {
		return cfg, fmt.Errorf("kind %q, consistency %q or delivery %q is unknown", v.Kind, v.Consistency, v.Delivery)
	}
	if v.Durable && len(v.Lanes) != int(v.Shards) {
		return cfg, fmt.Errorf("it has %d shards and %d lanes", v.Shards, len(v.Lanes))
	}
	return StreamConfig{Tenant: e.Tenant, Namespace: e.Namespace, Name: e.Stream, Shards: v.Shards, Routing: wire.Routing(v.Routing), Kind: kind,
		Durable: v.Durable, OnSlow: set.OnSlow, OnSlowGiven: true, FsyncMode: set.FsyncMode, FsyncGiven: true, Retention: set.Retention,
		ReplicationFactor: v.ReplicationFactor, Consistency: consistency, Delivery: delivery, Region: v.Region}, nil
}

// record gives an entry to the journal, under the revision that the change will have. After a failure that revision is not used
// again, since the record may be there.
func (c *Catalog) record(e entry) error {
	if c.cfg.Journal == nil {
		return nil
	}
	e.Revision = c.revision + 1
	err := c.cfg.Journal.Append(e.encode())
	if err != nil {
		c.revision++
		return fmt.Errorf("%w: %s of %s: %w", ErrJournal, e.Op, path(e.Tenant, e.Namespace, e.Stream), err)
	}
	return nil
}

// isBuried reports that no lane has shards of the deleted stream any more.
func (s *Stream) isBuried() bool { return s.unburied.Load() <= 0 }

// recorded reports whether the stream is in the journal. Those created in memory on first use are not.
func (s *Stream) recorded() bool { return !s.auto || s.Config.Durable }

// recordStream is record for a stream that is in the journal.
func (c *Catalog) recordStream(s *Stream, e entry) error {
	if !s.recorded() {
		return nil
	}
	e.Tenant, e.Namespace, e.Stream = s.Config.Tenant, s.Config.Namespace, s.Config.Name
	return c.record(e)
}

func (e *entry) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("BUG: replicate: catalog entry %+v: %v", e, err))
	}
	return b
}

// namesPerEntry bounds an entry of deleted names.
const namesPerEntry = 1000

// Snapshot returns records that stand for all before: a journal that holds them and what is appended from now on is complete. It may be
// called from any goroutine.
func (c *Catalog) Snapshot() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot()
}

// Compact calls replace with a Snapshot and keeps commands out until it returns: the journal puts the records in the place of those it
// has. It returns what replace does, and may be called from any goroutine but a loop's.
func (c *Catalog) Compact(replace func(records [][]byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return replace(c.snapshot())
}

func (c *Catalog) snapshot() [][]byte {
	var out [][]byte
	add := func(e entry) {
		e.Revision = c.revision
		out = append(out, e.encode())
	}
	add(entry{Op: opSnapshot, LastID: c.lastID})
	for _, name := range c.tenants.names {
		t := c.tenants.byName[name]
		if !t.auto {
			e := entry{Op: opCreateTenant, Tenant: t.Name, DisplayName: t.DisplayName, Revision: t.Revision}
			out = append(out, e.encode())
		}
		for _, name := range t.namespaces.names {
			n := t.namespaces.byName[name]
			if !n.auto {
				e := entry{Op: opCreateNamespace, Tenant: t.Name, Namespace: n.Name, DisplayName: n.DisplayName, Revision: n.Revision}
				out = append(out, e.encode())
			}
			for _, name := range n.streams.names {
				s := n.streams.byName[name]
				if !s.recorded() {
					continue
				}
				e := createEntry(s)
				e.Tenant, e.Namespace, e.Stream = t.Name, n.Name, s.Config.Name
				e.Revision = s.Settings().Revision
				out = append(out, e.encode())
			}
		}
	}
	c.dying = slices.DeleteFunc(c.dying, (*Stream).isBuried)
	for _, s := range c.dying {
		add(entry{Op: opDeletedStream, ID: s.ID})
	}
	var names []string
	for _, g := range c.graves.order {
		if c.graves.at[g.name] == g.no {
			names = append(names, g.name)
		}
	}
	for chunk := range slices.Chunk(names, namesPerEntry) {
		add(entry{Op: opDeletedNames, Names: chunk})
	}
	return out
}

// An Orphan is a shard in a lane that belongs to no stream of the catalog. It is left alone.
type Orphan struct {
	Lane, Stream uint64
	Index        uint32
	Start, End   wire.Offset
}

// Orphans returns what Restore found in lanes and in no record, sorted by lane, stream and index.
func (c *Catalog) Orphans() []Orphan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.orphans)
}

// Notices returns what an operator should know of Restore, one line each.
func (c *Catalog) Notices() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.notices)
}

// Restore makes the catalog what the records of its journal say, and the durable shards what their lanes hold. It is called once,
// before the first command and before the group starts, with no records for a new directory; it waits for the disk. After an error
// the catalog is not to be used.
//
// Deletions that had not reached a lane are made good. Shards in lanes that no record names are listed by Orphans.
func (c *Catalog) Restore(records [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := restore{c: c, byID: make(map[uint64]*Stream), deleted: make(map[uint64]bool), lanes: make(map[uint64]*hostLane)}
	for _, hl := range c.lanes {
		if r.lanes[hl.id] != nil {
			return fmt.Errorf("replicate: lane %d was added twice: give each lane an id of its own", hl.id)
		}
		r.lanes[hl.id] = hl
	}
	for i, b := range records {
		var e entry
		err := json.Unmarshal(b, &e)
		if err == nil {
			err = r.apply(&e)
		}
		if err != nil {
			remedy := "restore the journal from a backup, or start the version that wrote it"
			if errors.Is(err, errLaneMissing) {
				remedy = "start with the storage directory that belongs to this catalog"
			}
			return fmt.Errorf("catalog record %d of %d (%.200s): %w: %s", i+1, len(records), b, err, remedy)
		}
		c.revision = max(c.revision, e.Revision)
	}
	r.shards()
	return nil
}

var errLaneMissing = errors.New("the lane is not open")

type restore struct {
	c       *Catalog
	byID    map[uint64]*Stream
	deleted map[uint64]bool // streams whose deletion is on record
	lanes   map[uint64]*hostLane
}

func (r *restore) apply(e *entry) error {
	c := r.c
	switch e.Op {
	case opSnapshot:
		c.lastID = max(c.lastID, e.LastID)
	case opCreateTenant:
		t := r.tenant(e)
		t.DisplayName, t.Revision, t.auto = e.DisplayName, e.Revision, false
	case opCreateNamespace:
		n := r.namespace(e)
		n.DisplayName, n.Revision, n.auto = e.DisplayName, e.Revision, false
	case opCreateStream:
		return r.createStream(e)
	case opPatchStream:
		s := r.byID[e.ID]
		if s == nil {
			return nil // deleted with its tenant by a record before, or replaced
		}
		set, err := e.Settings.parse()
		if err != nil {
			return err
		}
		set.Revision = e.Revision
		s.settings.Store(&set)
		if !s.Config.Durable {
			for _, shard := range s.Shards {
				shard.ring.Retain(set.Retention.MaxSizeBytes, set.Retention.MaxAge.Microseconds())
			}
		}
	case opDeleteStream, opDeletedStream:
		r.deleted[e.ID] = true
		if s := r.byID[e.ID]; s != nil {
			n := c.tenants.byName[s.Config.Tenant].namespaces.byName[s.Config.Namespace]
			r.forget(c.deleteStream(n, s))
		}
	case opDeleteNamespace:
		if t := c.tenants.byName[e.Tenant]; t != nil && t.namespaces.byName[e.Namespace] != nil {
			r.forget(c.deleteNamespace(t, t.namespaces.byName[e.Namespace]))
		}
		c.graves.add(path(e.Tenant, e.Namespace))
	case opDeleteTenant:
		if t := c.tenants.byName[e.Tenant]; t != nil {
			r.forget(c.deleteTenant(t))
		}
		c.graves.add(path(e.Tenant))
	case opDeletedNames:
		for _, name := range e.Names {
			c.graves.add(name)
		}
	default:
		return fmt.Errorf("op %q is unknown", e.Op)
	}
	return nil
}

// forget notes the streams that a record deleted.
func (r *restore) forget(done result) {
	for _, s := range done.deleted {
		delete(r.byID, s.ID)
		r.deleted[s.ID] = true
	}
	r.c.dying = nil // shards sees to those that lanes still have
}

// tenant returns the tenant of e, made if it is missing: those that were created on first use have no record.
func (r *restore) tenant(e *entry) *tenant {
	c := r.c
	t := c.tenants.byName[e.Tenant]
	if t == nil {
		t = &tenant{Tenant: Tenant{Name: e.Tenant, Revision: e.Revision}, auto: true}
		c.tenants.put(e.Tenant, t)
		c.graves.remove(path(e.Tenant))
	}
	return t
}

func (r *restore) namespace(e *entry) *namespace {
	c, t := r.c, r.tenant(e)
	n := t.namespaces.byName[e.Namespace]
	if n == nil {
		n = &namespace{Namespace: Namespace{Tenant: e.Tenant, Name: e.Namespace, Revision: e.Revision}, auto: true}
		t.namespaces.put(e.Namespace, n)
		c.namespaces++
		c.graves.remove(path(e.Tenant, e.Namespace))
	}
	return n
}

func (r *restore) createStream(e *entry) error {
	c := r.c
	if e.Config == nil || e.ID == 0 {
		return errors.New("its configuration or id is missing")
	}
	set, err := e.Settings.parse()
	if err != nil {
		return err
	}
	cfg, err := e.Config.parse(e, set)
	if err != nil {
		return err
	}
	if err := cfg.normalize(wal.OnCommit, true); err != nil {
		return err
	}
	var lanes []*hostLane
	for i, id := range e.Config.Lanes {
		hl := r.lanes[id]
		if hl == nil {
			return fmt.Errorf("shard %d is in lane %d: %w", i, id, errLaneMissing)
		}
		lanes = append(lanes, hl)
	}
	n := r.namespace(e)
	if old := n.streams.byName[cfg.Name]; old != nil {
		if old.ID == e.ID {
			return nil
		}
		// The record before was refused when it was made, and kept all the same: nobody has used that stream.
		r.forget(c.deleteStream(n, old))
	}
	s := newStream(e.ID, e.Config.Generation, cfg, c.cfg.Hosts, lanes)
	s.auto = e.Config.Auto
	set.Revision = max(e.Revision, s.Generation)
	s.settings.Store(&set)
	c.lastID = max(c.lastID, e.ID)
	c.enter(n, s)
	r.byID[s.ID] = s
	return nil
}

// shards gives every durable shard what its lane holds, and finds those that nobody claims.
func (r *restore) shards() {
	c := r.c
	byHost := make(map[*Host][]*Shard)
	for _, s := range r.byID {
		for _, shard := range s.Shards {
			if shard.log == nil {
				continue
			}
			hl := shard.log.lane
			if state, ok := hl.recovered[shard.log.id]; ok {
				delete(hl.recovered, shard.log.id)
				shard.recover(state)
				byHost[shard.host] = append(byHost[shard.host], shard)
			}
		}
	}
	// The shards of a host share its list of producers; hosts share nothing.
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, list := range byHost {
		slices.SortFunc(list, func(a, b *Shard) int { return cmp.Compare(a.log.id, b.log.id) })
		wait.Go(func() {
			for _, shard := range list {
				shard.restoreProducers(func(line string) {
					mu.Lock()
					defer mu.Unlock()
					c.notices = append(c.notices, line)
				})
			}
		})
	}
	wait.Wait()
	for _, hl := range c.lanes {
		for id, state := range hl.recovered {
			stream, index := id/MaxShards, uint32(id%MaxShards)
			if r.deleted[stream] {
				c.bury(hl, stream, index)
				continue
			}
			c.orphans = append(c.orphans, Orphan{Lane: hl.id, Stream: stream, Index: index, Start: state.Start, End: state.End})
		}
		clear(hl.recovered)
	}
	slices.SortFunc(c.orphans, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(walShard(a.Stream, a.Index), walShard(b.Stream, b.Index)))
	})
}

// bury has the lane delete a shard of a stream whose deletion is on record.
func (c *Catalog) bury(hl *hostLane, stream uint64, index uint32) {
	s := &Stream{ID: stream}
	s.settings.Store(&Settings{})
	s.unburied.Store(1)
	hl.deletes = append(hl.deletes, &Shard{stream: s, host: hl.host, index: index, gone: true, log: &shardLog{lane: hl, id: walShard(stream, index)}})
	c.dying = append(c.dying, s)
}
