package interop

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	"felix/netio/faultnet"
	"felix/netio/wire"
)

// A cluster-aware client opens a connection to each core that owns shards it uses, and sends a shard's records to its owner alone: it
// takes the broker's cores for the nodes of a cluster. The ports are announced under another loopback address, where a link
// stands before each of them.
func TestClientDialsTheOwnerCores(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		const stream, shards, host = "owned", 8, "127.0.0.2"
		b := startBroker(t, "--core-shards", "2", "--advertise", host)
		b.create(streamConfig{Stream: stream, Shards: shards})
		if len(b.Ports) != 2 {
			t.Fatalf("own ports %v, want two", b.Ports)
		}
		links := map[string]*faultnet.Proxy{}
		var announced []string
		for _, port := range b.Ports {
			addr := net.JoinHostPort(host, fmt.Sprint(port))
			links[addr] = startLink(t, addr, net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
			announced = append(announced, addr)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		owners, err := b.dial().ShardOwners(ctx, stream)
		if err != nil || len(owners) != shards {
			t.Fatalf("owners %+v, want one per shard (%v)", owners, err)
		}
		accepted := sum(b.metric("felix_quic_connections_accepted_total"))

		d := startDriver(t, surface).connect(b, b.Listen)
		d.do("subscribe_sharded", command{"name": "s", "stream": stream})
		endpoints := d.do("endpoints", nil).Endpoints
		for _, addr := range announced {
			if !slices.Contains(endpoints, addr) {
				t.Errorf("the client knows %q, want %s among them", endpoints, addr)
			}
		}

		// One core's shards after the other's. Each record has 10 KB, so that what belongs to a shard stands out from what keeps a connection.
		const records, size = 100, 10_000
		for _, addr := range announced {
			var payloads, keys [][]byte
			for i := 0; len(keys) < records; i++ {
				key := fmt.Appendf(nil, "key-%d", i)
				if owners[wire.ShardOf(wire.RoutingModulo, key, true, shards)].Addr == addr {
					keys = append(keys, key)
					payloads = append(payloads, slices.Repeat(key, size/len(key)))
				}
				if i > 100*records {
					t.Fatalf("no shard is owned by %s: %+v", addr, owners)
				}
			}
			before := map[string]uint64{}
			for a, link := range links {
				before[a] = link.Stats().Up.Bytes
			}
			d.do("publish", command{"stream": stream, "records": payloads, "keys": keys})
			d.next("s", records)
			for a, link := range links {
				sent := int(link.Stats().Up.Bytes - before[a])
				if least := records * size * 9 / 10; a == addr && sent < least {
					t.Errorf("%d bytes went to %s, which owns the shards; want at least %d", sent, a, least)
				} else if a != addr && sent > records*size/10 {
					t.Errorf("%d bytes went to %s, which owns none of the shards", sent, a)
				}
			}
		}
		for addr, link := range links {
			if n := link.Stats().Clients; n != 1 {
				t.Errorf("%d addresses of clients came to %s, want 1", n, addr)
			}
		}
		// The address dialled, and one for each owner.
		if n := sum(b.metric("felix_quic_connections_accepted_total")) - accepted; n != 3 {
			t.Errorf("the client made %v connections, want 3", n)
		}
	})
}
