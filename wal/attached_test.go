package wal

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"felix/netio/wire"
)

var attachedGiB = flag.Int64("attached.gib", 2, "GiB of log in sparse files that a lane is opened on; 100 for the nightly run")

// TestHeapOfAttachedLog opens a lane of many sealed segments and has every sparse index looked up. What a segment costs and what the
// cache of indexes may hold come to at most 64 MiB for 100 GiB. The files are sparse: headers, checkpoints, footers with the runs and
// indexes of 48 shards at full rate, and seals are there, the groups between them are not.
func TestHeapOfAttachedLog(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector keeps books of its own")
	}
	const shards, segmentBytes, most, attached = 48, 64 << 20, 64 << 20, 100 << 30
	segments := *attachedGiB << 30 / segmentBytes
	dir := t.TempDir()
	writeSparseLog(t, dir, segments, segmentBytes, shards)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers let go of
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	opts := testOptions()
	opts.SegmentBytes, opts.Lane = segmentBytes, 1
	r := openRig(t, dir, opts)
	defer r.close()
	if len(r.rec.Damage) > 0 || len(r.rec.Notices) > 0 || r.rec.Segments != int(segments)+1 || len(r.rec.Shards) != shards {
		t.Fatalf("%d segments, %d shards, damage %v, notices %.500v", r.rec.Segments, len(r.rec.Shards), r.rec.Damage, r.rec.Notices)
	}
	opened := heap() - before
	start, end, _ := r.lane.RangeOffCore(1)
	lookups := 0
	for at := start; at < end; at += wire.Offset(segmentBytes / sparsePerEntry * sparseRecords) {
		for shard := range uint64(shards) {
			entry, err := lookUp(r.lane, shard+1, at)
			if err != nil || entry.offset != at {
				t.Fatalf("shard %d at %d: %+v, %v", shard+1, at, entry, err)
			}
			lookups++
		}
	}
	read := heap() - before
	runtime.KeepAlive(r)
	cache := (read - opened) * int64(indexCacheOf(opts)) / min(int64(indexCacheOf(opts)), segments)
	all := opened*(attached/segmentBytes)/segments + cache
	t.Logf("%d GiB in %d segments: %d KiB of heap, %d KiB after %d lookups in all of them; start scanned %d KiB; at 100 GiB that is %.1f MiB",
		*attachedGiB, segments, opened>>10, read>>10, lookups, r.rec.ScannedBytes>>10, float64(all)/(1<<20))
	if all > most {
		t.Errorf("100 GiB take %d bytes of heap, at most %d are allowed", all, most)
	}
	if read > most {
		t.Errorf("the heap holds %d bytes", read)
	}
}

// indexCacheOf is the number of indexes that a lane keeps.
func indexCacheOf(o Options) int {
	o, _ = o.withDefaults()
	return o.IndexCache
}

func lookUp(l *Lane, shard uint64, at wire.Offset) (indexEntry, error) {
	l.idx.mu.RLock()
	e, _ := l.idx.shards[shard].find(at)
	seg := e.seg
	seg.hold()
	l.idx.mu.RUnlock()
	defer seg.letGo()
	return l.sealedEntry(seg, shard, at)
}

const (
	sparsePerEntry = indexSpacing // log bytes between the index entries of a run
	sparseRecords  = 20           // records of a shard in them
)

// writeSparseLog makes the files of a log of lane 1 with the given number of sealed segments, each of which holds records of every
// shard from 1 on, and of an active one behind them.
func writeSparseLog(t *testing.T, dir string, segments, segmentBytes int64, shards int) {
	t.Helper()
	now := time.Now().UnixMicro()
	entriesPerRun := int(segmentBytes / sparsePerEntry)
	recordsPerRun := wire.Offset(entriesPerRun * sparseRecords)
	var table checkpoint
	var sequence uint64
	group := func(h *segmentHeader, batches ...*Batch) []byte {
		sequence++
		g := groupHeader{lane: h.lane, epoch: h.epoch, salt: h.salt, sequence: sequence, durable: sequence - 1, written: now}
		var body []byte
		for _, b := range batches {
			from := len(body)
			body = appendBatch(body, b)
			g.dir = append(g.dir, dirEntry{kind: b.Kind, size: uint32(len(body) - from), crc: checksum(body[from:])})
		}
		g.bodyLen = uint32(len(body))
		out := append(appendGroupHeader(nil, &g), body...)
		return append(out, make([]byte, alignUp(int64(len(out)))-int64(len(out)))...)
	}
	for epoch := uint64(1); epoch <= uint64(segments)+1; epoch++ {
		now++
		h := segmentHeader{version: formatVersion, lane: 1, epoch: epoch, salt: epoch * 0x9e3779b97f4a7c15, size: segmentBytes, created: now, log: 77}
		f, err := os.Create(filepath.Join(dir, segmentName(epoch)))
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte, at int64) {
			t.Helper()
			if _, err := f.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(segmentBytes); err != nil {
			t.Fatal(err)
		}
		write(appendSegmentHeader(nil, &h), 0)
		write(appendSegmentHeader(nil, &h), blockSize)
		base := wire.Offset(epoch-1) * recordsPerRun
		table.segments = append(table.segments, epoch)
		table.shards = table.shards[:0]
		for shard := range uint64(shards) {
			table.shards = append(table.shards, tableShard{id: shard + 1, end: base, lastTime: now})
		}
		write(group(&h, &Batch{Kind: kindCheckpoint, Time: now, Records: appendCheckpoint(nil, &table)}), segmentDataStart)
		if epoch <= uint64(segments) {
			var runs []run
			var entries []indexEntry
			for shard := range uint64(shards) {
				runs = append(runs, run{shard + 1, base, base + recordsPerRun, segmentBytes / int64(shards), now, now, false, uint32(entriesPerRun)})
				for i := range entriesPerRun {
					entries = append(entries, indexEntry{base + wire.Offset(i*sparseRecords), now, uint32(i * (sparsePerEntry / blockSize)), uint32(i)})
				}
			}
			footer := group(&h, &Batch{Kind: kindFooter, Time: now, Records: appendRuns(nil, runs)}, &Batch{Kind: kindIndex, Time: now, Records: appendIndexEntries(nil, entries)})
			at := segmentBytes - blockSize - int64(len(footer))
			write(footer, at)
			write(appendSeal(nil, &seal{epoch: epoch, salt: h.salt, footerPos: at, lastSequence: sequence}), segmentBytes-blockSize)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
