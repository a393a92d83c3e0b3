package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	adminTimeout = 10 * time.Second
	maxAnswer    = 8 << 20 // the metrics of a broker with 64 cores are below 200 KiB
)

// An adminControl makes streams and reads counters over HTTP.
type adminControl struct {
	base              string // http://HOST:PORT
	tenant, namespace string
	http              http.Client
}

func newAdminControl(address, tenant, namespace string) *adminControl {
	base := strings.TrimSuffix(address, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	// A connection of its own for each question leaves no goroutine behind.
	return &adminControl{base, tenant, namespace, http.Client{Timeout: adminTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (a *adminControl) tenantPath() string { return "/v1/tenants/" + url.PathEscape(a.tenant) }

func (a *adminControl) streams() string {
	return a.tenantPath() + "/namespaces/" + url.PathEscape(a.namespace) + "/streams"
}

// do sends a request and returns status and body of the answer.
func (a *adminControl) do(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := a.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, answer, err
}

// refused is the error of an answer that is none of those wanted.
func refused(what string, status int, answer []byte) error {
	var told struct{ Message string }
	if json.Unmarshal(answer, &told) != nil || told.Message == "" {
		told.Message = http.StatusText(status)
	}
	return fmt.Errorf("%s: the admin listener answered %d: %s", what, status, told.Message)
}

func (a *adminControl) create(ctx context.Context, name string, spec StreamSpec) error {
	body := map[string]any{"stream": name, "shards": spec.Shards, "durable": spec.Durability != Memory}
	switch {
	case spec.Durability != Memory:
		body["fsync_mode"] = string(spec.Durability)
	case spec.Slow:
		body["on_slow"] = "drop_new"
	default:
		body["on_slow"] = "block"
	}
	if err := a.createScope(ctx); err != nil {
		return err
	}
	return a.post(ctx, "stream "+name, a.streams(), body)
}

// createScope makes tenant and namespace, where they are not there.
func (a *adminControl) createScope(ctx context.Context) error {
	if err := a.post(ctx, "tenant "+a.tenant, "/v1/tenants", map[string]string{"tenant_id": a.tenant}); err != nil {
		return err
	}
	return a.post(ctx, "namespace "+a.namespace, a.tenantPath()+"/namespaces", map[string]string{"namespace": a.namespace})
}

// post creates what, unless it is there.
func (a *adminControl) post(ctx context.Context, what, path string, body any) error {
	status, answer, err := a.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return refused(what+" was not created", status, answer)
	}
	return nil
}

func (a *adminControl) remove(ctx context.Context, name string) error {
	status, answer, err := a.do(ctx, http.MethodDelete, a.streams()+"/"+url.PathEscape(name), nil)
	if err == nil && status >= 300 && status != http.StatusNotFound {
		err = refused("stream "+name+" was not removed", status, answer)
	}
	return err
}

func (a *adminControl) exists(ctx context.Context, name string) (bool, error) {
	status, answer, err := a.do(ctx, http.MethodGet, a.streams()+"/"+url.PathEscape(name), nil)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusNotFound:
		return false, nil
	case status != http.StatusOK:
		return false, refused("stream "+name+" was not looked up", status, answer)
	}
	return true, nil
}

func (a *adminControl) counters(ctx context.Context) (Counters, error) {
	status, answer, err := a.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, refused("metrics", status, answer)
	}
	return parseMetrics(answer), nil
}

// metricNames are the broker's metrics by what they count here. Those of several cores and lanes are summed.
var metricNames = map[string]Counter{
	"process_start_time_seconds":                     StartTime,
	"process_cpu_seconds_total":                      CPUSeconds,
	"process_resident_memory_bytes":                  RSSBytes,
	"felix_publish_records_total":                    AppendedRecords,
	`felix_publish_requests_total{result="ok"}`:      AckedBatches,
	`felix_publish_requests_total{result="error"}`:   RefusedBatches,
	`felix_publish_requests_total{result="dropped"}`: DroppedBatches,
	"felix_sub_records_dropped_total":                DroppedDeliveries,
	"felix_storage_sync_batch_appends_count":         Syncs,
	"felix_storage_groups_total":                     Groups,
	"felix_storage_groups_zeroed_total":              ZeroedGroups,
	"felix_udp_packets_received_total":               Packets,
	"felix_udp_packets_sent_total":                   Packets,
	"felix_udp_bytes_received_total":                 PacketBytes,
	"felix_udp_bytes_sent_total":                     PacketBytes,
	"felix_udp_read_buffer_bytes":                    SocketBytes,
}

// parseMetrics reads Prometheus text. Lines that are not understood are left out.
func parseMetrics(text []byte) Counters {
	c := Counters{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if space < 0 || line[0] == '#' {
			continue
		}
		name, labels, _ := strings.Cut(line[:space], "{")
		counter, ok := metricNames[name]
		if !ok {
			counter, ok = metricNames[name+"{"+labels]
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if ok && err == nil {
			c[counter] += value
		}
	}
	return c
}
