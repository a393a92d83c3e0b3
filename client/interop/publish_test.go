package interop

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"felix/netio/wire"
)

// Every way to ask for an ack, with and without key: the records arrive byte for byte, and the offsets told are true.
func TestPublish(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		records := awkward()
		for _, ack := range []string{"none", "per_message", "per_batch"} {
			for _, keyed := range []bool{false, true} {
				stream := fmt.Sprintf("%s-keyed-%v", ack, keyed)
				publish := command{"stream": stream, "records": records, "ack": ack}
				if keyed {
					keys := slices.Clone(records)
					for i, key := range keys {
						keys[i] = key[:min(len(key), 1000)]
					}
					publish["keys"] = keys // one shard: the key changes nothing but the frame
				}
				told := d.do("publish", publish).Offsets
				if ack == "none" {
					for i, offset := range told {
						if offset != nil {
							t.Fatalf("%s: publish %d without ack is said to be at %d", stream, i, *offset)
						}
					}
				} else {
					sameOffsets(t, stream, told, 0, len(records))
				}
				// Without an ack the records may still be on their way: the subscription waits for them.
				d.do("subscribe", command{"name": stream, "stream": stream, "start": "earliest"})
				sameRecords(t, stream, d.next(stream, len(records)), 0, records)
			}
		}
		if got, want := b.metric("felix_publish_records_total")[""], float64(6*len(records)); got != want {
			t.Errorf("the broker counts %v records, want %v", got, want)
		}
	})
}

// Many calls on one client at the same time: each is answered with the offset at which its own record is.
func TestPublishTogether(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		records := numbered("together", 500)
		told := d.do("publish", command{"stream": "together", "records": records, "together": true}).Offsets
		if len(told) != len(records) {
			t.Fatalf("%d publishes were answered, want %d", len(told), len(records))
		}
		placed := make([][]byte, len(records))
		for i, offset := range told {
			if offset == nil || *offset >= uint64(len(placed)) || placed[*offset] != nil {
				t.Fatalf("publish %d is said to be at %s, which is taken or too large", i, show(offset))
			}
			placed[*offset] = records[i]
		}
		d.do("subscribe", command{"name": "s", "stream": "together", "start": "earliest"})
		sameRecords(t, "together", d.next("s", len(placed)), 0, placed)
	})
}

// The published client and the broker agree on the shard of every key, under both mappings, and a record without key is in shard 0.
func TestKeysReachTheirShards(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		const shards = 8
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		keys := [][]byte{{}, []byte("a"), []byte("k0"), []byte("k1"), []byte("customer-1"), []byte("order-42"), {0, 1, 2, 0xff}, bytes.Repeat([]byte("x"), 4000)}
		for i := range 56 {
			keys = append(keys, fmt.Appendf(nil, "key-%d", i))
		}
		for _, routing := range []wire.Routing{wire.RoutingModulo, wire.RoutingJumpHash} {
			stream := routing.String()
			b.create(streamConfig{Stream: stream, Shards: shards, Routing: stream})
			d.do("publish", command{"stream": stream, "records": numbered("plain", 1)})
			d.do("publish", command{"stream": stream, "records": keys, "keys": keys})

			if n := d.do("subscribe_sharded", command{"name": stream, "stream": stream, "start": "earliest"}).Shards; n != shards {
				t.Fatalf("%s: the subscription has %d shards, want %d", stream, n, shards)
			}
			seen := map[string]bool{}
			for _, e := range d.next(stream, len(keys)+1) {
				want := wire.ShardOf(routing, e.Payload, true, shards)
				if string(e.Payload) == "plain 0" {
					want = 0
				}
				if e.Kind != "record" || e.Shard != want || seen[string(e.Payload)] {
					t.Fatalf("%s: %s %s came from shard %d, want it once from shard %d", stream, e.Kind, brief(e.Payload), e.Shard, want)
				}
				seen[string(e.Payload)] = true
			}
		}
		// From the protocol's own table: these two keys tell the mappings apart.
		for key, want := range map[string][2]uint32{"k1": {6, 4}, "order-42": {7, 1}} {
			got := [2]uint32{wire.ShardOf(wire.RoutingModulo, []byte(key), true, shards), wire.ShardOf(wire.RoutingJumpHash, []byte(key), true, shards)}
			if got != want {
				t.Errorf("%s is in shards %v, want %v", key, got, want)
			}
		}
	})
}
