package replicate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

// describe is the catalog as a person would compare it.
func describe(c *Catalog) string {
	var b bytes.Buffer
	tenants, _, _ := c.Tenants(Page{})
	for _, t := range tenants {
		fmt.Fprintln(&b, t)
		namespaces, _, _ := c.Namespaces(t.Name, Page{})
		for _, n := range namespaces {
			fmt.Fprintln(&b, " ", n)
			streams, _, _ := c.Streams(t.Name, n.Name, Page{})
			for _, s := range streams {
				fmt.Fprintf(&b, "    %d %d %+v %+v", s.ID, s.Generation, s.current(), s.Settings())
				for _, shard := range s.Shards {
					if shard.log != nil {
						fmt.Fprint(&b, " ", shard.log.lane.id)
					}
				}
				fmt.Fprintln(&b)
			}
		}
	}
	return b.String()
}

func TestCatalogSurvives(t *testing.T) {
	ctx := t.Context()
	d := durable{dir: t.TempDir(), lanes: 3, journal: &memoryJournal{}}
	o := options{cores: 2, catalog: CatalogConfig{AutoCreate: true, DefaultFsync: wal.Periodic, MaxAutoStreams: 5}}
	b := openBroker(t, o, d)
	c := b.catalog
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(tenant, namespace string, cfg StreamConfig) *Stream {
		t.Helper()
		cfg.Tenant, cfg.Namespace = tenant, namespace
		_, _, err := c.CreateTenant(ctx, tenant, "")
		must(err)
		_, _, err = c.CreateNamespace(ctx, tenant, namespace, "")
		must(err)
		s, _, err := c.CreateStream(ctx, cfg)
		must(err)
		return s
	}
	_, _, err := c.CreateTenant(ctx, "a", "The A")
	must(err)
	s := create("a", "x", StreamConfig{Name: "one", Durable: true, Shards: 12, Routing: wire.RoutingJumpHash, Kind: KindQueue, Delivery: AtMostOnce,
		Consistency: ConsistencyQuorum, Region: "eu", ReplicationFactor: 3, Retention: Retention{MaxAge: time.Hour, MaxSizeBytes: 5}})
	check(t, "fsync mode", s.Settings().FsyncMode, wal.Periodic)
	loads := map[uint64]int{}
	for _, shard := range s.Shards {
		loads[shard.log.lane.id]++
	}
	check(t, "shards by lane", fmt.Sprint(loads), "map[0:2 1:2 2:2 3:2 4:2 5:2]")
	s = create("a", "x", StreamConfig{Name: "two", Durable: true, FsyncGiven: true, OnSlowGiven: true})
	check(t, "settings", fmt.Sprint(s.Settings().OnSlow, s.Settings().FsyncMode), "drop_new on_commit")
	memory := create("a", "x", StreamConfig{Name: "three", OnSlow: fanout.Block})
	for _, p := range []Patch{{FsyncMode: new(wal.Mode)}, {OnSlow: ptr(fanout.CatchUp), FsyncMode: ptr(wal.None), Retention: &Retention{MaxAge: time.Minute}}} {
		_, err = c.PatchStream(ctx, "a", "x", "two", p)
		must(err)
	}
	_, err = c.PatchStream(ctx, "a", "x", "three", Patch{OnSlow: ptr(fanout.DropOld)})
	must(err)
	if _, err := c.PatchStream(ctx, "a", "x", "three", Patch{FsyncMode: ptr(wal.None)}); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := c.PatchStream(ctx, "a", "x", "three", Patch{OnSlow: ptr(fanout.CatchUp)}); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := c.PatchStream(ctx, "a", "x", "two", Patch{FsyncMode: ptr(wal.Mode(7))}); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	create("b", "y", StreamConfig{Name: "gone", Durable: true})
	create("b", "z", StreamConfig{Name: "gone", Durable: true})
	create("b", "z", StreamConfig{Name: "kept"})
	must(c.DeleteNamespace(ctx, "b", "y"))
	must(c.DeleteStream(ctx, "b", "z", "gone"))
	create("c", "z", StreamConfig{Name: "gone", Durable: true})
	must(c.DeleteTenant(ctx, "c"))
	want := describe(c)

	// On first use, in memory: leaves nothing behind, unless it is asked for by name.
	for _, name := range []string{"e1", "e2"} {
		_, err = c.Ensure(ctx, "auto", "auto", name)
		must(err)
		_, err = c.Ensure(ctx, "a", "x", name)
		must(err)
	}
	if _, err := c.Ensure(ctx, "b", "y", "gone"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	lastID := c.lastID
	b.close()

	journal := d.journal.records
	for round := range 3 {
		b = openBroker(t, o, d)
		c = b.catalog
		if got := describe(c); got != want {
			t.Fatalf("round %d:\n%s\nwant\n%s", round, got, want)
		}
		if c.Revision() < memory.Generation {
			t.Fatalf("revision %d", c.Revision())
		}
		for _, names := range [][3]string{{"b", "y", "gone"}, {"b", "z", "gone"}, {"c", "z", "gone"}} {
			if _, err := c.Ensure(ctx, names[0], names[1], names[2]); !errors.Is(err, ErrNotFound) {
				t.Fatalf("round %d: %v: %v", round, names, err)
			}
		}
		check(t, "orphans", len(c.Orphans()), 0)
		// From a snapshot, too.
		if err := c.Compact(func(records [][]byte) error { d.journal.records = records; return nil }); err != nil {
			t.Fatal(err)
		}
		check(t, "records of a snapshot", len(c.Snapshot()), len(d.journal.records))
		for _, r := range d.journal.records {
			if !json.Valid(r) || bytes.ContainsRune(r, '\n') {
				t.Fatalf("%s", r)
			}
		}
		b.close()
	}
	b = openBroker(t, o, d)
	if id := create0(t, b, "fresh").ID; id <= memory.ID || id <= s.ID {
		t.Fatalf("id %d is used again", id)
	}
	b.close()
	_ = lastID
	// A prefix of the journal is a catalog, too, and what comes after goes on from there.
	for n := range journal {
		d := durable{dir: t.TempDir(), lanes: 3, journal: &memoryJournal{records: journal[:n:n]}}
		openBroker(t, o, d).close()
	}
}

func ptr[T any](v T) *T { return &v }

func create0(t testing.TB, b *broker, name string) *Stream {
	t.Helper()
	return b.stream(StreamConfig{Name: name, Durable: true})
}

func TestStreamsOfFirstUse(t *testing.T) {
	ctx := t.Context()
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	o := options{catalog: CatalogConfig{AutoCreate: true, DevDurable: true, DevOnSlow: fanout.DropOld, DevShards: 2}}
	b := openBroker(t, o, d)
	s, err := b.catalog.Ensure(ctx, "t", "n", "s")
	if err != nil {
		t.Fatal(err)
	}
	check(t, "durable", s.Config.Durable, true)
	check(t, "on_slow", s.Settings().OnSlow, fanout.CatchUp)
	b.publish(s.Shards[1], &Append{Records: records(0, 3), Count: 3})
	b.close()
	b = openBroker(t, o, d)
	again := b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s"))
	check(t, "id", again.ID, s.ID)
	check(t, "counts", b.catalog.Counts(), Counts{Tenants: 1, Namespaces: 1, Streams: 1, AutoStreams: 1, Shards: 2})
	checkReads(t, again.Shards[1], 0, 3)
	b.close()

	// In memory on first use, and then created by name: it stays.
	o.catalog.DevDurable = false
	b = openBroker(t, o, d)
	if _, err := b.catalog.Ensure(ctx, "u", "n", "s"); err != nil {
		t.Fatal(err)
	}
	before := len(d.journal.records)
	check(t, "created", fmt.Sprint(createdAgain(t, b.catalog, "u", "n", "s", fanout.DropOld)), "[false false false]")
	check(t, "records", len(d.journal.records)-before, 3)
	check(t, "created", fmt.Sprint(createdAgain(t, b.catalog, "u", "n", "s", fanout.DropOld)), "[false false false]")
	check(t, "records", len(d.journal.records)-before, 3)
	check(t, "counts", b.catalog.Counts().AutoStreams, 1)
	b.close()
	b = openBroker(t, o, d)
	if b.catalog.Resolve([]byte("u"), []byte("n"), []byte("s")) == nil {
		t.Fatal("gone")
	}
}

func createdAgain(t testing.TB, c *Catalog, tenant, namespace, name string, onSlow fanout.Policy) (created [3]bool) {
	t.Helper()
	var errs [3]error
	_, created[0], errs[0] = c.CreateTenant(t.Context(), tenant, "")
	_, created[1], errs[1] = c.CreateNamespace(t.Context(), tenant, namespace, "")
	_, created[2], errs[2] = c.CreateStream(t.Context(), StreamConfig{Tenant: tenant, Namespace: namespace, Name: name, Shards: 2, OnSlow: onSlow})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return created
}

func TestFailedJournalChangesNothing(t *testing.T) {
	ctx := t.Context()
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	b := openBroker(t, options{catalog: CatalogConfig{AutoCreate: true, DevDurable: true}}, d)
	b.stream(StreamConfig{Name: "s", Durable: true})
	before, counts := describe(b.catalog), b.catalog.Counts()
	revision := b.catalog.Revision()
	d.journal.fail = errors.New("no disk")
	_, _, err1 := b.catalog.CreateTenant(ctx, "x", "")
	_, _, err2 := b.catalog.CreateNamespace(ctx, "t", "x", "")
	_, _, err3 := b.catalog.CreateStream(ctx, StreamConfig{Tenant: "t", Namespace: "n", Name: "x", Durable: true})
	_, err4 := b.catalog.PatchStream(ctx, "t", "n", "s", Patch{FsyncMode: ptr(wal.None)})
	err5 := b.catalog.DeleteStream(ctx, "t", "n", "s")
	err6 := b.catalog.DeleteNamespace(ctx, "t", "n")
	err7 := b.catalog.DeleteTenant(ctx, "t")
	_, err8 := b.catalog.Ensure(ctx, "y", "n", "s")
	_, err9 := b.catalog.Ensure(ctx, "t", "y", "s")
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9} {
		if !errors.Is(err, ErrJournal) || !errors.Is(err, d.journal.fail) {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	check(t, "catalog", describe(b.catalog), before)
	if b.catalog.Revision() < revision+9 { // each record may be there
		t.Errorf("revision %d after %d and 9 failures", b.catalog.Revision(), revision)
	}
	check(t, "counts", b.catalog.Counts(), counts)
	d.journal.fail = nil
	// A record that was kept although its command was refused: the same name again is another stream, and that one is the stream.
	kept := entry{Revision: b.catalog.revision, Op: opCreateStream, Tenant: "t", Namespace: "n", Stream: "x", ID: b.catalog.lastID}
	kept.Config, kept.Settings = createEntry(b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s"))).Config, settingsEntry(Settings{})
	d.journal.records = append(d.journal.records, kept.encode())
	x := create0(t, b, "x")
	b.publish(x.Shards[0], &Append{Records: records(0, 1), Count: 1})
	b.close()
	b = openBroker(t, options{}, d)
	check(t, "id", create0(t, b, "x").ID, x.ID)
	check(t, "orphans", len(b.catalog.Orphans()), 0)
}

func TestRestoreRefuses(t *testing.T) {
	for record, want := range map[string]string{
		`{"op":"fly"}`:                  `op "fly" is unknown`,
		`{`:                             "unexpected end",
		`{"op":"create_stream","id":1}`: "configuration",
		`{"op":"create_stream","stream":"s","tenant":"t","namespace":"n","id":1,"config":{"shards":1,"durable":true,"lanes":[77],"kind":"Stream","consistency":"Leader","delivery":"AtLeastOnce"},"settings":{"on_slow":"block","fsync_mode":"none"}}`: "lane 77",
		`{"op":"create_stream","stream":"s","tenant":"t","namespace":"n","id":1,"config":{"shards":2,"durable":true,"lanes":[0],"kind":"Stream","consistency":"Leader","delivery":"AtLeastOnce"},"settings":{"on_slow":"block","fsync_mode":"none"}}`:  "2 shards and 1 lanes",
		`{"op":"create_stream","stream":"s","tenant":"t","namespace":"n","id":1,"config":{"shards":1,"kind":"Fish"},"settings":{"on_slow":"block","fsync_mode":"none"}}`:                                                                               "Fish",
		`{"op":"create_stream","stream":"s","tenant":"t","namespace":"n","id":1,"config":{"shards":1},"settings":{"on_slow":"sleep","fsync_mode":"none"}}`:                                                                                             "sleep",
	} {
		h, _ := idleBroker(t, HostConfig{})
		c := NewCatalog(CatalogConfig{Hosts: []*Host{h}})
		c.lanes = append(c.lanes, &hostLane{})
		err := c.Restore([][]byte{[]byte(record)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "catalog record 1 of 1") {
			t.Errorf("%s: %v", record, err)
		}
	}
}

// What is in a lane and in no record stays there, is told, and its id is not used again.
func TestOrphansAreReported(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 2})
	for _, shard := range s.Shards {
		b.publish(shard, &Append{Records: records(0, 3), Count: 3})
	}
	b.close()
	d.journal = &memoryJournal{} // lost
	for range 2 {
		b = openBroker(t, options{}, d)
		check(t, "orphans", fmt.Sprint(b.catalog.Orphans()), fmt.Sprint([]Orphan{{0, s.ID, 0, 0, 3}, {0, s.ID, 1, 0, 3}}))
		fresh := b.stream(StreamConfig{Name: "s", Durable: true})
		if fresh.ID <= s.ID {
			t.Fatalf("id %d again", fresh.ID)
		}
		b.close()
	}
}

// A deletion that was recorded and had not reached the lane is made good.
func TestDeletionIsMadeGood(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true})
	b.publish(s.Shards[0], &Append{Records: records(0, 3), Count: 3})
	before := copyDir(t, d.dir)
	if err := b.catalog.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	d.journal.records = b.catalog.Snapshot() // the lane may not have done it by then, or it has: both are fine
	d.journal.records = append(d.journal.records, (&entry{Op: opDeletedStream, ID: s.ID}).encode())
	b.close()
	d.dir = before
	b = openBroker(t, options{}, d)
	check(t, "orphans", len(b.catalog.Orphans()), 0)
	other := b.stream(StreamConfig{Name: "other", Durable: true}).Shards[0]
	b.eventually(other, "deleted in the lane", func(l *core.Loop) bool {
		_, known := other.log.lane.lane.End(s.Shards[0].log.id)
		return !known
	})
	b.eventually(other, "not in snapshots any more", func(*core.Loop) bool {
		b.catalog.Snapshot()
		return len(b.catalog.dying) == 0
	})
	b.close()
}
