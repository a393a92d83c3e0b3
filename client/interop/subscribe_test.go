package interop

import (
	"strings"
	"testing"
)

// Each place to start from, on a stream that already holds records, with more that follow live.
func TestSubscribe(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		const stream = "starts"
		before, after := numbered("before", 40), numbered("after", 20)
		all := append(append([][]byte{}, before...), after...)
		d.do("publish", command{"stream": stream, "records": before})

		starts := []struct {
			name  string
			start any // nil: the client's own default, latest
			from  int
		}{
			{"default", nil, len(before)},
			{"latest", "latest", len(before)},
			{"earliest", "earliest", 0},
			{"offset", 25, 25},
			{"first", 0, 0},
			{"tail", len(before), len(before)},
		}
		for _, s := range starts {
			d.do("subscribe", command{"name": s.name, "stream": stream, "start": s.start})
		}
		d.do("publish", command{"stream": stream, "records": after})
		for _, s := range starts {
			sameRecords(t, stream, d.next(s.name, len(all)-s.from), uint64(s.from), all[s.from:])
		}
	})
}

// An offset that the stream has not reached, and one that it has discarded, are refused as such; earliest then begins at the oldest record
// that is kept.
func TestSubscribeOutOfRange(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t, "--memory-budget", "512MiB", "--auto-create-memory")
		d := startDriver(t, surface).connect(b, b.Listen)
		const stream = "range"
		d.do("publish", command{"stream": stream, "records": numbered("kept", 3)})

		future := d.fails("CursorError", "subscribe", command{"name": "future", "stream": stream, "start": 1000})
		for _, number := range []string{"1000", "3"} {
			if !strings.Contains(future.Text, number) {
				t.Errorf("the refusal of a future offset does not name %s: %v", number, future)
			}
		}

		// A ring holds 65,536 records.
		const many = 70_000
		b.publish(stream, numbered("pushed out by", many))
		d.fails("CursorError", "subscribe", command{"name": "old", "stream": stream, "start": 0})
		d.do("subscribe", command{"name": "earliest", "stream": stream, "start": "earliest"})
		oldest := d.next("earliest", 1)[0]
		if oldest.Offset == nil || *oldest.Offset == 0 || *oldest.Offset >= 3+many-60_000 {
			t.Fatalf("earliest begins at %s; want about 65,536 records before %d", show(oldest.Offset), 3+many)
		}
		want := numbered("pushed out by", many)[*oldest.Offset-3:][:1000]
		sameRecords(t, stream, append([]event{oldest}, d.next("earliest", 999)...), *oldest.Offset, want)
	})
}

// A subscriber that does not read is paced, not cut off: the client's own queue holds 256 events, and what follows waits for room.
func TestSubscriberThatDoesNotReadLosesNothing(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		const stream = "paced"
		b.create(streamConfig{Stream: stream, Shards: 1, OnSlow: "block"})
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "latest"})
		records := random("paced", 3000)
		b.publish(stream, records)
		sameRecords(t, stream, d.next("s", len(records)), 0, records)
		if dropped := b.metric("felix_sub_records_dropped_total")[""]; dropped != 0 {
			t.Errorf("the broker dropped %v records", dropped)
		}
		// A subscription that was cut off at 256 events would have been made again.
		if n := b.metric("felix_subscribe_requests_total")[`result="ok"`]; n != 1 {
			t.Errorf("there were %v subscriptions, want 1", n)
		}
	})
}

// First use of a name makes the stream, whichever request comes first.
func TestFirstUseCreates(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t, "--dev-shards", "4")
		d := startDriver(t, surface).connect(b, b.Listen)
		if n := d.do("stream_shards", command{"stream": "asked"}).Shards; n != 4 {
			t.Errorf("a stream that was asked for has %d shards, want 4", n)
		}
		d.do("subscribe", command{"name": "s", "stream": "subscribed"})
		sameOffsets(t, "subscribed", d.do("publish", command{"stream": "subscribed", "records": numbered("r", 2)}).Offsets, 0, 2)
		sameRecords(t, "subscribed", d.next("s", 2), 0, numbered("r", 2))
	})
}

// A deleted stream ends its subscriptions: the reader is told, and does not wait for ever.
func TestDeletedStreamEndsItsSubscriptions(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		const stream = "deleted"
		b.create(streamConfig{Stream: stream, Shards: 2})
		d.do("subscribe", command{"name": "one", "stream": stream, "start": "earliest"})
		d.do("subscribe_sharded", command{"name": "all", "stream": stream, "start": "earliest"})
		d.do("publish", command{"stream": stream, "records": numbered("r", 5)})
		sameRecords(t, stream, d.next("one", 5), 0, numbered("r", 5))
		sameRecords(t, stream, d.next("all", 5), 0, numbered("r", 5))

		one := d.start("next", command{"name": "one", "count": 1, "timeout": patience.Seconds()})
		all := d.start("next", command{"name": "all", "count": 3, "timeout": patience.Seconds()})
		b.remove(stream)
		if a := d.finish(one, "next of one shard"); a.Error != nil || len(a.Events) != 0 || a.Closed == nil || !*a.Closed {
			t.Errorf("the subscription of one shard gave %+v (closed: %s, error: %v), want a clean end", a.Events, show(a.Closed), a.Error)
		}
		a := d.finish(all, "next of all shards")
		deleted := map[uint32]bool{}
		for _, e := range a.Events {
			if e.Kind != "StreamDeleted" {
				t.Errorf("the subscription of all shards gave %+v", e)
			}
			deleted[e.Shard] = true
		}
		if a.Error != nil || len(deleted) != 2 {
			t.Errorf("deletion was told for %d shards, want 2 (error: %v)", len(deleted), a.Error)
		}
	})
}
