package interop

import (
	"testing"

	"felix/client"
)

// exchanged is how many records each client sends to the other.
const exchanged = 10_000

// What one client publishes the other reads, byte for byte and offset for offset, live, in both directions: over one shard, and merged from
// eight.
func TestExchangeWithTheGoClient(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		shards, how := 1, "subscribe"
		if surface == asynchronous {
			shards, how = 8, "subscribe_sharded"
		}
		b := startBroker(t)
		c := b.dial()
		d := startDriver(t, surface).connect(b, b.Listen)
		_, keys := keyed("", exchanged)

		const toPython, toGo = "to-python", "to-go"
		for _, stream := range []string{toPython, toGo} {
			b.create(streamConfig{Stream: stream, Shards: shards, OnSlow: "block"})
		}

		d.do(how, command{"name": "s", "stream": toPython, "start": "latest"})
		records := random("to python", exchanged)
		reading := d.startNext("s", exchanged)
		publishAsync(t, c, toPython, records, keys)
		sameShards(t, toPython, d.finishNext(reading, "s", exchanged), nil, byShard(records, keys, uint32(shards)))

		sub := subscribe(t, c, toGo, client.FromLatest())
		records = random("to go", exchanged)
		publishing := d.start("publish", command{"stream": toGo, "records": records, "keys": keys})
		sameShards(t, toGo, collect(t, sub, exchanged), nil, byShard(records, keys, uint32(shards)))
		if a := d.finish(publishing, "publish"); a.Error != nil || len(a.Offsets) != exchanged {
			t.Fatalf("%d publishes were answered, want %d: %v", len(a.Offsets), exchanged, a.Error)
		}

		if got := b.metric("felix_publish_records_total")[""]; got != 2*exchanged {
			t.Errorf("the broker counts %v records published, want %v", got, 2*exchanged)
		}
		if dropped := b.metric("felix_sub_records_dropped_total")[""]; dropped != 0 {
			t.Errorf("the broker dropped %v records", dropped)
		}
	})
}
