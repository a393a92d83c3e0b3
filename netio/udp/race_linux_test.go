//go:build race

package udp

// raceEnabled: the race detector makes sync.Pool lose objects on purpose, so allocations cannot be counted.
const raceEnabled = true
