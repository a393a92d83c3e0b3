// Package replicate is what a shard is: its offsets, high watermark, ring and idempotent producers; and the catalog of tenants,
// namespaces and streams that shards belong to.
//
// Records themselves are fanout's (Ring, Topic). This package decides when a record counts: Shard is the only place that says what may be
// acknowledged and what may be delivered.
//
// # Threading
//
// A Host is the shards of one core; it and they belong to that core's loop. A Stream is an immutable handle that any goroutine may keep; what
// may change is checked where it matters, on the owner's loop, when a batch is appended. The Catalog may be used from any goroutine: its
// commands take a lock, its directory is read without one.
//
// # A batch's way
//
//	Shard.Append   refuse (deleted), wait (held back), or judge (idempotent)
//	  ring.Append  copy, give offsets                                     => appended
//	  commitMark   in memory: at once                                     => committed, the high watermark
//	  mayAck       Append.Done, in the same call
//	Host.Work      at the end of the pass: seal the frame
//	  mayDeliver   offer it to the topic, whole                           => delivered
//	  ring.Trim    drop the oldest records beyond the bounds
//
// While a subscriber with the policy Block holds the shard back, appends wait in Shard.held, in order, with the slots and bytes their
// sessions reserved; other shards of the core do not notice. They go on in the pass in which the topic lets go.
//
// # Invariants
//
//  1. Offsets of a shard start at 0 and have no gaps; a batch is contiguous and never split.
//  2. ring start <= delivered <= committed <= appended. At the end of a pass all three are equal for a shard in memory.
//  3. Append.Done is called exactly once, on the owner's loop, in order of the appends that were accepted.
//  4. A refused append changes nothing: no offset, no sequence.
//  5. A catalog command that fails changes nothing; one that finds things as it wants them takes no revision.
//  6. After DeleteStream has returned nil no append to the stream succeeds, its subscriptions end after what was queued, and its memory
//     is back. A stream id is never used again.
//
// # Limits
//
// HostConfig and CatalogConfig name them with what happens at each: records and bytes per ring, appends held, producers per shard and
// core, tenants, namespaces, streams, shards, streams created on first use. Names have 1 to 128 bytes, lists 10,000 entries a page.
// An idle stream of one shard takes less than 1 KiB, since ring, topic and producers hold nothing before their first use.
//
// # Decisions
//
// commitMark, mayAck and mayDeliver are the seam for the log and for consensus: with a log the mark follows its completions and acks
// wait for it; nothing else moves.
//
// An empty batch is answered with the tail and appends nothing; an idempotent one takes its sequence, since its producer counts it.
//
// The digest that tells a repeated batch from another one under the same sequence is CRC-32C and length: it finds mistakes, not forgers,
// is the same on every node and after a restart, and the log computes it anyway.
//
// The shards of a stream are dealt to the cores in turn, from a core that the stream's id decides: any stream of a few shards is spread
// evenly, and so are many streams of one shard.
//
// The directory is one concurrent map by a hash of the three names, whose entries are compared with the names: a lookup takes 21 ns with
// 1 or 10,000 streams (BenchmarkResolve, 2 vCPU EPYC, shared) and builds no key.
//
// Names that were deleted are remembered, so that clients that ask every few seconds do not bring a stream back: only an explicit
// create does.
//
// Retention bounds the ring of a stream in memory: size at each append, age about once a second.
//
// Start reading at shard.go, then host.go, append.go and producers.go; catalog.go and command.go stand by themselves.
package replicate
