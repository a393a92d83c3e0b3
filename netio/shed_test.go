package netio

import (
	"fmt"
	"strings"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
)

// plain is a publish without ack.
func plain(stream, key string, payloads ...string) *wire.Publish {
	b := batch(0, stream, key, payloads...)
	b.Flags &^= wire.FlagPublishAcked
	return b
}

// Without a slot publishes without ack are dropped and counted, and acked ones wait as ever.
func TestShedWithoutASlot(t *testing.T) {
	f := start(t, fixtureOptions{cores: 1, change: func(c *Config) { c.Limits.Slots, c.Limits.ShedUnacked = 1, true }})
	stream := f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	k.publish(plain("updates", "", "kept"))
	waitFor(t, "the first", func() bool { return f.server.Stats().PublishRecords == 1 })
	free := f.fill()
	k.publish(plain("updates", "", "a"))
	k.publish(batch(1, "updates", "", "b"))
	k.publish(plain("updates", "", "c", "d"))
	waitFor(t, "two to be dropped", func() bool { return f.server.Stats().PublishShed == 2 })
	free()
	if a := k.ack(); a.Failed || a.RequestID != 1 || a.Offset != 1 {
		t.Fatalf("ack %+v", a)
	}
	frames, records := stream.Shed()
	s := f.server.Stats()
	if frames != 2 || records != 3 || s.PublishDropped != 2 || s.PublishRecords != 2 || s.SlotsInUse != 0 {
		t.Errorf("%d frames with %d records dropped, stats %+v", frames, records, s)
	}
	if want := []TenantStats{{Tenant: "t1", QueueShed: 2}}; fmt.Sprint(s.Tenants) != fmt.Sprint(want) {
		t.Errorf("tenants %+v, want %+v", s.Tenants, want)
	}
}

// Without bytes they are read off the stream and dropped, whatever their size; acked ones are not read.
func TestShedWithoutBytes(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.ShedUnacked = true }})
	stream := f.createStream("updates", 1, fanout.DropNew)
	k := f.connect().authed()
	all := f.server.limits.IngressBytes
	if err := f.server.bytes.reserve(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{0, 10, 500, 5000, 500_000} {
		k.publish(plain("updates", strings.Repeat("k", size%1000), strings.Repeat("x", size)))
		waitFor(t, "it to be dropped", func() bool { return f.server.Stats().PublishShed == uint64(i+1) })
	}
	k.publish(plain("nowhere", "", "x"))
	k.publish(batch(1, "updates", "", "acked"))
	waitFor(t, "it to be dropped", func() bool { return f.server.Stats().PublishShed == 6 })
	f.server.bytes.release(all)
	if a := k.ack(); a.Failed || a.RequestID != 1 || a.Offset != 0 {
		t.Fatalf("ack %+v", a)
	}
	k.publish(plain("updates", "", "kept"))
	k.publish(batch(2, "updates", "", "x"))
	if a := k.ack(); a.Failed || a.Offset != 2 {
		t.Fatalf("ack %+v", a)
	}
	if frames, records := stream.Shed(); frames != 5 || records != 5 {
		t.Errorf("%d frames with %d records dropped from the stream, want 5", frames, records)
	}
}

// Names are kept apart up to a bound; what is counted is never lost and never falls.
func TestAccountsAreBounded(t *testing.T) {
	var a accounts
	a.init(QuotaConfig{}, nil)
	total := func() (n uint64) {
		for _, s := range a.stats() {
			n += s.QueueShed
		}
		return n
	}
	counted := uint64(0)
	for i := range 3 * maxAccounts {
		t1 := a.enter(fmt.Sprintf("tenant-%d", i))
		t1.counts.queueShed.Add(1)
		counted++
		if i%2 == 0 {
			a.leave(t1)
		}
		if i%100 == 0 && total() != counted {
			t.Fatalf("%d counted, %d told", counted, total())
		}
	}
	list := a.stats()
	if len(list) != maxTenantLabels+1 || list[len(list)-1].Tenant != OverflowTenant || total() != counted || len(a.byName) > maxAccounts {
		t.Errorf("%d names, %d accounts, %d of %d told", len(list), len(a.byName), total(), counted)
	}
	if one, two := a.enter("tenant-0"), a.enter("tenant-0"); one != two {
		t.Error("two accounts of one tenant")
	}
	for _, bad := range []string{"", "a\"b", "line\nbreak", strings.Repeat("x", 200)} {
		if a.enter(bad) != a.overflow {
			t.Errorf("%q has an account of its own", bad)
		}
	}
}
