// Package faultfs is a file system in memory that loses power, and a backend that fails, for tests of the write-ahead log.
//
// A Disk knows, for every file, what is durable and which writes came after the last sync. Crash makes the disk that a
// machine could find after a power cut at this moment: unsynced writes are dropped, kept, torn at 512 bytes or 4 KiB, or
// kept in part and out of order, across files; directory operations since the last directory sync survive as a prefix.
// Blocks are shared between a Disk and its crash images, so that a test can cut at every operation of a long workload.
//
//	write -> pending of the file --Datasync--> durable
//	create, rename, remove -> pending of the directory --SyncDir--> durable
//
// A failed Datasync behaves as Linux does: the writes it covered stay visible and are never written, and a later
// Datasync succeeds. OnOp is called after each operation took effect, Fail before it.
//
// Invariants:
//  1. Crash never invents: every byte of an image was durable or written.
//  2. What a successful Datasync covered is in every later image.
//  3. A Disk made by Crash has nothing pending.
//
// Limits: one flat space of names; reads never fail unless Fail says so; files hold no more than the capacity.
package faultfs
