// Peers measures felix and NATS in turn, one pair per promise, in one run on one machine.
//
//	go run -C perf/peers . -o /tmp/out                               every pair, about 15 minutes
//	go run -C perf/peers . -pairs 'lone|jetstream-sync' -rounds 10   some of them, with narrower intervals
//
// It is a module of its own, so that felix does not depend on NATS: nats-server is a tool of this go.mod, built from the pinned module
// for each run of the command, and felixd is built from the tree above by the go.mod that is there. perf/matrix runs it as part of a session.
//
// # What runs
//
//	nats-server (TLS on loopback, JetStream in a temporary directory) <- nats.go  <- perf/load
//	felixd      (TLS on loopback, log in a temporary directory)       <- client   <- perf/load
//
// Each run starts its broker and ends it. Round 0, which does not count, runs both sides of every pair, and so do the rounds after it, felix first in
// odd ones and NATS first in even ones: A B B A. In rounds the runs of a pair are spread over all the time that the command takes, so that
// its medians are over all phases of a machine that changes its speed. The result is written after each round. Windows, schedules, clocks, counts
// and the rules by which a run is void are those of perf/load on both sides: only the Target differs (target.go).
//
// # How NATS is used
//
//   - A stream of 48 shards is 48 JetStream streams with a subject each, as keys are spread over shards: one JetStream stream is one order
//     and one lock, and would be a poorer use of NATS. A subject for core NATS likewise.
//   - NATS has no batches: a batch is the same number of records, one publish each, into the buffer of nats.go, which sends what
//     has gathered. A batch is acknowledged when all its records are.
//   - JetStream answers come through the acknowledgement handler of nats.go, without a future per record; a lone publish and a request are
//     synchronous calls on the publisher's goroutine. Both are the cheapest way that the library offers.
//   - Memory streams keep 65,536 records and 64 MiB each, oldest out first, as the replay rings of felix do; files keep everything.
//   - As many connections as the felix client opens (one per listening core of the broker), unless -connections says otherwise.
//   - Records are counted at the server: the last sequences of the streams, and in_msgs of core NATS.
//
// # Limits
//
// A subscriber that reads holds at most 64 Ki records that were not taken; then nats.go keeps up to 256 MiB for it, and what comes beyond is
// lost, which makes the run void. A void run is made again, three times in a pair and side; then the void run stands, and
// the pair says so. A server that is not ready within a minute, or does not end within 20 s, is an error, as is any
// run that fails. It ends its pair, not the command: the pair has no part in the rounds that follow and keeps what it has, the result says
// why, and the command ends with an error that names it after all else was made.
//
// Start reading at run in main.go, pairs in pairs.go and measure in rounds.go.
package main
