package load

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"felix"
)

// FelixConfig is a felix broker to drive.
type FelixConfig struct {
	// Broker is one that runs in this process. The fields below, up to Token, are then not needed.
	Broker *felix.Broker
	// Addr is the HOST:PORT of the broker.
	Addr string
	// Admin is the HOST:PORT or http://HOST:PORT of its admin listener. Without it no stream can be made, so that one must exist, and
	// nothing is compared with the broker's counts.
	Admin string
	// CAFile is a PEM file with the certificates to trust, RootCAs the same as a pool. Without both those of the system are trusted.
	CAFile  string
	RootCAs *x509.CertPool
	// ServerName is what the certificate must name. Empty means the host of Addr.
	ServerName        string
	Tenant, Namespace string // "default" without them
	Token             string
	// Connections is the number of QUIC connections to each address of the broker that publishers share, 1 by default. The client has at
	// most 64, the lean generator 1,024.
	Connections int
	// Plain spreads the connections over the broker's ports, and each publishes to every shard, as the published plain client does: Connections
	// is then their number in all. Otherwise a record goes to the owner of its shard. For the lean generator only.
	Plain bool
	// Owners is how many addresses the broker announces, one per listening core; each gets Connections. Zero means as many as a broker on
	// this machine would have.
	Owners int
}

// connections is how many connections publishers have, about.
func (c FelixConfig) connections() int64 {
	if c.Plain {
		return int64(c.Connections)
	}
	return int64(c.Connections * c.Owners)
}

// felixBroker is what both targets for felix share: names, keys, and the side of the broker that makes streams and counts.
type felixBroker struct {
	config  FelixConfig
	roots   *x509.CertPool // nil: those of the system
	control control
	name    string
}

// control makes streams and reads counters.
type control interface {
	create(ctx context.Context, name string, spec StreamSpec) error
	remove(ctx context.Context, name string) error
	// exists is only asked of streams that somebody else made.
	exists(ctx context.Context, name string) (bool, error)
	counters(ctx context.Context) (Counters, error)
}

// Most connections to an address: those of client.WithConnections, and for the lean generator as many as fit the broker's own bounds.
const (
	maxClientConnections = 64
	maxLeanConnections   = 1024
)

func newFelixBroker(c FelixConfig, mostConnections int) (*felixBroker, error) {
	if c.Tenant == "" {
		c.Tenant = felix.DefaultName
	}
	if c.Namespace == "" {
		c.Namespace = felix.DefaultName
	}
	if c.Connections == 0 {
		c.Connections = 1
	}
	if c.Owners == 0 {
		c.Owners = min(runtime.NumCPU(), 8)
	}
	if c.Connections < 1 || c.Connections > mostConnections {
		return nil, fmt.Errorf("connections is %d; give a number from 1 to %d", c.Connections, mostConnections)
	}
	b := &felixBroker{config: c, roots: c.RootCAs, name: "felix"}
	if c.Broker != nil {
		b.config.Addr, b.config.Owners = c.Broker.Addr().String(), max(len(c.Broker.Ports()), 1)
		b.roots = x509.NewCertPool()
		b.roots.AppendCertsFromPEM(c.Broker.CertificatePEM())
		b.name = "felix " + felix.Version()
		b.control = embedded{c.Broker, b.config.Tenant, b.config.Namespace}
		return b, nil
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, err
		}
		b.roots = x509.NewCertPool()
		if !b.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", c.CAFile)
		}
	}
	if c.Admin != "" {
		b.control = newAdminControl(c.Admin, b.config.Tenant, b.config.Namespace)
	}
	return b, nil
}

// serverName is what the broker's certificate must name, "" for the host of the address.
func (b *felixBroker) serverName() string {
	if b.config.ServerName != "" {
		return b.config.ServerName
	}
	if addr, err := netip.ParseAddrPort(b.config.Addr); err == nil && addr.Addr().IsLoopback() {
		return "localhost"
	}
	return ""
}

// Counters is that of a Target.
func (b *felixBroker) Counters(ctx context.Context) (Counters, error) {
	if b.control == nil {
		return Counters{}, nil
	}
	return b.control.counters(ctx)
}

// settle makes the stream of spec or looks it up, and returns its name and whether it was made.
func (b *felixBroker) settle(ctx context.Context, spec StreamSpec) (name string, made bool, err error) {
	if spec.Existing != "" {
		exists, err := b.lookUp(ctx, spec.Existing)
		if err == nil && !exists {
			err = fmt.Errorf("%w: %q in namespace %s of tenant %s", ErrNoStream, spec.Existing, b.config.Namespace, b.config.Tenant)
		}
		return spec.Existing, false, err
	}
	if b.control == nil {
		return "", false, errors.New("a stream is needed, and without the admin listener none can be made; name one that exists, or the admin listener")
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", false, err
	}
	name = "bench-" + hex.EncodeToString(random[:])
	return name, true, b.control.create(ctx, name, spec)
}

// lookUp reports whether a stream exists. Without the admin listener it asks who owns its shards: a broker that creates streams on first use
// makes it then, as it would for the first publish.
func (b *felixBroker) lookUp(ctx context.Context, name string) (bool, error) {
	if b.control != nil {
		return b.control.exists(ctx, name)
	}
	d, err := b.newDialer()
	if err != nil {
		return false, err
	}
	defer d.close()
	owners, err := d.owners(ctx, name)
	return len(owners) > 0, err
}

// embedded is the control of a broker in this process.
type embedded struct {
	broker            *felix.Broker
	tenant, namespace string
}

func (e embedded) create(ctx context.Context, name string, spec StreamSpec) error {
	config := felix.StreamConfig{Tenant: e.tenant, Namespace: e.namespace, Name: name, Shards: uint32(spec.Shards)}
	switch spec.Durability {
	case Memory:
		config.OnSlow = felix.Block
		if spec.Slow {
			config.OnSlow = felix.DropNew
		}
	case OnCommit:
		config.Durable, config.FsyncMode, config.FsyncGiven = true, felix.OnCommit, true
	case Periodic:
		config.Durable, config.FsyncMode, config.FsyncGiven = true, felix.Periodic, true
	case NoSync:
		config.Durable, config.FsyncMode, config.FsyncGiven = true, felix.NoSync, true
	}
	if config.Durable {
		config.OnSlow = felix.CatchUp
	}
	return e.broker.CreateStream(ctx, config)
}

func (e embedded) remove(ctx context.Context, name string) error {
	return e.broker.Catalog().DeleteStream(ctx, e.tenant, e.namespace, name)
}

func (e embedded) exists(_ context.Context, name string) (bool, error) {
	return e.broker.Catalog().Resolve([]byte(e.tenant), []byte(e.namespace), []byte(name)) != nil, nil
}

func (e embedded) counters(context.Context) (Counters, error) {
	s := e.broker.Stats()
	c := Counters{
		AppendedRecords: float64(s.PublishRecords), AckedBatches: float64(s.PublishAcked), RefusedBatches: float64(s.PublishRefused),
		DroppedBatches: float64(s.PublishDropped), DroppedDeliveries: float64(s.EventsDropped),
		Packets: float64(s.PacketsIn + s.PacketsOut), PacketBytes: float64(s.BytesIn + s.BytesOut), SocketBytes: float64(s.ReadBufferBytes),
	}
	for _, lane := range s.Lanes {
		c[Syncs] += float64(lane.Syncs)
		c[Groups] += float64(lane.Groups)
		c[ZeroedGroups] += float64(lane.ZeroedGroups)
	}
	return c, nil
}
