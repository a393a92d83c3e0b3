// Package core runs the broker's state: a Group of cores, each a Loop that owns its state alone.
//
// It owns the loops, the ways into them, timers, and the Slots at the door. What runs on a loop comes in
// through three interfaces: Task (work that crosses to a loop), Agent (work found by looking), and Admittee
// (told that a slot is there). It knows nothing of publishes, sockets or disks.
//
// # Threading
//
// Everything a loop's tasks, timers and agents touch belongs to that loop: no locks, no atomics. Methods
// without a suffix are called on the loop; methods ending in OffCore from any goroutine that is not a loop.
// With Config.CheckOwner (tests) a call from the wrong place panics. NewGroup, Start, Close and StatsOffCore
// are for other goroutines, too.
//
//	session goroutines                  core 0                        core 1
//	PostOffCore ---- inbox (many to one) --> pass ---- ring 0 -> 1 ----> pass
//	                                         pass <--- ring 1 -> 0 ----- pass
//
//	pass:  inbox | rings | own tasks | timers | agents | own tasks | push what was sent, signal once
//
//	parked  -> running   work is there; by compare-and-swap, so one winner owns the loop
//	running -> parked    nothing is left and the alarm is set for the next deadline; then look again
//
// The winner wakes the loop's goroutine by a token (a channel of capacity 1) or, in baton mode, runs at most
// 4 passes itself and then parks the loop or sends the token. Since the owner looks again after it has parked,
// posters signal only a parked loop: one signal per batch.
//
// The inbox is many to one, hence not SPSC: every session of a core posts to it, and a goroutine per
// session between them and the loop would cost the wake-up that batching saves. A ring i -> j is SPSC: whoever
// owns loop i pushes, whoever owns loop j drains, and ownership moves only with a happens-before edge.
//
// # Invariants
//
//  1. At most one goroutine owns a loop.
//  2. Tasks of one poster run in the order of its posts; tasks from one core to another in the order of Send.
//  3. What was accepted runs, also when the group closes meanwhile; what was refused (ErrClosed) never does.
//  4. Rings are always drained. A loop whose own ring is full stops taking from its inbox, never from its
//     rings, and parks if nothing else is left: no spin, and two cores that fill each other's rings go on.
//  5. An idle loop makes no passes.
//  6. A timer never fires in the pass that armed it, nor before its deadline on the group's clock.
//  7. Slots: outside Release waiters exist only while no slot is free. k slots freed admit min(k, waiting)
//     waiters, each tenant's oldest first. Admitted == FreedWhileWaiting.
//
// # Limits
//
//	inbox          1,024 tasks posted, as many in the loop's hands   the poster waits, first come first served
//	ring           1,024 tasks (8,192/Cores above 8 cores)           the rest waits at the sender (invariant 4)
//	sender's rest  2^20 tasks per destination; far fewer while each
//	               task sends about as much as it receives           panic: tasks that send without end are a bug
//	pass           256 tasks per source, 256 timers                  the rest follows in the next pass, at once
//	spin           Config.Spin, at most 1 ms                         parks
//	baton          4 passes                                          hands over to the loop's goroutine
//	waiters        none here: each holds bytes reserved at the door  -
//	tenants        deficit round robin, 64 KiB a turn: while two wait, from the moment they both do, their bytes
//	               differ by at most a quantum and the largest frame (twice the frame if others waited before)
//	Close          none: it waits for tasks and agents to come to rest. Armed timers are dropped
//
// # Decisions
//
// Figures: AMD EPYC, 2 vCPU, Linux 6.18, Go 1.26.8, 2026-11-29, medians of 3 to 6 runs on the otherwise quiet
// machine, in ns per task: go test ./core -run xxx -bench . -benchtime 60ms
//
// Own Ring, not xsync.SPSCQueueOf: a batch is one index store and at most two copies.
//
//	                      batch 1      batch 8      batch 64
//	one goroutine         14.0 / 12.6  2.9 / 10.8   0.7 / 10.6    own / xsync
//	two goroutines        20.9 / 25.4  5.3 / 20.7   1.1 / 20.6
//
// Inbox: a slice under a short lock, swapped whole by the loop: 41, 38, 62 with 1, 8, 64 posters and a consumer
// that does nothing else; a channel 67, 62, 56; xsync.MPMCQueueOf 53, 50, 49, but it has no way to wait when full
// (here it polls). A poster that finds it full leaves its task in a list and sleeps; the loop moves the task.
//
// Session core -> owner core -> back, against posting to the owner directly. In batches the hop is nearly free,
// and it keeps a session to one inbox and its answers in one place; a lone task pays two more wake-ups. Hence
// the rings stay, and a client on the owner's port crosses none.
//
//	                          unpinned        baton        pinned
//	alone: direct / hop      390 / 818    134 / 696   31 k / 55 k
//	16 x 64: direct / hop      69 / 70      78 / 79      88 / 134
//
// Waking a parked loop and back: unpinned 404, baton 132, pinned 33 k, pinned with 50 us of spin 101 k. A locked
// goroutine is woken through the kernel, and a spinner holds a CPU that the poster needs where both are in
// use, so Spin is 0 by default. The baton is best for a lone post and a little worse under load, where posters
// run small passes: an option, off by default.
//
// A slot taken and freed takes 6 ns, through the queue of 16 tenants 20. Refused: a timer wheel (a few hundred
// timers per core do not pay for its ticks), recovering from panics in tasks (state would be half changed).
//
// Start reading at Loop.pass in pass.go, then park.go, Ring and Slots.Release.
package core
