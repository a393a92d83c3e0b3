package udp

import "testing"

func TestPacketSizes(t *testing.T) {
	jumbo := MaxPacketBytes > StockPacketBytes
	for _, c := range []struct {
		most     int
		loopback bool
		initial  uint16
		fixed    bool
	}{
		{0, true, StockPacketBytes, !jumbo},
		{0, false, StartPacketBytes, false},
		{1200, true, 1200, true},
		{1200, false, 1200, true},
		{MaxPacketBytes, true, StockPacketBytes, !jumbo},
		{MaxPacketBytes, false, StartPacketBytes, false},
	} {
		if initial, fixed := PacketSizes(c.most, c.loopback); initial != c.initial || fixed != c.fixed {
			t.Errorf("at most %d, loopback %v: %d, fixed %v, want %d, %v", c.most, c.loopback, initial, fixed, c.initial, c.fixed)
		}
	}
}
