package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"felix/core"
	"felix/fanout"
	"felix/netio"
	"felix/replicate"
	"felix/wal"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an admin listener over an empty catalog, with a client.
type fixture struct {
	t       *testing.T
	server  *Server
	catalog *replicate.Catalog
	ready   Readiness

	subscriptions func(netio.SubscriptionQuery) ([]netio.SubscriptionInfo, bool, error)
	client        http.Client
}

func newFixture(t *testing.T) *fixture { return startFixture(t, false) }

// startFixture starts one whose catalog has a log to keep durable streams in, or none.
func startFixture(t *testing.T, durable bool) *fixture {
	t.Helper()
	started := time.Now()
	group, err := core.NewGroup(core.Config{Cores: 2, Now: func() time.Duration { return time.Since(started) }})
	if err != nil {
		t.Fatal(err)
	}
	slabs := fanout.NewSlabs(fanout.SlabsConfig{})
	var hosts []*replicate.Host
	for _, loop := range group.Loops() {
		host := replicate.NewHost(loop, replicate.HostConfig{Slabs: slabs})
		if durable {
			id := uint64(loop.ID())
			lane, recovered, err := wal.Open(filepath.Join(t.TempDir(), fmt.Sprint(id)), wal.Options{
				Lane: id, Now: time.Now, Notify: loop.WakeOffCore, SegmentBytes: 1 << 20, ZeroAhead: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			host.AddLane(id, lane, recovered)
			loop.AddAgent(host.Lanes())
		}
		loop.AddAgent(host)
		hosts = append(hosts, host)
	}
	f := &fixture{t: t, catalog: replicate.NewCatalog(replicate.CatalogConfig{Hosts: hosts}), ready: Readiness{Ready: true}}
	f.server, err = Listen(Config{
		Listen:        netip.MustParseAddrPort("127.0.0.1:0"),
		Catalog:       f.catalog,
		DefaultOnSlow: fanout.DropNew,
		Subscriptions: func(_ context.Context, q netio.SubscriptionQuery) ([]netio.SubscriptionInfo, bool, error) {
			return f.subscriptions(q)
		},
		Readiness:    func() Readiness { return f.ready },
		WriteMetrics: func(w io.Writer) { io.WriteString(w, "felix_test 1\n") },
	})
	if err != nil {
		t.Fatal(err)
	}
	group.Start()
	f.server.Start()
	f.client = http.Client{Timeout: patience, Transport: &http.Transport{}}
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		if err := f.server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, host := range hosts {
			if err := host.CloseOffCore(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		group.Close()
	})
	return f
}

// do sends a request and returns status and body.
func (f *fixture) do(method, path, body string, headers ...string) (int, string) {
	f.t.Helper()
	request, err := http.NewRequest(method, "http://"+f.server.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		} else {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	response, err := f.client.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSuffix(string(content), "\n")
}

// want sends a request and compares the whole answer.
func (f *fixture) want(method, path, body string, status int, answer string) {
	f.t.Helper()
	if got, text := f.do(method, path, body); got != status || text != answer {
		f.t.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, path, body, got, text, status, answer)
	}
}

// refused sends a request and looks at status, code and words of the message.
func (f *fixture) refused(method, path, body string, status int, code string, words ...string) {
	f.t.Helper()
	got, text := f.do(method, path, body)
	var answer failure
	if err := json.Unmarshal([]byte(text), &answer); err != nil || got != status || answer.Code != code {
		f.t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, got, text, status, code)
	}
	for _, word := range words {
		if !strings.Contains(answer.Message, word) {
			f.t.Errorf("%s %s %s: %q lacks %q", method, path, body, answer.Message, word)
		}
	}
}

func TestHealth(t *testing.T) {
	f := newFixture(t)
	f.want("GET", "/live", "", 200, `{"live":true}`)
	f.want("HEAD", "/live", "", 200, "")
	f.want("GET", "/ready", "", 200, `{"ready":true,"reasons":[],"warnings":[]}`)
	f.ready = Readiness{Reasons: []string{"draining"}, Warnings: []string{"auth is any"}}
	f.want("GET", "/ready", "", 503, `{"ready":false,"reasons":["draining"],"warnings":["auth is any"]}`)
	f.want("GET", "/live", "", 200, `{"live":true}`)
	f.want("GET", "/metrics", "", 200, "felix_test 1")
	if status, text := f.do("GET", "/", ""); status != 200 || !strings.Contains(text, "/v1/tenants") {
		t.Errorf("index: %d %s", status, text)
	}
	f.refused("GET", "/nothing", "", 404, "not_found", "/nothing", "GET /")
	f.refused("POST", "/live", "", 405, "method_not_allowed", "/live takes GET, not POST")
	f.refused("PUT", "/v1/tenants", "", 405, "method_not_allowed", "takes GET, POST, not PUT")
}

func TestProfiles(t *testing.T) {
	f := newFixture(t)
	begun := time.Now()
	if status, text := f.do("GET", "/debug/pprof/profile?seconds=1", ""); status != 200 || text == "" || time.Since(begun) < time.Second {
		t.Errorf("a profile of a second: %d, %d bytes after %v", status, len(text), time.Since(begun))
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/trace?seconds=0.05"} {
		if status, text := f.do("GET", path, ""); status != 200 || text == "" {
			t.Errorf("%s: %d, %d bytes", path, status, len(text))
		}
	}
	for _, seconds := range []string{"0", "-1", "61", "NaN", "x"} {
		f.refused("GET", "/debug/pprof/profile?seconds="+seconds, "", 400, "invalid_request", "at most 60")
	}
}

// TestBrowsers refuses what a page of another site could make a browser send.
func TestBrowsers(t *testing.T) {
	f := newFixture(t)
	own := f.server.Addr().String()
	tests := []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"a tool", "POST", "/v1/tenants", nil, 201},
		{"a page of this listener", "POST", "/v1/tenants", []string{"Origin", "http://" + own, "Sec-Fetch-Site", "same-origin"}, 200},
		{"a page of another site", "POST", "/v1/tenants", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"an old browser", "DELETE", "/v1/tenants/t", []string{"Origin", "https://evil.example"}, 403},
		{"a name that points here", "GET", "/v1/tenants", []string{"Host", "evil.example"}, 403},
		{"a name that points here, with port", "GET", "/metrics", []string{"Host", "evil.example:8080"}, 403},
		{"localhost", "GET", "/v1/tenants", []string{"Host", "localhost:8080"}, 200},
		{"IPv6", "GET", "/v1/tenants", []string{"Host", "[::1]:8080"}, 200},
		{"IPv6 without port", "GET", "/v1/tenants", []string{"Host", "[::1]"}, 200},
	}
	for _, test := range tests {
		if status, text := f.do(test.method, test.path, `{"tenant_id":"t"}`, test.headers...); status != test.status {
			t.Errorf("%s: %d %s, want %d", test.name, status, text, test.status)
		}
	}
	if _, err := f.catalog.Tenant("t"); err != nil {
		t.Errorf("the tenant is gone: %v", err)
	}
}

func TestListenRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for addr, want := range map[string]string{
		taken.Addr().String(): "admin is " + taken.Addr().String() + ", and that port is in use; stop the process that has it, or choose another port",
		"192.0.2.1:8080":      "admin is 192.0.2.1:8080, which is no address of this machine; choose one that is",
	} {
		if _, err := Listen(Config{Listen: netip.MustParseAddrPort(addr)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

func TestCloseWithoutStart(t *testing.T) {
	s, err := Listen(Config{Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	again, err := Listen(Config{Listen: addr})
	if err != nil {
		t.Fatalf("the port is still held: %v", err)
	}
	again.Close()
}

// TestCloseEndsProfiles closes while a profile of a minute runs.
func TestCloseEndsProfiles(t *testing.T) {
	f := newFixture(t)
	answered := make(chan error, 1)
	request, err := http.NewRequest("GET", "http://"+f.server.Addr().String()+"/debug/pprof/trace?seconds=60", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := f.client.Do(request) // headers come at once, the trace as it grows
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		answered <- err
	}()
	if err := f.server.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-answered:
	case <-time.After(patience):
		t.Error("the profile goes on after Close")
	}
}

// fakeListener gives a connection for each token in ready.
type fakeListener struct {
	ready  chan struct{}
	closed chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case <-l.ready:
		conn, _ := net.Pipe()
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *fakeListener) Close() error   { close(l.closed); return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestBoundedListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &fakeListener{make(chan struct{}, 10), make(chan struct{})}
		l := newBoundedListener(inner, 2)
		for range 10 {
			inner.ready <- struct{}{}
		}
		accepted := make(chan net.Conn, 10)
		ended := make(chan error, 1)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- conn
			}
		}()
		synctest.Wait()
		if len(accepted) != 2 {
			t.Errorf("%d accepted, want 2", len(accepted))
		}
		first := <-accepted
		first.Close()
		first.Close() // gives one place back, not two
		synctest.Wait()
		if len(accepted) != 2 {
			t.Errorf("%d accepted after one was closed, want 2", len(accepted))
		}
		l.Close()
		if err := <-ended; err != net.ErrClosed {
			t.Errorf("accept after close: %v", err)
		}
	})
}

func TestReadBodyBounds(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		body, word string
		status     int
		code       string
	}{
		{"", "it is empty", 400, "invalid_request"},
		{"{", "in the middle", 400, "invalid_request"},
		{"nonsense", "no JSON at byte", 400, "invalid_request"},
		{"[]", "it is a JSON array; send an object", 400, "invalid_request"},
		{`{"tenant_id":1}`, "tenant_id is a JSON number", 400, "invalid_request"},
		{`{"tenant_id":"a","nmae":"x"}`, `there is no field "nmae"`, 400, "invalid_request"},
		{`{"tenant_id":"a"} {}`, "something follows the object", 400, "invalid_request"},
		{`{"tenant_id":"` + strings.Repeat("a", maxBodyBytes) + `"}`, "larger than 65536 bytes", 413, "too_large"},
	} {
		f.refused("POST", "/v1/tenants", test.body, test.status, test.code, test.word)
	}
	if n, _, _ := f.catalog.Tenants(replicate.Page{}); len(n) != 0 {
		t.Errorf("a refused request created %v", n)
	}
}

func FuzzStreamBody(f *testing.F) {
	f.Add([]byte(`{"stream":"s","shards":8,"routing":"jump_hash","on_slow":"block","retention":{"max_age_seconds":1}}`))
	f.Add([]byte(`{"shards":-1}`))
	f.Add([]byte(`{"retention":{"max_size_bytes":18446744073709551615}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var request streamRequest
		if json.Unmarshal(body, &request) != nil {
			return
		}
		config, err := request.config(fanout.DropNew)
		if err == nil && (config.Shards < 1 || config.Shards > replicate.MaxShards || config.Retention.MaxAge < 0 || config.Retention.MaxSizeBytes < 0 || config.OnSlow == fanout.CatchUp || config.Durable) {
			t.Errorf("%s became %+v", body, config)
		}
	})
}
