// Package client is the public Go client of felix: it publishes to streams and subscribes to them, over QUIC.
//
// It owns connections, routing, retries and the order of publishes on their way. It leaves the bytes of the protocol to netio/wire and the
// socket to netio/udp. It holds no global state, logs only to a logger it was given, and leaves no goroutine behind after Close.
//
//	c, err := client.Dial(ctx, "localhost:5000", client.WithToken(token))
//	ack, err := c.Publish(ctx, "orders", data, client.Key("k1"))
//	sub, err := c.Subscribe(ctx, "orders", client.FromEarliest())
//	for m, err := range sub.All(ctx) { ... }
//
// # The way of a publish
//
//	caller     option values -> message (on the stack)
//	           route: topic (width and owners, asked once, then every 5 s) -> shard -> place (connection, stream)
//	           pubStream.publish: room -> a small record goes into the open pack of its shard, anything else into a frame in the stream's
//	           chunk, under a short mutex
//	writer     packs become frames -> one write of all that a chunk holds, as far as the window allows
//	reader     all acks of a read parsed in place -> futures end -> room and window open again
//
// A record is copied once here, from the caller into the chunk, or twice by way of a pack (pack.go). The chunk lives until its last acked
// frame is answered, so what is refused can be sent again from there. Event streams are read into fresh chunks, parsed in place and handed
// over as views, one channel operation per read.
//
// # Threads
//
// Client, Publisher and Future may be used from any goroutine; a Subscription is read by one at a time. Inside, each publish stream has a
// writer and a reader goroutine around one mutex (pubstream.go), each connection one that accepts streams and one that reads answers to
// questions, each shard of a subscription one. Everything that blocks returns within 100 ms when its context ends or the client is
// closed.
//
// A program for which the time of a lone ack counts can start with more timer slack, as felixd does for itself (package affinity says
// why): TimerSlackNSec=200us of a systemd unit, or prctl before it replaces itself. Lone acks then take 52 us where they take 62 us with
// felixd's alone (2 vCPU EPYC, Go 1.26.8, medians of four in turn, 2026-11-30).
//
// # Invariants
//
//  1. A publish ends exactly once: in the reader that saw its answer, in the queue that gave it up, or in Close.
//  2. Publishes of one goroutine to one key are in one stream in the order of the calls. The order is kept through failures by idempotent
//     publishers only: a plain publish that is sent again may land after later ones.
//  3. A publish whose outcome is not known is sent again only for an idempotent publisher or with AtLeastOnce.
//  4. At most the granted window of publishes is unanswered per stream; for an idempotent publisher at most 64 per shard besides.
//  5. Memory that a Msg points into is never written again.
//  6. Records that a subscription missed are reported as a GapError, never passed over.
//  7. Close finishes every publish stream and reads to the broker's FIN before it closes the connection, which would throw away what
//     was written and not yet sent.
//
// # Limits
//
//	per publish stream        256 unanswered or as granted; 4,096 publishes and 4 MiB with those queued; then a publish waits for room
//	per pack                  512 records of up to 4 KiB with the key, 32 KiB in all; 32 open per stream; more become frames early
//	per slot                  4 MiB of refused publishes that wait to be sent again; what is beyond fails as it was refused
//	per idempotent shard      64 unanswered, 4,096 and 4 MiB queued; then a publish waits for room
//	per subscription          16 reads, of 4 KiB to 1 MiB or one larger frame each; then flow control holds the broker back
//	frame                     16 MiB both ways; a larger batch is refused before it is sent
//	attempt at an address     6 s; an owner that has not answered after 1 s is served through the entry broker, and tried in the background
//	streams remembered        4,096; owners' addresses 1,024; seeds 16
//
// # Decisions
//
//   - A connection per owner of shards: a broker names each core as an owner with a port of its own, so a record crosses no core there.
//     Four publish streams per connection: few streams make large writes.
//   - One writer goroutine per stream. Tried instead: the publisher of a lone record writes it itself with TryWriteAll. No difference to
//     the lone record, 25.4 against 25.3 us in one process (BenchmarkBrokerLone) and 40.6 against 40.8 us of CPU in two, and 64 publishers
//     with one record each under way share fewer frames: 222 -> 208 k records/s (2 vCPU EPYC, Go 1.26.8, 2026-11-29 and 30).
//   - Single records that wait for the writer share frames (pack.go), as they do in other clients' buffers; nothing waits for a frame to fill.
//     64 publishers x 64 in flight, 48 keys each, 256 B: 13 records a frame; 1.36 -> 1.69 M records/s unacked, 1.00 -> 1.13 M acked, and the
//     broker's CPU per record 0.53 -> 0.38 and 0.72 -> 0.55 us (2 vCPU EPYC, Go 1.26.8, felix bench pub in turn with the build before,
//     2026-11-30). Idempotent publishes are numbered by the frame and go one by one.
//   - Options of a publish are values, not functions, and futures of Publish and PublishFunc are recycled: they do not allocate
//     (TestAllocations). PublishFunc calls where answers are read; a goroutine for the calls would cost what it saves.
//   - publish_ok, the only answer to idempotent publishes, has a reader of its own beside wire.ParseMessage: 628 k -> 1.07 M records/s
//     (same machine, BenchmarkBroker/idempotent).
//   - ACK_ON_COMMIT is always asked for: an ack means what the stream promises, and carries the offset.
//   - live_offset is not used: pacing is flow control's alone, so start_offset is enough to resume.
//
// Start reading at Client.Publish in publish.go, then retry.go, pubstream.go and sendqueue.go; for reading at Client.Subscribe.
package client
