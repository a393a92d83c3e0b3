// Package replicate is what a shard is: its offsets, high watermark, ring, log and idempotent producers; and the catalog of tenants,
// namespaces and streams that shards belong to.
//
// Records themselves are fanout's (Ring, Topic) and, of durable streams, wal's (Lane). This package decides when a record counts: Shard is
// the only place that says what may be acknowledged and what may be delivered.
//
// # Threading
//
// A Host is the shards of one core and the lanes they are kept in; it and they belong to that core's loop, which never waits for a disk:
// lanes write on goroutines of their own, and at most two per host read them (readers.go). A Stream is an immutable handle that any
// goroutine may keep; what may change is checked where it matters, on the owner's loop, when a batch is appended. The Catalog may be used
// from any goroutine: its commands take a lock, which the journal's disk may hold, its directory is read without one.
//
// # A batch's way
//
//	Shard.Append   refuse (deleted), wait (held back), or judge (idempotent)
//	  lane.Append  durable: copy into the group, or refuse, or wait (busy)
//	  ring.Append  copy, give offsets                                     => appended
//	  commitMark   in memory: at once; durable: pending until Lanes.Work  => committed, the high watermark
//	  mayAck       Append.Done: in memory in the same call
//	Host.Work      at the end of the pass: seal the frame, commit the lanes
//	  mayDeliver   offer it to the topic, whole                           => delivered
//	  ring.Trim    drop the oldest records beyond the bounds
//
//	agents of a pass:  Host.Lanes (completions) | sessions' answers | Host (delivery, commit)
//
// While a subscriber with the policy Block or a busy lane holds the shard back, appends wait in Shard.held, in order, with the slots and
// bytes their sessions reserved. They go on in the pass in which the topic lets go, or the lane has room; those with a deadline are refused
// then. A shard that refuses a batch in order for now remembers it and refuses its producer's next ones alike, until it comes again: they
// may be on their way already, and sequence_gap would end the producer.
//
// The ring of a durable shard is the tail of its log in memory: it drops what was offered, and subscriptions read the rest through
// ReadArchive. Its start is that of the log, its delivered end that of a whole frame. A start is: lanes are opened, Host.AddLane,
// NewCatalog, Restore (streams from the journal, offsets from the lanes, producers from tables and batches), then the loops.
//
// # Invariants
//
//  1. Offsets of a shard start at 0 and have no gaps; a batch is contiguous and never split.
//  2. ring start <= delivered <= committed <= appended. At the end of a pass all three are equal for a shard in memory.
//  3. Append.Done is called exactly once, on the owner's loop, in order of the appends that were accepted. A Duplicate waits in the same
//     order until its first is as safe as the mode says.
//  4. A refused append changes nothing: no offset, no sequence. OutcomeUnknown is no refusal.
//  5. A catalog command that fails changes nothing; one that finds things as it wants them takes no revision. With a journal it takes
//     effect after its record is safe; a record whose writing failed may come back after a restart, as if done then.
//  6. After DeleteStream has returned nil no append to the stream succeeds, its subscriptions end after what was queued, and its memory
//     is back. A stream id is never used again, nor is one that is found in a lane.
//  7. A shard lives in one lane for life, under stream id * 1024 + index. What a lane holds and no record names is left alone.
//
// # Limits
//
// HostConfig and CatalogConfig name them with what happens at each: records and bytes per ring, appends held, producers per shard and
// core, tenants, namespaces, streams, shards, streams created on first use. Names have 1 to 128 bytes, lists 10,000 entries a page.
// An idle stream of one shard takes less than 1 KiB, since ring, topic and producers hold nothing before their first use.
//
// # Decisions
//
// commitMark, mayAck and mayDeliver are the seam for consensus: with a log the mark follows its completions; with a quorum it will follow
// that, and nothing else moves.
//
// An empty batch is answered with the tail and appends nothing; an idempotent one takes its sequence, since its producer counts it. The
// log has it with the next table only: after a kill its sequence is expected again.
//
// Tables of producers are written by distance in the lane, not in the shard: a start walks the lane from a shard's mark on, whoever's
// batches are there. A shard without idempotent producers is not read at a start at all (tables.go).
//
// BenchmarkDurableAppend (busy 2-vCPU EPYC, 2026-11-29, 256 B, 64 in flight, through to the completion): on_commit 3.0 us, periodic 0.9 us,
// in memory 0.15 us a record; batches of 64 at 560 MB/s; no allocation, the lane included. BenchmarkCatchUp reads a log at 2.2 GB/s.
//
// The digest that tells a repeated batch from another one under the same sequence is CRC-32C and length: it finds mistakes, not forgers,
// and is the same on every node and after a restart, from the records alone.
//
// The shards of a stream are dealt to the cores in turn, from one that the stream's id decides, so that one stream and many are spread.
// The directory is one concurrent map by a hash of the three names, whose entries are compared with the names: a lookup takes 21 ns with
// 1 or 10,000 streams (BenchmarkResolve, 2 vCPU EPYC, shared) and builds no key.
//
// Deleted names are remembered, so that clients that ask every few seconds do not bring a stream back: only an explicit create does.
// Retention bounds the ring of a stream in memory: size at each append, age about once a second. That of a log moves its start about once
// a second, whoever still reads there: readers get the jump counted.
//
// Start reading at shard.go, then durable.go, lanes.go, host.go, producers.go and readers.go; catalog.go, command.go and
// journal.go stand by themselves.
package replicate
