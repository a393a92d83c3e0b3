package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"felix"
	"felix/client"
	"felix/wal"
)

// dataDir makes a data directory with a log of two lanes: a stream of 4 shards with records that say which they are.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b, err := felix.Start(t.Context(), felix.Config{DataDir: dir, Cores: 2, Log: felix.Log{SegmentBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.CreateStream(t.Context(), felix.StreamConfig{Name: "orders", Shards: 4, Durable: true}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), b.Addr().String(), client.WithCAFile(b.CAFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 20 {
		for shard := range uint32(4) {
			if _, err := c.Publish(t.Context(), "orders", fmt.Appendf(nil, "record %02d of shard %d", i, shard), client.ToShard(shard)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestWalReadsALog(t *testing.T) {
	dir := dataDir(t)
	f := &fixture{t: t}
	one := filepath.Join(dir, "lanes", "lane-1")

	text := f.ok("", "wal", "inspect", dir)
	for _, want := range []string{"lane 0 in " + filepath.Join(dir, "lanes", "lane-0") + ": format ", "lane 1 in " + one, "  SEGMENT ", "  SHARD ", "[0, 20)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "[0, 20)"); n != 4 {
		t.Errorf("%d shards in:\n%s", n, text)
	}
	var inspected struct{ Lanes []wal.Inspection }
	if err := json.Unmarshal([]byte(f.ok("", "wal", "inspect", dir, "-o", "json")), &inspected); err != nil || len(inspected.Lanes) != 2 || inspected.Lanes[1].Lane != 1 {
		t.Errorf("%+v, %v", inspected, err)
	}
	if text := f.ok("", "wal", "inspect", one); strings.Contains(text, "lane-0") || strings.Count(text, "[0, 20)") != 2 {
		t.Errorf("one lane:\n%s", text)
	}
	if text := f.ok("", "wal", "inspect", filepath.Join(dir, "lanes")); strings.Count(text, "[0, 20)") != 4 {
		t.Errorf("the directory of the lanes:\n%s", text)
	}

	text = f.ok("", "wal", "verify", dir)
	if strings.Count(text, ": no damage\n") != 2 {
		t.Errorf("verify:\n%s", text)
	}
	var verified struct{ Lanes []wal.Verification }
	if err := json.Unmarshal([]byte(f.ok("", "wal", "verify", one, "-o", "json")), &verified); err != nil || len(verified.Lanes) != 1 || verified.Lanes[0].Batches == 0 {
		t.Errorf("%+v, %v", verified, err)
	}

	text = f.ok("", "wal", "dump", dir, "--payloads")
	for i := range 20 {
		for shard := range 4 {
			if want := fmt.Sprintf("record %02d of shard %d", i, shard); strings.Count(text, want) != 1 {
				t.Errorf("%q is there %d times", want, strings.Count(text, want))
			}
		}
	}
	number := fmt.Sprint(inspected.Lanes[0].Shards[0].Shard)
	lines := strings.Split(strings.TrimSpace(f.ok("", "wal", "dump", filepath.Join(dir, "lanes", "lane-0"), "--shard", number, "--from", "5", "--to", "7", "-o", "json")), "\n")
	found := 0
	for _, line := range lines {
		var batch struct {
			Kind        string
			Shard, Base uint64
		}
		if err := json.Unmarshal([]byte(line), &batch); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if batch.Kind == "records" {
			found++
			if fmt.Sprint(batch.Shard) != number || batch.Base < 4 || batch.Base > 6 {
				t.Errorf("%s", line)
			}
		}
	}
	if found == 0 {
		t.Errorf("dump of a range: %q", lines)
	}
	if stream, index := felix.LogShard(inspected.Lanes[0].Shards[0].Shard); stream == 0 || index > 3 {
		t.Errorf("stream %d, index %d", stream, index)
	}
}

// TestWalFindsDamage flips a bit of a record in the middle of the log.
func TestWalFindsDamage(t *testing.T) {
	dir := dataDir(t)
	files, err := filepath.Glob(filepath.Join(dir, "lanes", "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := false
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(content, []byte("record 05 of shard 2")); at >= 0 {
			flipped = true
			content[at] ^= 4
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !flipped {
		t.Fatal("the record is in no segment")
	}
	code, stdout, stderr := call(t.Context(), nil, "", "wal", "verify", dir)
	if code != exitFailure || !strings.Contains(stdout, "1 place damaged") || !strings.Contains(stdout, "  damage: lane ") || !strings.Contains(stdout, "offsets [5, 6)") || !strings.HasPrefix(stderr, "felix: the log is damaged in 1 place\n") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, _ = call(t.Context(), nil, "", "wal", "verify", dir, "-o", "json")
	var verified struct{ Lanes []wal.Verification }
	if err := json.Unmarshal([]byte(stdout), &verified); err != nil || code != exitFailure || len(verified.Lanes[0].Damage)+len(verified.Lanes[1].Damage) != 1 {
		t.Errorf("exit code %d, %v\n%s", code, err, stdout)
	}
}

// TestWalBesideABroker reads the log of one that runs.
func TestWalBesideABroker(t *testing.T) {
	f := newFixture(t, felix.Config{})
	f.ok("", "pub", "orders", "hello")
	for _, verb := range []string{"inspect", "dump"} {
		code, stdout, stderr := call(t.Context(), nil, "", "wal", verb, f.broker.DataDir())
		if want := fmt.Sprintf("felix: a broker (pid %d) is using this log; its end is on the move\n", os.Getpid()); code != exitOK || stdout == "" || stderr != want {
			t.Errorf("%s: exit code %d\n%s%s", verb, code, stdout, stderr)
		}
	}
	// Looking has not kept it from anything.
	f.ok("", "pub", "orders", "again")
}
