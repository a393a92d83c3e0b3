// Package load is the instrument that felix is measured with: it drives a broker, checks every count, and reports rates,
// latencies and what both sides spent. `felix bench`, the benchmarks of package perf and the comparisons all use it.
//
//	report, err := load.Run(ctx, load.Config{Scenario: load.Pub, Target: target, Duration: 10 * time.Second})
//
// It owns the schedule, the windows, the clocks, the histograms and the rules by which a run is void. How records travel is
// left to a Target: ClientTarget drives felix through the public Go client, LeanTarget publishes from a generator that only
// builds frames, other modules bring their own.
//
//	schedule -> publisher i -> Target ... broker ... Target -> subscriber j -> offsets, stamps
//	   |            |   ^ Settle(token, outcome)                  |
//	   |            v   |                                         v
//	   intended   sent  answered                      counts, latencies -> judge -> Report
//	                     broker's counters, CPU, RSS, kernel drops: sampled every second
//
// # What is measured
//
//   - Rates are the median of one-second rates without the first and the last tenth of the time, counted at the broker when it
//     can be asked, else from the answers.
//   - Open loop (Rate > 0): batch k of publisher i is due at a time that is fixed before the run starts. Latency from that time is
//     corrected for coordinated omission, latency from the call of Publish is not. Closed loop (Rate 0): there is no due
//     time, both are from the call, and neither tells what a load that does not wait would see.
//   - A payload of 16 bytes or more begins with two stamps, due and sent, in nanoseconds of the run's monotonic clock, which a
//     step of the wall clock does not move. Shorter ones have no end-to-end latency. Gaps and duplicates are found by offset.
//   - Counts hold for the whole run, warm-up and the wait at the end included; rates and latencies for the measured time.
//
// # When a run is void
//
// Sent = acknowledged + refused + unknown; what the broker counts agrees with what the generator knows; every reading subscriber
// got every acknowledged record once. With acks none a record counts as acknowledged when the broker counted it, and a run that sent less than
// twice what all buffers hold says nothing. A run that breaks a rule is void, and says which. One that was cut short, met
// refusals or saw its broker restart reports that, and is void only if a rule broke.
//
// # A new target
//
// Implement Target, Stream, Publisher and Subscriber (target.go), which use the standard library's types only, and give it as
// Config.Target. It may live in a module of its own that requires this one by a replace directive. Publisher.Publish must copy
// what it keeps and call Settle once for each token, from any goroutine, also when it fails; Counters leaves out what is
// not known; ProcessUsage knows CPU and memory of a process of this machine. Fake in fake_test.go is the smallest that works.
//
// # Threads
//
// Run starts a goroutine per publisher and reading subscriber and one that samples; all have ended when it returns. Publishers share
// eight histograms under a lock each, taken once per batch.
//
// # Limits
//
// Latencies above ten minutes count as ten. 4,096 publishers, 4,096 in flight each, 1,024 subscribers, batches of 65,536 records and 15 MiB,
// 100 runs. At the end of a run answers and records are awaited for Patience, and then missed.
//
// # Decisions
//
//   - With several batches under way the client calls a function for each answer where it reads it, as those of the peers do. By way of a
//     future and a goroutine that takes answers in the order of the calls, 64 publishers x 64 of 256 B made 1.26 against 1.41 M records/s
//     and took 0.83 against 0.72 us of CPU per record (2 vCPU EPYC, ten runs each in turn, 2026-11-30).
//   - With one batch under way the publisher waits in the client's Publish, as a program does that has one record at a time, and as the
//     peers are driven. By way of a future and a goroutine that takes it, two wake-ups more, a lone ack took 72 against 66 us and 64
//     publishers made 197 against 223 k records/s (2 vCPU EPYC, 2026-11-30).
//   - The generator counts its own CPU apart. A broker inside this process cannot be told from it, so both figures are left out then.
//
// Start reading at Run in run.go, then publish.go, subscribe.go and judge.go.
package load
