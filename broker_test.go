package felix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"felix/client"
	"felix/netio/admin"
)

// patience bounds every wait of these tests. It is far more than any of them takes.
const patience = 30 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustStart starts a broker that is closed at the end of the test. FELIX_TEST_PINNED=1 pins the cores of those that do
// not say how many they want.
func mustStart(t *testing.T, config Config) *Broker {
	t.Helper()
	if os.Getenv("FELIX_TEST_PINNED") == "1" && config.Cores == 0 && config.CoreShards == 0 {
		config.CoreShards = 2
	}
	b, err := Start(testContext(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// mustDial makes a client of b that trusts its certificate.
func mustDial(t *testing.T, b *Broker, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Dial(testContext(t), b.Addr().String(), append(options, client.WithCAFile(b.CAFile()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// get reads a path of the admin listener.
func get(t *testing.T, b *Broker, path string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://" + b.AdminAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// roundTrip publishes a record and reads it back from the start.
func roundTrip(t *testing.T, b *Broker, stream, text string) {
	t.Helper()
	ctx := testContext(t)
	c := mustDial(t, b)
	ack, err := c.Publish(ctx, stream, []byte(text), client.Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscribe(ctx, stream, client.Shard(ack.Shard), client.FromOffset(ack.Offset))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for m, err := range sub.All(ctx) {
		if err != nil || string(m.Data) != text || m.Offset != ack.Offset {
			t.Errorf("got %q at %d, %v; want %q at %d", m.Data, m.Offset, err, text, ack.Offset)
		}
		return
	}
	t.Error("the subscription ended without a record")
}

func TestZeroConfigBroker(t *testing.T) {
	b := mustStart(t, Config{})
	if !b.Addr().Addr().IsLoopback() || b.Addr().Port() == 0 || b.AdminAddr().IsValid() {
		t.Errorf("listens on %v, admin %v", b.Addr(), b.AdminAddr())
	}
	cores, pinned := b.Cores()
	if cores < 1 || pinned != (b.config.CoreShards > 0) || cores > 1 && len(b.Ports()) != cores {
		t.Errorf("%d cores, pinned %v, ports %v", cores, pinned, b.Ports())
	}
	if content, err := os.ReadFile(b.CAFile()); err != nil || string(content) != string(b.CertificatePEM()) {
		t.Errorf("the CA file does not hold the certificate: %v", err)
	}
	roundTrip(t, b, "orders", "hello")
	if s := b.Stats(); s.PublishRecords != 1 || s.EventsQueued != 1 || s.Subscribes != 1 {
		t.Errorf("stats %+v", s)
	}
	ready := b.Ready()
	want := Ready{Listen: b.Addr().String(), Ports: ready.Ports, CAFile: b.CAFile(), PID: os.Getpid()}
	if !reflect.DeepEqual(ready, want) || ready.Ports == nil {
		t.Errorf("ready %+v, want %+v", ready, want)
	}
	dir := b.DataDir()
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory is left: %v", err)
	}
	if err := b.Drain(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("drain of a closed broker: %v", err)
	}
}

func TestCores(t *testing.T) {
	for _, config := range []Config{{Cores: 1}, {Cores: 2}, {Cores: 4}, {CoreShards: 1}, {CoreShards: 2}, {Cores: 4, Listeners: 2}, {Cores: 2, Listeners: 1}} {
		t.Run(fmt.Sprintf("%d cores, %d pinned, %d listeners", config.Cores, config.CoreShards, config.Listeners), func(t *testing.T) {
			b := mustStart(t, config)
			if err := b.CreateStream(testContext(t), StreamConfig{Name: "orders", Shards: 8}); err != nil {
				t.Fatal(err)
			}
			roundTrip(t, b, "orders", "hello")
			listeners := config.Listeners
			if listeners == 0 {
				listeners = config.Cores + config.CoreShards
			}
			if listeners == 1 {
				listeners = 0 // the shared port only
			}
			if len(b.Ports()) != listeners {
				t.Errorf("ports %v, want %d", b.Ports(), listeners)
			}
		})
	}
}

// TestTwoBrokers runs two in one process: names, records and counters of one are nothing to the other.
func TestTwoBrokers(t *testing.T) {
	one, two := mustStart(t, Config{Admin: "127.0.0.1:0"}), mustStart(t, Config{Admin: "127.0.0.1:0"})
	roundTrip(t, one, "orders", "one")
	roundTrip(t, one, "orders", "another")
	roundTrip(t, two, "orders", "two")
	for b, want := range map[*Broker]uint64{one: 2, two: 1} {
		if got := b.Stats().PublishRecords; got != want {
			t.Errorf("%d records published, want %d", got, want)
		}
		if _, text := get(t, b, "/metrics"); !strings.Contains(text, fmt.Sprintf("\nfelix_publish_records_total %d\n", want)) {
			t.Errorf("/metrics does not say %d records", want)
		}
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, two, "orders", "still here")
}

func TestIdentitySurvivesARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var ids []identity
	var certs []string
	for range 2 {
		b, err := Start(testContext(t), Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ids, certs = append(ids, b.id), append(certs, string(b.CertificatePEM()))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] || certs[0] != certs[1] {
		t.Error("the second start has another identity or certificate")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a data directory that was given is gone: %v", err)
	}
}

// TestStartRefused holds what a start can meet on the machine: one sentence with value and remedy, and nothing left behind.
func TestStartRefused(t *testing.T) {
	held := mustStart(t, Config{Cores: 2, DataDir: filepath.Join(t.TempDir(), "held")})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	certs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range certs {
		mustCertificate(t, dir, namesFor("", ""), time.Now())
	}
	tests := []struct {
		name   string
		config Config
		want   []string
	}{
		{"shared port in use", Config{Listen: held.Addr().String()}, []string{held.Addr().String(), "in use"}},
		{"own port in use", Config{Cores: 2, ListenerPorts: []uint16{0, held.Ports()[0]}}, []string{fmt.Sprint(held.Ports()[0]), "in use"}},
		{"admin port in use", Config{Admin: tcp.Addr().String()}, []string{"admin is " + tcp.Addr().String() + ", and that port is in use; stop the process"}},
		{"address of another machine", Config{Listen: "192.0.2.1:0", Auth: AuthAny}, []string{"192.0.2.1:0"}},
		{"admin address of another machine", Config{Admin: "192.0.2.1:0", AdminRemote: true}, []string{"admin is 192.0.2.1:0, which is no address of this machine"}},
		{"more listeners than cores", Config{Cores: 1, Listeners: 2}, []string{"listeners is 2", "1"}},
		{"data directory in use", Config{DataDir: held.DataDir()}, []string{held.DataDir(), "another running broker uses"}},
		{"data directory is a file", Config{DataDir: file}, []string{`data is "` + file + `", which cannot be used: not a directory; make it readable`}},
		{"certificate of another key", Config{TLSCert: filepath.Join(certs[0], "cert.pem"), TLSKey: filepath.Join(certs[1], "key.pem")}, []string{"are no pair (private key does not match public key)"}},
		{"certificate missing", Config{TLSCert: "/none.pem", TLSKey: file}, []string{`tls_cert is "/none.pem", which cannot be read: no such file`}},
		{"export into nowhere", Config{TLSCertExport: filepath.Join(file, "ca.pem")}, []string{"tls_cert_export is", "not a directory"}},
		{"more publish bytes than memory", Config{MemoryBudget: 128 << 20, Limits: Limits{IngressBytes: 100 << 20}}, []string{"publish_inflight_bytes is 100 MiB, more than half"}},
		{"a CPU that is not there", Config{CoreShards: 1, CoreCPUs: []int{4000}}, []string{"core_cpus is [4000]", "not among"}},
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary) // one that no other process makes brokers in
	for _, test := range tests {
		b, err := Start(testContext(t), test.config)
		if err == nil {
			b.Close()
			t.Errorf("%s: started", test.name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %q in it", test.name, err, want)
			}
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	roundTrip(t, held, "orders", "undisturbed")
}

func TestCertificateExport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	b := mustStart(t, Config{TLSCertExport: file})
	if content, err := os.ReadFile(file); err != nil || string(content) != string(b.CertificatePEM()) {
		t.Errorf("the exported file does not hold the certificate: %v", err)
	}
}

func TestConfiguredCertificateServes(t *testing.T) {
	dir := t.TempDir()
	mustCertificate(t, dir, namesFor("", ""), time.Now())
	b := mustStart(t, Config{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")})
	if b.CAFile() != filepath.Join(dir, "cert.pem") {
		t.Errorf("CA file %s", b.CAFile())
	}
	roundTrip(t, b, "orders", "hello")
}

// readiness reads /ready.
func readReady(t *testing.T, b *Broker) (status int, r admin.Readiness) {
	t.Helper()
	status, body := get(t, b, "/ready")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return status, r
}

func TestDrain(t *testing.T) {
	b := mustStart(t, Config{Admin: "127.0.0.1:0"})
	if status, r := readReady(t, b); status != http.StatusOK || !r.Ready || len(r.Warnings) != 0 {
		t.Errorf("before: %d %+v", status, r)
	}
	c := mustDial(t, b)
	ack, err := c.Publish(testContext(t), "orders", []byte("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Drain(testContext(t)); err != nil {
		t.Errorf("drain: %v", err)
	}
	// The client tries to come back at once, so connections are counted after the end only.
	if s := b.Stats(); s.SlotsInUse != 0 || s.PublishRecords != uint64(ack.Offset)+1 {
		t.Errorf("after the drain %+v", s)
	}
	again, ctx := time.NewTicker(time.Millisecond), testContext(t)
	defer again.Stop()
	for b.Stats().IngressBytes != 0 { // for as long as it takes to refuse what a client sends that is back
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("after the drain %+v", b.Stats())
		}
	}
	if status, r := readReady(t, b); status != http.StatusServiceUnavailable || r.Ready || len(r.Reasons) != 1 || !strings.HasPrefix(r.Reasons[0], "draining") {
		t.Errorf("after: %d %+v", status, r)
	}
	if status, _ := get(t, b, "/live"); status != http.StatusOK {
		t.Errorf("/live is %d while draining", status)
	}
	if _, text := get(t, b, "/metrics"); !strings.Contains(text, "\nfelix_ready_state 0\n") || strings.Contains(text, "\nfelix_drain_duration_ms 0\n") {
		t.Error("/metrics does not tell of the drain")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if s := b.Stats(); s.Connections != 0 || s.Streams != 0 || s.Subscriptions != 0 {
		t.Errorf("after the end %+v", s)
	}
}

// TestAnyTokenElsewhereIsTold starts on every interface and looks for the warning in /ready and in the log.
func TestAnyTokenElsewhereIsTold(t *testing.T) {
	log := &lockedBuffer{}
	b := mustStart(t, Config{Listen: "0.0.0.0:0", Auth: AuthAny, Admin: "127.0.0.1:0", Logger: log.logger()})
	_, r := readReady(t, b)
	if len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "auth is any: whoever reaches 0.0.0.0:") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if !strings.Contains(log.String(), "auth is any") {
		t.Errorf("the log does not warn: %s", log)
	}
}

func TestAutoCreate(t *testing.T) {
	ctx := testContext(t)
	off := mustStart(t, Config{AutoCreate: Off})
	if _, err := mustDial(t, off).Publish(ctx, "unknown", nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("auto_create off: %v", err)
	}
	on := mustStart(t, Config{DevShards: 3})
	c := mustDial(t, on, client.WithTenant("t1"), client.WithNamespace("n1"))
	if n, err := c.StreamShards(ctx, "fresh"); err != nil || n != 3 {
		t.Errorf("auto_create on: %d shards, %v", n, err)
	}
	if err := on.Catalog().DeleteStream(ctx, "t1", "n1", "fresh"); err != nil {
		t.Fatal(err)
	}
	if n, err := c.StreamShards(ctx, "fresh"); n != 0 && err == nil {
		t.Errorf("a deleted stream came back with %d shards", n)
	}
	if err := on.CreateStream(ctx, StreamConfig{Tenant: "t1", Namespace: "n1", Name: "fresh", Shards: 2}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.StreamShards(ctx, "fresh"); err != nil || n != 2 {
		t.Errorf("created again: %d shards, %v", n, err)
	}
}

func TestMetricsText(t *testing.T) {
	b := mustStart(t, Config{Cores: 2})
	var text strings.Builder
	b.WriteMetrics(&text)
	seen := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || value == "" || seen[name] {
			t.Errorf("line %q", line)
		}
		seen[name] = true
	}
	for _, name := range []string{
		`felix_frames_refused_total{reason="slow"}`, "felix_quic_streams_abandoned_total", "felix_ready_state", "felix_quic_auth_timeout_total", `felix_quic_connections_refused_total{reason="per_ip"}`,
		`felix_publish_requests_total{result="ok"}`, "felix_publish_bytes_total", "felix_sub_queue_dropped_total", "felix_inflight_requests",
		`felix_core_passes_total{core="1"}`, "process_open_fds", "go_goroutines",
	} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestConcurrentClose(t *testing.T) {
	b := mustStart(t, Config{Admin: "127.0.0.1:0"})
	c := mustDial(t, b)
	if _, err := c.Publish(testContext(t), "orders", []byte("x")); err != nil {
		t.Fatal(err)
	}
	var ending sync.WaitGroup
	for range 3 {
		ending.Go(func() { b.Drain(context.Background()) })
		ending.Go(func() { b.Close() })
	}
	ending.Wait()
}
