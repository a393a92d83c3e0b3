package netio

import (
	"fmt"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
)

func TestPublishAndSubscribe(t *testing.T) {
	for _, cores := range []int{1, 2, 4} {
		for mode, o := range map[string]fixtureOptions{"unpinned": {}, "baton": {baton: true}, "pinned": {pinned: true}} {
			t.Run(fmt.Sprintf("cores=%d/%s", cores, mode), func(t *testing.T) {
				o.cores = cores
				f := start(t, o)
				stream := f.createStream("updates", 8, fanout.Block)
				p := f.connect()
				pub := p.authed()
				const n = 200
				go func() {
					for i := range uint64(n) {
						pub.publish(batch(i+1, "updates", fmt.Sprintf("k%d", i), fmt.Sprintf("payload %d", i), ""))
					}
				}()
				next := make([]wire.Offset, 8)
				for i := range uint64(n) {
					a := pub.ack()
					shard := stream.ShardFor(fmt.Appendf(nil, "k%d", i), true).Index()
					if a.RequestID != i+1 || a.Failed || !a.HasOffset || a.Offset != next[shard] {
						t.Fatalf("ack %+v, want request %d at offset %d", a, i+1, next[shard])
					}
					next[shard] += 2
				}
				total := 0
				for shard := range uint32(8) {
					sub := p.authed()
					sub.send(subscribeTo("updates", shard, wire.StartPosition{Kind: wire.StartEarliest}))
					ok, isOK := sub.message().(*wire.Subscribed)
					if !isOK || ok.StartOffset != 0 || ok.LiveOffset != wire.LiveOffsetUnreached+next[shard] {
						t.Fatalf("subscribed: %+v", ok)
					}
					e := p.acceptEvents()
					if e.id != ok.SubscriptionID {
						t.Fatalf("hello for %d, want %d", e.id, ok.SubscriptionID)
					}
					for at := wire.Offset(0); at < next[shard]; {
						ev := e.next()
						if ev.Base != at {
							t.Fatalf("shard %d: frame at %d, want %d", shard, ev.Base, at)
						}
						at += wire.Offset(ev.Count)
						total += int(ev.Count)
					}
				}
				if total != 2*n {
					t.Errorf("%d records delivered, want %d", total, 2*n)
				}
				pub.s.Close()
				pub.mustEnd()
			})
		}
	}
}

// TestRunsKeepTheirMemory fills a run as a busy reader does. The next one like it needs no memory.
func TestRunsKeepTheirMemory(t *testing.T) {
	r := new(run)
	for range 2 {
		r.stream = &stream{conn: &conn{server: new(Server)}}
		before := cap(r.pubs)
		for range maxRunPublishes {
			r.add().requestID = 7
		}
		if before != 0 && cap(r.pubs) != before {
			t.Errorf("the memory of a full run was not kept: capacity %d, then %d", before, cap(r.pubs))
		}
		r.open = 1
		r.finished()
		if len(r.pubs) != 0 || cap(r.pubs) < maxRunPublishes {
			t.Errorf("length %d and capacity %d after use", len(r.pubs), cap(r.pubs))
		}
		if r.add().requestID != 0 {
			t.Error("a publish is not zero at first")
		}
		r.pubs = r.pubs[:0]
	}
}
