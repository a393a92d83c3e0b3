//go:build !jumbo

package udp

// MaxPacketBytes bounds the QUIC packets of this build, in bytes of UDP payload. A build by .ci/jumbo has 8,932.
const MaxPacketBytes = StockPacketBytes
