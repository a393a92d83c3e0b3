// Package netio is where Go's goroutines meet the loops of the cores: QUIC listeners, connections, streams, admission
// at the door, and the answers.
//
// It owns sockets, connections and streams. It leaves shards and the catalog to replicate, subscriptions to fanout,
// bytes on the wire to netio/wire, and datagrams to netio/udp.
//
// # The way of a publish
//
//	stream reader     readLoop waits for a byte, borrows a chunk, reads what is there, parses every whole frame in place
//	                  and gathers the publishes of one read in a run
//	session's loop    run.Run: a slot or a place among the waiters for each publish, then its shard
//	  (other core)    parcel.Run: publishes for the shards of another core cross the ring together, and come back together
//	owner's loop      replicate.Shard.Append, which calls publish.OnAppended
//	session's loop    stream.settle: answers in request order; ingress.Work sends the answers of a pass in one write
//
// # Threads
//
// A connection belongs to the core whose socket accepted it. Its goroutines (one per stream that reads, one per event
// stream that writes) post to that core's inbox only. A publish is owned by the reader until its run is posted, then
// by the loop it is on: the session's, the shard owner's, and the session's again. Nothing on that way takes a lock;
// the byte budgets and the connection counts at the door are atomics with a queue behind them.
//
// The loop writes answers itself with TryWriteAll, which never blocks; a stream whose peer does not read, or that has 64 KiB
// of answers queued, gets a goroutine that waits in its place. It ends with the stream.
//
// # States of a stream
//
//	unauthenticated --auth--> authenticated --FIN, reset, bad frame, drain--> finishing --last answer--> closed
//
// A finishing stream reads nothing more. Every publish it has accepted is answered before its sending side closes.
//
// # Invariants
//
//  1. A publish is finished exactly once, on its session's loop; its slot, its window credit and its share of the chunk
//     come back there and nowhere else.
//  2. Answers leave a stream in request order. An answer is owed for every acked publish and for nothing else.
//  3. A chunk is recycled when no publish read from it is open. Memory charged to the byte budgets is the memory of
//     the chunks that are out.
//  4. A stream reader holds a chunk only while it holds part of a frame or hands publishes on, never while it waits
//     at a frame boundary.
//  5. A frame with a flag the broker does not know is refused, never masked.
//  6. An acked publish waits at most QueueWait until its shard has taken it, and is then refused with nothing kept. The idempotent
//     batches of its stream behind it are refused with it, and those that come before it is there again: never with sequence_gap.
//     Each place that refuses remembers what it refused: the reader (door.go), the session's loop (waits.go), the shard.
//  7. Identity belongs to the stream: tenant, flags and features come from the stream's own auth.
//
// # Limits
//
// Limits holds every bound with its default; each says what happens there. Besides: chunks of 4 to 64 KiB, larger only for a
// frame that needs it; 4 KiB carried over between reads of a stream, up to a chunk of it while a larger one is waited for; 1,024
// widths remembered per stream.
// A line of the log that a client causes is one of Limits.LogLines a minute for its cause; peerlog.go counts the others and says how many they were.
// A page that stream_read answers with has 4 MiB and 10,000 records at most and is cut to what fits a frame; pages hold 64 MiB
// together, further reads wait, and a client has 10 s to take one.
//
// A publish has, in this order: bytes of its connection, bytes of the process, its tenant's quota (quota.go: a token bucket that all cores share,
// one look at a pointer where there is none), a slot. Beyond the quota acked ones are refused with the time to wait; for others the
// reader stops without a chunk (meter.go). Quotas set at run time are forgotten when the process ends.
// All of it, with event frames and receive windows, is inside the memory budget: memory.go says how it is divided and what happens at the bound.
// Publishes without ack wait at each of these bounds, or are dropped where Limits.ShedUnacked says so: counted by tenant, for which 1,024
// accounts are kept and 100 names are told, and by stream.
//
// # Decisions
//
//   - Two transports per listening core, one on the shared port and one on a port of its own. Connection IDs carry the
//     core in their first byte, so that a connection keeps its core when the client's address changes.
//   - stream_read and offset_for_time wait for the disk in the goroutine of their stream, which the client opened for them. A stream
//     that publishes is refused one: its pages would wait among answers that are bounded in number only.
//   - RECORD_TIMESTAMPS is announced for offset_for_time, which is what the bit promises of a broker.
//   - Answers are written by the loop. A goroutine hop per wake-up costs more than TryWriteAll, which copies up to a
//     packet into the frame that leaves next.
//   - A subscription's event stream is opened after the subscription is registered and before subscribed is answered,
//     so that a cursor error opens no stream and a missing stream credit is seen by the one who asks.
//   - The live_offset clients are told is 2^52 above the tail (wire.LiveOffsetUnreached): published clients then leave pacing to QUIC
//     flow control and the broker's queue decides what a slow subscriber gets. WIRE section 9 has the reasons.
//   - A subscriber of a durable stream that drops is ended with subscription_lagged in place of its first drop, behind what was queued,
//     when it can read that: it loses nothing, since what it lacks is in the log. Others see the hole. What retention took is a hole for both.
//
// Start reading at Server.Listen, then conn.go, stream.go, door.go, publish.go, ingress.go, waits.go, subscribe.go; inspect.go and watch.go
// look at subscriptions from outside.
package netio
