// Package felix is the broker as a whole: Config, Start, Close. Felixd, the demo, the tests and every program that embeds
// a broker start here, and here a newcomer begins to read.
//
//	broker, err := felix.Start(ctx, felix.Config{})   // loopback, free ports, a temporary directory
//	defer broker.Close()
//	broker.Addr(), broker.CertificatePEM()            // what a client needs
//
// # The parts
//
// Calls go down only; results come back through interfaces that the lower part declares. layers_test.go holds the table.
//
//	cmd/felixd  cmd/felix            flags, signals, output
//	   |            |
//	felix        client              the only place where all parts meet; the Go client
//	   |
//	netio/admin                      HTTP: health, metrics, pprof, REST
//	netio                            QUIC listeners, connections, streams, admission, answers
//	replicate                        what a shard is: offsets, watermark, idempotent producers; the catalog
//	fanout                           subscriptions, one encoded frame for all, rings, slow subscribers
//	wal                              the write-ahead log
//	core                             run loops that own their state, rings between them, slots, timers
//	netio/udp  netio/wire  affinity  sockets; the protocol; CPUs
//
// # The way of a publish
//
//	stream reader (goroutine)   netio: read what is there, parse every whole frame in place
//	                            netio: admit its bytes, or wait; resolve the stream; one run to the session's core
//	core                        core: a slot, or a place among the waiters; the shard is here, or across one ring
//	                            replicate: check, assign offsets, append
//	                            fanout: one shared frame, offered to each subscriber
//	session's core              netio: the answers of a pass leave in one stream write
//	event writer (goroutine)    netio: frames of a subscription, side by side in memory, in one write
//
// # Threads
//
// State has one owner. A core's loop owns its shards, its subscriptions and the slots of its sessions; goroutines of connections and
// of the admin listener only post to it. A method that ends in OffCore, and every method of Broker, may be called from
// any goroutine; other methods of the parts run on their loop. No mutex is taken on the data path.
//
// With CoreShards 0 loops are ordinary goroutines, otherwise each has a thread and a CPU. Both run the same code.
//
// # Clock
//
// Of the broker's packages only this one reads a clock. The parts are given it: a monotonic one for loops, a wall clock
// for append times, both made of Config.Now.
//
// # Files
//
//	DataDir/meta/lock      held while a broker runs
//	DataDir/meta/secret    the keys of stateless resets and Retry tokens derive from it; 0600
//	DataDir/meta/node-id   the name that clients are told
//	DataDir/meta/catalog.journal   the commands that made the catalog
//	DataDir/lanes/lane-N/  the log: one directory for each lane, see package wal
//	DataDir/tls/           the development certificate and its key
//
// All are made once, whole or not at all, and survive a power cut. A file that cannot be understood refuses the start.
//
// # Invariants
//
//  1. Every part starts after the ones it leans on and ends before them; Close waits for every goroutine of the broker.
//  2. Nothing is shared between two brokers of a process: metrics are in a set of their own, and nothing is global.
//  3. A configuration is checked whole before anything is touched, and every problem is named.
//  4. Whoever can connect from another machine has been let in by a setting that says so.
//
// # Decisions
//
//   - One table (settings.go) is the source of flags, environment names, file keys, defaults and the documents; a test
//     compares README.md with it.
//   - A broker never changes what belongs to the process (GOMEMLIMIT, signals, the working directory): felixd does.
//   - Only felixd leaves a note for the felix command; embedded brokers do not offer themselves.
//
// Start reading at Config, then Start in broker.go, then the doc.go of core and of netio.
package felix
