package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Bounds of a request to the admin listener.
const (
	adminTimeout = 10 * time.Second
	maxAnswer    = 8 << 20 // a page of 1,000 streams is far below
)

// stream is a stream as the admin listener tells it; the order of the fields is that of --output json.
type stream struct {
	Stream            string     `json:"stream"`
	Kind              string     `json:"kind"`
	Shards            uint32     `json:"shards"`
	ReplicationFactor uint32     `json:"replication_factor"`
	Retention         *retention `json:"retention,omitempty"`
	Consistency       string     `json:"consistency"`
	Delivery          string     `json:"delivery"`
	Durable           bool       `json:"durable"`
	Region            string     `json:"region,omitempty"`
	Routing           string     `json:"routing,omitempty"`
	OnSlow            string     `json:"on_slow"`
	FsyncMode         string     `json:"fsync_mode,omitempty"`
}

type retention struct {
	MaxAgeSeconds uint64 `json:"max_age_seconds,omitempty"`
	MaxSizeBytes  uint64 `json:"max_size_bytes,omitempty"`
}

// adminClient speaks to the admin listener of a broker.
type adminClient struct {
	base string // http://HOST:PORT
	http http.Client
}

// adminClient finds the admin listener. Close its idle connections when done.
func (a *app) adminClient(cmd *cobra.Command) (*adminClient, error) {
	address := a.admin
	if address == "" {
		if note, ok := a.development(); ok {
			address = note.Admin
		}
	}
	if address == "" {
		return nil, &problem{
			exitUsage, cmd.CommandPath() + " needs the admin listener of a broker",
			"--admin is not given, FELIX_ADMIN is not set, and no development broker of this user tells of one",
			cmd.CommandPath() + " --admin HOST:PORT",
		}
	}
	base := strings.TrimSuffix(address, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Port() == "" {
		return nil, usage(cmd, fmt.Sprintf("admin is %q; give HOST:PORT", address))
	}
	return &adminClient{base: base, http: http.Client{Timeout: adminTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}}, nil
}

func (c *adminClient) close() { c.http.CloseIdleConnections() }

// refusal is an error that the admin listener answered.
type refusal struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// do sends one request and reads the answer into out, unless that is nil. The error is a *refusal or a *problem.
func (c *adminClient) do(ctx context.Context, method, path string, body, out any) (status int, err error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return 0, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, c.unreachable(ctx, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, c.unreachable(ctx, err)
	}
	if response.StatusCode >= 300 {
		r := &refusal{Status: response.StatusCode}
		if json.Unmarshal(answer, r) != nil || r.Message == "" {
			return 0, c.notFelix(fmt.Sprintf("it answered %s to %s", response.Status, path))
		}
		return r.Status, r
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			return 0, c.notFelix("its answer to " + path + " is no JSON of ours")
		}
	}
	return response.StatusCode, nil
}

// unreachable says that there was no answer.
func (c *adminClient) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	why := err.Error()
	var operation *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &operation):
		why = deepest(operation).Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		why = fmt.Sprintf("no answer within %v", adminTimeout)
	}
	return &problem{
		exitUnavailable, "the admin listener cannot be reached", c.base + ": " + why,
		"felixd, if no broker runs there; otherwise the same command with another --admin",
	}
}

func (c *adminClient) notFelix(why string) error {
	return &problem{
		exitUnavailable, "the admin listener is no felix broker", c.base + ": " + why,
		"the same command with the --admin of a broker; felixd prints it when it starts",
	}
}

// explainRefusal makes three lines of what the admin listener refused about a stream.
func explainRefusal(err error, what, name string) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	p := &problem{exitFailure, what, r.Message, "felix stream ls"}
	switch r.Status {
	case http.StatusBadRequest:
		p.code, p.next = exitUsage, "felix stream create --help"
	case http.StatusForbidden:
		p.code, p.next = exitDenied, "the same command with the --admin that felixd prints when it starts"
	case http.StatusNotFound:
		p.code = exitNotFound
	case http.StatusConflict:
		p.code, p.next = exitConflict, "felix stream info "+name
		if r.Code == "limit_exceeded" {
			p.code, p.next = exitFailure, "felix stream ls, and felix stream rm NAME for one that is not needed"
		}
	case http.StatusServiceUnavailable:
		p.code, p.next = exitUnavailable, "the same command in a moment"
	}
	return p
}

// namespaces is the path of the namespaces of the tenant in use.
func (a *app) namespaces() string { return "/v1/tenants/" + url.PathEscape(a.tenant) + "/namespaces" }

// streams is the path of the streams of the namespace in use, or of one of them.
func (a *app) streams(name ...string) string {
	path := a.namespaces() + "/" + url.PathEscape(a.namespace) + "/streams"
	for _, n := range name {
		path += "/" + url.PathEscape(n)
	}
	return path
}

// listStreams reads every page.
func (a *app) listStreams(ctx context.Context, c *adminClient) ([]stream, error) {
	all := []stream{}
	for cursor := ""; ; {
		var page struct {
			Items      []stream `json:"items"`
			NextCursor string   `json:"next_cursor"`
		}
		if _, err := c.do(ctx, http.MethodGet, a.streams()+"?cursor="+url.QueryEscape(cursor), nil, &page); err != nil {
			return nil, explainRefusal(err, "the streams cannot be listed", "")
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all, nil
		}
		cursor = page.NextCursor
	}
}
