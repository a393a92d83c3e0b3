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
		if err := cmd.config.normalize(); err != nil {
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
		return c.deleteTenant(t), nil
	case deleteNamespace:
		t, n, err := c.findNamespace(cmd.tenant, cmd.namespace)
		if err != nil {
			return result{}, err
		}
		return c.deleteNamespace(t, n), nil
	case deleteStream:
		_, n, s, err := c.findStream(cmd.tenant, cmd.namespace, cmd.stream)
		if err != nil {
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
		return result{tenant: t}, sameDisplayName(fmt.Sprintf("tenant %q", cmd.tenant), t.DisplayName, cmd.displayName)
	}
	if err := checkName("tenant", cmd.tenant); err != nil {
		return result{}, err
	}
	if n := c.cfg.MaxTenants; len(c.tenants.names) >= n {
		return result{}, &LimitError{What: "tenants", Limit: n, Hint: "delete one"}
	}
	t := &tenant{Tenant: Tenant{Name: cmd.tenant, DisplayName: cmd.displayName, Revision: c.next()}}
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
		return result{namespace: n}, sameDisplayName(fmt.Sprintf("namespace %q", path(cmd.tenant, cmd.namespace)), n.DisplayName, cmd.displayName)
	}
	if err := checkName("namespace", cmd.namespace); err != nil {
		return result{}, err
	}
	if c.namespaces >= c.cfg.MaxNamespaces {
		return result{}, &LimitError{What: "namespaces", Limit: c.cfg.MaxNamespaces, Hint: "delete one"}
	}
	n := &namespace{Namespace: Namespace{Tenant: cmd.tenant, Name: cmd.namespace, DisplayName: cmd.displayName, Revision: c.next()}}
	t.namespaces.put(cmd.namespace, n)
	c.namespaces++
	c.graves.remove(path(cmd.tenant, cmd.namespace))
	return result{changed: true, namespace: n}, nil
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
		return result{stream: s}, nil
	}
	if err := c.roomForStream(cfg.Shards); err != nil {
		return result{}, err
	}
	c.lastID++
	s := newStream(c.lastID, c.next(), cfg, c.cfg.Hosts)
	s.auto = auto
	n.streams.put(cfg.Name, s)
	c.graves.remove(name)
	c.streams++
	c.shards += int(cfg.Shards)
	if auto {
		c.auto++
	}
	h := c.hash(s)
	list, _ := c.directory.Load(h)
	c.directory.Store(h, append(slices.Clone(list), s))
	return result{changed: true, stream: s}, nil
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
	cfg := StreamConfig{Tenant: cmd.tenant, Namespace: cmd.namespace, Name: cmd.stream, Shards: c.cfg.DevShards, OnSlow: c.cfg.DevOnSlow}
	if err := cfg.normalize(); err != nil {
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
	if _, err := c.createTenant(command{tenant: cmd.tenant}); err != nil {
		return result{}, err
	}
	r, err := c.createNamespace(command{tenant: cmd.tenant, namespace: cmd.namespace})
	if err != nil {
		return result{}, err
	}
	return c.createStream(r.namespace, cfg, true)
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
	if cmd.patch.Retention != nil {
		set.Retention = *cmd.patch.Retention
	}
	if err := checkSettings(cmd.stream, set.OnSlow, set.Retention); err != nil {
		return result{}, err
	}
	if set == old {
		return result{stream: s}, nil
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
