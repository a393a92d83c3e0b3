package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix"
	"felix/client"
)

var update = flag.Bool("update", false, "write the golden files anew")

// patience bounds every wait of these tests.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == benchBrokerName {
		main() // a test of bench has started this program as its broker
		return
	}
	flag.Parse()
	home, err := os.MkdirTemp("", "felix-home-")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", home) // no development broker but those of the tests
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(home)
		os.Exit(code)
	}))
}

// output takes what a command writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// fixture is a broker with an environment that names it.
type fixture struct {
	t       *testing.T
	broker  *felix.Broker
	environ []string
}

func newFixture(t *testing.T, config felix.Config) *fixture {
	t.Helper()
	config.Admin = "127.0.0.1:0"
	if os.Getenv("FELIX_TEST_PINNED") == "1" {
		config.CoreShards = 2
	}
	b, err := felix.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t, b, []string{
		"FELIX_SERVER=" + b.Addr().String(), "FELIX_ADMIN=" + b.AdminAddr().String(), "FELIX_CA_FILE=" + b.CAFile(),
	}}
}

// call runs a command to its end.
func call(ctx context.Context, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, errs output
	code = run(ctx, surroundings{args: args, environ: environ, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// ok runs a command that must succeed and returns its output.
func (f *fixture) ok(stdin string, args ...string) string {
	f.t.Helper()
	code, stdout, stderr := call(f.t.Context(), f.environ, stdin, args...)
	if code != exitOK || stderr != "" {
		f.t.Errorf("felix %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s:\n got:\n%s\nwant:\n%s", file, text, want)
	}
}

// TestGolden runs one story and compares every output, tables and JSON.
func TestGolden(t *testing.T) {
	f := newFixture(t, felix.Config{AutoCreate: felix.Off})
	var text strings.Builder
	step := func(stdin string, args ...string) {
		text.WriteString("$ felix " + strings.Join(args, " ") + "\n" + f.ok(stdin, args...))
	}
	step("", "stream", "create", "orders")
	step("", "stream", "create", "orders")
	step("", "stream", "create", "events", "--shards", "8", "--memory", "--on-slow", "block", "--routing", "jump_hash")
	step("", "stream", "create", "audit", "--durable", "--shards", "2", "--on-slow", "drop-oldest", "--fsync", "periodic", "-o", "json")
	step("", "stream", "ls")
	step("", "stream", "ls", "--no-headers")
	step("", "stream", "ls", "-o", "json")
	step("", "stream", "info", "events")
	step("", "stream", "info", "events", "-o", "json")
	step("", "stream", "info", "audit")
	step("", "stream", "set", "audit", "--fsync", "none", "--on-slow", "catch-up", "--retention-secs", "3600")
	step("", "stream", "set", "audit", "--retention-bytes", "10MiB", "-o", "json")
	step("", "stream", "set", "audit", "--retention-secs", "0")
	step("", "pub", "orders", "hello")
	step("", "pub", "orders", "a", "b", "-o", "json")
	step("", "pub", "orders", "again", "--count", "3", "--batch", "2")
	step("one\ntwo\n\nthree", "pub", "orders", "--acks", "each")
	step("one\ntwo\nthree\n", "pub", "orders", "--acks", "each", "--count", "2", "-o", "json")
	step("one\ntwo\nthree\n", "pub", "orders", "--acks", "none", "--count", "2")
	step("one\n", "pub", "orders", "--acks", "none", "-o", "json")
	step("", "pub", "orders")
	step("", "pub", "events", "keyed", "--key", "customer-1")
	step("", "pub", "events", "keyed", "--key", "customer-1", "-o", "json")
	step("", "sub", "orders", "--from", "earliest", "--count", "10")
	step("", "sub", "orders", "--from", "3", "--count", "2", "-o", "json")
	step("", "sub", "orders", "--from", "-1h", "--count", "2")
	step("", "sub", "orders", "--from", "2026-01-31T12:00:00+01:00", "--count", "1")
	step("", "sub", "events", "--from", "earliest", "--count", "2", "-o", "json")
	step("", "stream", "rm", "audit", "--dry-run")
	step("", "stream", "rm", "audit", "--yes")
	step("", "stream", "rm", "events", "-y", "-o", "json")
	step("", "stream", "ls")
	golden(t, "story.txt", text.String())
}

// TestJSONOfBytes prints a payload that is no text.
func TestJSONOfBytes(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "pub", "orders", "text <&> ü", "\xff\x00", "")
	const want = `{"stream":"orders","shard":0,"offset":0,"payload":"text <&> ü"}
{"stream":"orders","shard":0,"offset":1,"payload_base64":"/wA="}
{"stream":"orders","shard":0,"offset":2,"payload":""}
`
	if got := f.ok("", "sub", "orders", "--from", "earliest", "--count", "3", "-o", "json"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestListReadsEveryPage(t *testing.T) {
	f := newFixture(t, felix.Config{})
	const streams = 1005 // more than a page
	for i := range streams {
		if err := f.broker.CreateStream(t.Context(), felix.StreamConfig{Name: "s" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(f.ok("", "stream", "ls", "--no-headers"), "\n"); got != streams {
		t.Errorf("%d streams are listed, want %d", got, streams)
	}
}

func TestEmptyListSaysHowToCreateOne(t *testing.T) {
	f := newFixture(t, felix.Config{})
	code, stdout, stderr := call(t.Context(), f.environ, "", "stream", "ls")
	if code != exitOK || stdout != "" || !strings.Contains(stderr, "felix stream create NAME") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := f.ok("", "stream", "ls", "-o", "json"); got != "[]\n" {
		t.Errorf("JSON of an empty list: %q", got)
	}
}

func TestCreateMakesTheNamespace(t *testing.T) {
	f := newFixture(t, felix.Config{})
	args := []string{"--tenant", "t1", "--namespace", "n1"}
	code, stdout, stderr := call(t.Context(), f.environ, "", append(args, "stream", "create", "s")...)
	if code != exitOK || !strings.HasPrefix(stdout, "created stream s") || stderr != "felix: created namespace n1 of tenant t1\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := f.ok("", append(args, "stream", "create", "s2")...); !strings.HasPrefix(got, "created stream s2") {
		t.Errorf("%q", got)
	}
}

// TestFindsTheDevelopmentBroker uses the note that felixd leaves, and the environment and flags over it.
func TestFindsTheDevelopmentBroker(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	local, other := newFixture(t, felix.Config{}), newFixture(t, felix.Config{})
	remove, err := felix.WriteContext(local.broker.Ready())
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	published := func(f *fixture) uint64 { return f.broker.Stats().PublishRecords }
	for i, test := range []struct {
		environ, args []string
		local, other  uint64 // published by then
	}{
		{nil, nil, 1, 0},
		{[]string{"FELIX_SERVER="}, nil, 2, 0},
		{nil, []string{"--server", strings.Replace(local.broker.Addr().String(), "127.0.0.1", "localhost", 1)}, 3, 0}, // its CA goes with it
		{other.environ, nil, 3, 1},
		{[]string{"FELIX_BROKERS=" + other.broker.Addr().String() + ",10.0.0.1:1", "FELIX_CA_FILE=" + other.broker.CAFile()}, nil, 3, 2},
		{other.environ, []string{"--server", local.broker.Addr().String(), "--ca", local.broker.CAFile()}, 4, 2},
	} {
		if code, _, stderr := call(t.Context(), test.environ, "", append(test.args, "pub", "orders", "x")...); code != exitOK {
			t.Errorf("%d: exit code %d\n%s", i, code, stderr)
		}
		if published(local) != test.local || published(other) != test.other {
			t.Errorf("%d: %d and %d published, want %d and %d", i, published(local), published(other), test.local, test.other)
		}
	}
	if code, stdout, stderr := call(t.Context(), nil, "", "stream", "ls", "--no-headers"); code != exitOK || !strings.HasPrefix(stdout, "orders ") {
		t.Errorf("stream ls: exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestProvokedErrors holds what people can run into: exit code and three lines.
func TestProvokedErrors(t *testing.T) {
	f := newFixture(t, felix.Config{AutoCreate: felix.Off})
	f.ok("", "stream", "create", "orders", "--shards", "2")
	f.ok("", "stream", "create", "single")
	f.ok("", "stream", "create", "prices", "--memory")
	f.ok("", "pub", "single", "x")
	other := newFixture(t, felix.Config{})
	closedUDP, err := net.ListenPacket("udp", "127.0.0.1:0") // takes datagrams and answers none
	if err != nil {
		t.Fatal(err)
	}
	defer closedUDP.Close()
	page := &http.Server{Handler: http.NotFoundHandler()}
	pageListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go page.Serve(pageListener)
	defer page.Close()
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	if err := os.WriteFile(notPEM, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name string
		args string
		code int
		text string // the three lines; ADDR, ADMIN and so on stand for what differs from run to run
	}{
		{"unknown command", "pbu", exitUsage, `felix: the command line is not understood
  why:  there is no command "pbu"
  next: felix pub
`},
		{"unknown verb", "stream lst", exitUsage, `felix: the command line is not understood
  why:  there is no command "lst"
  next: felix stream ls
`},
		{"unknown flag", "pub --keys x orders", exitUsage, `felix: the command line is not understood
  why:  unknown flag: --keys
  next: felix pub --help
`},
		{"value that is none", "pub orders x --batch many", exitUsage, `felix: the command line is not understood
  why:  "many" is no value for --batch
  next: felix pub --help
`},
		{"missing argument", "sub", exitUsage, `felix: the command line is not understood
  why:  felix sub takes the name of a stream, and 0 arguments were given
  next: felix sub --help
`},
		{"output", "sub orders -o table", exitUsage, `felix: the command line is not understood
  why:  output "table" is none of raw, json
  next: felix sub --help
`},
		{"acks", "pub orders x --acks all", exitUsage, `felix: the command line is not understood
  why:  acks "all" is none of none, each, batch
  next: felix pub --help
`},
		{"acks each of batches", "pub orders x --acks each --batch 2", exitUsage, `felix: the command line is not understood
  why:  acks each answers every record by itself, and batch is 2; leave one of them out
  next: felix pub --help
`},
		{"count", "sub orders --count 0", exitUsage, `felix: the command line is not understood
  why:  count is 0; give a number from 1
  next: felix sub --help
`},
		{"from", "sub orders --from yesterday", exitUsage, `felix: the command line is not understood
  why:  from "yesterday" is none of latest, earliest, an offset, a time such as 2026-01-31T12:00:00Z or a time ago such as -10m
  next: felix sub --help
`},
		{"offset on several shards", "sub orders --from 1", exitUsage, `felix: offset 1 does not say where to start
  why:  stream "orders" has 2 shards, each with offsets of its own
  next: felix sub orders --from 1 --shard 0
`},
		{"offset in the future", "sub single --from 9", exitFailure, `felix: stream "single" cannot be read from offset 9
  why:  the next record of shard 0 gets offset 1
  next: felix sub single --from latest
`},
		{"shard out of range", "sub orders --shard 7", exitUsage, `felix: the subscription to stream "orders" failed
  why:  * (invalid_request)
  next: felix stream info orders
`},
		{"publish to nothing", "pub nothing x", exitNotFound, `felix: nothing was published to stream "nothing"
  why:  * (not_found)
  next: felix stream ls, or felix stream create nothing
`},
		{"subscribe to nothing", "sub nothing", exitNotFound, `felix: the subscription to stream "nothing" failed
  why:  *
  next: felix stream ls, or felix stream create nothing
`},
		{"info of nothing", "stream info nothing", exitNotFound, `felix: stream "nothing" was not found
  why:  stream not found: "default/default/nothing"
  next: felix stream ls
`},
		{"rm of nothing", "stream rm nothing --yes", exitNotFound, `felix: stream "nothing" was not removed
  why:  stream not found: "default/default/nothing"
  next: felix stream ls
`},
		{"rm without a person", "stream rm orders", exitUsage, `felix: the command line is not understood
  why:  removing stream "orders" removes its records, and standard input is no terminal to ask on
  next: felix stream rm orders --yes
`},
		{"exists otherwise", "stream create orders --shards 3", exitConflict, `felix: stream "orders" was not created
  why:  stream "default/default/orders" exists with shards 2, not 3: use it as it is, or delete it first
  next: felix stream info orders
`},
		{"bad name", "stream create a/b", exitUsage, `felix: stream "a/b" was not created
  why:  *letters, digits*
  next: felix stream create --help
`},
		{"time in memory", "sub prices --from -10m", exitUsage, `felix: the subscription to stream "prices" failed
  why:  offset_for_time needs the log of a durable stream, and stream prices is in memory; subscribe from the earliest record or from an offset (invalid_request)
  next: felix sub prices --from earliest
`},
		{"time ago that is to come", "sub orders --from 10m", exitUsage, `felix: the command line is not understood
  why:  from "10m" is none of *
  next: felix sub --help
`},
		{"fsync", "stream create d --fsync always", exitUsage, `felix: the command line is not understood
  why:  fsync "always" is none of on_commit, periodic, none
  next: felix stream create --help
`},
		{"fsync in memory", "stream create d --memory --fsync none", exitUsage, `felix: the command line is not understood
  why:  a stream in memory syncs nothing; leave --fsync or --memory out
  next: felix stream create --help
`},
		{"set nothing", "stream set orders", exitUsage, `felix: the command line is not understood
  why:  nothing is to be changed; give --fsync, --on-slow, --retention-bytes or --retention-secs
  next: felix stream set --help
`},
		{"set fsync in memory", "stream set prices --fsync none", exitUsage, `felix: stream "prices" was not changed
  why:  *the stream is in memory*
  next: felix stream info prices
`},
		{"set of nothing", "stream set nothing --retention-secs 1", exitNotFound, `felix: stream "nothing" was not found
  why:  stream not found: "default/default/nothing"
  next: felix stream ls
`},
		{"size that is none", "stream set orders --retention-bytes much", exitUsage, `felix: the command line is not understood
  why:  retention-bytes "much" is no size; give one such as 1073741824 or 1GiB
  next: felix stream set --help
`},
		{"log of nothing", "wal verify /none", exitFailure, `felix: the log cannot be read
  why:  /none: no such file or directory
  next: the same command with the data directory of a broker; felixd prints it when it starts
`},
		{"log in another directory", "wal inspect " + t.TempDir(), exitNotFound, `felix: there is no log
  why:  * has neither lanes nor segments
  next: the same command with the data directory of a broker; felixd prints it when it starts
`},
		{"log in use", "wal verify " + f.broker.DataDir(), exitConflict, `felix: the log was not verified
  why:  a broker (pid ` + strconv.Itoa(os.Getpid()) + `) is using ` + f.broker.DataDir() + `, and what it is writing would look like damage
  next: the same command when that broker has ended, or on a copy; felix wal inspect works beside it
`},
		{"range of no shard", "wal dump " + f.broker.DataDir() + " --from 3", exitUsage, `felix: the command line is not understood
  why:  from and to are offsets of one shard, and shard is not given; felix wal inspect lists the shards
  next: felix wal dump --help
`},
		{"catch up in memory", "stream create d --memory --on-slow catch-up", exitUsage, `felix: the command line is not understood
  why:  a stream in memory has no log to catch up from; on-slow is one of drop, drop-oldest, block
  next: felix stream create --help
`},
		{"memory and durable", "stream create d --memory --durable", exitUsage, `felix: the command line is not understood
  why:  a stream is kept in memory or on disk; leave --memory or --durable out
  next: felix stream create --help
`},
		{"unknown namespace", "stream ls -n none", exitNotFound, `felix: the streams cannot be listed
  why:  *none*
  next: felix stream ls
`},
		{"no broker answers", "pub orders x --server " + closedUDP.LocalAddr().String(), exitUnavailable, `felix: the broker cannot be reached
  why:  ` + closedUDP.LocalAddr().String() + ` does not answer: *
  next: felixd, if no broker runs there; otherwise the same command with another --server
`},
		{"server without port", "pub orders x --server broker", exitUsage, `felix: there is no broker to talk to
  why:  server is "broker"; give HOST:PORT
  next: the same command with --server HOST:PORT
`},
		{"certificate of another broker", "pub orders x --ca " + other.broker.CAFile(), exitUnavailable, `felix: the broker cannot be reached
  why:  *certificate*
  next: the same command with --ca FILE, the certificate that the broker exports (tls_cert_export)
`},
		{"certificate missing", "pub orders x --ca /none.pem", exitFailure, `felix: the broker cannot be trusted
  why:  ca is "/none.pem": no such file or directory
  next: the same command with --ca FILE, the certificate that the broker exports (tls_cert_export)
`},
		{"certificate that is none", "pub orders x --ca " + notPEM, exitFailure, `felix: the broker cannot be trusted
  why:  ca is "` + notPEM + `": it holds no certificate in PEM
  next: the same command with --ca FILE, the certificate that the broker exports (tls_cert_export)
`},
		{"no admin answers", "stream ls --admin 127.0.0.1:1", exitUnavailable, `felix: the admin listener cannot be reached
  why:  http://127.0.0.1:1: connection refused
  next: felixd, if no broker runs there; otherwise the same command with another --admin
`},
		{"admin of somebody else", "stream ls --admin " + pageListener.Addr().String(), exitUnavailable, `felix: the admin listener is no felix broker
  why:  http://` + pageListener.Addr().String() + `: it answered 404 Not Found to *
  next: the same command with the --admin of a broker; felixd prints it when it starts
`},
		{"admin without port", "stream ls --admin broker", exitUsage, `felix: the command line is not understood
  why:  admin is "broker"; give HOST:PORT
  next: felix stream ls --help
`},
		{"size of the demo", "demo --records 1", exitUsage, `felix: the command line is not understood
  why:  records is 1; give a number from 4 to 10000000
  next: felix demo --help
`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := call(t.Context(), f.environ, "", strings.Fields(test.args)...)
			if code != test.code || stdout != "" || !like(test.text, stderr) {
				t.Errorf("felix %s: exit code %d, want %d\n got:\n%s%s\nwant:\n%s", test.args, code, test.code, stdout, stderr, test.text)
			}
		})
	}
	t.Run("nobody to talk to", func(t *testing.T) {
		for args, want := range map[string]struct {
			code int
			text string
		}{
			"pub orders x": {exitUnavailable, `felix: there is no broker to talk to
  why:  --server is not given, FELIX_SERVER is not set, and no development broker of this user is running
  next: felixd, in another terminal; or the same command with --server HOST:PORT --ca FILE
`},
			"stream ls": {exitUsage, `felix: felix stream ls needs the admin listener of a broker
  why:  --admin is not given, FELIX_ADMIN is not set, and no development broker of this user tells of one
  next: felix stream ls --admin HOST:PORT
`},
		} {
			if code, _, stderr := call(t.Context(), nil, "", strings.Fields(args)...); code != want.code || stderr != want.text {
				t.Errorf("felix %s: exit code %d\n%s", args, code, stderr)
			}
		}
	})
}

// like compares a text with a pattern in which * stands for anything within a line.
func like(pattern, text string) bool {
	want, got := strings.Split(pattern, "\n"), strings.Split(text, "\n")
	return slices.EqualFunc(want, got, func(pattern, line string) bool {
		parts := strings.Split(pattern, "*")
		if !strings.HasPrefix(line, parts[0]) || !strings.HasSuffix(line, parts[len(parts)-1]) {
			return false
		}
		for _, part := range parts {
			_, after, ok := strings.Cut(line, part)
			if !ok {
				return false
			}
			line = after
		}
		return true
	})
}

func TestNoGoErrorReachesAPerson(t *testing.T) {
	p := explain(t.Context(), &client.Error{
		Op: "publish", Stream: "s", Retry: client.RetryRetry, Err: &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("sendmsg", os.ErrPermission)},
	}, (&app{}).rootCommand())
	if p.code != exitUnavailable || strings.Contains(p.why, "sendmsg") || strings.Contains(p.why, "client:") {
		t.Errorf("%+v", p)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if p := explain(cancelled, errors.New("x"), (&app{}).rootCommand()); p.what != "interrupted" || p.code != exitFailure {
		t.Errorf("%+v", p)
	}
	if text := oneLine("a\nb\x1b[31m"); strings.ContainsAny(text, "\n\x1b") {
		t.Errorf("%q", text)
	}
}

func TestVersion(t *testing.T) {
	f := &fixture{t: t}
	if got := f.ok("", "version"); got != "felix "+felix.Version()+"\n" {
		t.Errorf("%q", got)
	}
	var answer map[string]string
	if err := json.Unmarshal([]byte(f.ok("", "version", "-o", "json")), &answer); err != nil || answer["version"] != felix.Version() {
		t.Errorf("%v, %v", answer, err)
	}
	// A word in the environment that serves other commands is no error here.
	f.environ = []string{"FELIX_OUTPUT=raw"}
	if got := f.ok("", "version"); !strings.HasPrefix(got, "felix ") {
		t.Errorf("%q", got)
	}
}

func TestCompletion(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "stream", "create", "orders")
	if code, got, _ := call(t.Context(), f.environ, "", "__completeNoDesc", "sub", ""); code != exitOK || !strings.HasPrefix(got, "orders\n") {
		t.Errorf("exit code %d, %q", code, got)
	}
	if code, got, _ := call(t.Context(), nil, "", "__completeNoDesc", "sub", ""); code != exitOK || strings.Contains(got, "orders") {
		t.Errorf("without a broker: exit code %d, %q", code, got)
	}
}
