// Package ceiling holds the probes that say what the machine can do without a broker: plain programs on the same
// QUIC library and the same socket as felix.
//
//	Loop  the least a broker could do: read length-prefixed records, put each in one of 48 rings, answer each by its id
//	Echo  one request in flight on one stream, sent back as it came: the floor of a lone publish
//	Sink  streams written as fast as they go and read into nowhere: the ceiling of bulk
//	Disk  write + fdatasync into blocks that were written before: the floor of a group commit, and its bandwidth
//	Line  a cache line to another CPU and back: no ceiling, but what the others move with where CPUs are virtual
//
// The first three have a server and clients, both on netio/udp with packets of 1,452 bytes, in one of two forms:
//
//	OneProcess    this process [ clients <-> server ]              beside benchmarks that run the broker in their process
//	TwoProcesses  this process [ clients ] <-> [ server ] another  beside a broker that runs in a process of its own
//
// The forms differ in what they measure. In one process the goroutine that a packet wakes is mostly run by a thread that is awake anyway; with
// two processes the kernel wakes another one on the same CPUs, and each has its own heap to collect. An echo has little else to
// do, so E depends on the form more than anything: a share of a ceiling of the other form compares two different things.
//
// # The server process
//
// TwoProcesses starts the program that runs once more, with a variable in its environment that ServeIfAsked, which main calls first, looks for:
//
//	-> stdout  {"address":"127.0.0.1:40000","certificate":"..."}   ready
//	<- stdin   an empty line                                       how many bytes have you read?
//	-> stdout  1234567
//	<- stdin   its end                                             the end
//
// It does not outlive the process that started it: the kernel kills it then, and its input ends. Waiting for it is bounded, for its end
// as well, after which it is killed. A program that forgets ServeIfAsked gets an error, and does not start itself for ever.
//
// A probe is not a product: it has no names, no authentication, no subscribers and no limits on what a client sends. Each opens its own
// sockets on loopback and returns when its time is over and its goroutines, and its other process, have ended. They may run one after the
// other, not at the same time: they would measure each other.
//
// Start reading at Form in ceiling.go, then loop.go; server.go and process.go are the two places of the server half.
package ceiling
