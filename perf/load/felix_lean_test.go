package load

import (
	"strings"
	"testing"

	"felix"
)

// TestPlain publishes as plain clients do: over all ports of the broker, with no regard for who owns a shard.
func TestPlain(t *testing.T) {
	b := startBroker(t, felix.Config{})
	remote := FelixConfig{Addr: b.Addr().String(), Admin: b.AdminAddr().String(), CAFile: b.CAFile(), Connections: 6, Plain: true}
	target := newTarget(t, GeneratorLean, remote)
	c := brief(Pub, bufferless{target})
	c.Publishers, c.InFlight, c.Batch = 6, 1, 1
	before := b.Stats()
	runs := 0
	report, r := drive(t, c, func(r RunReport) bool { runs++; return r.AckedPerSec > 0 })
	if r.Void || r.Acked == 0 || r.Acked != r.Offered {
		t.Errorf("void %q, notes %q, %+v", r.VoidReasons, r.Notes, r.Figures)
	}
	if !strings.Contains(strings.Join(report.Config.Notes, " "), "6 connections over the broker's ports") {
		t.Errorf("notes %q", report.Config.Notes)
	}
	accepted := -int(sum(before.ConnectionsPerCore))
	accepted += int(sum(b.Stats().ConnectionsPerCore))
	if accepted != 8*runs {
		t.Errorf("%d connections in %d runs, want 6 and 2 that ask in each", accepted, runs)
	}
	stream, err := target.Open(t.Context(), StreamSpec{Shards: 6, Durability: Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context())
	for i := range 6 {
		p, err := stream.Publisher(t.Context(), PublisherSpec{Index: i, Keys: []string{"a", "b", "c"}, Acks: AcksBatch, InFlight: 1, Batch: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if n := len(p.(*leanPublisher).routes); n != 1 {
			t.Errorf("publisher %d has %d streams, want one for every shard", i, n)
		}
	}
	perPort := make(map[uint16]int)
	for place := range stream.(*leanStream).conns {
		perPort[place.addr.Port()]++
	}
	for _, port := range append(b.Ports(), b.Addr().Port()) {
		if perPort[port] != 2 {
			t.Errorf("%d connections to port %d, want 2 of 6: %v", perPort[port], port, perPort)
		}
	}
	if _, err := NewClientTarget(remote); err == nil || !strings.Contains(err.Error(), "take the lean generator") {
		t.Errorf("plain connections of the client: %v", err)
	}
	remote.Connections = 1025
	if _, err := NewLeanTarget(remote); err == nil || !strings.Contains(err.Error(), "from 1 to 1024") {
		t.Errorf("too many connections: %v", err)
	}
}

func sum(list []uint64) (n uint64) {
	for _, v := range list {
		n += v
	}
	return n
}
