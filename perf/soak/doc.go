// Soak holds a broker against the rules of pressure: each subcommand puts one kind of load on it, prints figures, and ends with a code
// other than 0 when a rule is broken.
//
//	go run ./perf/soak joins -n 100000            history to live under full-rate publish: contiguous, no duplicate
//	go run ./perf/soak slow -subs 50 -stalled 10  some do not read: the others get everything, they get it later or exact gaps
//	go run ./perf/soak stall -pairs 20            interleaved pairs with and without them: the others see no difference
//	go run ./perf/soak fanout -subs 500           every record delivered, one encoding for all
//	go run ./perf/soak churn -n 10000             connect, subscribe, vanish: everything back to where it was
//	go run ./perf/soak mutate -n 1000000          mutated frames: the broker serves on, memory stays, others do not notice
//	go run ./perf/soak floods -duration 60s       first packets and handshakes: others go on, caps hold, no amplification
//	go run ./perf/soak tenants -duration 20s      one publisher beside 63 of another tenant: its p99 stays near that of alone
//	go run ./perf/soak overload -duration 60s     ten times the publishers: books, memory and throughput hold
//
// # Who owns what
//
// A subcommand is a function that takes a context, its options and a report, and returns an error when a rule does not hold. The tests of
// this package call the same functions with small numbers. Brokers run in this process, where their books can be read, except for
// overload and tenants, whose memory and CPU are to be apart: felixd is built and run as a child.
//
// # Records
//
// A record begins with its number in the stream, 8 bytes, big-endian. One publisher writes a stream, so its number is the record's
// offset: a subscriber needs no ledger to see a record that is missing, twice, out of order or another's.
//
// # Rules
//
//  1. No load ends by a clock that a slow machine could miss: subcommands count events, and -duration only says how long to look.
//  2. Every wait ends with the context; the command gives it -timeout.
//  3. Counts of the load are held against those of the broker.
//  4. Figures of time are printed and not judged, except for those that a flag gives a bound.
//
// Start reading at main.go, then joins.go.
package main
