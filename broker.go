package felix

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"felix/core"
	"felix/fanout"
	"felix/netio"
	"felix/netio/admin"
	"felix/replicate"
	"felix/wal"
)

// DefaultName is the name of the tenant and of the namespace that every broker starts with.
const DefaultName = "default"

// maxUnpinnedCores is the number of cores where nobody says another: beyond it more run loops gain nothing, since
// most of the work is done by the connections' own goroutines.
const maxUnpinnedCores = 8

// Types and values of streams, so that a program that embeds a broker needs only this package.
type (
	// Catalog is the tenants, namespaces and streams of a broker.
	Catalog = replicate.Catalog
	// StreamConfig is what a stream is created with.
	StreamConfig = replicate.StreamConfig
	// Policy is what happens to a record that finds the queue of a subscriber full.
	Policy = fanout.Policy
	// Delivery bounds event frames and replay rings. Zero fields are defaults; BudgetBytes is set by the broker.
	Delivery = fanout.Limits
	// Retention bounds what a stream keeps.
	Retention = replicate.Retention
	// FsyncMode is what a record of a durable stream waits for before it is acknowledged and delivered.
	FsyncMode = wal.Mode
	// StorageBackend is how groups of records are written.
	StorageBackend = wal.BackendKind
)

const (
	OnCommit = wal.OnCommit // until it is on disk; nothing is lost on kill or power cut
	Periodic = wal.Periodic // until it is written; a power cut loses at most Log.SyncInterval
	NoSync   = wal.None     // until it is written; a power cut loses what the system had not written by itself

	StorageAuto  = wal.BackendAuto
	StorageSync  = wal.BackendSync
	StorageURing = wal.BackendURing
)

const (
	DropNew = fanout.DropNew // leave the record out for this subscriber
	DropOld = fanout.DropOld // leave the oldest queued record out
	Block   = fanout.Block   // hold back publishes to the shard, at most 5 s
	CatchUp = fanout.CatchUp // durable streams: read the log
)

// ErrClosed is returned by methods of a Broker that is closed.
var ErrClosed = errors.New("the broker is closed")

// state of a Broker. It only rises.
type state int32

const (
	starting state = iota
	serving
	draining
	closed
)

// A Broker is a running broker. Its methods may be called from any goroutine.
type Broker struct {
	config  checkedConfig
	log     *slog.Logger
	started time.Time
	state   atomic.Int32 // a state

	dir     *dataDir
	id      identity
	cert    *certificate
	group   *core.Group
	running bool // group was started
	slabs   *fanout.Slabs
	hosts   []*replicate.Host
	lanes   []brokerLane // by place in the deal to the cores
	storage *storageMeter
	damage  []string // what recovery could not read back
	journal *journal
	catalog *replicate.Catalog
	server  *netio.Server
	admin   *admin.Server
	metrics *metrics.Set
	watch   *watchdog

	subscribers *subscriberWatch // who the watchdog looks after besides the cores

	memoryBudget int64
	drainMillis  atomic.Int64 // how long the drain took, 0 before
	closing      sync.Once
	closeErr     error
}

// Start starts a broker. When it returns, clients can connect. The error names every problem of config, or the
// first thing that could not be had, each in a sentence with value and remedy. ctx bounds the start only. A broker
// that was started must be closed.
func Start(ctx context.Context, config Config) (*Broker, error) {
	checked, err := config.check()
	if err != nil {
		return nil, err
	}
	b := &Broker{config: checked, log: config.Logger, metrics: metrics.NewSet()}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.started = time.Now()
	wall := b.config.Now
	if wall == nil {
		wall = time.Now
	}
	b.config.Now = newBrokerClock(wall, b.elapsed, b.log).now
	b.storage = newStorageMeter(b.metrics, b.elapsed)
	if err := b.start(ctx); err != nil {
		b.Close()
		return nil, err
	}
	b.state.Store(int32(serving))
	return b, nil
}

// start brings the parts up in the order in which they lean on each other. Close takes down what is there.
func (b *Broker) start(ctx context.Context) (err error) {
	c := b.config
	if b.dir, err = openDataDir(c.DataDir); err != nil {
		return err
	}
	if b.id, err = b.dir.identity(); err != nil {
		return err
	}
	if b.cert, err = b.certificate(); err != nil {
		return err
	}
	if b.memoryBudget, err = memoryBudget(c.MemoryBudget, c.Limits.IngressBytes); err != nil {
		return err
	}
	if c.Limits.IngressBytes == 0 {
		c.Limits.IngressBytes = defaultIngressBytes(b.memoryBudget, c.Limits.ConnectionBytes)
	}
	if err := b.makeCores(); err != nil {
		return err
	}
	if err := b.openLanes(); err != nil {
		return err
	}
	if err := b.openCatalog(); err != nil {
		return err
	}
	for i, loop := range b.group.Loops() {
		loop.AddAgent(b.hosts[i].Lanes()) // before the server's: what became durable is answered in the same pass
	}
	b.server, err = netio.Listen(netio.Config{
		Group:          b.group,
		Catalog:        b.catalog,
		Listen:         c.listen,
		Listeners:      c.Listeners,
		ListenerPorts:  c.ListenerPorts,
		Advertise:      c.Advertise,
		NodeID:         b.id.nodeID,
		TLS:            &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{b.cert.pair}},
		RequireALPN:    c.RequireALPN,
		MaxPacketBytes: c.MaxPacketBytes,
		ResetSecret:    b.id.resetSecret,
		TokenKey:       b.id.tokenKey,
		Authenticate:   authenticateAny,
		Limits:         c.Limits,
		Quotas:         c.Quotas,
		Memory:         netio.MemoryConfig{Budget: b.memoryBudget, Frames: b.slabs.Held},
		DrainLinger:    c.DrainLinger,
		Rand:           rand.Reader,
		Logger:         c.Logger,
	})
	if err != nil {
		return err
	}
	if c.admin.IsValid() {
		b.admin, err = admin.Listen(admin.Config{
			Listen:        c.admin,
			Catalog:       b.catalog,
			DefaultOnSlow: c.SubQueuePolicy,
			Subscriptions: b.server.Subscriptions,
			Readiness:     b.readiness,
			WriteMetrics:  b.WriteMetrics,
			Quotas:        b.server,
			Logger:        c.Logger,
		})
		if err != nil {
			return err
		}
	}

	for i, loop := range b.group.Loops() {
		loop.AddAgent(b.hosts[i]) // behind the server's: answers leave before records are offered
	}
	b.group.Start()
	b.running = true
	if err := b.makeDefaults(ctx); err != nil {
		return err
	}
	b.metrics.RegisterMetricsWriter(b.writeMetrics)
	b.subscribers = &subscriberWatch{server: b.server, log: b.log}
	b.watch = startWatchdog(b.sight, b.log, b.subscribers.look)
	b.server.Start()
	if b.admin != nil {
		b.admin.Start()
	}
	for _, warning := range b.warnings() {
		b.log.Warn(warning)
	}
	return nil
}

// makeCores makes the run loops and the hosts of their shards.
func (b *Broker) makeCores() (err error) {
	c := b.config
	cores, pinned := c.Cores, c.CoreShards > 0
	switch {
	case pinned:
		cores = c.CoreShards
	case cores == 0:
		cores = min(runtime.GOMAXPROCS(0), maxUnpinnedCores)
	}
	b.group, err = core.NewGroup(core.Config{
		Cores:  cores,
		Pinned: pinned,
		CPUs:   c.CoreCPUs,
		Spin:   c.CoreSpin,
		Now:    b.elapsed,
		Logger: c.Logger,
	})
	if err != nil {
		return fmt.Errorf("core_shards is %d, core_cpus is %v: %w", c.CoreShards, c.CoreCPUs, err)
	}
	delivery := c.Delivery
	delivery.BudgetBytes = b.memoryBudget / 2 // the other half is for publishes, windows and what clients are sent
	b.slabs = fanout.NewSlabs(fanout.SlabsConfig{})
	for _, loop := range b.group.Loops() {
		b.hosts = append(b.hosts, replicate.NewHost(loop, replicate.HostConfig{
			Slabs:        b.slabs,
			Limits:       delivery,
			NowMicros:    func() int64 { return c.Now().UnixMicro() },
			LogRetention: c.Log.Retention,
		}))
	}
	return nil
}

// newCatalog makes the catalog over the hosts and their lanes.
func (b *Broker) newCatalog() {
	c := b.config
	b.catalog = replicate.NewCatalog(replicate.CatalogConfig{
		Hosts:        b.hosts,
		AutoCreate:   c.autoCreate,
		DevShards:    uint32(max(c.DevShards, 1)),
		DevOnSlow:    c.SubQueuePolicy,
		DevDurable:   !c.AutoCreateMemory,
		DefaultFsync: c.Log.FsyncMode,
		Journal:      b.journal,
	})
}

// elapsed is the clock of the loops: time since the broker started, which never goes back.
func (b *Broker) elapsed() time.Duration { return time.Since(b.started) }

// makeDefaults creates the tenant and namespace that clients use when they name none.
func (b *Broker) makeDefaults(ctx context.Context) error {
	if _, _, err := b.catalog.CreateTenant(ctx, DefaultName, ""); err != nil {
		return err
	}
	_, _, err := b.catalog.CreateNamespace(ctx, DefaultName, DefaultName, "")
	return err
}

// certificate loads the configured pair, or the development certificate, and exports the latter.
func (b *Broker) certificate() (*certificate, error) {
	c := b.config
	if c.TLSCert != "" {
		return configuredCertificate(c.TLSCert, c.TLSKey)
	}
	hostName, err := os.Hostname()
	if err != nil {
		b.log.Warn("the host name is not known; the development certificate goes without it", "error", err)
	}
	names := namesFor(hostName, advertiseHost(c.Advertise))
	cert, err := developmentCertificate(filepath.Join(b.dir.path, "tls"), names, b.started)
	if err != nil || c.TLSCertExport == "" {
		return cert, err
	}
	return cert, exportCertificate(c.TLSCertExport, cert.pem)
}

// authenticateAny accepts every token for every tenant.
func authenticateAny(tenant, token string) error { return nil }

// memoryBudget settles the budget, given what was configured and the ingress bytes that must fit.
func memoryBudget(configured, ingressBytes int64) (int64, error) {
	budget := configured
	if budget == 0 {
		budget = max(availableMemory()/100*defaultMemoryShare, minMemoryBudget)
	}
	if ingressBytes > budget/2 {
		return 0, fmt.Errorf("publish_inflight_bytes is %s, more than half of the memory budget of %s; lower it, or raise memory_budget", formatSize(ingressBytes), formatSize(budget))
	}
	return budget, nil
}

// warnings are the things about this broker that are allowed and that its operator should know.
func (b *Broker) warnings() []string {
	var list []string
	if !b.config.listen.Addr().IsLoopback() {
		list = append(list, fmt.Sprintf("auth is any: whoever reaches %s can read and write every stream", b.Addr()))
	}
	if b.config.admin.IsValid() && !b.config.admin.Addr().IsLoopback() {
		list = append(list, fmt.Sprintf("admin_remote is true: whoever reaches %s can delete streams and profile this process", b.AdminAddr()))
	}
	return list
}

// readiness is what /ready answers.
func (b *Broker) readiness() admin.Readiness {
	r := admin.Readiness{Warnings: b.warnings()}
	switch state(b.state.Load()) {
	case starting:
		r.Reasons = append(r.Reasons, "starting")
	case draining:
		r.Reasons = append(r.Reasons, "draining: new streams are refused")
	case closed:
		r.Reasons = append(r.Reasons, "closed")
	}
	r.Reasons = append(r.Reasons, b.watch.reasons()...)
	r.Reasons = append(r.Reasons, b.laneTroubles()...)
	r.Warnings = append(r.Warnings, b.watch.warnings()...)
	r.Warnings = append(r.Warnings, b.damage...)
	r.Warnings = append(r.Warnings, b.subscribers.warnings()...)
	r.Ready = len(r.Reasons) == 0
	return r
}

// Drain takes no new work, finishes and answers what was accepted, and closes every connection. It ends early when ctx
// does, or after DrainTimeout, with an error that says so. The admin listener goes on; Close must follow.
func (b *Broker) Drain(ctx context.Context) error {
	if !b.advance(draining) {
		return ErrClosed
	}
	limit := b.config.DrainTimeout
	if limit == 0 {
		limit = defaultDrainTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := b.elapsed()
	err := b.server.Drain(ctx)
	b.drainMillis.Store(max(1, (b.elapsed() - begun).Milliseconds()))
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("draining did not finish within %v; what was still open is cut off (shutdown_drain_timeout_ms)", limit)
	}
	return err
}

// advance raises the state to s. It returns false when the broker is closed.
func (b *Broker) advance(s state) bool {
	for {
		old := b.state.Load()
		if state(old) == closed {
			return false
		}
		if old >= int32(s) || b.state.CompareAndSwap(old, int32(s)) {
			return true
		}
	}
}

// Close ends the broker without waiting for its clients and returns when everything it started is gone, the temporary
// data directory included. Further calls wait for the first and return the same.
func (b *Broker) Close() error {
	b.closing.Do(func() {
		b.state.Store(int32(closed))
		// In the opposite order of start: whoever posts to the loops ends before them.
		if b.admin != nil {
			b.closeErr = errors.Join(b.closeErr, b.admin.Close())
		}
		if b.server != nil {
			b.closeErr = errors.Join(b.closeErr, b.server.Close())
		}
		b.watch.stop()
		if b.group != nil {
			if !b.running {
				b.group.Start() // the lanes are closed on the loops
			}
			b.closeErr = errors.Join(b.closeErr, b.closeLanes())
			b.group.Close()
		}
		if b.dir != nil {
			b.closeErr = errors.Join(b.closeErr, b.dir.close())
		}
	})
	return b.closeErr
}

// Addr is the address of the shared port.
func (b *Broker) Addr() netip.AddrPort { return b.server.Addr() }

// Ports are the own ports of the listening cores, in order; empty when there is only the shared port.
func (b *Broker) Ports() []uint16 { return b.server.Ports() }

// AdminAddr is the address of the admin listener; it is not valid when there is none.
func (b *Broker) AdminAddr() netip.AddrPort {
	if b.admin == nil {
		return netip.AddrPort{}
	}
	return b.admin.Addr()
}

// CertificatePEM is the certificate chain that the broker presents. A client that lists a development certificate as
// its root trusts the broker.
func (b *Broker) CertificatePEM() []byte { return append([]byte(nil), b.cert.pem...) }

// CAFile is the path of a file with CertificatePEM.
func (b *Broker) CAFile() string { return b.cert.file }

// DataDir is the absolute path of the data directory.
func (b *Broker) DataDir() string { return b.dir.path }

// MemoryBudget is the budget in force, in bytes.
func (b *Broker) MemoryBudget() int64 { return b.memoryBudget }

// Cores is the number of cores, and whether each has a CPU of its own.
func (b *Broker) Cores() (n int, pinned bool) { return len(b.hosts), b.config.CoreShards > 0 }

// Durability says in a few words what an ack of a durable stream that names no mode means, and where streams of first use are.
func (b *Broker) Durability() string {
	text := ""
	switch b.config.Log.FsyncMode {
	case Periodic:
		interval := b.config.Log.SyncInterval
		if interval == 0 {
			interval = defaultSyncInterval
		}
		text = fmt.Sprintf("periodic: an ack means written; a power cut loses at most the last %v", interval)
	case NoSync:
		text = "none: an ack means written; a power cut loses what the system had not saved by itself"
	default:
		text = "on_commit: an ack means on disk"
	}
	if b.config.AutoCreateMemory {
		text += "; streams of first use are in memory"
	}
	return text
}

// CertificateText says in a few words which certificate the broker presents.
func (b *Broker) CertificateText() string { return b.cert.origin }

// Catalog is the tenants, namespaces and streams.
func (b *Broker) Catalog() *Catalog { return b.catalog }

// CreateStream creates a stream, and its tenant and namespace when they are missing. Empty names of these mean
// "default". It is no error when the stream exists just so.
func (b *Broker) CreateStream(ctx context.Context, config StreamConfig) error {
	config.Tenant = or(config.Tenant, DefaultName)
	config.Namespace = or(config.Namespace, DefaultName)
	if _, _, err := b.catalog.CreateTenant(ctx, config.Tenant, ""); err != nil {
		return err
	}
	if _, _, err := b.catalog.CreateNamespace(ctx, config.Tenant, config.Namespace, ""); err != nil {
		return err
	}
	_, _, err := b.catalog.CreateStream(ctx, config)
	return err
}

// Ready is what the broker tells about itself once clients can connect.
func (b *Broker) Ready() Ready {
	r := Ready{Listen: b.Addr().String(), Ports: b.Ports(), CAFile: b.CAFile(), PID: os.Getpid()}
	if r.Ports == nil {
		r.Ports = []uint16{}
	}
	if addr := b.AdminAddr(); addr.IsValid() {
		r.Admin = addr.String()
	}
	return r
}
