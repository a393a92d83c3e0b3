package netio

import (
	"errors"
	"testing"

	"github.com/quic-go/quic-go"
)

// TestForgedAddressesDoNotFillTheGate connects beyond half the places for unauthenticated connections, where peers must show by a
// Retry that they are where they say.
func TestForgedAddressesDoNotFillTheGate(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.Unauthenticated = 4 }})
	d := f.dialer()
	for i := range 4 {
		if must := f.server.gate.mustValidate(nil); must != (i >= 2) {
			t.Errorf("with %d connections a peer must validate: %v", i, must)
		}
		conn, err := d.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
	}
	_, err := d.dial()
	var refused *quic.TransportError
	if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
		t.Fatalf("fifth connection: %v, want CONNECTION_REFUSED", err)
	}
}
