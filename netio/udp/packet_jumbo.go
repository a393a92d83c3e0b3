//go:build jumbo

package udp

// MaxPacketBytes bounds the QUIC packets of this build, in bytes of UDP payload: 9,000 bytes of a jumbo frame without the headers of IPv6
// and UDP, and 20 to spare for a tunnel's. .ci/jumbo sets the tag and gives quic-go buffers of this size; without them quic-go would
// stay at StockPacketBytes.
const MaxPacketBytes = 8932
