package replicate

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/puzpuzpuz/xsync/v3"

	"felix/core"
	"felix/fanout"
	"felix/wal"
)

// Bounds of the catalog.
const (
	MaxShards    = 1024 // of a stream
	MaxNameBytes = 128
	MaxPage      = 10000 // entries of a list
	DefaultPage  = 1000
	// maxTombstones bounds the deleted names that Ensure does not bring back; beyond it the oldest are forgotten.
	maxTombstones = 65536
)

// Errors of the catalog. Those returned wrap them, name the object and say what to do.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid")
)

// ConflictError refuses to create what exists with another configuration.
type ConflictError struct {
	Object     string // such as `stream "t1/default/updates"`
	Field      string // the first that differs
	Have, Want string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s exists with %s %s, not %s: use it as it is, or delete it first", e.Object, e.Field, e.Have, e.Want)
}

// LimitError refuses what would exceed a bound.
type LimitError struct {
	What  string // such as "streams"
	Limit int
	Hint  string // what to do
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit of %d %s is reached: %s", e.Limit, e.What, e.Hint)
}

// CatalogConfig is what a Catalog is given. It is copied by NewCatalog.
type CatalogConfig struct {
	// Hosts are the hosts of all cores, by core. Required.
	Hosts []*Host
	// AutoCreate lets Ensure create tenant, namespace and stream on first use.
	AutoCreate bool
	// DevShards is the number of shards of streams that Ensure creates. Zero means 1; at most MaxShards.
	DevShards uint32
	// DevOnSlow is their rule for a full queue while they are in memory.
	DevOnSlow fanout.Policy
	// DevDurable makes them durable where a host has a lane, with the rule catch_up.
	DevDurable bool
	// DefaultFsync is what records of durable streams wait for that name no mode.
	DefaultFsync wal.Mode
	// Journal keeps the commands. Nil means that the catalog is gone with the process.
	Journal Journal
	// MaxAutoStreams bounds the streams that Ensure has created and that exist: then *LimitError. Zero means 1,024.
	MaxAutoStreams int
	// MaxTenants, MaxNamespaces, MaxStreams and MaxAllShards bound the whole catalog: then *LimitError. Zero means 4,096, 16,384,
	// 65,536 and 131,072.
	MaxTenants, MaxNamespaces, MaxStreams, MaxAllShards int
}

// Tenant is an entry of the catalog.
type Tenant struct {
	Name, DisplayName string
	Revision          uint64 // that created it
}

// Namespace is an entry of the catalog.
type Namespace struct {
	Tenant, Name, DisplayName string
	Revision                  uint64 // that created it
}

// Patch changes a stream. Nil fields stay as they are.
type Patch struct {
	OnSlow    *fanout.Policy
	FsyncMode *wal.Mode // of a durable stream
	Retention *Retention
}

// Page asks for a part of a list, which is sorted by name.
type Page struct {
	Limit int    // entries; 0 or less means DefaultPage, more than MaxPage means MaxPage
	After string // the list goes on after this name: the cursor returned with the page before
}

func (p Page) limit() int {
	if p.Limit <= 0 {
		return DefaultPage
	}
	return min(p.Limit, MaxPage)
}

// A Catalog is the tenants, namespaces and streams of a broker. It is changed by commands only, one at a time, under its lock; the data
// path reads the directory, which needs none. Methods may be called from any goroutine, those with a context from
// any but a loop's.
type Catalog struct {
	cfg   CatalogConfig
	seed  maphash.Seed
	lanes []*hostLane // of all hosts; what is in them belongs to their loops, but for what says otherwise

	// directory finds streams by the hash of their names, those of equal hash in one slice. Slices are replaced, never
	// changed. Written under mu.
	directory *xsync.MapOf[uint64, []*Stream]

	mu         sync.Mutex
	revision   uint64
	lastID     uint64
	tenants    table[*tenant]
	namespaces int
	streams    int
	auto       int // streams created by Ensure
	shards     int
	graves     tombstones
	dying      []*Stream // durable and deleted, while a lane may still have some of their shards
	dyingBound int       // of dying, before those that are through are taken out
	orphans    []Orphan
	notices    []string
}

type tenant struct {
	Tenant
	auto       bool // created by Ensure
	namespaces table[*namespace]
}

type namespace struct {
	Namespace
	auto    bool // created by Ensure
	streams table[*Stream]
}

// NewCatalog makes an empty catalog. It panics when cfg is not valid.
func NewCatalog(cfg CatalogConfig) *Catalog {
	if len(cfg.Hosts) == 0 || cfg.DevShards > MaxShards {
		panic(fmt.Sprintf("BUG: replicate: catalog with %d hosts, DevShards %d", len(cfg.Hosts), cfg.DevShards))
	}
	set(&cfg.DevShards, 1)
	set(&cfg.MaxAutoStreams, 1024)
	set(&cfg.MaxTenants, 4096)
	set(&cfg.MaxNamespaces, 16384)
	set(&cfg.MaxStreams, 65536)
	set(&cfg.MaxAllShards, 131072)
	// The seed decides only where entries lie in a table of this process.
	c := &Catalog{cfg: cfg, seed: maphash.MakeSeed(), directory: xsync.NewMapOf[uint64, []*Stream]()}
	for _, h := range cfg.Hosts {
		for _, hl := range h.lanes {
			c.lanes = append(c.lanes, hl)
			for id := range hl.recovered {
				c.lastID = max(c.lastID, id/MaxShards) // never used again, whoever they belonged to
			}
		}
	}
	return c
}

// Resolve returns the stream of that name, nil when there is none. It neither locks nor allocates, and may be called on a loop. The
// names are not kept.
func (c *Catalog) Resolve(tenant, namespace, stream []byte) *Stream {
	h := combine(maphash.Bytes(c.seed, tenant), maphash.Bytes(c.seed, namespace), maphash.Bytes(c.seed, stream))
	list, _ := c.directory.Load(h)
	for _, s := range list {
		if s.Config.Name == string(stream) && s.Config.Namespace == string(namespace) && s.Config.Tenant == string(tenant) {
			return s
		}
	}
	return nil
}

func combine(tenant, namespace, stream uint64) uint64 {
	h := bits.RotateLeft64(tenant*0x9e3779b97f4a7c15, 29) ^ namespace
	return bits.RotateLeft64(h*0x9e3779b97f4a7c15, 29) ^ stream
}

func (c *Catalog) hash(s *Stream) uint64 {
	return combine(maphash.String(c.seed, s.Config.Tenant), maphash.String(c.seed, s.Config.Namespace), maphash.String(c.seed, s.Config.Name))
}

// EachStream calls f with every stream, in no order, until f returns false. It does not lock: streams created or deleted
// meanwhile may be missed. It may be called on a loop.
func (c *Catalog) EachStream(f func(*Stream) bool) {
	c.directory.Range(func(_ uint64, list []*Stream) bool {
		for _, s := range list {
			if !f(s) {
				return false
			}
		}
		return true
	})
}

// Counts is the size of a catalog.
type Counts struct{ Tenants, Namespaces, Streams, AutoStreams, Shards int }

// Counts returns the size.
func (c *Catalog) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counts{len(c.tenants.names), c.namespaces, c.streams, c.auto, c.shards}
}

// Revision returns the number of the last change.
func (c *Catalog) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// Ensure returns the stream, and with AutoCreate creates what is missing of tenant, namespace and stream, with DevShards shards, durable
// where DevDurable says so. What was deleted is not created again. Errors wrap ErrNotFound or ErrInvalid, or are a *LimitError.
func (c *Catalog) Ensure(ctx context.Context, tenant, namespace, stream string) (*Stream, error) {
	r, err := c.do(ctx, command{op: ensureStream, tenant: tenant, namespace: namespace, stream: stream})
	return r.stream, err
}

// CreateTenant creates a tenant. created is false when it exists with that display name, or the display name is empty.
func (c *Catalog) CreateTenant(ctx context.Context, name, displayName string) (t Tenant, created bool, err error) {
	r, err := c.do(ctx, command{op: createTenant, tenant: name, displayName: displayName})
	if err != nil {
		return Tenant{}, false, err
	}
	return r.tenant.Tenant, r.changed, nil
}

// Tenant returns a tenant, or an error that wraps ErrNotFound.
func (c *Catalog) Tenant(name string) (Tenant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := c.findTenant(name)
	if err != nil {
		return Tenant{}, err
	}
	return t.Tenant, nil
}

// Tenants lists tenants; next is the cursor of the page that follows, "" at the end.
func (c *Catalog) Tenants(p Page) (list []Tenant, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, next := c.tenants.page(p)
	for _, t := range found {
		list = append(list, t.Tenant)
	}
	return list, next, nil
}

// DeleteTenant deletes a tenant with everything in it, as DeleteStream does.
func (c *Catalog) DeleteTenant(ctx context.Context, name string) error {
	_, err := c.do(ctx, command{op: deleteTenant, tenant: name})
	return err
}

// CreateNamespace creates a namespace of a tenant that exists. created is false when it exists with that display name, or the display
// name is empty.
func (c *Catalog) CreateNamespace(ctx context.Context, tenant, name, displayName string) (n Namespace, created bool, err error) {
	r, err := c.do(ctx, command{op: createNamespace, tenant: tenant, namespace: name, displayName: displayName})
	if err != nil {
		return Namespace{}, false, err
	}
	return r.namespace.Namespace, r.changed, nil
}

// Namespace returns a namespace, or an error that wraps ErrNotFound.
func (c *Catalog) Namespace(tenant, name string) (Namespace, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, n, err := c.findNamespace(tenant, name)
	if err != nil {
		return Namespace{}, err
	}
	return n.Namespace, nil
}

// Namespaces lists the namespaces of a tenant; next is the cursor of the page that follows, "" at the end.
func (c *Catalog) Namespaces(tenant string, p Page) (list []Namespace, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := c.findTenant(tenant)
	if err != nil {
		return nil, "", err
	}
	found, next := t.namespaces.page(p)
	for _, n := range found {
		list = append(list, n.Namespace)
	}
	return list, next, nil
}

// DeleteNamespace deletes a namespace with everything in it, as DeleteStream does.
func (c *Catalog) DeleteNamespace(ctx context.Context, tenant, name string) error {
	_, err := c.do(ctx, command{op: deleteNamespace, tenant: tenant, namespace: name})
	return err
}

// CreateStream creates a stream in a namespace that exists. created is false when it exists with that configuration; with another
// one the error is a *ConflictError. Others wrap ErrInvalid or ErrNotFound, or are a *LimitError.
func (c *Catalog) CreateStream(ctx context.Context, cfg StreamConfig) (s *Stream, created bool, err error) {
	r, err := c.do(ctx, command{op: createStream, tenant: cfg.Tenant, namespace: cfg.Namespace, stream: cfg.Name, config: cfg})
	return r.stream, r.changed, err
}

// Stream returns a stream, or an error that wraps ErrNotFound.
func (c *Catalog) Stream(tenant, namespace, name string) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, s, err := c.findStream(tenant, namespace, name)
	return s, err
}

// Streams lists the streams of a namespace; next is the cursor of the page that follows, "" at the end.
func (c *Catalog) Streams(tenant, namespace string, p Page) (list []*Stream, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, n, err := c.findNamespace(tenant, namespace)
	if err != nil {
		return nil, "", err
	}
	list, next = n.streams.page(p)
	return list, next, nil
}

// PatchStream changes a stream and returns when its shards act on it. Subscriptions that exist keep their rule for a full queue. Errors
// wrap ErrInvalid or ErrNotFound; when ctx ends first, its error is returned and the change goes on.
func (c *Catalog) PatchStream(ctx context.Context, tenant, namespace, name string, p Patch) (*Stream, error) {
	r, err := c.do(ctx, command{op: patchStream, tenant: tenant, namespace: namespace, stream: name, patch: p})
	if err != nil || !r.changed {
		return r.stream, err
	}
	return r.stream, r.stream.eachOwner(ctx, func(l *core.Loop, shards []*Shard) {
		retention := r.stream.settings.Load().Retention
		for _, s := range shards {
			s.retain(l, retention)
		}
	})
}

// DeleteStream deletes a stream and returns when every shard has ended its subscriptions with fanout.Deleted, answers appends with
// StreamGone and has given its memory back. When ctx ends first, its error is returned and the deletion goes on.
func (c *Catalog) DeleteStream(ctx context.Context, tenant, namespace, name string) error {
	_, err := c.do(ctx, command{op: deleteStream, tenant: tenant, namespace: namespace, stream: name})
	return err
}
