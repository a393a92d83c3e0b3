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
	// Two doors besides the shared port get two connections each, and the shared port those that ask for owners and doors as well.
	after := b.Stats()
	accepted := uint64(0)
	for core, n := range after.ConnectionsPerCore {
		if n-before.ConnectionsPerCore[core] < uint64(2*runs) {
			t.Errorf("core %d accepted %d connections in %d runs", core, n, runs)
		}
		accepted += n - before.ConnectionsPerCore[core]
	}
	if accepted != uint64(8*runs) {
		t.Errorf("%d connections in %d runs, want 6 and 2 that ask in each", accepted, runs)
	}
	if _, err := NewClientTarget(remote); err == nil || !strings.Contains(err.Error(), "take the lean generator") {
		t.Errorf("plain connections of the client: %v", err)
	}
	remote.Connections = 1025
	if _, err := NewLeanTarget(remote); err == nil || !strings.Contains(err.Error(), "from 1 to 1024") {
		t.Errorf("too many connections: %v", err)
	}
}
