package felix

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"felix/netio"
	"felix/netio/udp"
	"felix/replicate"
)

// Setting is one row of the table that felixd's flags, environment, configuration file and documents come from.
type Setting struct {
	Key     string   // in the file; the flag is the key with dashes
	Env     []string // environment names, the first is the one to use
	Default string   // as one would write it; empty where the default is described in Help
	Bounds  string   // of the value, for people
	Help    string   // one line
	Bool    bool     // a switch: its flag needs no value

	defaultIsText bool                               // Default describes what the zero value of the field does
	set           func(c *Config, text string) error // an error says what to give instead
}

// Flag is the name of the command line flag.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// DefaultText is the default for people.
func (s Setting) DefaultText() string { return or(s.Default, "none") }

// Settings returns the table, in the order of the documents.
func Settings() []Setting {
	table := []Setting{
		text("listen", "127.0.0.1:5000", "IP:port", "address of the shared UDP port; port 0 takes a free one",
			func(c *Config) *string { return &c.Listen }).env("FELIX_QUIC_BIND"),
		number("listeners", "one per core", 1, 64, "listening cores; 1 = the shared port only",
			func(c *Config) *int { return &c.Listeners }).env("FELIX_QUIC_LISTENERS").described(),
		list("listener_ports", "listen + 1, + 2, ...", 0, 65535, "own ports of the listening cores, one for each",
			func(c *Config) *[]uint16 { return &c.ListenerPorts }).described(),
		text("advertise", "", "host or host:port", "address that clients are told; needed to announce own ports on an unspecified listen address",
			func(c *Config) *string { return &c.Advertise }).env("FELIX_CLIENT_ADVERTISE_ADDR"),
		number("core_shards", "0", 0, 64, "cores with a thread and a CPU of their own; 0 = ordinary goroutines, min(CPUs, 8) cores",
			func(c *Config) *int { return &c.CoreShards }),
		list("core_cpus", "every CPU allowed", 0, 4095, "CPUs for pinned cores, in order",
			func(c *Config) *[]int { return &c.CoreCPUs }).described(),
		duration("core_spin_us", "0", time.Microsecond, 0, 1000, "how long an idle core looks for work before it sleeps",
			func(c *Config) *time.Duration { return &c.CoreSpin }),
		duration("timer_slack_us", "200", time.Microsecond, 0, maxTimerSlack.Microseconds(), "how much longer the kernel may let short sleeps of threads last; 0 = leave it as it is",
			func(c *Config) *time.Duration { return &c.TimerSlack }),
		text("admin", "127.0.0.1:8080", "IP:port, or off", "address of the HTTP listener for health, metrics, pprof and REST",
			func(c *Config) *string { return &c.Admin }).empty("off").env("FELIX_BROKER_METRICS_BIND"),
		boolean("admin_remote", "false", "allows an admin address that other machines can reach; there is no authentication on it",
			func(c *Config) *bool { return &c.AdminRemote }),
		text("data", "./felix-data", "directory", "node identity, development certificate, catalog and log",
			func(c *Config) *string { return &c.DataDir }).env("FELIX_DURABLE_STORAGE_DIR"),
		size("memory_budget", "25 % of memory", minMemoryBudget, 1<<46, "bytes for publishes, replay rings, queues and windows; felixd sets GOMEMLIMIT to it",
			func(c *Config) *int64 { return &c.MemoryBudget }).described(),
		choice("auth", "any on loopback", "any = every token is accepted, the empty one too; must be said where other machines can connect",
			func(c *Config) *AuthMode { return &c.Auth }, word[AuthMode]{"any", AuthAny}).described(),
		toggle("auto_create", "true with auth any", "first use of a name creates tenant, namespace and stream, at most 1,024 streams",
			func(c *Config) *Toggle { return &c.AutoCreate }).described(),
		boolean("auto_create_memory", "false", "makes streams of first use in memory instead of durable",
			func(c *Config) *bool { return &c.AutoCreateMemory }),
		number("dev_shards", "1", 1, 1024, "shards of streams made by first use",
			func(c *Config) *int { return &c.DevShards }),
		choice("fsync_mode", "on_commit", "what a durable record waits for where its stream names nothing: the disk, or the write with a sync later, or the write",
			func(c *Config) *FsyncMode { return &c.Log.FsyncMode },
			word[FsyncMode]{"on_commit", OnCommit}, word[FsyncMode]{"periodic", Periodic}, word[FsyncMode]{"none", NoSync}).env("FELIX_DURABLE_FSYNC_MODE"),
		duration("fsync_interval_ms", "250", time.Millisecond, 1, 60_000, "how long a record under periodic may stay unsynced; does not choose the mode",
			func(c *Config) *time.Duration { return &c.Log.SyncInterval }).env("FELIX_DURABLE_FSYNC_INTERVAL_MS"),
		size("segment_bytes", "64 MiB", minSegmentBytes, maxSegmentBytes, "size of a file of the log, a multiple of 4 KiB",
			func(c *Config) *int64 { return &c.Log.SegmentBytes }).env("FELIX_DURABLE_SEGMENT_BYTES"),
		duration("retention_seconds", "unlimited", time.Second, 1, 100*365*24*3600, "age of records after which a durable shard lets them go, where its stream names nothing",
			func(c *Config) *time.Duration { return &c.Log.Retention.MaxAge }).env("FELIX_DURABLE_RETENTION_SECONDS").described(),
		size("retention_bytes", "unlimited", 1, 1<<50, "bytes that each shard of a durable stream keeps, where its stream names nothing",
			func(c *Config) *int64 { return &c.Log.Retention.MaxSizeBytes }).env("FELIX_DURABLE_RETENTION_BYTES").described(),
		choice("storage_backend", "auto", "how groups of records are written; 1 and 0 stand for io_uring and sync",
			func(c *Config) *StorageBackend { return &c.Log.Backend },
			word[StorageBackend]{"auto", StorageAuto}, word[StorageBackend]{"sync", StorageSync}, word[StorageBackend]{"io_uring", StorageURing},
			word[StorageBackend]{"1", StorageURing}, word[StorageBackend]{"0", StorageSync}).env("FELIX_STORAGE_IO_URING"),
		text("tls_cert", "", "PEM file", "certificate chain; without it a development certificate is made and kept in data",
			func(c *Config) *string { return &c.TLSCert }),
		text("tls_key", "", "PEM file", "key of tls_cert",
			func(c *Config) *string { return &c.TLSKey }),
		text("tls_cert_export", "", "file", "where to write the development certificate for clients",
			func(c *Config) *string { return &c.TLSCertExport }),
		boolean("tls_require_alpn", "false", "refuses clients that offer no ALPN",
			func(c *Config) *bool { return &c.RequireALPN }),
		number("max_packet_bytes", strconv.Itoa(udp.MaxPacketBytes), 1200, udp.MaxPacketBytes, "largest QUIC packet; fixed on loopback, found by path MTU discovery from 1280 elsewhere",
			func(c *Config) *int { return &c.MaxPacketBytes }).described(),
		duration("shutdown_drain_timeout_ms", "25000", time.Millisecond, 1, 600_000, "how long draining may take in all",
			func(c *Config) *time.Duration { return &c.DrainTimeout }),
		duration("drain_linger_ms", "100", time.Millisecond, 1, 60_000, "how long closing waits for a peer to read what was written",
			func(c *Config) *time.Duration { return &c.DrainLinger }),
	}
	table = append(table, limitSettings()...)
	for i := range table {
		if len(table[i].Env) == 0 {
			table[i].Env = []string{"FELIX_" + strings.ToUpper(table[i].Key)}
		}
	}
	return table
}

// limitSettings are the bounds on what clients can make a broker hold.
func limitSettings() []Setting {
	connections := func(c *Config) *int { return &c.Limits.Connections }
	perIP := func(c *Config) *int { return &c.Limits.ConnectionsPerIP }
	handshakes := func(c *Config) *int { return &c.Limits.HandshakesPerSecond }
	authTimeout := func(c *Config) *time.Duration { return &c.Limits.AuthTimeout }
	window := func(c *Config) *int { return &c.Limits.PublishWindow }
	shed := func(c *Config) *bool { return &c.Limits.ShedUnacked }
	requests := func(c *Config) *int { return &c.Limits.Requests }
	return []Setting{
		zeroIsOff(number("max_client_connections", "8192", 0, 1<<20, "client connections in all; further ones are refused in the handshake", connections), connections),
		zeroIsOff(number("max_connections_per_ip", "512", 0, 1<<20, "of them from one source address", perIP), perIP),
		number("max_unauthenticated_connections", "512", 1, 1<<20, "connections without an authenticated stream, in all",
			func(c *Config) *int { return &c.Limits.Unauthenticated }),
		number("max_unauthenticated_per_ip", "64", 1, 1<<20, "of them from one source address, loopback excepted",
			func(c *Config) *int { return &c.Limits.UnauthenticatedPerIP }),
		zeroIsOff(number("max_handshakes_per_second", "256", 0, 1<<20, "handshakes that begin at a listening core; beyond it peers must answer a Retry first", handshakes), handshakes),
		zeroIsOff(duration("auth_timeout_ms", "10000", time.Millisecond, 0, 3_600_000, "a connection that authenticates no stream is closed after it", authTimeout), authTimeout),
		size("preauth_max_frame_bytes", "64 KiB", 1<<10, 16<<20, "payload of a frame on an unauthenticated stream",
			func(c *Config) *int { return &c.Limits.PreauthFrameBytes }),
		number("preauth_max_streams_per_conn", "16", 1, 1<<16, "unauthenticated streams of a connection that are read at a time; further ones wait",
			func(c *Config) *int { return &c.Limits.PreauthStreams }),
		size("max_frame_bytes", "16 MiB", 1<<10, 16<<20, "payload of a frame, both ways",
			func(c *Config) *int { return &c.Limits.FrameBytes }),
		number("max_streams_per_conn", "1024", 41, 1<<16, "open two-way streams of a connection; further ones wait at the client",
			func(c *Config) *int { return &c.Limits.Streams }),
		number("max_uni_streams_per_conn", "64", 1, 1<<16, "open one-way streams of a connection",
			func(c *Config) *int { return &c.Limits.UniStreams }),
		number("max_subscriptions_per_conn", "4096", 1, 1<<20, "subscriptions of a connection; then limit_exceeded",
			func(c *Config) *int { return &c.Limits.Subscriptions }),
		zeroIsOff(number("max_requests_per_conn_per_sec", "5000", 0, 1<<20, "requests of a connection in a second that are no publishes, two seconds' worth at once; then limit_exceeded", requests), requests),
		number("log_lines_per_cause", "10", 1, 1<<20, "log lines a minute about each thing that clients do wrong; further ones are counted, and told as one",
			func(c *Config) *int { return &c.Limits.LogLines }),
		number("max_records_per_read", "10000", 1, replicate.MaxReadRecords, "records that a read without subscription answers with at once, in at most 4 MiB",
			func(c *Config) *int { return &c.Limits.ReadRecords }).env("FELIX_DURABLE_MAX_RECORDS_PER_READ"),
		number("subscriber_queue_capacity", "512", 1, 4096, "depth of a subscriber's queue in batches; at the bound sub_queue_policy decides",
			func(c *Config) *int { return &c.Limits.SubscriberQueue }).env("FELIX_SUBSCRIBER_QUEUE_CAPACITY", "FELIX_SUB_QUEUE_CAPACITY"),
		number("subscriber_queue_capacity_max", "4096", 1, 4096, "what a client may ask for",
			func(c *Config) *int { return &c.Limits.SubscriberQueueMax }),
		choice("sub_queue_policy", "drop_new", "rule for a full subscriber queue of in-memory streams that name none",
			func(c *Config) *Policy { return &c.SubQueuePolicy },
			word[Policy]{"drop_new", DropNew}, word[Policy]{"drop_old", DropOld}, word[Policy]{"block", Block}),
		duration("max_block_ms", "5000", time.Millisecond, 1, maxBlock.Milliseconds(), "how long one stall of a subscriber with the rule block may hold back publishes",
			func(c *Config) *time.Duration { return &c.Delivery.MaxBlock }),
		duration("publish_queue_wait_ms", "2000", time.Millisecond, 1, 600_000, "how long an acked publish waits for a slot and for room at its shard; then overloaded (publish_queue_full) and nothing is kept",
			func(c *Config) *time.Duration { return &c.Limits.QueueWait }),
		duration("ack_wait_timeout_ms", "6000", time.Millisecond, 10, 600_000, "how long an acked publish waits for its shard; then unacknowledged, whose outcome is not known",
			func(c *Config) *time.Duration { return &c.Limits.AckWait }),
		duration("answer_timeout_ms", "30000", time.Millisecond, 10, 600_000, "a stream whose client makes no room for its answers ends after it",
			func(c *Config) *time.Duration { return &c.Limits.AnswerTimeout }),
		duration("frame_timeout_ms", "30000", time.Millisecond, 10, 600_000, "a stream that does not send the rest of a frame ends after it, and a second for every 64 KiB",
			func(c *Config) *time.Duration { return &c.Limits.FrameTimeout }),
		zeroIsOff(number("publish_window", "256", 0, 1<<16, "unanswered acked publishes of a stream; then it is not read", window), window).env("FELIX_BROKER_PUBLISH_WINDOW"),
		negated(boolean("pub_ingress_wait", "true", "publishes without ack wait for a slot, for bytes and for quota; false drops them at once, counted by tenant and stream", shed), shed),
		number("unacked_window", "1024", 1, 1<<16, "publishes without ack of a stream that wait for a slot; then it is not read",
			func(c *Config) *int { return &c.Limits.UnackedWindow }),
		size("publish_inflight_bytes", "64 MiB, at most a quarter of memory_budget", 1<<20, 1<<40, "publish bytes held in all, at most half of memory_budget; then streams are not read",
			func(c *Config) *int64 { return &c.Limits.IngressBytes }).env("FELIX_BROKER_PUBLISH_INFLIGHT_BYTES").described(),
		size("publish_conn_inflight_bytes", "16 MiB", 1<<10, 1<<40, "of them for one connection, at least max_frame_bytes",
			func(c *Config) *int64 { return &c.Limits.ConnectionBytes }).env("FELIX_BROKER_PUBLISH_CONN_INFLIGHT_BYTES"),
		size("tenant_publish_bytes_per_sec", "0", 0, netio.MaxQuota, "what each tenant may publish to this broker; beyond it acked publishes are refused (tenant_quota, with a time to wait) and others wait; 0 = no bound",
			func(c *Config) *int64 { return &c.Quotas.Default.BytesPerSec }),
		number("tenant_publish_msgs_per_sec", "0", 0, netio.MaxQuota, "the same in records",
			func(c *Config) *int64 { return &c.Quotas.Default.MsgsPerSec }),
		quotas("tenant_publish_quotas", "", "quotas of single tenants in place of these; PUT /v1/tenants/T/quota on the admin listener changes one until the broker ends",
			func(c *Config) *map[string]Quota { return &c.Quotas.Tenants }),
		duration("tenant_publish_burst_ms", "1000", time.Millisecond, 1, 3_600_000, "how much of its rate a tenant may use at once, as time; a larger batch goes through with an overdraft of at most 5 s",
			func(c *Config) *time.Duration { return &c.Quotas.Burst }),
		number("pub_queue_depth", "512", 1, 1<<20, "publish frames in work for each core; further ones wait",
			func(c *Config) *int { return &c.Limits.Slots }).env("FELIX_BROKER_PUB_QUEUE_DEPTH"),
		size("initial_stream_window", "16 KiB", 1<<10, 1<<30, "receive window of a new stream",
			func(c *Config) *int { return &c.Limits.InitialStreamWindow }),
		size("initial_conn_window", "32 KiB", 1<<10, 1<<30, "receive window of a new connection",
			func(c *Config) *int { return &c.Limits.InitialConnectionWindow }),
		size("max_stream_window", "16 MiB", 1<<10, 1<<30, "what the window of a stream can grow to",
			func(c *Config) *int { return &c.Limits.MaxStreamWindow }).env("FELIX_BROKER_PUB_STREAM_RECV_WINDOW"),
		size("max_conn_window", "64 MiB", 1<<10, 1<<30, "what the window of a connection can grow to",
			func(c *Config) *int { return &c.Limits.MaxConnectionWindow }).env("FELIX_BROKER_PUB_CONN_RECV_WINDOW"),
		number("event_batch_max_events", "64", 1, maxEventBatch, "records merged into one event frame under backlog",
			func(c *Config) *int { return &c.Delivery.FrameRecords }),
		size("event_batch_max_bytes", "64 KiB", minEventBytes, maxEventBytes, "bytes of such a frame, at most max_frame_bytes",
			func(c *Config) *int { return &c.Delivery.FrameBytes }),
		number("replay_ring_max_records", "65536", 1, maxRingRecords, "records an in-memory shard keeps for replay; the oldest go first",
			func(c *Config) *int { return &c.Delivery.RingRecords }),
		size("replay_ring_max_bytes", "64 MiB", minRingBytes, maxRingBytes, "bytes it keeps",
			func(c *Config) *int64 { return &c.Delivery.RingBytes }),
	}
}

// SettingsTable is the table of settings in Markdown, for README.md.
func SettingsTable() string {
	var b strings.Builder
	b.WriteString("| key | flag | environment | default | bounds | what it is |\n|---|---|---|---|---|---|\n")
	code := func(text string) string { return "`" + text + "`" }
	for _, s := range Settings() {
		var names []string
		for _, name := range s.Env {
			names = append(names, code(name))
		}
		standard := s.DefaultText()
		if s.Default != "" && !s.defaultIsText {
			standard = code(s.Default)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", code(s.Key), code("--"+s.Flag()), strings.Join(names, ", "), standard, s.Bounds, s.Help)
	}
	return b.String()
}
