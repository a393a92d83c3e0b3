// Package take makes the runs of a measuring session, and again those that do not count. perf/matrix, peers, compare and scale make theirs with it.
//
//	CPUs.near -> run -> CPUs.look -> keep -> again? -> counted
//	waits             a cache line   raw report
//
// # When a run is made again
//
//   - Its counts do not agree: it is void. At most MaxVoids times for one load in a session; then it stands, and the load is void.
//   - The CPUs were apart when it ended, or already when it began because waiting did not help. At most maxApart times for one run; then it
//     counts as it is, with a note.
//
// # CPUs that are apart
//
// Virtual CPUs are moved between core complexes by their host, for seconds or minutes. A cache line from one to another and back takes about 100 ns
// on one complex of an EPYC and 450 ns on two (2026-11), and what two processes do together is slower then: single records come at two
// thirds of the rate, a lone ack takes a third longer. Medians of five runs depend on how many of them met that. The line is looked at
// without a broker and before anybody knows a figure, so that no run is chosen by its result; and for every load alike, for ceilings and NATS too.
//
// Apart is more than apartFrom times the least that was seen. So a machine whose CPUs are always far from each other is never apart, and neither is one with a
// single CPU, where there is no line. Another program that takes one of the CPUs shows as apart as well, and is waited for likewise.
//
// # Limits
//
// A wait ends after maxWait, and all waiting and all runs made again because of it end after patience in a session: from then on runs are taken as
// they come. CPUs.Notes says how much of either there was. Probes of the ceilings are made in the same way (CPUs.Probe).
//
// Nothing here is safe for concurrent use. Start reading at Maker in take.go, then cpus.go.
package take
