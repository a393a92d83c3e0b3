package felix

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"felix/netio"
	"felix/netio/udp"
)

// AuthMode says whose tokens are accepted.
type AuthMode string

// AuthAny accepts every token, the empty one too. Where other machines can connect it must be said.
const AuthAny AuthMode = "any"

// Toggle is a switch with a default of its own.
type Toggle uint8

const (
	Default Toggle = iota // as the field says
	On
	Off
)

// Limits bounds what clients can make a broker hold. The zero value of each field is its default.
type Limits = netio.Limits

// Quota bounds what a tenant publishes to a broker; QuotaConfig is the quotas it starts with.
type (
	Quota       = netio.Quota
	QuotaConfig = netio.QuotaConfig
)

// MaxPacketBytes bounds the QUIC packets of this build: 1,452 bytes, or 8,932 in a jumbo build.
const MaxPacketBytes = udp.MaxPacketBytes

// Bounds that are not in netio.
const (
	maxCores      = 64
	maxTimerSlack = 10 * time.Millisecond
	maxDevShards  = 1024

	maxEventBatch                = 8192
	minEventBytes, maxEventBytes = 1 << 10, 1 << 20
	maxRingRecords               = 1 << 24
	minRingBytes, maxRingBytes   = 64 << 10, 1 << 36
	maxBlock                     = time.Minute

	minSegmentBytes, maxSegmentBytes = 1 << 20, 4 << 30

	defaultDrainTimeout = 25 * time.Second
	defaultSyncInterval = 250 * time.Millisecond // package wal's
)

// Config is what a broker is started with. The zero value works: it listens on loopback, on free ports, keeps its
// files in a temporary directory, and has no admin listener. The names in brackets are those of the settings that felixd
// reads; problems are reported under them. Start copies the Config.
type Config struct {
	// Listen is IP:port of the shared UDP port [listen]. Port 0 takes a free one. Empty means 127.0.0.1:0.
	Listen string
	// Listeners is how many cores listen on ports of their own, 1 to the number of cores [listeners]. Zero means one
	// per core. One means the shared port only.
	Listeners int
	// ListenerPorts are the own ports, one for each listening core [listener_ports]. Empty means the port of Listen
	// plus 1, 2, ..., or free ones when that is 0. A port that is taken fails the start.
	ListenerPorts []uint16
	// Advertise is the host or host:port that clients are told [advertise]. Empty means the listen address, or
	// nothing when that is unspecified.
	Advertise string

	// Cores is the number of cores without a thread of their own, 1 to 64. For tests; zero means min(CPUs, 8).
	// It may not be set together with CoreShards.
	Cores int
	// CoreShards is the number of cores that are pinned to a CPU each, 0 to 64 [core_shards]. Zero means that cores
	// are ordinary goroutines.
	CoreShards int
	// CoreCPUs are the CPUs of pinned cores, in order [core_cpus]. Empty means every CPU this process may use.
	// Cores beyond the list share CPUs in turn, with a warning.
	CoreCPUs []int
	// CoreSpin is how long an idle core looks for work before it sleeps, at most 1 ms [core_spin_us].
	CoreSpin time.Duration
	// TimerSlack is by how much the kernel may let short sleeps of threads last longer, at most 10 ms [timer_slack_us]. It is a matter of
	// the process: felixd restarts itself with it before it starts a broker, and Start does not look at it. Zero leaves it as it is.
	TimerSlack time.Duration

	// Admin is IP:port of the HTTP listener for health, metrics, pprof and REST [admin]. Empty means none.
	Admin string
	// AdminRemote allows an Admin address that other machines can reach [admin_remote]. Nothing asks who they are.
	AdminRemote bool

	// DataDir keeps the node identity and the development certificate [data]. It is made when it is missing, and
	// one broker uses it at a time. Empty means a temporary directory that Close removes.
	DataDir string
	// MemoryBudget is what publishes, replay rings, queues and windows may hold together, at least 128 MiB
	// [memory_budget]. Zero means a quarter of the memory of the machine or cgroup. A broker never touches
	// GOMEMLIMIT; felixd sets it to the budget.
	MemoryBudget int64

	// Auth says whose tokens are accepted [auth]. Empty means AuthAny on a loopback address, and refuses to start
	// on any other.
	Auth AuthMode
	// AutoCreate lets the first use of a name create tenant, namespace and in-memory stream [auto_create]. The default
	// is On while any token is accepted. At most 1,024 streams are made so; then first use is refused with limit_exceeded.
	AutoCreate Toggle
	// DevShards is the number of shards of streams made by first use, 1 to 1,024 [dev_shards]. Zero means 1.
	DevShards int

	// TLSCert and TLSKey are PEM files with the certificate chain and its key [tls_cert, tls_key]. Without them a
	// development certificate is made and kept in DataDir.
	TLSCert, TLSKey string
	// TLSCertExport is a file that gets the development certificate, for clients [tls_cert_export]. The start fails
	// when it cannot be written, and when TLSCert is set as well.
	TLSCertExport string
	// RequireALPN refuses clients that offer no ALPN [tls_require_alpn].
	RequireALPN bool

	// MaxPacketBytes bounds the QUIC packets that the broker sends, 1,200 to 1,452, or to 8,932 in a jumbo build
	// [max_packet_bytes]. Zero means the most: used at once on loopback where it is 1,452, else found by path MTU discovery.
	MaxPacketBytes int
	// DrainTimeout bounds Drain, at most 10 minutes [shutdown_drain_timeout_ms]. Zero means 25 s.
	DrainTimeout time.Duration
	// DrainLinger is how long closing waits for a peer to read what was written, at most a minute [drain_linger_ms].
	// Zero means 100 ms.
	DrainLinger time.Duration
	// Limits bounds what clients can make the broker hold.
	Limits Limits
	// Quotas bounds what each tenant publishes, on this broker [tenant_publish_...]. The admin listener can change them; what it sets is
	// forgotten when the broker ends.
	Quotas QuotaConfig
	// SubQueuePolicy is the rule for a full subscriber queue of in-memory streams that name none, and of those made by
	// first use: DropNew, DropOld or Block [sub_queue_policy].
	SubQueuePolicy Policy
	// Delivery bounds event frames and replay rings.
	Delivery Delivery
	// Log says how durable streams are kept.
	Log Log
	// AutoCreateMemory makes streams of first use in memory instead of durable [auto_create_memory].
	AutoCreateMemory bool

	// Logger gets one line for each event that an operator acts on. Nil means none.
	Logger *slog.Logger
	// Now is the wall clock, for tests. Nil means the system's. The broker's time starts with it and follows its steps slowly.
	Now func() time.Time
}

// checkedConfig is a valid Config with what Start derives from its texts.
type checkedConfig struct {
	Config
	listen     netip.AddrPort
	admin      netip.AddrPort // invalid when there is none
	autoCreate bool
}

// Validate reports every problem of c that shows without touching the machine, each in a sentence with the key, the value
// and what to do.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// check is Validate that returns what it found on the way.
func (c Config) check() (checkedConfig, error) {
	checked := checkedConfig{Config: c}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	bound := func(key string, value, low, high int) {
		if value < low || value > high {
			bad("%s is %d; give a number from %d to %d", key, value, low, high)
		}
	}

	listen, err := parseAddr(or(c.Listen, "127.0.0.1:0"))
	if err != nil {
		bad("listen is %q, %w; give IP:port, for example 127.0.0.1:5000 for this machine or 0.0.0.0:5000 for every interface", c.Listen, err)
	}
	checked.listen = listen
	bound("listeners", c.Listeners, 0, maxCores)
	if n := max(c.Listeners, 1); len(c.ListenerPorts) > 0 && c.Listeners > 0 && len(c.ListenerPorts) != n {
		bad("listener_ports names %d ports for %d listeners; give one port for each", len(c.ListenerPorts), n)
	}
	if c.Advertise != "" && !validAdvertise(c.Advertise) {
		bad("advertise is %q; give the host or host:port that clients should connect to", c.Advertise)
	}

	bound("Cores", c.Cores, 0, maxCores)
	bound("core_shards", c.CoreShards, 0, maxCores)
	if c.Cores > 0 && c.CoreShards > 0 {
		bad("Cores is %d and core_shards is %d; set one of them", c.Cores, c.CoreShards)
	}
	if len(c.CoreCPUs) > 0 && c.CoreShards == 0 {
		bad("core_cpus is %v, but no core is pinned; set core_shards to the number of pinned cores, or leave core_cpus out", c.CoreCPUs)
	}
	if c.CoreSpin < 0 || c.CoreSpin > time.Millisecond {
		bad("core_spin_us is %d; give a number from 0 to 1000", c.CoreSpin.Microseconds())
	}

	if c.TimerSlack < 0 || c.TimerSlack > maxTimerSlack {
		bad("timer_slack_us is %d; give a number from 0 to %d", c.TimerSlack.Microseconds(), maxTimerSlack.Microseconds())
	}

	if c.Admin != "" {
		if checked.admin, err = parseAddr(c.Admin); err != nil {
			bad("admin is %q, %w; give IP:port, for example 127.0.0.1:8080, or off", c.Admin, err)
		} else if !checked.admin.Addr().IsLoopback() && !c.AdminRemote {
			bad("admin is %q, which other machines can reach, and the admin listener asks nobody who they are; listen on 127.0.0.1, or set admin_remote: true to allow it", c.Admin)
		}
	}

	if c.MemoryBudget != 0 && c.MemoryBudget < minMemoryBudget {
		bad("memory_budget is %s; give at least %s", formatSize(c.MemoryBudget), formatSize(minMemoryBudget))
	}
	switch {
	case c.Auth != "" && c.Auth != AuthAny:
		bad("auth is %q; give any, or leave it out", c.Auth)
	case c.Auth == "" && listen.IsValid() && !listen.Addr().IsLoopback():
		bad("listen is %q, which other machines can reach, and this broker accepts any token; set auth: any (--auth any, FELIX_AUTH=any) to allow that, or listen on 127.0.0.1", c.Listen)
	}
	checked.autoCreate = c.AutoCreate != Off
	bound("dev_shards", c.DevShards, 0, maxDevShards)

	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		bad("tls_cert is %q, but tls_key is not set; give the file with its key", c.TLSCert)
	case c.TLSCert == "" && c.TLSKey != "":
		bad("tls_key is %q, but tls_cert is not set; give the file with its certificate", c.TLSKey)
	case c.TLSCert != "" && c.TLSCertExport != "":
		bad("tls_cert_export is %q, but tls_cert is set as well (%q) and there is no development certificate to export; leave one of them out", c.TLSCertExport, c.TLSCert)
	}
	if c.MaxPacketBytes != 0 {
		bound("max_packet_bytes", c.MaxPacketBytes, 1200, udp.MaxPacketBytes)
	}
	if c.DrainLinger < 0 || c.DrainLinger > time.Minute {
		bad("drain_linger_ms is %d; give a number from 1 to 60000", c.DrainLinger.Milliseconds())
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > 10*time.Minute {
		bad("shutdown_drain_timeout_ms is %d; give a number from 1 to 600000", c.DrainTimeout.Milliseconds())
	}
	if c.SubQueuePolicy > Block {
		bad("sub_queue_policy is %s, which in-memory streams cannot have; give drop_new, drop_old or block", c.SubQueuePolicy)
	}
	problems = append(problems, c.Limits.Validate(), c.Quotas.Validate(), c.checkDelivery(), c.checkLog())
	return checked, errors.Join(problems...)
}

// checkDelivery looks at the bounds of Delivery and at what relates them to Limits. Zero fields are defaults.
func (c Config) checkDelivery() error {
	var problems []error
	bound := func(key string, value, low, high int64) {
		if value != 0 && (value < low || value > high) {
			problems = append(problems, fmt.Errorf("%s is %d; give a number from %d to %d", key, value, low, high))
		}
	}
	d := c.Delivery
	bound("event_batch_max_events", int64(d.FrameRecords), 1, maxEventBatch)
	bound("event_batch_max_bytes", int64(d.FrameBytes), minEventBytes, maxEventBytes)
	bound("replay_ring_max_records", int64(d.RingRecords), 1, maxRingRecords)
	bound("replay_ring_max_bytes", d.RingBytes, minRingBytes, maxRingBytes)
	bound("max_block_ms", d.MaxBlock.Milliseconds(), 1, maxBlock.Milliseconds())
	if d.BudgetBytes != 0 {
		problems = append(problems, errors.New("Delivery.BudgetBytes is set; set MemoryBudget, of which it is one half"))
	}
	if frame := c.Limits.FrameBytes; frame > 0 && d.FrameBytes > frame {
		problems = append(problems, fmt.Errorf("event_batch_max_bytes (%d) exceeds max_frame_bytes (%d); lower the first or raise the second", d.FrameBytes, frame))
	}
	return errors.Join(problems...)
}

// checkLog looks at the bounds of Log. Zero fields are defaults.
func (c Config) checkLog() error {
	var problems []error
	l := c.Log
	if d := l.SyncInterval; d != 0 && (d < time.Millisecond || d > time.Minute) {
		problems = append(problems, fmt.Errorf("fsync_interval_ms is %d; give a number from 1 to 60000", d.Milliseconds()))
	}
	if d := l.Retention.MaxAge; d != 0 && d < time.Second {
		problems = append(problems, fmt.Errorf("retention_seconds is %v; give at least 1, or leave it out to keep records of any age", d))
	}
	if n := l.Retention.MaxSizeBytes; n < 0 {
		problems = append(problems, fmt.Errorf("retention_bytes is %d; give at least 1, or leave it out to keep any number of bytes", n))
	}
	if n := l.SegmentBytes; n != 0 && (n < minSegmentBytes || n > maxSegmentBytes || n%4096 != 0) {
		problems = append(problems, fmt.Errorf("segment_bytes is %s; give a multiple of 4 KiB from %s to %s", formatSize(n), formatSize(minSegmentBytes), formatSize(maxSegmentBytes)))
	}
	return errors.Join(problems...)
}

// parseAddr reads IP:port. The name localhost stands for 127.0.0.1; other names could mean several addresses.
func parseAddr(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, errors.New("which has no port")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("whose port %q is no number from 0 to 65535", port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("whose host %q is no IP address", host)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), nil
}

// validAdvertise reports whether text is a host or host:port.
func validAdvertise(text string) bool {
	host := advertiseHost(text)
	if host != text && host != "" {
		if _, port, err := net.SplitHostPort(text); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return false
			}
		}
	}
	_, err := netip.ParseAddr(host)
	return err == nil || validDNSName(host)
}

// advertiseHost returns text without its port.
func advertiseHost(text string) string {
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

// or returns value, or standard when value is empty.
func or(value, standard string) string {
	if value == "" {
		return standard
	}
	return value
}
