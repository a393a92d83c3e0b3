package replicate

import (
	"context"
	"fmt"
	"slices"

	"felix/core"
)

// op is the kind of a command.
type op uint8

const (
	createTenant op = iota
	deleteTenant
	createNamespace
	deleteNamespace
	createStream
	ensureStream
	patchStream
	deleteStream
)

// A command is the only way to change a catalog. Commands are idempotent: what is already so is not changed again and takes no
// revision. A command that fails changes nothing.
type command struct {
	op                        op
	tenant, namespace, stream string
	displayName               string       // createTenant, createNamespace
	config                    StreamConfig // createStream
	patch                     Patch        // patchStream
	auto                      bool         // createTenant, createNamespace: on first use
}

// result is what a command did.
type result struct {
	changed   bool
	tenant    *tenant
	namespace *namespace
	stream    *Stream
	deleted   []*Stream // their shards are still to be closed
}

// do applies a command and closes the shards of what it deleted.
func (c *Catalog) do(ctx context.Context, cmd command) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	c.mu.Lock()
	r, err := c.apply(cmd)
	c.mu.Unlock()
	if err != nil {
		return result{}, err
	}
	// Outside the lock: a loop may be slow to take the post.
	var failed error
	for _, s := range r.deleted {
		err := s.eachOwner(ctx, func(l *core.Loop, shards []*Shard) {
			for _, s := range shards {
				s.close(l)
			}
		})
		if err != nil {
			failed = fmt.Errorf("stream %q is deleted; its shards are still closing: %w", path(s.Config.Tenant, s.Config.Namespace, s.Config.Name), err)
		}
	}
	return r, failed
}

// apply runs under mu.
func (c *Catalog) apply(cmd command) (result, error) {
	switch cmd.op {
	case createTenant:
		return c.createTenant(cmd)
	case createNamespace:
		return c.createNamespace(cmd)
	case createStream:
		if err := c.normalize(&cmd.config); err != nil {
			return result{}, err
		}
		_, n, err := c.findNamespace(cmd.tenant, cmd.namespace)
		if err != nil {
			return result{}, err
		}
		return c.createStream(n, cmd.config, false)
	case ensureStream:
		return c.ensureStream(cmd)
	case patchStream:
		return c.patchStream(cmd)
	case deleteTenant:
		t, err := c.findTenant(cmd.tenant)
		if err != nil {
			return result{}, err
		}
		if err := c.record(entry{Op: opDeleteTenant, Tenant: cmd.tenant}); err != nil {
			return result{}, err
		}
		return c.deleteTenant(t), nil
	case deleteNamespace:
		t, n, err := c.findNamespace(cmd.tenant, cmd.namespace)
		if err != nil {
			return result{}, err
		}
		if err := c.record(entry{Op: opDeleteNamespace, Tenant: cmd.tenant, Namespace: cmd.namespace}); err != nil {
			return result{}, err
		}
		return c.deleteNamespace(t, n), nil
	case deleteStream:
		_, n, s, err := c.findStream(cmd.tenant, cmd.namespace, cmd.stream)
		if err != nil {
			return result{}, err
		}
		if err := c.recordStream(s, entry{Op: opDeleteStream, ID: s.ID}); err != nil {
			return result{}, err
		}
		return c.deleteStream(n, s), nil
	}
	panic(fmt.Sprintf("BUG: replicate: catalog command %d", cmd.op))
}

// next returns the revision of a change that is made now.
func (c *Catalog) next() uint64 {
	c.revision++
	return c.revision
}

func (c *Catalog) createTenant(cmd command) (result, error) {
	if t := c.tenants.byName[cmd.tenant]; t != nil {
		err := sameDisplayName(fmt.Sprintf("tenant %q", cmd.tenant), t.DisplayName, cmd.displayName)
		if err == nil && !cmd.auto {
			err = c.keep(&t.auto, entry{Op: opCreateTenant, Tenant: cmd.tenant, DisplayName: cmd.displayName})
		}
		return result{tenant: t}, err
	}
	if err := checkName("tenant", cmd.tenant); err != nil {
		return result{}, err
	}
	if n := c.cfg.MaxTenants; len(c.tenants.names) >= n {
		return result{}, &LimitError{What: "tenants", Limit: n, Hint: "delete one"}
	}
	if !cmd.auto {
		if err := c.record(entry{Op: opCreateTenant, Tenant: cmd.tenant, DisplayName: cmd.displayName}); err != nil {
			return result{}, err
		}
	}
	t := &tenant{Tenant: Tenant{Name: cmd.tenant, DisplayName: cmd.displayName, Revision: c.next()}, auto: cmd.auto}
	c.tenants.put(cmd.tenant, t)
	c.graves.remove(path(cmd.tenant))
	return result{changed: true, tenant: t}, nil
}

func (c *Catalog) createNamespace(cmd command) (result, error) {
	t, err := c.findTenant(cmd.tenant)
	if err != nil {
		return result{}, err
	}
	if n := t.namespaces.byName[cmd.namespace]; n != nil {
		err := sameDisplayName(fmt.Sprintf("namespace %q", path(cmd.tenant, cmd.namespace)), n.DisplayName, cmd.displayName)
		if err == nil && !cmd.auto {
			err = c.keep(&n.auto, entry{Op: opCreateNamespace, Tenant: cmd.tenant, Namespace: cmd.namespace, DisplayName: cmd.displayName})
		}
		return result{namespace: n}, err
	}
	if err := checkName("namespace", cmd.namespace); err != nil {
		return result{}, err
	}
	if c.namespaces >= c.cfg.MaxNamespaces {
		return result{}, &LimitError{What: "namespaces", Limit: c.cfg.MaxNamespaces, Hint: "delete one"}
	}
	if !cmd.auto {
		if err := c.record(entry{Op: opCreateNamespace, Tenant: cmd.tenant, Namespace: cmd.namespace, DisplayName: cmd.displayName}); err != nil {
			return result{}, err
		}
	}
	n := &namespace{Namespace: Namespace{Tenant: cmd.tenant, Name: cmd.namespace, DisplayName: cmd.displayName, Revision: c.next()}, auto: cmd.auto}
	t.namespaces.put(cmd.namespace, n)
	c.namespaces++
	c.graves.remove(path(cmd.tenant, cmd.namespace))
	return result{changed: true, namespace: n}, nil
}

// keep records what was created on first use and is now asked for by name, so that it outlives the process.
func (c *Catalog) keep(auto *bool, e entry) error {
	if !*auto || c.cfg.Journal == nil {
		return nil
	}
	if err := c.record(e); err != nil {
		return err
	}
	c.next()
	*auto = false
	return nil
}

// sameDisplayName lets a repeated create pass when it asks for nothing else than there is.
func sameDisplayName(object, have, want string) error {
	if want == "" || want == have {
		return nil
	}
	return &ConflictError{Object: object, Field: "display name", Have: fmt.Sprintf("%q", have), Want: fmt.Sprintf("%q", want)}
}

// createStream creates a stream from a normalized configuration.
func (c *Catalog) createStream(n *namespace, cfg StreamConfig, auto bool) (result, error) {
	name := path(cfg.Tenant, cfg.Namespace, cfg.Name)
	if s := n.streams.byName[cfg.Name]; s != nil {
		if err := conflict(fmt.Sprintf("stream %q", name), s.current(), cfg); err != nil {
			return result{}, err
		}
		if !auto && !s.recorded() {
			e := createEntry(s)
			e.Config.Auto, e.Tenant, e.Namespace, e.Stream = false, cfg.Tenant, cfg.Namespace, cfg.Name
			if err := c.keep(&s.auto, e); err != nil {
				return result{}, err
			}
			if !s.auto {
				c.auto--
			}
		}
		return result{stream: s}, nil
	}
	if err := c.roomForStream(cfg.Shards); err != nil {
		return result{}, err
	}
	c.lastID++ // also when the journal fails: it may have kept the record
	s := newStream(c.lastID, c.revision+1, cfg, c.cfg.Hosts, c.place(cfg, c.lastID))
	s.auto = auto
	if err := c.recordStream(s, createEntry(s)); err != nil {
		return result{}, err
	}
	c.next()
	c.enter(n, s)
	return result{changed: true, stream: s}, nil
}

// enter makes a stream known.
func (c *Catalog) enter(n *namespace, s *Stream) {
	n.streams.put(s.Config.Name, s)
	c.graves.remove(path(s.Config.Tenant, s.Config.Namespace, s.Config.Name))
	c.streams++
	c.shards += len(s.Shards)
	if s.auto {
		c.auto++
	}
	for _, shard := range s.Shards {
		if shard.log != nil {
			shard.log.lane.load++
		}
	}
	h := c.hash(s)
	list, _ := c.directory.Load(h)
	c.directory.Store(h, append(slices.Clone(list), s))
}

func (c *Catalog) roomForStream(shards uint32) error {
	if c.streams >= c.cfg.MaxStreams {
		return &LimitError{What: "streams", Limit: c.cfg.MaxStreams, Hint: "delete one"}
	}
	if c.shards+int(shards) > c.cfg.MaxAllShards {
		return &LimitError{What: "shards of all streams", Limit: c.cfg.MaxAllShards, Hint: "delete streams, or create this one with fewer shards"}
	}
	return nil
}

func (c *Catalog) ensureStream(cmd command) (result, error) {
	t := c.tenants.byName[cmd.tenant]
	var n *namespace
	if t != nil {
		n = t.namespaces.byName[cmd.namespace]
	}
	if n != nil {
		if s := n.streams.byName[cmd.stream]; s != nil {
			return result{stream: s}, nil
		}
	}
	if !c.cfg.AutoCreate {
		_, _, _, err := c.findStream(cmd.tenant, cmd.namespace, cmd.stream)
		return result{}, err
	}
	// Everything that can fail is checked before the first change.
	cfg := StreamConfig{Tenant: cmd.tenant, Namespace: cmd.namespace, Name: cmd.stream, Shards: c.cfg.DevShards}
	if cfg.Durable = c.cfg.DevDurable && len(c.lanes) > 0; !cfg.Durable {
		cfg.OnSlow = c.cfg.DevOnSlow
	}
	if err := c.normalize(&cfg); err != nil {
		return result{}, err
	}
	for _, p := range []string{path(cmd.tenant), path(cmd.tenant, cmd.namespace), path(cmd.tenant, cmd.namespace, cmd.stream)} {
		if c.graves.has(p) {
			return result{}, fmt.Errorf("stream %w: %q was deleted; create it again to use it", ErrNotFound, p)
		}
	}
	if c.auto >= c.cfg.MaxAutoStreams {
		return result{}, &LimitError{What: "streams created on first use", Limit: c.cfg.MaxAutoStreams, Hint: "create the stream explicitly, or delete one"}
	}
	if err := c.roomForStream(cfg.Shards); err != nil {
		return result{}, err
	}
	if t == nil && len(c.tenants.names) >= c.cfg.MaxTenants {
		return result{}, &LimitError{What: "tenants", Limit: c.cfg.MaxTenants, Hint: "delete one"}
	}
	if n == nil && c.namespaces >= c.cfg.MaxNamespaces {
		return result{}, &LimitError{What: "namespaces", Limit: c.cfg.MaxNamespaces, Hint: "delete one"}
	}
	// They are not recorded: the record of a durable stream brings them back, and one in memory leaves nothing behind.
	if _, err := c.createTenant(command{tenant: cmd.tenant, auto: true}); err != nil {
		return result{}, err
	}
	r, err := c.createNamespace(command{tenant: cmd.tenant, namespace: cmd.namespace, auto: true})
	if err != nil {
		return result{}, err
	}
	made, err := c.createStream(r.namespace, cfg, true)
	if err != nil { // of the journal: nothing of this is to stay
		if n == nil {
			c.tenants.byName[cmd.tenant].namespaces.remove(cmd.namespace)
			c.namespaces--
		}
		if t == nil {
			c.tenants.remove(cmd.tenant)
		}
	}
	return made, err
}

func (c *Catalog) normalize(cfg *StreamConfig) error {
	return cfg.normalize(c.cfg.DefaultFsync, len(c.lanes) > 0)
}

// place chooses the lanes of a durable stream's shards. The shards are dealt to the hosts with lanes as newStream deals those in memory,
// and go to the lane of that host with the least shards.
func (c *Catalog) place(cfg StreamConfig, id uint64) []*hostLane {
	if !cfg.Durable {
		return nil
	}
	var hosts []*Host
	for _, h := range c.cfg.Hosts {
		if len(h.lanes) > 0 {
			hosts = append(hosts, h)
		}
	}
	lanes := make([]*hostLane, cfg.Shards)
	added := make(map[*hostLane]int)
	first := mix(id)
	for i := range lanes {
		h := hosts[(first+uint64(i))%uint64(len(hosts))]
		best := h.lanes[0]
		for _, hl := range h.lanes[1:] {
			if hl.load+added[hl] < best.load+added[best] {
				best = hl
			}
		}
		added[best]++
		lanes[i] = best
	}
	return lanes
}

func (c *Catalog) patchStream(cmd command) (result, error) {
	_, _, s, err := c.findStream(cmd.tenant, cmd.namespace, cmd.stream)
	if err != nil {
		return result{}, err
	}
	old := s.Settings()
	set := old
	if cmd.patch.OnSlow != nil {
		set.OnSlow = *cmd.patch.OnSlow
	}
	if cmd.patch.FsyncMode != nil {
		set.FsyncMode = *cmd.patch.FsyncMode
	}
	if cmd.patch.Retention != nil {
		set.Retention = *cmd.patch.Retention
	}
	if err := checkSettings(cmd.stream, s.Config.Durable, set); err != nil {
		return result{}, err
	}
	if set == old {
		return result{stream: s}, nil
	}
	if err := c.recordStream(s, entry{Op: opPatchStream, ID: s.ID, Settings: settingsEntry(set)}); err != nil {
		return result{}, err
	}
	set.Revision = c.next()
	s.settings.Store(&set)
	return result{changed: true, stream: s}, nil
}

func (c *Catalog) deleteTenant(t *tenant) result {
	r := result{changed: true}
	for _, n := range t.namespaces.byName {
		r.deleted = append(r.deleted, c.deleteNamespace(t, n).deleted...)
	}
	c.tenants.remove(t.Name)
	c.graves.add(path(t.Name))
	c.next()
	return r
}

func (c *Catalog) deleteNamespace(t *tenant, n *namespace) result {
	r := result{changed: true}
	for _, s := range n.streams.byName {
		r.deleted = append(r.deleted, c.deleteStream(n, s).deleted...)
	}
	t.namespaces.remove(n.Name)
	c.namespaces--
	c.graves.add(path(t.Name, n.Name))
	c.next()
	return r
}

func (c *Catalog) deleteStream(n *namespace, s *Stream) result {
	n.streams.remove(s.Config.Name)
	c.graves.add(path(s.Config.Tenant, s.Config.Namespace, s.Config.Name))
	c.streams--
	c.shards -= len(s.Shards)
	if s.auto {
		c.auto--
	}
	h := c.hash(s)
	list, _ := c.directory.Load(h)
	list = slices.DeleteFunc(slices.Clone(list), func(other *Stream) bool { return other == s })
	if len(list) == 0 {
		c.directory.Delete(h)
	} else {
		c.directory.Store(h, list)
	}
	for _, shard := range s.Shards {
		if shard.log != nil {
			shard.log.lane.load--
		}
	}
	if s.Config.Durable {
		s.unburied.Store(int32(len(s.Shards)))
		if len(c.dying) >= c.dyingBound {
			c.dying = slices.DeleteFunc(c.dying, (*Stream).isBuried)
			c.dyingBound = 2*len(c.dying) + 64
		}
		c.dying = append(c.dying, s)
	}
	s.gone.Store(true)
	c.next()
	return result{changed: true, deleted: []*Stream{s}}
}

func (c *Catalog) findTenant(name string) (*tenant, error) {
	t := c.tenants.byName[name]
	if t == nil {
		return nil, fmt.Errorf("tenant %w: %q", ErrNotFound, name)
	}
	return t, nil
}

func (c *Catalog) findNamespace(tenantName, name string) (*tenant, *namespace, error) {
	t, err := c.findTenant(tenantName)
	if err != nil {
		return nil, nil, err
	}
	n := t.namespaces.byName[name]
	if n == nil {
		return nil, nil, fmt.Errorf("namespace %w: %q", ErrNotFound, path(tenantName, name))
	}
	return t, n, nil
}

func (c *Catalog) findStream(tenantName, namespaceName, name string) (*tenant, *namespace, *Stream, error) {
	// The text "stream not found" comes first whatever is missing: published tools look for it.
	full := path(tenantName, namespaceName, name)
	t, n, err := c.findNamespace(tenantName, namespaceName)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("stream %w: %q: %s", ErrNotFound, full, err)
	}
	s := n.streams.byName[name]
	if s == nil {
		return nil, nil, nil, fmt.Errorf("stream %w: %q", ErrNotFound, full)
	}
	return t, n, s, nil
}

// path names an object in messages and tombstones. Names have no slash.
func path(names ...string) string {
	p := names[0]
	for _, n := range names[1:] {
		p += "/" + n
	}
	return p
}

// tombstones remember deleted names, so that clients that ask every few seconds do not bring them back. Bound: maxTombstones; then the
// oldest is forgotten, and may be created on first use again.
type tombstones struct {
	at    map[string]uint64 // name to its number
	order []grave           // by number; entries whose name has another number now are stale
	last  uint64
}

type grave struct {
	name string
	no   uint64
}

func (t *tombstones) has(name string) bool { return t.at[name] != 0 }

func (t *tombstones) add(name string) {
	if t.at == nil {
		t.at = make(map[string]uint64)
	}
	t.last++
	t.at[name] = t.last
	t.order = append(t.order, grave{name, t.last})
	for len(t.at) > maxTombstones || len(t.order) > 2*maxTombstones {
		if oldest := t.order[0]; t.at[oldest.name] == oldest.no {
			delete(t.at, oldest.name)
		}
		t.order = t.order[1:]
	}
}

func (t *tombstones) remove(name string) { delete(t.at, name) }
