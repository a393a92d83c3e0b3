package felix

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"felix/netio/udp"
)

// load is LoadSettings without a file.
func load(environ []string, flags map[string]string) (*Settled, error) {
	return LoadSettings(SettingsInput{Environ: environ, Flags: flags})
}

// value returns the setting key of s.
func value(t *testing.T, s *Settled, key string) Value {
	t.Helper()
	for _, v := range s.Values {
		if v.Key == key {
			return v
		}
	}
	t.Fatalf("there is no setting %s", key)
	return Value{}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "felix.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSettingsPrecedence(t *testing.T) {
	file := writeFile(t, "# where clients connect\nlisten: 127.0.0.1:7001\ndev_shards: 3\nlistener_ports: [7002, 7003]\nlisteners: 2\n")
	environ := []string{"FELIX_QUIC_BIND=127.0.0.1:7101", "FELIX_DEV_SHARDS=4", "FELIX_TLS_CERT=", "PATH=/bin"}
	flags := map[string]string{"listen": "127.0.0.1:7201"}
	tests := []struct {
		name         string
		in           SettingsInput
		listen       string
		origin       string
		devShards    int
		shardsOrigin string
	}{
		{"default", SettingsInput{}, "127.0.0.1:5000", "default", 1, "default"},
		{"file", SettingsInput{File: file}, "127.0.0.1:7001", file + ":2", 3, file + ":3"},
		{"environment over file", SettingsInput{File: file, Environ: environ}, "127.0.0.1:7101", "environment FELIX_QUIC_BIND", 4, "environment FELIX_DEV_SHARDS"},
		{"flag over all", SettingsInput{File: file, Environ: environ, Flags: flags}, "127.0.0.1:7201", "flag --listen", 4, "environment FELIX_DEV_SHARDS"},
		{"file named by the environment", SettingsInput{Environ: []string{ConfigFileEnv + "=" + file}}, "127.0.0.1:7001", file + ":2", 3, file + ":3"},
	}
	for _, test := range tests {
		settled, err := LoadSettings(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := value(t, settled, "listen"); settled.Config.Listen != test.listen || got.Text != test.listen || got.Origin != test.origin {
			t.Errorf("%s: listen is %q (%+v), want %q from %q", test.name, settled.Config.Listen, got, test.listen, test.origin)
		}
		if got := value(t, settled, "dev_shards"); settled.Config.DevShards != test.devShards || got.Origin != test.shardsOrigin {
			t.Errorf("%s: dev_shards is %d from %q, want %d from %q", test.name, settled.Config.DevShards, got.Origin, test.devShards, test.shardsOrigin)
		}
		if len(settled.Warnings) != 0 {
			t.Errorf("%s: warnings %q", test.name, settled.Warnings)
		}
	}
	settled, _ := LoadSettings(SettingsInput{File: file})
	if got := settled.Config.ListenerPorts; !slices.Equal(got, []uint16{7002, 7003}) {
		t.Errorf("listener_ports is %v", got)
	}
}

// TestSettingsNames checks what no reader of the table can see: names are unique and follow the rule.
func TestSettingsNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Settings() {
		for _, name := range append([]string{s.Key, s.Flag()}, s.Env...) {
			if seen[name] && name != s.Key {
				t.Errorf("%s: the name %s is taken", s.Key, name)
			}
			seen[name] = true
		}
		for _, name := range s.Env {
			if !strings.HasPrefix(name, "FELIX_") {
				t.Errorf("%s: environment name %s", s.Key, name)
			}
		}
		if s.Help == "" || s.Bounds == "" {
			t.Errorf("%s: help %q, bounds %q", s.Key, s.Help, s.Bounds)
		}
	}
	for _, name := range []string{
		"FELIX_QUIC_BIND", "FELIX_QUIC_LISTENERS", "FELIX_CLIENT_ADVERTISE_ADDR", "FELIX_CORE_SHARDS", "FELIX_BROKER_METRICS_BIND",
		"FELIX_DURABLE_STORAGE_DIR", "FELIX_AUTH", "FELIX_TLS_CERT", "FELIX_TLS_KEY", "FELIX_TLS_CERT_EXPORT", "FELIX_TLS_REQUIRE_ALPN",
		"FELIX_MAX_CLIENT_CONNECTIONS", "FELIX_MAX_CONNECTIONS_PER_IP", "FELIX_AUTH_TIMEOUT_MS", "FELIX_PREAUTH_MAX_FRAME_BYTES",
		"FELIX_PREAUTH_MAX_STREAMS_PER_CONN", "FELIX_MAX_FRAME_BYTES", "FELIX_MAX_SUBSCRIPTIONS_PER_CONN", "FELIX_SUBSCRIBER_QUEUE_CAPACITY",
		"FELIX_SUBSCRIBER_QUEUE_CAPACITY_MAX", "FELIX_SUB_QUEUE_CAPACITY", "FELIX_SUB_QUEUE_POLICY", "FELIX_BROKER_PUBLISH_WINDOW",
		"FELIX_BROKER_PUBLISH_INFLIGHT_BYTES", "FELIX_BROKER_PUBLISH_CONN_INFLIGHT_BYTES", "FELIX_BROKER_PUB_QUEUE_DEPTH",
		"FELIX_EVENT_BATCH_MAX_EVENTS", "FELIX_EVENT_BATCH_MAX_BYTES", "FELIX_REPLAY_RING_MAX_BYTES", "FELIX_SHUTDOWN_DRAIN_TIMEOUT_MS",
		"FELIX_DURABLE_MAX_RECORDS_PER_READ", "FELIX_DURABLE_FSYNC_MODE", "FELIX_DURABLE_FSYNC_INTERVAL_MS", "FELIX_DURABLE_SEGMENT_BYTES",
		"FELIX_DURABLE_RETENTION_BYTES", "FELIX_DURABLE_RETENTION_SECONDS", "FELIX_STORAGE_IO_URING",
	} {
		if !seen[name] {
			t.Errorf("no setting is read from %s", name)
		}
	}
}

// TestSettingsTakeEffect sets each setting to a value that is not its default and looks at the field.
func TestSettingsTakeEffect(t *testing.T) {
	tests := map[string]struct {
		text string
		ok   func(c Config) bool
	}{
		"listen":                          {"127.0.0.2:1", func(c Config) bool { return c.Listen == "127.0.0.2:1" }},
		"listeners":                       {"2", func(c Config) bool { return c.Listeners == 2 }},
		"listener_ports":                  {"6001,6002", func(c Config) bool { return slices.Equal(c.ListenerPorts, []uint16{6001, 6002}) }},
		"advertise":                       {"broker.example:5000", func(c Config) bool { return c.Advertise == "broker.example:5000" }},
		"core_shards":                     {"2", func(c Config) bool { return c.CoreShards == 2 }},
		"core_cpus":                       {"1, 0", func(c Config) bool { return slices.Equal(c.CoreCPUs, []int{1, 0}) }},
		"core_spin_us":                    {"20", func(c Config) bool { return c.CoreSpin == 20*time.Microsecond }},
		"timer_slack_us":                  {"0", func(c Config) bool { return c.TimerSlack == 0 }},
		"admin":                           {"off", func(c Config) bool { return c.Admin == "" }},
		"admin_remote":                    {"yes", func(c Config) bool { return c.AdminRemote }},
		"data":                            {"/var/lib/felix", func(c Config) bool { return c.DataDir == "/var/lib/felix" }},
		"memory_budget":                   {"256MiB", func(c Config) bool { return c.MemoryBudget == 256<<20 }},
		"auth":                            {"any", func(c Config) bool { return c.Auth == AuthAny }},
		"auto_create":                     {"false", func(c Config) bool { return c.AutoCreate == Off }},
		"auto_create_memory":              {"true", func(c Config) bool { return c.AutoCreateMemory }},
		"fsync_mode":                      {"periodic", func(c Config) bool { return c.Log.FsyncMode == Periodic }},
		"fsync_interval_ms":               {"9", func(c Config) bool { return c.Log.SyncInterval == 9*time.Millisecond && c.Log.FsyncMode == OnCommit }},
		"segment_bytes":                   {"16 MiB", func(c Config) bool { return c.Log.SegmentBytes == 16<<20 }},
		"retention_seconds":               {"9", func(c Config) bool { return c.Log.Retention.MaxAge == 9*time.Second }},
		"retention_bytes":                 {"1 GiB", func(c Config) bool { return c.Log.Retention.MaxSizeBytes == 1<<30 }},
		"storage_backend":                 {"sync", func(c Config) bool { return c.Log.Backend == StorageSync }},
		"dev_shards":                      {"7", func(c Config) bool { return c.DevShards == 7 }},
		"tls_cert":                        {"c.pem", func(c Config) bool { return c.TLSCert == "c.pem" }},
		"tls_key":                         {"k.pem", func(c Config) bool { return c.TLSKey == "k.pem" }},
		"tls_cert_export":                 {"ca.pem", func(c Config) bool { return c.TLSCertExport == "ca.pem" }},
		"tls_require_alpn":                {"true", func(c Config) bool { return c.RequireALPN }},
		"max_packet_bytes":                {"1300", func(c Config) bool { return c.MaxPacketBytes == 1300 }},
		"shutdown_drain_timeout_ms":       {"1500", func(c Config) bool { return c.DrainTimeout == 1500*time.Millisecond }},
		"drain_linger_ms":                 {"200", func(c Config) bool { return c.DrainLinger == 200*time.Millisecond }},
		"max_client_connections":          {"0", func(c Config) bool { return c.Limits.Connections == -1 }},
		"max_connections_per_ip":          {"9", func(c Config) bool { return c.Limits.ConnectionsPerIP == 9 }},
		"max_unauthenticated_connections": {"9", func(c Config) bool { return c.Limits.Unauthenticated == 9 }},
		"max_unauthenticated_per_ip":      {"9", func(c Config) bool { return c.Limits.UnauthenticatedPerIP == 9 }},
		"max_handshakes_per_second":       {"9", func(c Config) bool { return c.Limits.HandshakesPerSecond == 9 }},
		"auth_timeout_ms":                 {"0", func(c Config) bool { return c.Limits.AuthTimeout == -1 }},
		"preauth_max_frame_bytes":         {"4096", func(c Config) bool { return c.Limits.PreauthFrameBytes == 4096 }},
		"preauth_max_streams_per_conn":    {"9", func(c Config) bool { return c.Limits.PreauthStreams == 9 }},
		"max_frame_bytes":                 {"1 MiB", func(c Config) bool { return c.Limits.FrameBytes == 1<<20 }},
		"max_streams_per_conn":            {"99", func(c Config) bool { return c.Limits.Streams == 99 }},
		"max_uni_streams_per_conn":        {"9", func(c Config) bool { return c.Limits.UniStreams == 9 }},
		"log_lines_per_cause":             {"3", func(c Config) bool { return c.Limits.LogLines == 3 }},
		"max_requests_per_conn_per_sec":   {"0", func(c Config) bool { return c.Limits.Requests == -1 }},
		"max_subscriptions_per_conn":      {"9", func(c Config) bool { return c.Limits.Subscriptions == 9 }},
		"max_records_per_read":            {"9", func(c Config) bool { return c.Limits.ReadRecords == 9 }},
		"subscriber_queue_capacity":       {"9", func(c Config) bool { return c.Limits.SubscriberQueue == 9 }},
		"subscriber_queue_capacity_max":   {"1000", func(c Config) bool { return c.Limits.SubscriberQueueMax == 1000 }},
		"sub_queue_policy":                {"block", func(c Config) bool { return c.SubQueuePolicy == Block }},
		"max_block_ms":                    {"9", func(c Config) bool { return c.Delivery.MaxBlock == 9*time.Millisecond }},
		"publish_queue_wait_ms":           {"900", func(c Config) bool { return c.Limits.QueueWait == 900*time.Millisecond }},
		"ack_wait_timeout_ms":             {"9000", func(c Config) bool { return c.Limits.AckWait == 9*time.Second }},
		"answer_timeout_ms":               {"900", func(c Config) bool { return c.Limits.AnswerTimeout == 900*time.Millisecond }},
		"frame_timeout_ms":                {"900", func(c Config) bool { return c.Limits.FrameTimeout == 900*time.Millisecond }},
		"publish_window":                  {"0", func(c Config) bool { return c.Limits.PublishWindow == -1 }},
		"pub_ingress_wait":                {"0", func(c Config) bool { return c.Limits.ShedUnacked }},
		"unacked_window":                  {"9", func(c Config) bool { return c.Limits.UnackedWindow == 9 }},
		"publish_inflight_bytes":          {"32 MiB", func(c Config) bool { return c.Limits.IngressBytes == 32<<20 }},
		"publish_conn_inflight_bytes":     {"17 MiB", func(c Config) bool { return c.Limits.ConnectionBytes == 17<<20 }},
		"tenant_publish_bytes_per_sec":    {"1 MiB", func(c Config) bool { return c.Quotas.Default.BytesPerSec == 1<<20 }},
		"tenant_publish_msgs_per_sec":     {"9", func(c Config) bool { return c.Quotas.Default.MsgsPerSec == 9 }},
		"tenant_publish_quotas": {"a=1 MiB/9, b=0/0", func(c Config) bool {
			return len(c.Quotas.Tenants) == 2 && c.Quotas.Tenants["a"] == Quota{BytesPerSec: 1 << 20, MsgsPerSec: 9}
		}},
		"tenant_publish_burst_ms": {"9", func(c Config) bool { return c.Quotas.Burst == 9*time.Millisecond }},
		"pub_queue_depth":         {"9", func(c Config) bool { return c.Limits.Slots == 9 }},
		"initial_stream_window":   {"32 KiB", func(c Config) bool { return c.Limits.InitialStreamWindow == 32<<10 }},
		"initial_conn_window":     {"64 KiB", func(c Config) bool { return c.Limits.InitialConnectionWindow == 64<<10 }},
		"max_stream_window":       {"1 MiB", func(c Config) bool { return c.Limits.MaxStreamWindow == 1<<20 }},
		"max_conn_window":         {"2 MiB", func(c Config) bool { return c.Limits.MaxConnectionWindow == 2<<20 }},
		"event_batch_max_events":  {"9", func(c Config) bool { return c.Delivery.FrameRecords == 9 }},
		"event_batch_max_bytes":   {"8 KiB", func(c Config) bool { return c.Delivery.FrameBytes == 8<<10 }},
		"replay_ring_max_records": {"9", func(c Config) bool { return c.Delivery.RingRecords == 9 }},
		"replay_ring_max_bytes":   {"1 MiB", func(c Config) bool { return c.Delivery.RingBytes == 1<<20 }},
	}
	for _, s := range Settings() {
		test, ok := tests[s.Key]
		if !ok {
			t.Errorf("%s: no test", s.Key)
			continue
		}
		settled, err := load(nil, map[string]string{s.Key: test.text})
		if err != nil && !onlyRelations(err) {
			t.Errorf("%s=%s: %v", s.Key, test.text, err)
		}
		if !test.ok(settled.Config) {
			t.Errorf("%s=%s has no effect on its field", s.Key, test.text)
		}
		standard, err := load(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.ok(standard.Config) {
			t.Errorf("%s=%s: the test cannot fail, the default passes it", s.Key, test.text)
		}
	}
}

// onlyRelations reports whether err is about settings that need others beside them.
func onlyRelations(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no core is pinned") || strings.Contains(text, "is not set") || strings.Contains(text, "connection bytes")
}

func TestSettingsRefused(t *testing.T) {
	for _, s := range Settings() {
		if slices.Contains([]string{"data", "tls_cert", "tls_key", "tls_cert_export"}, s.Key) {
			continue // any text is a path
		}
		_, err := load([]string{s.Env[0] + "=no such value!"}, nil)
		if err == nil {
			t.Errorf("%s: a value without sense is accepted", s.Key)
			continue
		}
		if text := err.Error(); !strings.Contains(text, s.Key) || !strings.Contains(text, "no such value!") || !strings.Contains(text, "give") {
			t.Errorf("%s: the refusal %q lacks key, value or remedy", s.Key, text)
		}
	}
	tests := []struct {
		key, text string
		want      []string
	}{
		{"dev_shards", "0", []string{`dev_shards is "0" (flag --dev-shards)`, "give a number from 1 to 1024"}},
		{"dev_shards", "1025", []string{"1 to 1024"}},
		{"max_packet_bytes", "9000", []string{"1200 to " + strconv.Itoa(udp.MaxPacketBytes)}},
		{"memory_budget", "1 KiB", []string{"from 128 MiB to", "for example"}},
		{"memory_budget", "12 QiB", []string{"give a number of bytes"}},
		{"publish_window", "-1", []string{"0 to 65536 (0 = off)"}},
		{"listener_ports", "1,1", []string{"1 stands there twice"}},
		{"listener_ports", "70000", []string{"0 to 65535"}},
		{"sub_queue_policy", "catch_up", []string{"give drop_new or drop_old or block"}},
		{"auto_create", "maybe", []string{"give true or false"}},
		{"auth", "oidc", []string{"give any"}},
	}
	for _, test := range tests {
		_, err := load(nil, map[string]string{test.key: test.text})
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s=%s: %v, want %q in it", test.key, test.text, err, want)
			}
		}
	}
}

// TestSettingsAllProblems wants every problem in one error, from every source.
func TestSettingsAllProblems(t *testing.T) {
	file := writeFile(t, "dev_shards: 0\nlissten: x\ntls_cert: a.pem\n")
	_, err := LoadSettings(SettingsInput{
		File: file, Environ: []string{"FELIX_CORE_SHARDS=many"}, Flags: map[string]string{"listen": "0.0.0.0:5000"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		file + `:2:1: there is no setting "lissten"; did you mean listen?`,
		`dev_shards is "0" (` + file + `:1)`,
		`core_shards is "many" (environment FELIX_CORE_SHARDS)`,
		"set auth: any (--auth any, FELIX_AUTH=any)",
		`tls_cert is "a.pem", but tls_key is not set`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestSettingsFile(t *testing.T) {
	tests := []struct {
		name, content string
		want          string // in the error; "" for none
	}{
		{"empty", "", ""},
		{"comments", "# nothing\n", ""},
		{"null", "listen:\n", "1:8: listen has no plain value"},
		{"nested", "listen:\n  host: x\n", "2:3: listen has no plain value"},
		{"list of lists", "core_cpus: [[1]]\n", "core_cpus has no plain value"},
		{"twice", "dev_shards: 1\ndev_shards: 2\n", "2:1: dev_shards stands there twice"},
		{"a list", "- listen\n", "1:1: this is no list of settings"},
		{"no yaml", "listen: [\n", "is no YAML (line"},
		{"a misspelt key far from all", "zzz: 1\n", `1:1: there is no setting "zzz"`},
	}
	for _, test := range tests {
		_, err := parseSettingsFile("felix.yaml", []byte(test.content))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q in it", test.name, err, test.want)
		}
	}
	if _, err := LoadSettings(SettingsInput{File: "/no/such/felix.yaml"}); err == nil || !strings.Contains(err.Error(), `"/no/such/felix.yaml" cannot be read: no such file`) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzSettingsFile(f *testing.F) {
	f.Add([]byte("listen: 127.0.0.1:1\nlistener_ports: [1, 2]\n"))
	f.Add([]byte("a: &x [*x]\n"))
	f.Add([]byte("? [k]\n: v\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		values, _ := parseSettingsFile("f", content)
		for key, v := range values {
			for _, s := range Settings() {
				if s.Key == key {
					s.set(&Config{}, v.text)
				}
			}
		}
	})
}

func TestSettingsWarnings(t *testing.T) {
	settled, err := load([]string{
		"FELIX_QUIK_BIND=x", "FELIX_AUTH_TOKEN=t", "FELIX_NAMESPACE=n", "OTHER=1", "FELIX_=",
		"FELIX_SUBSCRIBER_QUEUE_CAPACITY=4", "FELIX_SUB_QUEUE_CAPACITY=5",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"environment FELIX_QUIK_BIND is read by nothing; did you mean FELIX_QUIC_BIND?",
		"environment FELIX_SUB_QUEUE_CAPACITY is not used: another name of the same setting is set too",
	}
	if !slices.Equal(settled.Warnings, want) {
		t.Errorf("warnings %q, want %q", settled.Warnings, want)
	}
	if settled.Config.Limits.SubscriberQueue != 4 {
		t.Errorf("subscriber queue %d", settled.Config.Limits.SubscriberQueue)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "1KiB": 1 << 10, "3 MiB": 3 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"": -1, "KiB": -1, "-1": -1, "1.5MiB": -1, "9999999999999TiB": -1, "1 kb": -1,
	} {
		n, err := parseSize(text)
		if (err != nil) != (want < 0) || err == nil && n != want {
			t.Errorf("%q: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, n := range []int64{0, 1, 1023, 1024, 1536, 64 << 20, 5 << 30} {
		if back, err := parseSize(formatSize(n)); err != nil || back != n {
			t.Errorf("%d is written as %q and read as %d, %v", n, formatSize(n), back, err)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	keys := []string{"listen", "listeners", "listener_ports", "data"}
	for word, want := range map[string]string{
		"lisen": "listen", "listenerports": "listener_ports", "listner": "listen", "dta": "data", "qqqqqq": "", "": "",
	} {
		got := didYouMean(word, keys)
		if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// Markers in README.md around what the code generates.
const (
	tableBegin = "<!-- settings -->\n"
	tableEnd   = "<!-- /settings -->"
)

func TestSettingsTable(t *testing.T) {
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), tableBegin)
	have, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("README.md lacks the lines %q and %q around the table of settings", tableBegin, tableEnd)
	}
	if udp.MaxPacketBytes != udp.StockPacketBytes {
		t.Skip("README.md has the settings of a stock build")
	}
	if have == SettingsTable() {
		return
	}
	if !*update {
		t.Fatal("the table of settings in README.md is not the one in the code; go test -run SettingsTable -update . writes it")
	}
	if err := os.WriteFile("README.md", []byte(before+tableBegin+SettingsTable()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
