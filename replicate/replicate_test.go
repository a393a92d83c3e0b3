package replicate

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A broker is what package felix would put together: loops, hosts and a catalog.
type broker struct {
	t       testing.TB
	group   *core.Group
	slabs   *fanout.Slabs
	hosts   []*Host
	catalog *Catalog
	clock   atomic.Int64 // nanoseconds; moved by the test
	closed  bool         // of brokers with lanes
}

type options struct {
	cores   int
	host    HostConfig
	catalog CatalogConfig
	unowned bool // no owner checks: they take a microsecond
}

func newBroker(t testing.TB, o options) *broker {
	t.Helper()
	b := &broker{t: t, slabs: fanout.NewSlabs(fanout.SlabsConfig{})}
	b.clock.Store(int64(time.Second))
	group, err := core.NewGroup(core.Config{
		Cores: max(o.cores, 1), CheckOwner: !o.unowned,
		Now: func() time.Duration { return time.Duration(b.clock.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.group = group
	o.host.Slabs = b.slabs
	for _, l := range group.Loops() {
		host := NewHost(l, o.host)
		l.AddAgent(host)
		b.hosts = append(b.hosts, host)
	}
	o.catalog.Hosts = b.hosts
	b.catalog = NewCatalog(o.catalog)
	group.Start()
	t.Cleanup(group.Close)
	return b
}

// stream creates a stream of tenant t, namespace n.
func (b *broker) stream(cfg StreamConfig) *Stream {
	b.t.Helper()
	ctx := context.Background()
	cfg.Tenant, cfg.Namespace = "t", "n"
	if _, _, err := b.catalog.CreateTenant(ctx, "t", ""); err != nil {
		b.t.Fatal(err)
	}
	if _, _, err := b.catalog.CreateNamespace(ctx, "t", "n", ""); err != nil {
		b.t.Fatal(err)
	}
	s, _, err := b.catalog.CreateStream(ctx, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// advance moves the clock and has every loop look at it.
func (b *broker) advance(d time.Duration) {
	b.clock.Add(int64(d))
	for _, l := range b.group.Loops() {
		l.WakeOffCore()
	}
}

// on runs f on the loop of s and returns when the pass it ran in is over, so that what it appended has been offered.
func (b *broker) on(s *Shard, f func(l *core.Loop)) {
	b.t.Helper()
	done := make(chan struct{})
	post := func(f core.Func) {
		if err := s.host.loop.PostOffCore(f); err != nil {
			b.t.Fatal(err)
		}
	}
	post(func(l *core.Loop) { f(l); done <- struct{}{} })
	<-done
	post(func(*core.Loop) { done <- struct{}{} })
	<-done
	post(func(*core.Loop) { done <- struct{}{} }) // the second may have been in the same pass as the first
	<-done
}

// append appends on the shard's loop and returns the answer.
func (b *broker) append(s *Shard, a *Append) *Append {
	b.t.Helper()
	done := make(completion, 1)
	a.Shard, a.Done = s, done
	b.on(s, func(l *core.Loop) { s.Append(l, a) })
	select {
	case <-done:
	default:
	}
	return a
}

// completion is a Completer that hands on what is done.
type completion chan *Append

func (c completion) OnAppended(_ *core.Loop, a *Append) { c <- a }

// records returns count records that begin with their offset, the first of which is base.
func records(base wire.Offset, count int) []byte {
	var b []byte
	for i := range count {
		o := base + wire.Offset(i)
		b = wire.AppendRecord(b, append(binary.BigEndian.AppendUint64(nil, uint64(o)), strings.Repeat("y", int(o%50))...))
	}
	return b
}

// payloads returns a batch of the given payloads.
func payloads(list ...string) *Append {
	a := &Append{Count: uint32(len(list))}
	for _, p := range list {
		a.Records = wire.AppendRecord(a.Records, []byte(p))
	}
	return a
}

func check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want) // not Fatalf: it is called on loops, too
	}
}
