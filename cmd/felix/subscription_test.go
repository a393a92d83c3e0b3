package main

import (
	"encoding/json"
	"strings"
	"testing"

	"felix"
	"felix/client"
)

func TestSubscriptionList(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "stream", "create", "orders", "--shards", "2")
	f.ok("", "stream", "create", "prices", "--memory")
	code, stdout, stderr := call(t.Context(), f.environ, "", "subscription", "ls")
	if code != exitOK || stdout != "" || stderr != "No subscriptions in namespace default of tenant default. Make one: felix sub STREAM\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := f.ok("", "subscription", "ls", "orders", "-o", "json"); got != "[]\n" {
		t.Errorf("%q", got)
	}
	c, err := client.Dial(t.Context(), f.broker.Addr().String(), client.WithCAFile(f.broker.CAFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, stream := range []string{"orders", "prices"} {
		if _, err := c.Subscribe(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(f.ok("", "subscription", "ls"), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "STREAM  SHARD  CLIENT ") || !strings.HasPrefix(lines[1], "orders  0 ") || !strings.HasPrefix(lines[3], "prices  0 ") {
		t.Errorf("%q", lines)
	}
	for _, word := range []string{"live", "catch-up", "0 B", "0/512"} {
		if !strings.Contains(lines[1], word) {
			t.Errorf("%q lacks %q", lines[1], word)
		}
	}
	if got := strings.Count(f.ok("", "subscriptions", "ls", "prices", "--no-headers"), "\n"); got != 1 {
		t.Errorf("%d lines for prices", got)
	}
	var list []subscription
	if err := json.Unmarshal([]byte(f.ok("", "subscription", "ls", "prices", "-o", "json")), &list); err != nil || len(list) != 1 ||
		list[0].Stream != "prices" || list[0].State != "live" || list[0].Policy != "drop_new" || list[0].Capacity != 512 {
		t.Errorf("%+v, %v", list, err)
	}
	code, _, stderr = call(t.Context(), f.environ, "", "subscription", "ls", "--dropping", "prices")
	if code != exitOK || stderr != "No subscriptions of stream prices that lost records. Make one: felix sub prices\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := call(t.Context(), f.environ, "", "subscription", "ls", "none"); code != exitNotFound || !strings.Contains(stderr, "none") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
