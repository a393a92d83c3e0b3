package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"felix/client"
)

// mountTmpfs mounts a tmpfs of the given size for the length of the test.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	return root
}

// mountExt4 mounts an ext4 of the given size in a file for the length of the test, and returns that file.
func mountExt4(t *testing.T, at string, bytes int64) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be made here: %v %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
		t.Skipf("no file can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	return image
}

// refused runs felixd, which is to end by itself with 1 and one sentence, which it returns. As nobody, it runs without rights.
func refused(t *testing.T, nobody bool, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stderr output
	cmd := exec.CommandContext(ctx, binary, append([]string{"--listen", "127.0.0.1:0", "--admin", "off"}, args...)...)
	cmd.Env = environment(t.TempDir())
	cmd.Stderr = &stderr
	if nobody && os.Getuid() == 0 {
		if err := os.Chmod(filepath.Dir(binary), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	cmd.Run()
	var sentences []string
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "felixd: ") {
			sentences = append(sentences, line)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || len(sentences) != 1 {
		t.Errorf("exit code %d, want %d and one sentence:\n%s", code, exitFailure, stderr.String())
	}
	return strings.Join(sentences, "")
}

func (d *daemon) admin(method, path, body string) (code int, answer string) {
	d.t.Helper()
	request, err := http.NewRequest(method, "http://"+d.Admin+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

const streamsPath = "/v1/tenants/default/namespaces/default/streams/"

// eventually calls try until it says that it is done, patience at most.
func eventually(t *testing.T, what string, try func() bool) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !try() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// filler publishes records of 64 KiB, each with its number, and knows how many a stream has.
type filler struct {
	t    *testing.T
	ctx  context.Context
	c    *client.Client
	next map[string]client.Offset
}

func record(stream string, offset client.Offset) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%s %8d;", stream, offset), 64<<10/(len(stream)+10))
}

// publish returns the refusal of a full disk, or nil. Anything else fails the test.
func (f *filler) publish(stream string) error {
	f.t.Helper()
	ack, err := f.c.Publish(f.ctx, stream, record(stream, f.next[stream]))
	if errors.Is(err, client.ErrOverloaded) {
		var refusal *client.Error
		if !errors.As(err, &refusal) || refusal.RetryAfter <= 0 || !strings.Contains(refusal.Message, "disk is full") || !strings.Contains(refusal.Message, "goes on by itself") {
			f.t.Fatalf("the refusal of a full disk: %v", err)
		}
		return err
	}
	if err != nil || ack.Offset != f.next[stream] {
		f.t.Fatalf("%s: %+v, %v, want offset %d", stream, ack, err, f.next[stream])
	}
	f.next[stream]++
	return nil
}

func (f *filler) fill(stream string, most int) (n int) {
	f.t.Helper()
	for ; n < most && f.publish(stream) == nil; n++ {
	}
	return n
}

// verify reads a stream from an offset to its end.
func (f *filler) verify(stream string, from client.Offset) {
	f.t.Helper()
	for from < f.next[stream] {
		page, err := f.c.ReadPage(f.ctx, stream, 0, from, client.ReadOptions{})
		if err != nil || len(page.Records) == 0 {
			f.t.Fatalf("%s at %d of %d: %d records, %v", stream, from, f.next[stream], len(page.Records), err)
		}
		for _, r := range page.Records {
			if r.Offset != from || !bytes.Equal(r.Data, record(stream, from)) {
				f.t.Fatalf("%s: %.30q at %d, want record %d", stream, r.Data, r.Offset, from)
			}
			from++
		}
	}
}

// start is the oldest offset that is kept.
func (f *filler) start(stream string) client.Offset {
	f.t.Helper()
	_, err := f.c.ReadPage(f.ctx, stream, 0, 0, client.ReadOptions{MaxRecords: 1})
	var gone *client.CursorError
	if errors.As(err, &gone) {
		return gone.Available
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return 0
}

// takeAll fills a file system to the last byte.
func takeAll(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{64 << 10, 1} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = file.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills a disk of 64 MiB with records and then to the last byte with a foreign file.
func TestFullDisk(t *testing.T) {
	root := mountTmpfs(t, "64m")
	data := filepath.Join(root, "data")
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	d := start(t, nil, "--data", data)
	f := &filler{t: t, ctx: ctx, c: d.dial(ctx), next: map[string]client.Offset{}}
	if n := f.fill("deleted", 150); n != 150 {
		t.Fatalf("the disk is full after %d records", n)
	}
	if n := f.fill("orders", 10000); n < 200 || n == 10000 {
		t.Fatalf("the disk is full after %d more records of 64 KiB", n)
	}
	f.verify("deleted", 0)
	f.verify("orders", 0)
	if code, answer := d.admin("GET", "/ready", ""); code != http.StatusOK {
		t.Errorf("/ready on a full disk, which still serves reads: %d %s", code, answer)
	}
	if _, text := d.admin("GET", "/metrics", ""); !strings.Contains(text, "felix_storage_full_total{") {
		t.Error("the metrics do not tell")
	}
	eventually(t, "the log to tell", func() bool { return strings.Contains(d.stderr.String(), "disk is full") })

	// Retention goes on and makes room, by itself.
	if code, answer := d.admin("PATCH", streamsPath+"orders", `{"retention":{"max_size_bytes":2000000}}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	eventually(t, "retention on a full disk", func() bool { return f.start("orders") > 0 })
	eventually(t, "publishing again", func() bool { return f.publish("orders") == nil })
	if code, answer := d.admin("PATCH", streamsPath+"orders", `{"retention":{}}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	f.verify("orders", f.start("orders")) // which stays where it is now
	f.fill("orders", 10000)
	kept := f.start("orders")

	// Somebody else takes what is left, to the last byte; the broker is killed and started with nothing free.
	foreign := filepath.Join(root, "foreign")
	takeAll(t, foreign)
	f.fill("orders", 10000) // what room the segment had
	f.verify("orders", kept)
	f.c.Close()
	for round := range 2 {
		d.signal([]os.Signal{syscall.SIGKILL, syscall.SIGTERM}[round])
		d.end()
		d = start(t, nil, "--data", data)
		f.c = d.dial(ctx)
		f.verify("deleted", 0)
		f.verify("orders", kept)
		if f.publish("orders") == nil {
			t.Error("there is room on a disk with 0 bytes free")
		}
		if round == 0 {
			f.c.Close()
		}
	}

	// A stream can be deleted, and its room is had, with the foreign file still there.
	if code, answer := d.admin("DELETE", streamsPath+"deleted", ""); code != http.StatusNoContent {
		t.Errorf("a stream cannot be deleted from a full disk: %d %s\n%s", code, answer, d.stderr.String())
	}
	eventually(t, "publishing into the room of a deleted stream", func() bool { return f.publish("orders") == nil })
	f.fill("orders", 10000)
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	eventually(t, "publishing once the foreign file is gone", func() bool { return f.publish("orders") == nil })
	f.verify("orders", kept)
	f.c.Close()
	d.signal(syscall.SIGTERM)
	if code := d.end(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
}

// TestDirectoryWithoutRights starts felixd where it may not write: on a read-only file system, in a directory of somebody else, and
// on a data directory in which one thing is somebody else's.
func TestDirectoryWithoutRights(t *testing.T) {
	root := mountTmpfs(t, "64m")
	data := filepath.Join(root, "data")
	d := start(t, nil, "--data", data)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f := &filler{t: t, ctx: ctx, c: d.dial(ctx), next: map[string]client.Offset{}}
	f.fill("orders", 3)
	f.c.Close()
	d.signal(syscall.SIGTERM)
	d.end()

	check := func(what, sentence string, wants ...string) {
		t.Helper()
		t.Logf("%s: %s", what, sentence)
		for _, want := range wants {
			if strings.Count(sentence, want) != 1 {
				t.Errorf("%s: %q is not once in %s", what, want, sentence)
			}
		}
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", root, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	for _, dir := range []string{data, filepath.Join(root, "new")} {
		check("read-only", refused(t, false, "--data", dir), fmt.Sprintf("%q", dir), "read-only file system", "make it readable and writable for this user or choose another directory")
	}
	remount(0)

	check("of somebody else", refused(t, true, "--data", filepath.Join(root, "data", "x")), filepath.Join(root, "data", "x"), "permission denied", "choose another directory")
	// From here on everything is nobody's but one thing.
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, 65534, 65534)
	}); err != nil {
		t.Skipf("no file can be given away: %v", err)
	}
	segments, _ := filepath.Glob(filepath.Join(data, "lanes", "lane-0", "*.seg"))
	for _, path := range []string{filepath.Join(data, "lanes"), filepath.Join(data, "lanes", "lane-0"), segments[0], filepath.Join(data, "meta"), filepath.Join(data, "meta", "catalog.journal")} {
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		named := path
		switch filepath.Base(path) {
		case "lane-0":
			named = filepath.Join(path, "LOCK")
		case "meta":
			named = data
		}
		check(path, refused(t, true, "--data", data), "permission denied", named, "for this user")
		if err := errors.Join(os.Chmod(path, info.Mode()), os.Chown(path, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskTurnsReadOnly has one of two lanes on a disk of its own, which turns read-only under the broker: that lane stops and
// says so, everything else goes on, and a start after the disk is well again has what was acknowledged.
func TestDiskTurnsReadOnly(t *testing.T) {
	home := t.TempDir()
	data := filepath.Join(home, "data")
	lane := filepath.Join(data, "lanes", "lane-1")
	if err := os.MkdirAll(lane, 0o700); err != nil {
		t.Fatal(err)
	}
	image := mountExt4(t, lane, 256<<20)
	args := []string{"--data", data, "--core-shards", "2", "--dev-shards", "2", "--segment-bytes", "4 MiB"}
	d := start(t, nil, args...)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	c := d.dial(ctx)
	acked := [2]client.Offset{}
	publish := func(shard uint32) error {
		ack, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "record %d of shard %d", acked[shard], shard), client.ToShard(shard))
		if err == nil {
			if ack.Offset != acked[shard] {
				t.Fatalf("offset %d of shard %d, want %d", ack.Offset, shard, acked[shard])
			}
			acked[shard]++
		}
		return err
	}
	for i := range 40 {
		if err := publish(uint32(i % 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("", lane, "", unix.MS_REMOUNT, "abort"); err != nil {
		t.Skipf("the file system cannot be made to stop: %v", err)
	}
	stopped := uint32(0)
	if err := publish(0); err == nil {
		stopped = 1
	}
	healthy := 1 - stopped
	var refusal *client.Error
	eventually(t, "the lane stops", func() bool {
		err := publish(stopped)
		return errors.As(err, &refusal) && errors.Is(err, client.ErrStorage) && refusal.Retry == client.RetryRetry
	})
	if !strings.Contains(refusal.Message, "stopped after a disk error") || !strings.Contains(refusal.Message, "restart") {
		t.Errorf("the refusal reads %v", refusal)
	}
	code, answer := d.admin("GET", "/ready", "")
	var ready struct{ Reasons []string }
	if err := json.Unmarshal([]byte(answer), &ready); err != nil || code != http.StatusServiceUnavailable || len(ready.Reasons) != 1 || !strings.HasPrefix(ready.Reasons[0], "lane 1: ") {
		t.Errorf("/ready: %d %s", code, answer)
	}
	if _, text := d.admin("GET", "/metrics", ""); !strings.Contains(text, `felix_storage_sync_failures_total{lane="1"} 1`) || !strings.Contains(text, `felix_storage_sync_failures_total{lane="0"} 0`) {
		t.Error("the metrics do not tell which lane failed")
	}
	read := func(shard uint32) {
		t.Helper()
		for at := client.Offset(0); at < acked[shard]; {
			page, err := c.ReadPage(ctx, "orders", shard, at, client.ReadOptions{})
			if err != nil || len(page.Records) == 0 {
				t.Fatalf("shard %d at %d of %d: %+v, %v", shard, at, acked[shard], page, err)
			}
			for _, r := range page.Records {
				if want := fmt.Sprintf("record %d of shard %d", at, shard); at < acked[shard] && (string(r.Data) != want || r.Offset != at) {
					t.Fatalf("%q at %d, want %q", r.Data, r.Offset, want)
				}
				at++
			}
		}
	}
	// Everything else goes on: reads of both, writes of the other lane, the catalog, streams in memory.
	read(0)
	read(1)
	for range 20 {
		if err := publish(healthy); err != nil {
			t.Fatalf("the other lane: %v", err)
		}
	}
	if code, answer := d.admin("POST", "/v1/tenants/default/namespaces/default/streams", `{"stream":"memory","durable":false}`); code/100 != 2 {
		t.Errorf("a new stream: %d %s", code, answer)
	}
	if _, err := c.Publish(ctx, "memory", []byte("x")); err != nil {
		t.Errorf("a stream in memory: %v", err)
	}
	c.Close()
	d.signal(syscall.SIGTERM)
	d.end()
	for _, command := range [][]string{{"umount", lane}, {"mount", "-o", "loop", image, lane}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", command, err, out)
		}
	}
	d = start(t, nil, args...)
	c = d.dial(ctx)
	defer c.Close()
	read(0)
	read(1)
	for shard := range uint32(2) {
		// What had no answer may be there; an offset that was acknowledged is not given again.
		if ack, err := c.Publish(ctx, "orders", []byte("x"), client.ToShard(shard)); err != nil || ack.Offset < acked[shard] {
			t.Errorf("shard %d goes on with %+v, %v, acknowledged were %d", shard, ack, err, acked[shard])
		}
	}
}
