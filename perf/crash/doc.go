// Package crash kills brokers and looks at what is left: felixd runs on a data directory, is loaded, killed with SIGKILL
// at a random moment, started again on the same ports, and read back whole.
//
//	start ── settle ── verify ── load ── SIGKILL ── offline verify ──┐
//	  ▲  (sometimes killed again, during recovery)                   │
//	  └──────────────────────────────────────────────────────────────┘
//
// The ledger (ledger.go) holds what the broker must answer for: each record that it acknowledged, with offset and
// checksum, and each that a subscriber saw. Every read of every cycle is held against it.
//
// # What must hold after each kill
//
//  1. An acknowledged record reads back equal at its offset, under every fsync mode: a kill takes no page cache with it.
//  2. What a subscriber saw is there, equal, at its offset.
//  3. Offsets of a shard are contiguous from 0, and one is never used for two records.
//  4. Nothing is invented: every record is one that was sent, and was not refused.
//  5. A batch of an idempotent publisher is stored once, and in the order of the shard's batches, however often it was
//     sent; one of a plain publisher at most once.
//  6. Subscriptions and idempotent publishers that live through the kill go on without a gap and without an error.
//  7. The log reads clean offline: no damage, at most a torn end.
//
// # Who loads
//
// One client lives as long as the data directory, with an idempotent publisher and a merged subscription per stream.
// Another lives for one cycle, with plain, at-least-once and idempotent publishers; the kill ends it and nothing is sent again.
// There is one stream per fsync mode, made by first use under that mode; a cycle loads mostly one of them, and the lanes
// carry all three.
//
// # Decisions
//
//   - The moment of the kill is a number of acknowledgements and up to 3 ms behind it, both drawn from the seed. The
//     seed decides what is done, not how the machine interleaves it.
//   - Where a shard ends is found with a marker that the verifier publishes: everything below its offset must be there.
//   - A directory is left after 20 cycles, so that reading all of it in each cycle stays cheap and a thousand cycles do
//     not fill a disk.
//   - Power cuts need a file system that forgets; they are tested in wal. A kill tests the rest: the catalog, the
//     locks, the ports, the sockets and the clients.
//
// Start reading at Run in crash.go.
package crash
