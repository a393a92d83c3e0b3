package felix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"felix/client"
)

// TestRestart starts a broker again on its data directory, with other numbers of cores: streams, their settings, records and offsets are
// there, and what was deleted or in memory is not.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	ctx := testContext(t)
	const shards, each = 5, 40
	acked := map[uint32][]string{}
	total := func() (n int) {
		for _, texts := range acked {
			n += len(texts)
		}
		return n
	}
	for round, cores := range []int{2, 1, 3, 2} {
		b := mustStart(t, Config{DataDir: dir, Cores: cores, Log: Log{SegmentBytes: 1 << 20}})
		if round == 0 {
			for _, config := range []StreamConfig{
				{Name: "orders", Shards: shards, Durable: true, FsyncMode: Periodic, OnSlow: DropOld, Retention: Retention{MaxAge: time.Hour}},
				{Name: "deleted", Durable: true},
				{Name: "memory"},
			} {
				if err := b.CreateStream(ctx, config); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := mustDial(t, b)
		for shard := range uint32(shards) {
			for i := range each {
				text := fmt.Sprintf("round %d, record %d of shard %d", round, i, shard)
				ack, err := c.Publish(ctx, "orders", []byte(text), client.ToShard(shard))
				if err != nil {
					t.Fatal(err)
				}
				if ack.Offset != client.Offset(len(acked[shard])) {
					t.Fatalf("round %d: offset %d of shard %d, want %d", round, ack.Offset, shard, len(acked[shard]))
				}
				acked[shard] = append(acked[shard], text)
			}
		}
		s, err := b.Catalog().Stream(DefaultName, DefaultName, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if set := s.Settings(); len(s.Shards) != shards || !s.Config.Durable || set.FsyncMode != Periodic || set.OnSlow != DropOld || set.Retention.MaxAge != time.Hour {
			t.Errorf("round %d: %+v, %+v", round, s.Config, set)
		}
		// First use makes durable streams, too.
		if ack, err := c.Publish(ctx, "first-use", []byte("x")); err != nil || ack.Offset != client.Offset(round) {
			t.Errorf("round %d: %+v, %v", round, ack, err)
		}
		sub, err := c.Subscribe(ctx, "orders", client.FromEarliest())
		if err != nil {
			t.Fatal(err)
		}
		next := map[uint32]int{}
		for range total() {
			m, err := sub.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if i := next[m.Shard]; int(m.Offset) != i || string(m.Data) != acked[m.Shard][i] {
				t.Fatalf("round %d: %q at %d of shard %d, want record %d", round, m.Data, m.Offset, m.Shard, i)
			}
			next[m.Shard]++
		}
		sub.Close()

		if round == 0 {
			if _, err := c.Publish(ctx, "deleted", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := b.Catalog().DeleteStream(ctx, DefaultName, DefaultName, "deleted"); err != nil {
				t.Fatal(err)
			}
		}
		// A stream in memory is there again and has lost its records.
		if ack, err := c.Publish(ctx, "memory", []byte("x")); err != nil || ack.Offset != 0 {
			t.Errorf("round %d: in memory %+v, %v", round, ack, err)
		}
		if round == 1 {
			if _, err := b.Catalog().Stream(DefaultName, DefaultName, "deleted"); err == nil {
				t.Error("the deleted stream is back")
			}
			// Its name starts from nothing.
			if err := b.CreateStream(ctx, StreamConfig{Name: "deleted", Durable: true}); err != nil {
				t.Fatal(err)
			}
			if ack, err := c.Publish(ctx, "deleted", []byte("new")); err != nil || ack.Offset != 0 {
				t.Errorf("a stream of the name of a deleted one: %+v, %v", ack, err)
			}
		}
		if r := b.readiness(); !r.Ready || len(r.Warnings) != 0 {
			t.Errorf("round %d: %+v", round, r)
		}
		c.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwoBrokersOnOneDirectory refuses the second with the holder.
func TestTwoBrokersOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, Config{DataDir: dir, Cores: 1})
	b, err := Start(testContext(t), Config{DataDir: dir, Cores: 1})
	if err == nil {
		b.Close()
		t.Fatal("a second broker started")
	}
	for _, want := range []string{dir, fmt.Sprintf("(pid %d)", os.Getpid()), "give this one a directory of its own"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

// TestDamagedLogStarts damages a record under a closed broker: the next one says so, refuses what is lost and serves the rest.
func TestDamagedLogStarts(t *testing.T) {
	dir := t.TempDir()
	ctx := testContext(t)
	b := mustStart(t, Config{DataDir: dir, Cores: 1})
	if err := b.CreateStream(ctx, StreamConfig{Name: "orders", Durable: true}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b)
	for i := range 10 {
		if _, err := c.Publish(ctx, "orders", fmt.Appendf(nil, "the record with number %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	flipped := 0
	files, _ := filepath.Glob(filepath.Join(dir, "lanes", "*", "*.seg"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(content), "the record with number 4"); at >= 0 {
			flipped++
			content[at] ^= 1
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if flipped != 1 {
		t.Fatalf("the record is in %d of %d segments", flipped, len(files))
	}

	b = mustStart(t, Config{DataDir: dir, Cores: 1})
	c = mustDial(t, b)
	page, err := c.ReadPage(ctx, "orders", 0, 0, client.ReadOptions{})
	if err != nil || len(page.Records) != 4 || page.Next != 4 {
		t.Errorf("before the damage: %+v, %v", page, err)
	}
	_, err = c.ReadPage(ctx, "orders", 0, 4, client.ReadOptions{})
	var refused *client.Error
	if !errors.Is(err, client.ErrStorage) || !errors.As(err, &refused) || refused.Retry != client.RetryFatal || !strings.Contains(refused.Message, "[4, 5)") {
		t.Errorf("in it: %v", err)
	}
	if page, err := c.ReadPage(ctx, "orders", 0, 5, client.ReadOptions{}); err != nil || len(page.Records) != 5 {
		t.Errorf("behind it: %+v, %v", page, err)
	}
	// A subscription ends at the damage with its reason, after what comes before.
	sub, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for i := range 4 {
		if m, err := sub.Next(ctx); err != nil || int(m.Offset) != i {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if m, err := sub.Next(ctx); !errors.Is(err, client.ErrStorage) {
		t.Errorf("%+v, %v", m, err)
	}
	if ack, err := c.Publish(ctx, "orders", []byte("x")); err != nil || ack.Offset != 10 {
		t.Errorf("%+v, %v", ack, err)
	}
}

// TestStorageStats publishes to a durable stream and looks at what the lanes count.
func TestStorageStats(t *testing.T) {
	b := mustStart(t, Config{Cores: 2, Admin: "127.0.0.1:0"})
	c := mustDial(t, b)
	const records = 20
	for range records {
		if _, err := c.Publish(testContext(t), "orders", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	s := b.Stats()
	if len(s.Lanes) != 2 {
		t.Fatalf("%d lanes", len(s.Lanes))
	}
	var batches, syncs uint64
	for i, lane := range s.Lanes {
		batches += lane.Batches
		syncs += lane.Syncs
		if lane.ID != uint64(i) || lane.Backend == "" || lane.Segments == 0 || lane.Failed != nil || lane.Recovery <= 0 || lane.ZeroedGroups > lane.Groups {
			t.Errorf("lane %d: %+v", i, lane)
		}
	}
	if batches < records || syncs < records {
		t.Errorf("%d batches and %d syncs of %d lone publishes", batches, syncs, records)
	}
	_, text := get(t, b, "/metrics")
	for _, want := range []string{
		"felix_storage_append_duration_seconds_count ", "felix_storage_sync_duration_seconds_bucket{le=\"0.001\"} ",
		`felix_storage_sync_batch_appends_sum{lane="0"} `, `felix_storage_sync_batch_appends_count{lane="1"} `, `felix_storage_sync_failures_total{lane="0"} 0`,
		`felix_storage_full_total{lane="1"} 0`, `felix_storage_recovery_duration_seconds{lane="0"} `, `felix_storage_groups_zeroed_ratio{lane="0"} `,
		`felix_storage_segments{lane="0"} `, `felix_storage_log_bytes_total{lane="0"} `, `felix_storage_backend_info{lane="0",backend="`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	var count float64
	if _, line, ok := strings.Cut(text, "\nfelix_storage_sync_duration_seconds_count "); !ok {
		t.Error("/metrics lacks the number of syncs")
	} else if _, err := fmt.Sscan(line, &count); err != nil || count < records {
		t.Errorf("%v syncs were timed: %v", count, err)
	}
}

func TestDurabilityText(t *testing.T) {
	for want, config := range map[string]Config{
		"on_commit: an ack means on disk":                                                       {},
		"periodic: an ack means written; a power cut loses at most the last 250ms":              {Log: Log{FsyncMode: Periodic}},
		"periodic: an ack means written; a power cut loses at most the last 1s":                 {Log: Log{FsyncMode: Periodic, SyncInterval: time.Second}},
		"none: an ack means written; a power cut loses what the system had not saved by itself": {Log: Log{FsyncMode: NoSync}},
		"on_commit: an ack means on disk; streams of first use are in memory":                   {AutoCreateMemory: true},
	} {
		if got := (&Broker{config: checkedConfig{Config: config}}).Durability(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAckOnCommitIsWarnedAbout(t *testing.T) {
	for value, warned := range map[string]bool{"0": true, "false": true, "perhaps": true, "1": false, "true": false} {
		settled, err := load([]string{"FELIX_ACK_ON_COMMIT=" + value}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(settled.Warnings) == 1 && strings.Contains(settled.Warnings[0], "is not offered"); got != warned || !warned && len(settled.Warnings) > 0 {
			t.Errorf("%s: %q", value, settled.Warnings)
		}
	}
}

// logFiles reads the lanes' segments, without what may still be written behind the last group of each.
func logFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := filepath.Glob(filepath.Join(dir, "lanes", "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = bytes.TrimRight(content, "\x00")
	}
	return files
}

// longContext is testContext for tests that wait for the disk many times.
func longContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	t.Cleanup(cancel)
	return ctx
}

// TestCoreCounts serves one data directory with 1, 4 and again 1 core: the lanes of four cores are dealt to one, everything is
// readable, publishes go on, and not a byte of what was written is written anew.
func TestCoreCounts(t *testing.T) {
	dir := t.TempDir()
	ctx := longContext(t)
	const shards, each = 6, 15
	var streams []string
	texts := map[string][]string{} // by stream/shard
	var before map[string][]byte
	for round, cores := range []int{1, 4, 1} {
		b := mustStart(t, Config{DataDir: dir, Cores: cores, Log: Log{SegmentBytes: 1 << 20}})
		if want := []int{1, 4, 4}[round]; len(b.lanes) != want {
			t.Errorf("%d lanes with %d cores, want %d", len(b.lanes), cores, want)
		}
		c := mustDial(t, b)
		// Each round adds a stream; those of four cores are on all lanes.
		name := fmt.Sprintf("made-by-%d-in-round-%d", cores, round)
		if err := b.CreateStream(ctx, StreamConfig{Name: name, Durable: true, Shards: shards}); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, name)
		for _, stream := range streams {
			for shard := range uint32(shards) {
				for i := range each {
					text := fmt.Sprintf("%s/%d round %d record %d %s", stream, shard, round, i, strings.Repeat("x", 4000))
					key := fmt.Sprintf("%s/%d", stream, shard)
					ack, err := c.Publish(ctx, stream, []byte(text), client.ToShard(shard))
					if err != nil || int(ack.Offset) != len(texts[key]) {
						t.Fatalf("round %d: %+v, %v, want offset %d", round, ack, err, len(texts[key]))
					}
					texts[key] = append(texts[key], text)
				}
			}
		}
		for key, want := range texts {
			stream, shard, _ := strings.Cut(key, "/")
			number, _ := strconv.ParseUint(shard, 10, 32)
			page, err := c.ReadPage(ctx, stream, uint32(number), 0, client.ReadOptions{})
			if err != nil || len(page.Records) != len(want) {
				t.Fatalf("round %d: %s has %d of %d records: %v", round, key, len(page.Records), len(want), err)
			}
			for i, r := range page.Records {
				if string(r.Data) != want[i] || int(r.Offset) != i {
					t.Fatalf("round %d: %.60q at %d of %s, want %.60q", round, r.Data, r.Offset, key, want[i])
				}
			}
		}
		// Every lane takes part.
		for i, lane := range b.Stats().Lanes {
			if round == 1 && lane.Batches == 0 || lane.Failed != nil {
				t.Errorf("round %d: lane %d: %+v", round, i, lane)
			}
		}
		c.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		after := logFiles(t, dir)
		for file, content := range before {
			if !bytes.HasPrefix(after[file], content) {
				t.Errorf("round %d: %s, %d bytes, was rewritten or removed", round, file, len(content))
			}
		}
		before = after
	}
}

// TestDeletedStreamsSpace deletes a stream of many segments: its space comes back, also over a restart right after. A stream
// of its name starts at 0 and never shows the old one's records, over restarts.
func TestDeletedStreamsSpace(t *testing.T) {
	dir := t.TempDir()
	ctx := longContext(t)
	config := Config{DataDir: dir, Cores: 1, Log: Log{SegmentBytes: 1 << 20}}
	b := mustStart(t, config)
	c := mustDial(t, b)
	settled := func() bool { // at most what is open and the spares
		s := b.Stats().Lanes[0]
		return s.Segments <= 3 && s.DiskBytes <= 8<<20
	}
	wait := func(what string) {
		t.Helper()
		for again := time.NewTicker(20 * time.Millisecond); !settled(); <-again.C {
			if ctx.Err() != nil {
				t.Fatalf("%s: %+v", what, b.Stats().Lanes[0])
			}
		}
	}
	if _, err := c.Publish(ctx, "beside", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for generation := range 3 {
		// The name of a deleted stream is not made again by first use.
		if err := b.CreateStream(ctx, StreamConfig{Name: "big", Durable: true}); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			ack, err := c.Publish(ctx, "big", fmt.Appendf(nil, "generation %d record %d %s", generation, i, strings.Repeat("x", 200<<10)))
			if err != nil || int(ack.Offset) != i {
				t.Fatalf("generation %d: %+v, %v, want offset %d", generation, ack, err, i)
			}
		}
		if settled() {
			t.Fatalf("10 MiB take %+v", b.Stats().Lanes[0])
		}
		check := func(what string) {
			t.Helper()
			for at := client.Offset(0); at < 50; {
				page, err := c.ReadPage(ctx, "big", 0, at, client.ReadOptions{})
				if err != nil || len(page.Records) == 0 {
					t.Fatalf("%s, generation %d at %d: %v", what, generation, at, err)
				}
				for _, r := range page.Records {
					if !strings.HasPrefix(string(r.Data), fmt.Sprintf("generation %d record %d ", generation, at)) {
						t.Fatalf("%s: %.40q at %d of generation %d", what, r.Data, at, generation)
					}
					at++
				}
			}
			if _, err := c.ReadPage(ctx, "big", 0, 51, client.ReadOptions{}); err == nil {
				t.Errorf("%s: there is more than was published", what)
			}
		}
		check("before a restart")
		restart := func() {
			t.Helper()
			c.Close()
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = mustStart(t, config)
			c = mustDial(t, b)
		}
		restart()
		check("after a restart")
		if err := b.Catalog().DeleteStream(ctx, DefaultName, DefaultName, "big"); err != nil {
			t.Fatal(err)
		}
		if generation == 1 {
			restart() // what a lane had not yet forgotten it forgets now
		}
		wait(fmt.Sprintf("generation %d is deleted", generation))
	}
	page, err := c.ReadPage(ctx, "beside", 0, 0, client.ReadOptions{})
	if err != nil || len(page.Records) != 1 || string(page.Records[0].Data) != "kept" {
		t.Errorf("the stream beside it: %+v, %v", page, err)
	}
}
