// Package wal is the write-ahead log: lanes, each one directory with one group commit, shared by the durable shards of a core.
//
// It owns the bytes on disk, their order, what is durable, recovery, reads by offset, retention of bytes, and offline tools.
// It leaves to its callers what a shard is, who may append, which offsets a publish gets, dedup, and who may see a record.
//
// # Threads
//
//	owner (a core's loop)    Append SetStart Truncate Delete Commit Drain Close   never waits for the disk (Close does)
//	lane's goroutine         writes and syncs groups, changes the index, rolls, marks        writer.go
//	keeper goroutine         next segment, zeros ahead, frees, moves, recycles               keeper.go retain.go
//	any goroutine            ...OffCore, Reader                                              read.go time.go
//
// A group is what was appended while the previous one was at the disk. Open groups travel owner -> work -> lane -> done ->
// owner; both channels hold every group there is, so no send blocks. Notify says when Drain has something.
//
// # On disk (little-endian; checksums are CRC-32C)
//
//	<lane>/LOCK                   flock, holder's pid
//	<lane>/<16 hex epoch>.seg     log
//	<lane>/<16 hex epoch>.spare   nothing; its blocks wait for reuse
//	<lane>/<16 hex epoch>.new     nothing; being made
//
//	segment   0     header          groups start at multiples of 4,096 and never share such a block, so a torn
//	          4096  header again    write cannot reach an acknowledged group
//	          8192  group, group, ... footer group
//	          size-4096  seal
//
//	segment header  0 "FXS1"  4 crc of 8-63  8 u16 version=1  10 u16 flags (1 recycled)  12 u32 0  16 lane  24 epoch  32 salt
//	                40 size  48 i64 created us  56 log (a random number that all segments of a log share)
//	group           0 "FXG1"  4 crc of 8..end of echo  8 lane  16 epoch  24 salt  32 sequence  40 durable  48 i64 written us
//	                56 u32 body bytes  60 u16 entries  62 u16 echoes
//	                64 entries x 32: shard, base, u32 count, u32 bytes, u32 crc of the batch, u8 kind, u8 flags, u16 0
//	                   echoes x 16:  shard, its end after the previous group
//	                   body: the batches one after the other; then zeros to the next multiple of 4,096
//	batch           0 u8 kind  1 u8 flags  2 u16 extension bytes  4 u32 count (register: slot << 24)  8 shard  16 base
//	                24 i64 append time us  [flag 1: term, consensus index]  [flag 2: producer, sequence]
//	                extensions: (u8 type, u16 bytes, value)*   records: count x (u32 big-endian bytes, payload)
//	flags           1 consensus fields  2 producer fields  4 tombstone  8 moved by retention
//	seal            0 "FXE1"  4 crc of 8-47  8 epoch  16 salt  24 position of the footer group  32 its sequence  40 u64 0
//
//	kinds < 64      take offsets: 1 records 2 cache 3 commit (event and state changes) 4 cursor 5 term start 6 consensus entry
//	kinds < 128     take none: 64 register (a named value of a shard, latest wins: hard state, folds)
//	kinds >= 128    128 start 129 truncate 130 delete 131 segment released (base = epoch) 132 checkpoint 133 footer 134 index
//	extensions      1 publisher 2 trace 3 expiry (i64 ms); unknown ones and unknown kinds below 128 are kept
//
//	checkpoint  u32 shards, segments, registers, 0; shards x (id start end term index lastTime); epochs;
//	            registers x (shard epoch position offset u16 entry u8 slot 5x0)
//	footer      u32 runs, 0; runs x (shard from to bytes minTime maxTime u32 moved u32 entries)
//	index       entries x (offset time u32 block u32 bytes before), the runs' one after the other, one per 256 KiB of log
//	mark        a group without entries
//
// A record costs 4 bytes beside its payload, a batch 64 (header and directory) and 16 (echo), a group 64 and the padding.
//
// # What proves durability
//
// A group carries the highest sequence known to be on disk when it was written (durable). The largest such number in the log
// is the durable mark. A group up to the mark that does not read back is damage; it is reported and never cut. The first one
// after the mark is the torn end; it and all behind it are cut, and the cut is synced, before anything is appended. A group
// whose sync returned, while no later group is on disk, cannot be told from a torn one: an idle lane therefore writes a mark
// after MarkAfter, and a close writes one. Bit rot in the very last group before that is taken for a torn end.
//
// A lost group is named by its own directory, else by the next group's echo, else (two in a row) by the ends in a later
// checkpoint; where none is left, shards that nothing later vouches for are Suspect and refuse appends.
//
// # Invariants
//
//  1. Sequences grow by one over segments; a segment is synced whole before a group goes into the next.
//  2. An OnCommit batch completes without error only after a sync that covers it. After a failed write or sync nothing does,
//     and visible ends fall back to the last sync.
//  3. The index is a fold of the log (index.apply); recovery and the running lane share it.
//  4. An accepted append has room: promised <= room of the active or of the next segment.
//  5. A moved batch is durable before the record that releases its old segment, that before the segment's name goes, and
//     that before its blocks get a new header.
//  6. A shard's end never goes back but by Truncate; a deleted shard's id is not used again.
//  7. Damage frees nothing: a segment with damage stays while any shard misses offsets.
//  8. Segments are of one log (header) and follow each other in sequence and written time. Others refuse the start: folding
//     them would take a foreign checkpoint for the truth.
//
// # Limits
//
// 4,096 batches and MaxGroupBytes a group (one larger batch comes alone, MaxBatchBytes), Groups buffers (then ErrBusy), an
// eighth of the free space a segment, SpareSegments spares, IndexCache sparse indexes, a bounded set of open files. A full
// disk refuses appends (ErrDiskFull) before they are written, those first that no segment is large enough for; start,
// truncate and delete records have a reserve in the segment. Where the file system cannot preallocate, a full disk can
// still fail a write, which stops the lane.
//
// # Decisions
//
//   - Groups are aligned to 4 KiB: simpler than proving what a shared block may lose, full pages are never read before they
//     are written, and at full rate the padding is under 1 %. A lone small publish pays one block.
//   - A checksum per batch in the directory instead of one per body: one rotten batch costs its shard only, and a reader
//     checks only what it reads.
//   - The salt keeps a payload from posing as a group when a scan has lost its way; epochs alone could be guessed.
//   - Buffered writes with fdatasync for both backends, since readers share the page cache (O_DIRECT with O_DSYNC behind a broker:
//     no faster, 2026-11-29). p50 of write and sync seen by the owner of an idle machine, EPYC, 2 shared vCPUs, kernel 6.18,
//     2026-11-30, sync / io_uring, in us: 4 KiB 115 / 117, 64 KiB 121 / 126, 256 KiB 195 / 224, 1 MiB 440 / 502; with a reader
//     following 112 / 124, 119 / 140, 209 / 217, 507 / 505. (go test -run '^$' -bench Group -benchtime 1500x ./wal)
//   - io_uring is the default where it runs although calls win these figures by a little: behind a broker whose loops and connections
//     want the processors that the calls hold, the ring gives 1.7 times the records of 4 KiB in batches (133 against 77 k/s) and twice
//     those of 64 waiting publishers (43 against 22 k/s); the same day and machine, both in one run. Write and sync linked in the ring
//     took two more wake-ups of kernel workers per group and were a fifth slower in small groups than writing with a call.
//   - A lone publish has the call's two wake-ups less with either backend: the ring syncs with a call while one batch at a time waits and the
//     process leaves a processor unused (backend_uring.go). Measured by CPU time, not guessed by load: beside other traffic the processor is not to spare.
//   - The whole active segment is scanned at start; older ones are taken from their footers. The scan runs at over 10 GB/s
//     from the page cache (BenchmarkScan), so checkpoints within a segment only add safety.
//   - Read errors at start refuse the lane: a region that cannot be read is neither a torn end nor damage that is understood.
//
// Start reading at lane.go, then writer.go; recover.go and open.go for the way back; format.go and batch.go for the bytes.
package wal
