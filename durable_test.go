package felix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
