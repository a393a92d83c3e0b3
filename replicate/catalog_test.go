package replicate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

func TestStreamsAreCreatedOnce(t *testing.T) {
	ctx := context.Background()
	b := newBroker(t, options{cores: 2})
	c := b.catalog
	cfg := StreamConfig{Tenant: "t1", Namespace: "default", Name: "updates", Shards: 4}
	if _, _, err := c.CreateStream(ctx, cfg); !errors.Is(err, ErrNotFound) {
		t.Fatalf("without its tenant: %v", err)
	}
	if _, _, err := c.CreateNamespace(ctx, "t1", "default", ""); !errors.Is(err, ErrNotFound) {
		t.Fatalf("namespace without its tenant: %v", err)
	}
	tn, created, err := c.CreateTenant(ctx, "t1", "One")
	if err != nil || !created || tn != (Tenant{"t1", "One", 1}) {
		t.Fatal(tn, created, err)
	}
	ns, created, err := c.CreateNamespace(ctx, "t1", "default", "")
	if err != nil || !created || ns != (Namespace{"t1", "default", "", 2}) {
		t.Fatal(ns, created, err)
	}
	s, created, err := c.CreateStream(ctx, cfg)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	check(t, "generation", s.Generation, 3)
	check(t, "shards", len(s.Shards), 4)
	check(t, "replication factor", s.Config.ReplicationFactor, 1)
	for i, shard := range s.Shards {
		check(t, "index", shard.Index(), uint32(i))
		check(t, "stream", shard.Stream(), s)
	}
	check(t, "resolved", c.Resolve([]byte("t1"), []byte("default"), []byte("updates")), s)
	for _, names := range [][3]string{{"t1", "default", "update"}, {"default", "t1", "updates"}, {"", "", ""}, {"t1default", "", "updates"}} {
		check(t, "resolved "+fmt.Sprint(names), c.Resolve([]byte(names[0]), []byte(names[1]), []byte(names[2])), nil)
	}

	// Again: exists, and takes no revision.
	if _, created, err := c.CreateTenant(ctx, "t1", "One"); created || err != nil {
		t.Fatal(created, err)
	}
	if _, created, err := c.CreateTenant(ctx, "t1", ""); created || err != nil {
		t.Fatal(created, err)
	}
	if again, created, err := c.CreateStream(ctx, cfg); again != s || created || err != nil {
		t.Fatal(again, created, err)
	}
	var conflict *ConflictError
	if _, _, err := c.CreateTenant(ctx, "t1", "Two"); !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*StreamConfig){
		"shards":             func(c *StreamConfig) { c.Shards = 5 },
		"routing":            func(c *StreamConfig) { c.Routing = wire.RoutingJumpHash },
		"kind":               func(c *StreamConfig) { c.Kind = KindQueue },
		"on_slow":            func(c *StreamConfig) { c.OnSlow = fanout.Block },
		"max age":            func(c *StreamConfig) { c.Retention.MaxAge = time.Hour },
		"max size":           func(c *StreamConfig) { c.Retention.MaxSizeBytes = 1 },
		"replication factor": func(c *StreamConfig) { c.ReplicationFactor = 3 },
		"consistency":        func(c *StreamConfig) { c.Consistency = ConsistencyQuorum },
		"delivery":           func(c *StreamConfig) { c.Delivery = AtMostOnce },
		"region":             func(c *StreamConfig) { c.Region = "eu" },
	} {
		other := cfg
		change(&other)
		conflict = nil
		if _, _, err := c.CreateStream(ctx, other); !errors.As(err, &conflict) || conflict.Field != field || !strings.Contains(err.Error(), "t1/default/updates") {
			t.Errorf("%s: %v", field, err)
		}
	}
	check(t, "revision", c.Revision(), 3)
	check(t, "counts", c.Counts(), Counts{Tenants: 1, Namespaces: 1, Streams: 1, Shards: 4})
}

func TestConfigurationsAreChecked(t *testing.T) {
	ctx := context.Background()
	b := newBroker(t, options{})
	b.stream(StreamConfig{Name: "ok"})
	for want, cfg := range map[string]StreamConfig{
		"no log to keep records in": {Name: "s", Durable: true},
		"use 1 to 1024":             {Name: "s", Shards: 1025},
		"reads a log on disk":       {Name: "s", OnSlow: fanout.CatchUp},
		"on_slow is 9":              {Name: "s", OnSlow: 9},
		"routing is 7":              {Name: "s", Routing: 7},
		"kind is 7":                 {Name: "s", Kind: 7},
		"consistency is 7":          {Name: "s", Consistency: 7},
		"delivery is 7":             {Name: "s", Delivery: 7},
		"use at least 1s":           {Name: "s", Retention: Retention{MaxAge: time.Millisecond}},
		"max size is -1 bytes":      {Name: "s", Retention: Retention{MaxSizeBytes: -1}},
		"it is empty":               {Name: ""},
	} {
		cfg.Tenant, cfg.Namespace = "t", "n"
		_, _, err := b.catalog.CreateStream(ctx, cfg)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
	_, _, err := b.catalog.CreateStream(ctx, StreamConfig{Tenant: "t", Namespace: "n", Name: "-", Durable: true, Shards: 5000})
	for _, want := range []string{"begin with a letter", "log", "5000"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("every problem at once: %v", err)
		}
	}
	for _, shards := range []uint32{1, 1024} {
		s := b.stream(StreamConfig{Name: fmt.Sprint("s", shards), Shards: shards})
		check(t, "shards", len(s.Shards), int(shards))
	}
	check(t, "streams", b.catalog.Counts().Streams, 3)
}

func TestNamesAreChecked(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "9": true, "a-_.": true, "A.b": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, "-a": false, "_a": false, "a/b": false, "a b": false, "a\x00": false, "\x00": false,
		"ä": false, "aä": false, "a\xff": false, strings.Repeat("a", 129): false, strings.Repeat("a", 300): false,
	} {
		err := checkName("stream", name)
		if (err == nil) != ok || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "stream name")) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestEnsure(t *testing.T) {
	ctx := context.Background()
	t.Run("off", func(t *testing.T) {
		c := newBroker(t, options{}).catalog
		_, err := c.Ensure(ctx, "t1", "default", "s")
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "stream not found") {
			t.Fatal(err)
		}
		check(t, "counts", c.Counts(), Counts{})
		check(t, "revision", c.Revision(), 0)
	})
	t.Run("on", func(t *testing.T) {
		c := newBroker(t, options{catalog: CatalogConfig{AutoCreate: true, DevShards: 3, MaxAutoStreams: 2}}).catalog
		s, err := c.Ensure(ctx, "t1", "default", "s")
		if err != nil {
			t.Fatal(err)
		}
		check(t, "shards", s.Config.Shards, 3)
		again, err := c.Ensure(ctx, "t1", "default", "s")
		if again != s || err != nil {
			t.Fatal(err)
		}
		check(t, "counts", c.Counts(), Counts{1, 1, 1, 1, 3})
		for _, bad := range [][3]string{{"", "n", "s"}, {"t", "..", "s"}, {"t", "n", "a/b"}} {
			if _, err := c.Ensure(ctx, bad[0], bad[1], bad[2]); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if _, err := c.Ensure(ctx, "t2", "default", "s"); err != nil {
			t.Fatal(err)
		}
		revision := c.Revision()
		var limit *LimitError
		if _, err := c.Ensure(ctx, "t3", "default", "s"); !errors.As(err, &limit) || limit.Limit != 2 {
			t.Fatal(err)
		}
		check(t, "revision after a refusal", c.Revision(), revision)
		if _, created, err := c.CreateStream(ctx, StreamConfig{Tenant: "t1", Namespace: "default", Name: "explicit"}); !created || err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteStream(ctx, "t1", "default", "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "s"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "deleted") {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "another"); err != nil {
			t.Fatal(err)
		}
		back, created, err := c.CreateStream(ctx, StreamConfig{Tenant: "t1", Namespace: "default", Name: "s"})
		if err != nil || !created || back == s || back.ID == s.ID || back.Generation <= s.Generation {
			t.Fatal(back, created, err)
		}
		if got, err := c.Ensure(ctx, "t1", "default", "s"); got != back || err != nil {
			t.Fatal(err)
		}
		check(t, "auto", c.Counts().AutoStreams, 2)
	})
	t.Run("a deleted tenant stays away with all that was in it", func(t *testing.T) {
		c := newBroker(t, options{catalog: CatalogConfig{AutoCreate: true}}).catalog
		if _, err := c.Ensure(ctx, "t1", "default", "s"); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteTenant(ctx, "t1"); err != nil {
			t.Fatal(err)
		}
		check(t, "counts", c.Counts(), Counts{})
		if _, err := c.Ensure(ctx, "t1", "other", "s"); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, _, err := c.CreateTenant(ctx, "t1", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "s"); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "other", "s"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.CreateNamespace(ctx, "t1", "default", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "new"); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteNamespace(ctx, "t1", "default"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "new"); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := c.Ensure(ctx, "t1", "default", "another"); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		check(t, "counts", c.Counts(), Counts{1, 1, 1, 1, 1})
	})
}

func TestTombstonesAreBounded(t *testing.T) {
	var g tombstones
	g.add("kept")
	for i := range maxTombstones - 1 {
		g.add(fmt.Sprint(i))
	}
	check(t, "has the oldest", g.has("kept"), true)
	g.add("one more")
	check(t, "has the oldest", g.has("kept"), false)
	check(t, "has the newest", g.has("one more"), true)
	for range 5 * maxTombstones { // deleted and created in turn
		g.add("again")
		g.remove("again")
	}
	check(t, "has", g.has("again"), false)
	if len(g.order) > 2*maxTombstones || len(g.at) > maxTombstones {
		t.Fatalf("%d and %d entries", len(g.order), len(g.at))
	}
}

func TestCatalogLimits(t *testing.T) {
	ctx := context.Background()
	c := newBroker(t, options{catalog: CatalogConfig{MaxTenants: 2, MaxNamespaces: 3, MaxStreams: 4, MaxAllShards: 10}}).catalog
	limit := func(what string, err error) {
		t.Helper()
		var l *LimitError
		if !errors.As(err, &l) || l.What != what || l.Error() == "" {
			t.Fatalf("want the limit of %s, got %v", what, err)
		}
	}
	for i := range 2 {
		_, _, err := c.CreateTenant(ctx, fmt.Sprint("t", i), "")
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := c.CreateTenant(ctx, "t9", "")
	limit("tenants", err)
	for i := range 3 {
		if _, _, err := c.CreateNamespace(ctx, fmt.Sprint("t", i%2), fmt.Sprint("n", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = c.CreateNamespace(ctx, "t0", "n9", "")
	limit("namespaces", err)
	_, _, err = c.CreateStream(ctx, StreamConfig{Tenant: "t0", Namespace: "n0", Name: "wide", Shards: 11})
	limit("shards of all streams", err)
	for i := range 4 {
		if _, _, err := c.CreateStream(ctx, StreamConfig{Tenant: "t0", Namespace: "n0", Name: fmt.Sprint("s", i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = c.CreateStream(ctx, StreamConfig{Tenant: "t0", Namespace: "n0", Name: "s9"})
	limit("streams", err)
	if err := c.DeleteTenant(ctx, "t0"); err != nil {
		t.Fatal(err)
	}
	check(t, "counts", c.Counts(), Counts{Tenants: 1, Namespaces: 1})
}

func TestListsAreSortedAndPaged(t *testing.T) {
	ctx := context.Background()
	b := newBroker(t, options{})
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("s%02d", i*7%25)
		b.stream(StreamConfig{Name: name})
		want = append(want, name)
	}
	slices.Sort(want)
	var got []string
	pages, after := 0, ""
	for {
		list, next, err := b.catalog.Streams("t", "n", Page{Limit: 10, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			got = append(got, s.Config.Name)
		}
		pages++
		if next == "" {
			break
		}
		if err := b.catalog.DeleteStream(ctx, "t", "n", next); err != nil { // a cursor outlives its name
			t.Fatal(err)
		}
		after = next
	}
	check(t, "pages", pages, 3)
	check(t, "names", strings.Join(got, " "), strings.Join(want, " "))
	if _, _, err := b.catalog.Streams("t", "x", Page{}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	tenants, next, err := b.catalog.Tenants(Page{})
	if err != nil || len(tenants) != 1 || next != "" {
		t.Fatal(tenants, next, err)
	}
	namespaces, next, err := b.catalog.Namespaces("t", Page{Limit: 1 << 30})
	if err != nil || len(namespaces) != 1 || next != "" {
		t.Fatal(namespaces, next, err)
	}
	if _, _, err := b.catalog.Namespaces("x", Page{}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	seen := 0
	b.catalog.EachStream(func(*Stream) bool { seen++; return seen < 20 })
	check(t, "streams seen", seen, 20)
}

func TestPatch(t *testing.T) {
	ctx := context.Background()
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s"})
	block, catchUp := fanout.Block, fanout.CatchUp
	revision := b.catalog.Revision()
	got, err := b.catalog.PatchStream(ctx, "t", "n", "s", Patch{OnSlow: &block})
	if err != nil || got != s {
		t.Fatal(err)
	}
	check(t, "settings", s.Settings(), Settings{OnSlow: fanout.Block, Revision: revision + 1})
	if _, err := b.catalog.PatchStream(ctx, "t", "n", "s", Patch{OnSlow: &block}); err != nil {
		t.Fatal(err)
	}
	check(t, "revision after no change", b.catalog.Revision(), revision+1)
	for _, p := range []Patch{{OnSlow: &catchUp}, {Retention: &Retention{MaxAge: 1}}} {
		if _, err := b.catalog.PatchStream(ctx, "t", "n", "s", p); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	if _, err := b.catalog.PatchStream(ctx, "t", "n", "x", Patch{}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	// A repeated create asks for what there is now.
	cfg := StreamConfig{Tenant: "t", Namespace: "n", Name: "s", OnSlow: fanout.Block}
	if _, created, err := b.catalog.CreateStream(ctx, cfg); created || err != nil {
		t.Fatal(created, err)
	}
	if _, err := b.catalog.Stream("t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{b.catalog.DeleteStream(ctx, "t", "n", "x"), b.catalog.DeleteNamespace(ctx, "t", "x"), b.catalog.DeleteTenant(ctx, "x")} {
		if !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// The shards of a stream spread evenly, and so do the only shards of many streams.
func TestShardsAreDealtEvenly(t *testing.T) {
	for _, cores := range []int{1, 2, 3, 4} {
		b := newBroker(t, options{cores: cores})
		wide := b.stream(StreamConfig{Name: "wide", Shards: 48})
		owned := make([]int, cores)
		for _, s := range wide.Shards {
			owned[s.Owner()]++
		}
		for _, n := range owned {
			check(t, "shards of a core", n, 48/cores)
		}
		clear(owned)
		const streams = 400
		for i := range streams {
			owned[b.stream(StreamConfig{Name: fmt.Sprint("s", i)}).Shards[0].Owner()]++
		}
		for _, n := range owned {
			if n < streams/cores*3/4 || n > streams/cores*5/4 {
				t.Errorf("%v streams per core", owned)
			}
		}
	}
}

func TestShardForFollowsTheRouting(t *testing.T) {
	b := newBroker(t, options{})
	for _, routing := range []wire.Routing{wire.RoutingModulo, wire.RoutingJumpHash} {
		s := b.stream(StreamConfig{Name: "s" + routing.String(), Shards: 12, Routing: routing})
		check(t, "without a key", s.ShardFor(nil, false).Index(), 0)
		for _, key := range []string{"", "a", "k0", "customer-1"} {
			check(t, key, s.ShardFor([]byte(key), true).Index(), wire.ShardOf(routing, []byte(key), true, 12))
		}
	}
}

// Deleting waits for the loops, but not longer than its context, and goes on without it.
func TestDeleteIsBoundedByTheContext(t *testing.T) {
	b := newBroker(t, options{})
	s := b.stream(StreamConfig{Name: "s"}).Shards[0]
	b.append(s, &Append{Records: records(0, 1), Count: 1})
	release, busy := make(chan struct{}), make(chan struct{})
	if err := s.host.loop.PostOffCore(core.Func(func(*core.Loop) { close(busy); <-release })); err != nil {
		t.Fatal(err)
	}
	<-busy
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- b.catalog.DeleteStream(ctx, "t", "n", "s") }()
	for b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s")) != nil {
		runtime.Gosched()
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	b.on(s, func(*core.Loop) {})
	b.on(s, func(*core.Loop) { check(t, "gone", s.gone, true) })
	if err := b.catalog.DeleteTenant(ctx, "t"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	check(t, "tenants", b.catalog.Counts().Tenants, 1)
}

func TestDeleteAfterTheLoopsHaveEnded(t *testing.T) {
	b := newBroker(t, options{})
	b.stream(StreamConfig{Name: "s"})
	b.group.Close()
	if err := b.catalog.DeleteTenant(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
}

// Readers resolve while streams come and go: they see a stream whole or not at all, and never an old one after its deletion returned.
func TestResolveDuringChanges(t *testing.T) {
	ctx := context.Background()
	b := newBroker(t, options{cores: 2, catalog: CatalogConfig{AutoCreate: true}})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s := b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s")); s != nil && len(s.Shards) != 2 {
					t.Error("half a stream")
					return
				}
			}
		})
	}
	for range 200 {
		s := b.stream(StreamConfig{Name: "s", Shards: 2})
		check(t, "resolved", b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s")), s)
		if err := b.catalog.DeleteStream(ctx, "t", "n", "s"); err != nil {
			t.Fatal(err)
		}
		check(t, "resolved", b.catalog.Resolve([]byte("t"), []byte("n"), []byte("s")), nil)
	}
	close(stop)
	wg.Wait()
}

func TestEnumNames(t *testing.T) {
	for k := KindStream; k <= KindQueue; k++ {
		got, ok := ParseKind(k.String())
		check(t, k.String(), got, k)
		check(t, "ok", ok, true)
	}
	for k := ConsistencyLeader; k <= ConsistencyQuorum; k++ {
		got, _ := ParseConsistency(k.String())
		check(t, k.String(), got, k)
	}
	for k := AtLeastOnce; k <= AtMostOnce; k++ {
		got, _ := ParseDelivery(k.String())
		check(t, k.String(), got, k)
	}
	if _, ok := ParseKind("stream"); ok {
		t.Error("parsed an unknown kind")
	}
	for _, s := range []fmt.Stringer{Kind(9), Consistency(9), Delivery(9), Outcome(99), Overloaded} {
		if s.String() == "" {
			t.Error("no name")
		}
	}
}
