package udp

// StockPacketBytes is the largest packet of quic-go as released (v0.65.0, protocol.MaxPacketBufferSize): Ethernet's 1,500 bytes
// without the headers of IPv6 and UDP. Every loopback device carries it.
const StockPacketBytes = 1452

// StartPacketBytes is what path MTU discovery starts from where the path is not known: the size that quic-go probes with itself.
const StartPacketBytes = 1280

// PacketSizes returns InitialPacketSize and DisablePathMTUDiscovery of a quic.Config for packets of at most the given size, 0 for
// MaxPacketBytes. Discovery has no bound of its own below MaxPacketBytes, so a lower one fixes the size. On loopback the stock size is
// fixed, too: nothing is there to discover. A jumbo build discovers on loopback as well, from the stock size up, since its peer
// may be a stock one; that takes about ten round trips.
func PacketSizes(most int, loopback bool) (initial uint16, fixed bool) {
	switch {
	case most > 0 && most < MaxPacketBytes:
		return uint16(most), true
	case loopback:
		return StockPacketBytes, MaxPacketBytes == StockPacketBytes
	}
	return StartPacketBytes, false
}
