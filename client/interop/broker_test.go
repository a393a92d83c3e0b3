package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"felix"
)

// tenant is that of every client of the tests; the namespace is always "default".
const tenant = "t1"

// A broker is a felixd process.
type broker struct {
	felix.Ready
	t      *testing.T
	cmd    *exec.Cmd
	stderr output
	ended  chan struct{} // closed when the process is gone
	err    error         // of the process; set before ended is closed
}

// startBroker starts felixd on free ports of loopback, with its data in a temporary directory, and drains it with SIGTERM
// at the end of the test: everything accepted must then be finished, and the process must end with code 0.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	dir := t.TempDir()
	b := &broker{t: t, ended: make(chan struct{})}
	readyFile := filepath.Join(dir, "ready.json")
	if os.Getenv("FELIX_TEST_PINNED") == "1" {
		args = append([]string{"--core-shards", "2"}, args...) // a later flag of the test's own wins
	}
	args = append([]string{
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--ready-file", readyFile,
	}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	t.Cleanup(cancel)
	b.cmd = exec.CommandContext(ctx, tools.felixd, args...)
	// The note for the felix command goes where no person's tools look.
	b.cmd.Env = append(cleanEnviron(os.Environ()), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	b.cmd.Stderr = &b.stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(b.ended)
		banner := bufio.NewReader(stdout)
		if _, err := banner.ReadString('\n'); err == nil {
			close(ready) // it is printed once clients can connect
		}
		_, _ = io.Copy(io.Discard, banner)
		b.err = b.cmd.Wait()
	}()
	t.Cleanup(func() {
		b.drain()
		if b.err != nil || t.Failed() {
			t.Errorf("felixd ended with %v\n%s", b.err, b.stderr.String())
		}
	})
	if _, ok := await(t, ready, b.ended, "felixd to be ready"); !ok {
		t.Fatal("felixd ended before it was ready")
	}
	content, err := os.ReadFile(readyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &b.Ready); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	return b
}

// drain ends the broker with SIGTERM.
func (b *broker) drain() {
	b.t.Helper()
	_ = b.cmd.Process.Signal(syscall.SIGTERM) // if it is gone already, err says why
	within(b.t, b.ended, "felixd to drain")
}

// streamConfig is a stream as the admin listener creates it.
type streamConfig struct {
	Stream  string `json:"stream"`
	Shards  int    `json:"shards"`
	Routing string `json:"routing,omitempty"`
	OnSlow  string `json:"on_slow,omitempty"`
}

// create makes a stream, with its tenant and namespace.
func (b *broker) create(s streamConfig) {
	b.t.Helper()
	for _, step := range []struct {
		path string
		body any
	}{
		{"/v1/tenants", map[string]string{"tenant_id": tenant, "display_name": tenant}},
		{"/v1/tenants/" + tenant + "/namespaces", map[string]string{"namespace": "default", "display_name": "default"}},
		{"/v1/tenants/" + tenant + "/namespaces/default/streams", s},
	} {
		b.rest(http.MethodPost, step.path, step.body, http.StatusCreated, http.StatusOK)
	}
}

// remove deletes a stream.
func (b *broker) remove(name string) {
	b.t.Helper()
	b.rest(http.MethodDelete, "/v1/tenants/"+tenant+"/namespaces/default/streams/"+name, nil, http.StatusNoContent)
}

// rest makes one request to the admin listener, which must be answered with one of the codes.
func (b *broker) rest(method, path string, body any, codes ...int) []byte {
	b.t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			b.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own context has ended when its cleanup runs
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+b.Admin+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Close = true // no connection is kept: its goroutines would outlive the test
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if !slices.Contains(codes, response.StatusCode) {
		b.t.Fatalf("%s %s was answered with %s, want one of %v\n%s", method, path, response.Status, codes, content)
	}
	return content
}

// metric returns the values of a metric by their labels: "" for one without labels, else what stands in the braces.
func (b *broker) metric(name string) map[string]float64 {
	b.t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(string(b.rest(http.MethodGet, "/metrics", nil, http.StatusOK))) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok {
			continue
		}
		labels, number, ok := strings.Cut(rest, " ")
		value, err := strconv.ParseFloat(number, 64)
		if ok && err == nil && (labels == "" || labels[0] == '{') {
			values[strings.Trim(labels, "{}")] = value
		}
	}
	if len(values) == 0 {
		b.t.Fatalf("the broker has no metric %s", name)
	}
	return values
}

// baseline are the gauges that are 0 when no client is there.
var baseline = []string{
	"felix_quic_connections", "felix_quic_streams", "felix_subscriptions", "felix_inflight_requests",
	"felix_broker_ingress_queue_depth", "felix_broker_ingress_bytes",
}

// awaitIdle waits until everything that clients made the broker hold is given back. The published client says goodbye only when it has no
// quiet subscription left; otherwise the broker notices after its idle timeout of 6 s. Give it to t.Cleanup before clients are made, so that it
// runs when they are gone.
func (b *broker) awaitIdle() {
	b.t.Helper()
	if b.t.Failed() {
		return
	}
	timer, look := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer timer.Stop()
	defer look.Stop()
	for {
		held := map[string]float64{}
		for _, name := range baseline {
			if v := sum(b.metric(name)); v != 0 {
				held[name] = v
			}
		}
		// Replay rings stay; frames that are held besides are queued for somebody.
		if queued := sum(b.metric("felix_event_bytes_held")) - sum(b.metric("felix_replay_ring_bytes")); queued != 0 {
			held["frames outside of rings"] = queued
		}
		if len(held) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-timer.C:
			b.t.Errorf("%v after the last client the broker still holds %v", patience, held)
			return
		}
	}
}
