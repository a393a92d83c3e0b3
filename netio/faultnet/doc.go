// Package faultnet is a bad network for tests: a UDP proxy on loopback between clients and a broker.
//
// It owns one socket that clients send to, and one socket towards the broker for each client address. It leaves QUIC alone: datagrams are
// bytes to it, and it knows of a packet no more than whether it is the first of a dialling client. Tests of client, netio and perf use it;
// nothing that ships does.
//
//	client A --\                         /-- socket of A --\
//	client B ----- Addr   [ Faults ]  -----  socket of B ------ Upstream
//	             <- Down      Up ->      \-- ...
//
// # The way of a datagram
//
// In this order, each step with a counter:
//
//	blocked?    vanishes                                Block, BlockFor
//	too large?  vanishes, as on a path of that MTU      Faults.MaxBytes
//	lost?       vanishes                                Faults.Loss
//	corrupted?  one or three of its bits change         Faults.Corrupt
//	duplicated? a second copy goes behind the first     Faults.Duplicate
//	reordered?  is set aside until 1 to 5 others of its client and direction have passed   Faults.Reorder
//	delayed?    waits its time, in order                Faults.Delay
//	sent
//
// # Determinism
//
// Config.Rand seeds one generator for each client and direction, in the order in which clients appear, and a generator yields the same
// number of values for every datagram, whatever the faults of the moment are. So the n-th datagram of a client in one direction meets the
// same fate in each run with the same seed and the same faults. What the datagrams hold, and how many there are, is up to the two ends, whose
// timing is their own.
//
// # Threads
//
// Everything may be called from any goroutine. Faults are replaced as a whole: a datagram sees those before or those after, never a mixture.
// Once Block has returned, what is received in that direction vanishes; one datagram of each socket may be past that check already, and what
// is set aside or delayed is on its way and still arrives. One goroutine reads each socket. Timers run for what is held and for BlockFor.
// Close waits for the goroutines and leaves no timer that does anything.
//
// # Invariants
//
//  1. The books balance per direction: Datagrams + Duplicated = Refused + Blocked + TooLarge + Lost + Overflowed + Unsent + Sent + held now.
//     Close makes what is held Unsent.
//  2. Datagrams of one client and direction leave in the order they came in, but for those that Reorder set aside.
//  3. A client has the same port towards the broker until Rebind, then another one.
//
// # Limits
//
//	clients   Config.MaxClients, 1,024; datagrams of a further address vanish and are counted as Refused
//	held      Config.MaxHeldBytes, 8 MiB of datagrams delayed or set aside, all clients together; one that does not fit vanishes and is
//	          counted as Overflowed, as in a router's full queue
//	aside     reorderHold, 20 ms; where fewer datagrams follow, a timer lets it go
//	datagram  64 KiB, which is all that UDP has
//
// A client that has gone keeps its place: a proxy lives for one test.
//
// # Decisions
//
//   - No bandwidth limit: a delay with a bound on what is held does what tests asked for so far.
//   - Delay is a timer per datagram, each letting the oldest one go. That keeps the order without reading a clock.
//   - Draws come from a generator per client and direction, because one for all would depend on how goroutines interleave.
//   - Block is apart from Faults, so that a test can block, wait for a condition and unblock without knowing which faults are set.
//
// Start reading at New, then link.receive.
package faultnet
