// Server is what felixd is measured against by perf/scale, in a process of its own. It takes the flags that perf/load gives a broker, writes
// the same ready file, serves the same metrics and heap profile, and ends with SIGTERM.
//
//	server bare                 a quic-go server that does as little as can be done for a connection
//	server felix --cores N      the broker with N cores that are not pinned, for which felixd has no setting
//
// # bare
//
// The same quic-go, the same socket, the windows and bounds of the broker's defaults (quicConfig in bare.go). Each connection has a goroutine
// that accepts streams, each stream one that reads: it answers the first frame with an empty auth_ok, so that the same client can open
// both, and then waits for more. What a felix connection costs beyond that is felix.
//
// # felix
//
// The settings of felixd, read from the environment, with Config.Cores set and as many listening cores. Everything else is as in felixd, but
// for signals and what is printed.
//
// # Threads and limits
//
// One goroutine waits for the signal; the others are quic-go's, net/http's and, in bare, two for each connection with one stream. As many
// connections and streams as quic-go takes: the one who connects sets the number.
package main
