package interop

import (
	"fmt"
	"maps"
	"testing"

	"felix/netio/wire"
)

// byShard sorts records into shards by their keys.
func byShard(records, keys [][]byte, shards uint32) map[uint32][][]byte {
	sorted := map[uint32][][]byte{}
	for i, record := range records {
		shard := wire.ShardOf(wire.RoutingModulo, keys[i], true, shards)
		sorted[shard] = append(sorted[shard], record)
	}
	return sorted
}

// sameShards checks that events are exactly these records of each shard, in order, from the offsets given on (0 where none is).
func sameShards(t *testing.T, stream string, got []event, from map[uint32]uint64, want map[uint32][][]byte) {
	t.Helper()
	events := map[uint32][]event{}
	for _, e := range got {
		events[e.Shard] = append(events[e.Shard], e)
	}
	for shard := range want {
		sameRecords(t, stream, events[shard], from[shard], want[shard])
	}
	for shard := range events {
		if want[shard] == nil {
			t.Fatalf("%s: %d events of shard %d, want none", stream, len(events[shard]), shard)
		}
	}
}

// keyed returns n records and the key of each, over about as many keys as a stream of a few shards needs to use all of them.
func keyed(label string, n int) (records, keys [][]byte) {
	records = numbered(label, n)
	for i := range records {
		keys = append(keys, fmt.Appendf(nil, "key-%d", i%97))
	}
	return records, keys
}

// A merged subscription gives every shard's records in order, and goes on per shard from the positions it is given.
func TestSubscribeSharded(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		const stream, shards = "sharded", 8
		b := startBroker(t)
		b.create(streamConfig{Stream: stream, Shards: shards})
		d := startDriver(t, surface).connect(b, b.Listen)
		if n := d.do("stream_shards", command{"stream": stream}).Shards; n != shards {
			t.Fatalf("stream_shards says %d, want %d", n, shards)
		}
		d.do("subscribe_sharded", command{"name": "live", "stream": stream})

		first, firstKeys := keyed("first", 1000)
		d.do("publish", command{"stream": stream, "records": first, "keys": firstKeys, "together": surface == asynchronous})
		d.do("subscribe_sharded", command{"name": "history", "stream": stream, "start": "earliest"})
		live := d.next("live", len(first))
		history := d.next("history", len(first))
		want := byShard(first, firstKeys, shards)
		if surface == synchronous { // published one after the other, so that the order is known
			sameShards(t, stream, live, nil, want)
			sameShards(t, stream, history, nil, want)
		}

		positions := d.do("positions", command{"name": "history"}).Positions
		from := map[uint32]uint64{}
		for shard, records := range want {
			from[shard] = uint64(len(records))
			if got := positions[fmt.Sprint(shard)]; got != from[shard]-1 {
				t.Errorf("the position in shard %d is %d, want %d", shard, got, from[shard]-1)
			}
		}
		d.do("unsubscribe", command{"name": "history"})
		d.do("unsubscribe", command{"name": "history"}) // again is no error

		second, secondKeys := keyed("second", 500)
		d.do("publish", command{"stream": stream, "records": second, "keys": secondKeys})
		d.do("subscribe_sharded", command{"name": "again", "stream": stream, "resume": maps.Clone(positions)})
		want = byShard(second, secondKeys, shards)
		sameShards(t, stream, d.next("again", len(second)), from, want)
		sameShards(t, stream, d.next("live", len(second)), from, want)
	})
}
