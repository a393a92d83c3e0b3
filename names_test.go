package felix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"felix/client"
	"felix/netio/wire"
	"felix/replicate"
)

// rest sends a request to the admin listener and returns the status and the code and message of an error.
func rest(t *testing.T, b *Broker, method, path string, body any) (status int, code, message string) {
	t.Helper()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, "http://"+b.AdminAddr().String()+path, content)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Code, Message string }
	if response.StatusCode >= 400 {
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatalf("%s %s: %d without an error: %v", method, path, response.StatusCode, err)
		}
	}
	return response.StatusCode, answer.Code, answer.Message
}

const restStreams = "/v1/tenants/default/namespaces/default/streams"

// through publishes a record to a stream and reads it back.
func through(ctx context.Context, c *client.Client, stream string, data []byte) error {
	ack, err := c.Publish(ctx, stream, data)
	if err != nil {
		return err
	}
	sub, err := c.Subscribe(ctx, stream, client.FromOffset(ack.Offset))
	if err != nil {
		return fmt.Errorf("published, but subscribe: %w", err)
	}
	defer sub.Close()
	m, err := sub.Next(ctx)
	if err != nil {
		return fmt.Errorf("published, but next: %w", err)
	}
	if m.Offset != ack.Offset || !bytes.Equal(m.Data, data) {
		return fmt.Errorf("published %d bytes at %d, received %d at %d", len(data), ack.Offset, len(m.Data), m.Offset)
	}
	return nil
}

// Every name works end to end, by first use and over REST, or is refused everywhere with an error that says why.
func TestNames(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	b := mustStart(t, Config{Admin: "127.0.0.1:0"})
	c := mustDial(t, b, client.WithNotFoundRetry(1))
	long := strings.Repeat("a", replicate.MaxNameBytes)
	names := map[string]bool{ // whether it is one
		"orders": true, "Orders": true, "ORDERS": true, "0": true, "a.b": true, "a..b": true, "a-_.": true, long: true,
		"": false, ".": false, "..": false, "../../etc": false, "/": false, "a/b": false, `a\b`: false, "\x00": false, "a\x00b": false, " ": false, "a b": false,
		"ä": false, "注文": false, "😀": false, "a\u0301": false, "\u202eabc": false, "\xff\xfe": false, "-a": false, "_a": false, ".a": false,
		"a\n": false, "%2e%2e": false, long + "a": false,
	}
	for size := 1; size <= 300; size += 13 {
		names[strings.Repeat("n", size)] = size <= replicate.MaxNameBytes
	}
	ctx := testContext(t)
	for name, good := range names {
		short := name[:min(len(name), 20)]
		err := through(ctx, c, name, []byte(name))
		status, code, message := rest(t, b, http.MethodPost, restStreams, map[string]any{"stream": name, "durable": true})
		getStatus, _, _ := rest(t, b, http.MethodGet, restStreams+"/"+url.PathEscape(name), nil)
		if good {
			if err != nil {
				t.Errorf("%q: %v", short, err)
			}
			if status != http.StatusOK || getStatus != http.StatusOK { // the first use has made it
				t.Errorf("%q: POST %d %s, GET %d", short, status, message, getStatus)
			}
			continue
		}
		// The question for the shards that comes first knows only "not known" as an answer; netio's TestBadNames has what the broker says.
		refused := func(err error) bool { return errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrNotFound) }
		if !refused(err) {
			t.Errorf("%q: publish gave %v", short, err)
		}
		if _, err := c.Subscribe(ctx, name); !refused(err) {
			t.Errorf("%q: subscribe gave %v", short, err)
		}
		if status != http.StatusBadRequest || code != "invalid_request" || !strings.Contains(message, "name") {
			t.Errorf("%q: POST %d %s %s", short, status, code, message)
		}
		if getStatus == http.StatusOK {
			t.Errorf("%q: GET %d", short, getStatus)
		}
	}
	for name, good := range names {
		if status, _, _ := rest(t, b, http.MethodDelete, restStreams+"/"+url.PathEscape(name), nil); good && status != http.StatusNoContent || !good && status < 300 {
			t.Errorf("%q: DELETE %d", name[:min(len(name), 20)], status)
		}
	}
	if n := b.Catalog().Counts().Streams; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// Records of every size up to what a frame holds come back as they were sent; one byte more is refused before anything is stored.
func TestSizes(t *testing.T) {
	b := mustStart(t, Config{})
	ctx := longContext(t) // four of these records are as large as they can be
	for _, durable := range []bool{false, true} {
		name := fmt.Sprintf("sizes-%v", durable)
		if err := b.CreateStream(ctx, StreamConfig{Name: name, Durable: durable}); err != nil {
			t.Fatal(err)
		}
		c := mustDial(t, b)
		// What a publish has besides its one payload: request id and mode, three names with their lengths, count, length. Our client keeps
		// room for a header, a key and a producer besides.
		most := wire.MaxFrameBytes - (8 + 1 + 2 + len(DefaultName) + 2 + len(DefaultName) + 2 + len(name) + 4 + 4) - (wire.HeaderBytes + 2 + 16)
		for _, size := range []int{0, 1, most - 1, most} {
			data := bytes.Repeat([]byte{'x'}, size)
			if err := through(ctx, c, name, data); err != nil {
				t.Errorf("%s: %d bytes: %v", name, size, err)
			}
		}
		var e *client.Error
		if _, err := c.Publish(ctx, name, make([]byte, most+1)); !errors.As(err, &e) || !errors.Is(err, client.ErrInvalid) || !strings.Contains(e.Error(), fmt.Sprint(wire.MaxFrameBytes)) {
			t.Errorf("%s: %d bytes: %v", name, most+1, err)
		}
		if err := through(ctx, c, name, []byte("still here")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A body of a request to REST is taken up to its bound and refused beyond.
func TestRESTBodySizes(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	b := mustStart(t, Config{Admin: "127.0.0.1:0"})
	const bound = 64 << 10
	around := len(`{"tenant_id":"t1","display_name":""}`)
	for i, size := range []int{bound - 1, bound} {
		status, _, message := rest(t, b, http.MethodPost, "/v1/tenants", map[string]string{"tenant_id": fmt.Sprintf("t%d", i), "display_name": strings.Repeat("d", size-around)})
		if status != http.StatusCreated {
			t.Errorf("a body of %d bytes: %d %s", size, status, message)
		}
	}
	status, code, message := rest(t, b, http.MethodPost, "/v1/tenants", map[string]string{"tenant_id": "t3", "display_name": strings.Repeat("d", bound+1-around)})
	if status != http.StatusRequestEntityTooLarge || code != "too_large" || !strings.Contains(message, "65536") {
		t.Errorf("a body of %d bytes: %d %s %s", bound+1, status, code, message)
	}
}
