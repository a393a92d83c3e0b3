package interop

import (
	"bytes"
	"testing"

	"felix/client"
	"felix/netio/faultnet"
)

// behindLink starts a driver that reaches a broker through a link only. The broker must have been started with one listener: then it has
// a shared port and no others, and nothing leads around the link.
func behindLink(t *testing.T, surface string, b *broker) (*faultnet.Proxy, *driver) {
	t.Helper()
	link := startLink(t, anyPort, b.Listen)
	addr := link.Addr().String()
	d := startDriver(t, surface).connect(b, addr)
	if endpoints := d.do("endpoints", nil).Endpoints; len(endpoints) != 1 || endpoints[0] != addr {
		t.Fatalf("the client knows %q, want the link only", endpoints)
	}
	return link, d
}

// The link falls silent until the client has given its connection up, as it does after 6 s without a datagram, and dials anew. The
// subscription then goes on with the next offset, and a publish that may be repeated is repeated. What the lost connection held is given
// back.
func TestSilentLinkIsResumed(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t, "--listeners", "1")
		t.Cleanup(b.awaitIdle)
		link, d := behindLink(t, surface, b)
		c := b.dial() // not over the link
		const stream = "resumed"
		before, during, after := numbered("before", 10), numbered("during", 20), numbered("after", 10)

		d.do("subscribe", command{"name": "s", "stream": stream, "start": "latest"})
		publishAsync(t, c, stream, before, nil)
		sameRecords(t, stream, d.next("s", 10), 0, before)

		const own = "own"
		sameOffsets(t, own, d.do("publish", command{"stream": own, "records": numbered("own", 3)}).Offsets, 0, 3)
		connections := sum(b.metric("felix_quic_connections_accepted_total"))

		dials := link.Stats().Up.Initials
		link.Block()
		repeated := d.start("publish", command{"stream": own, "records": numbered("repeated", 7), "at_least_once": true})
		publishAsync(t, c, stream, during, nil)
		awaitDial(t, link, dials)
		link.Unblock()
		publishAsync(t, c, stream, after, nil)

		sameRecords(t, stream, d.next("s", len(during)+len(after)), 10, append(during, after...))
		if now := sum(b.metric("felix_quic_connections_accepted_total")); now <= connections {
			t.Errorf("%v connections were accepted by now, %v before the silence: nothing was resumed", now, connections)
		}

		// Every acknowledged record is where the client was told it is. There may be repetitions between.
		told := d.finish(repeated, "publish during the silence")
		if told.Error != nil {
			t.Fatalf("publish during the silence: %v", told.Error)
		}
		next := uint64(3)
		sub := subscribe(t, c, own, client.FromOffset(3))
		for i, offset := range told.Offsets {
			want := numbered("repeated", 7)[i]
			if offset == nil || *offset < next {
				t.Fatalf("record %d is said to be at %s, want an offset from %d on", i, show(offset), next)
			}
			for ; next <= *offset; next++ {
				got := collect(t, sub, 1)[0]
				if !bytes.Equal(got.Payload, want) {
					t.Fatalf("at %d there is %s, want %s", next, brief(got.Payload), brief(want))
				}
			}
		}
	})
}

// The client's address changes, as behind a NAT that forgets: the connection goes on, for what the broker sends and for what it is sent.
func TestNewSourcePortIsFollowed(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t, "--listeners", "1")
		link, d := behindLink(t, surface, b)
		c := b.dial()
		const stream = "followed"
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "latest"})
		first := numbered("first", 100)
		publishAsync(t, c, stream, first, nil)
		sameRecords(t, stream, d.next("s", 100), 0, first)
		connections := sum(b.metric("felix_quic_connections_accepted_total"))
		sockets := link.Stats().Sockets

		// Only the broker has something to say: it must find the client's new address by itself, at the latest by the client's keep-alive.
		rebind := func() {
			t.Helper()
			if n, err := link.Rebind(); n == 0 || err != nil {
				t.Fatalf("%d sockets were replaced: %v", n, err)
			}
		}
		rebind()
		second := numbered("second", 100)
		publishAsync(t, c, stream, second, nil)
		sameRecords(t, stream, d.next("s", 100), 100, second)

		// The client has something to say first.
		rebind()
		third := numbered("third", 100)
		sameOffsets(t, stream, d.do("publish", command{"stream": stream, "records": third}).Offsets, 200, 100)
		sameRecords(t, stream, d.next("s", 100), 200, third)

		if now := sum(b.metric("felix_quic_connections_accepted_total")); now != connections {
			t.Errorf("%v connections were accepted by now, %v before the address changed: the connection was not kept", now, connections)
		}
		if n := link.Stats().Sockets; n <= sockets {
			t.Errorf("%d sockets led to the broker, %d before: the address did not change", n, sockets)
		}
	})
}
