// Package ceiling holds the probes that say what the machine can do without a broker: plain programs on the same
// QUIC library and the same socket as felix.
//
//	Loop  the least a broker could do: read length-prefixed records, put each in one of 48 rings, answer each by its id
//	Echo  one request in flight on one stream, sent back as it came: the floor of a lone publish
//	Sink  streams written as fast as they go and read into nowhere: the ceiling of bulk
//	Disk  write + fdatasync into blocks that were written before: the floor of a group commit, and its bandwidth
//
// Server and client share the process, as they do in felix's benchmarks, and use netio/udp on both ends with packets
// of 1,452 bytes. A probe is not a product: it has no names, no authentication, no subscribers and no limits.
//
// Each probe opens its own sockets on loopback and returns when its time is over and its goroutines have ended. They may
// run one after the other in a process, not at the same time: they would measure each other.
package ceiling
