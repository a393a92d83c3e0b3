package wal

import (
	"bytes"
	"testing"

	"felix/netio/wire"
)

func sampleHeader() *groupHeader {
	return &groupHeader{lane: 1, epoch: 2, salt: 3, sequence: 4, durable: 3, written: 5, bodyLen: 30,
		dir:  []dirEntry{{1, 10, 2, 20, 7, KindRecords, 0}, {2, 0, 0, 10, 8, KindRegister, flagMoved}},
		echo: []shardEnd{{1, 10}}}
}

func FuzzGroupHeader(f *testing.F) {
	f.Add(appendGroupHeader(nil, sampleHeader()))
	f.Add(appendGroupHeader(nil, &groupHeader{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum is made right, so that the fields behind it are reached.
		if n, _, err := peekGroupHeader(b); err == nil && n <= len(b) {
			b = append([]byte(nil), b...)
			le.PutUint32(b[4:], checksum(b[8:n]))
		}
		var h groupHeader
		if parseGroupHeader(b, &h) != nil {
			return
		}
		if got := appendGroupHeader(nil, &h); !bytes.Equal(got, b[:len(got)]) {
			t.Fatalf("%x parses and appends as %x", b, got)
		}
	})
}

func FuzzSegmentHeader(f *testing.F) {
	f.Add(appendSegmentHeader(nil, &segmentHeader{version: formatVersion, lane: 1, epoch: 2, salt: 3, size: 1 << 20, recycled: true, created: 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= segmentHeaderSize {
			b = append([]byte(nil), b...)
			le.PutUint32(b[4:], checksum(b[8:segmentHeaderSize]))
		}
		var h segmentHeader
		if parseSegmentHeader(b, &h) != nil || h.version != formatVersion {
			return
		}
		if got := appendSegmentHeader(nil, &h); !bytes.Equal(got, b[:segmentHeaderSize]) {
			t.Fatalf("%x parses and appends as %x", b[:segmentHeaderSize], got)
		}
	})
}

func FuzzSeal(f *testing.F) {
	f.Add(appendSeal(nil, &seal{1, 2, 8192, 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= sealSize {
			b = append([]byte(nil), b...)
			le.PutUint32(b[4:], checksum(b[8:sealSize]))
		}
		var s seal
		if parseSeal(b, &s) != nil {
			return
		}
		if got := appendSeal(nil, &s); !bytes.Equal(got, b[:sealSize]) {
			t.Fatalf("%x parses and appends as %x", b[:sealSize], got)
		}
	})
}

func sampleBatches() []*Batch {
	ext := AppendExtension(AppendExtension(nil, ExtPublisher, []byte("alice")), ExtExpiry, make([]byte, 8))
	return []*Batch{
		testBatch(1, 7, 3, 20),
		{Kind: KindCache, Flags: FlagTombstone, Shard: 2, Base: 1, Count: 1, Time: 5, Extensions: ext, Records: testRecord(2, 1, 5)},
		{Kind: KindRecords, Shard: 3, Base: 0, Count: 1, Term: 4, Index: 9, Producer: 8, Sequence: 2, Records: testRecord(3, 0, 0)},
		{Kind: KindRegister, Slot: 200, Shard: 1, Base: 3, Records: []byte("state")},
		{Kind: KindEntry, Shard: 1, Base: 4, Count: 1, Term: 2, Index: 3, Records: testRecord(1, 4, 9)},
		{Kind: kindStart, Shard: 1, Base: 12},
		{Kind: 40, Shard: 1, Base: 1, Count: 1, Records: testRecord(1, 1, 3)}, // a kind of a later time
	}
}

func TestBatchRoundTrip(t *testing.T) {
	for _, want := range sampleBatches() {
		b := appendBatch(nil, want)
		if len(b) != want.encodedSize() {
			t.Errorf("kind %v: %d bytes, encodedSize says %d", want.Kind, len(b), want.encodedSize())
		}
		var got Batch
		if err := parseBatch(b, &got); err != nil {
			t.Fatalf("kind %v: %v", want.Kind, err)
		}
		if got.Kind != want.Kind || got.Slot != want.Slot || got.Shard != want.Shard || got.Base != want.Base || got.Count != want.Count ||
			got.Term != want.Term || got.Index != want.Index || got.Producer != want.Producer || got.Sequence != want.Sequence ||
			!bytes.Equal(got.Extensions, want.Extensions) || !bytes.Equal(got.Records, want.Records) {
			t.Errorf("%+v came back as %+v", want, got)
		}
	}
	var b Batch
	if err := parseBatch(appendBatch(nil, sampleBatches()[1]), &b); err != nil {
		t.Fatal(err)
	}
	if v, ok := b.Extension(ExtPublisher); !ok || string(v) != "alice" {
		t.Errorf("publisher %q %v", v, ok)
	}
	if v, ok := b.Extension(ExtExpiry); !ok || len(v) != 8 {
		t.Errorf("expiry %x %v", v, ok)
	}
	if _, ok := b.Extension(ExtTrace); ok {
		t.Error("a trace appeared")
	}
}

func FuzzBatch(f *testing.F) {
	for _, b := range sampleBatches() {
		f.Add(appendBatch(nil, b), uint64(1), uint64(2))
	}
	f.Fuzz(func(t *testing.T, p []byte, from, to uint64) {
		var b Batch
		if parseBatch(p, &b) != nil {
			return
		}
		if got := appendBatch(nil, &b); !bytes.Equal(got, p) {
			t.Fatalf("%x parses and appends as %x", p, got)
		}
		lo, hi := max(b.Base, wire.Offset(from)), min(b.End(), wire.Offset(to))
		if lo < hi && b.Count < 1<<16 {
			if b.clip(lo, hi) == nil && (b.Base != lo || b.End() != hi) {
				t.Fatalf("clip to [%d, %d) gave [%d, %d)", lo, hi, b.Base, b.End())
			}
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(appendCheckpoint(nil, &checkpoint{shards: []tableShard{{1, 2, 3, 4, 5, 6}}, segments: []uint64{1, 2}, registers: []tableRegister{{1, 2, 3, 4, 8192, 6}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c checkpoint
		if parseCheckpoint(b, &c) != nil {
			return
		}
		if got := appendCheckpoint(nil, &c); !bytes.Equal(got, b) {
			t.Fatalf("%x parses and appends as %x", b, got)
		}
	})
}

func FuzzFooter(f *testing.F) {
	f.Add(appendRuns(nil, []run{{1, 2, 3, 100, 5, 6, true, 1}}), appendIndexEntries(nil, []indexEntry{{2, 5, 2, 0}}))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if runs, err := parseRuns(a); err == nil {
			if got := appendRuns(nil, runs); !bytes.Equal(got, a) {
				t.Fatalf("%x parses and appends as %x", a, got)
			}
		}
		if entries, err := parseIndexEntries(b); err == nil {
			if got := appendIndexEntries(nil, entries); !bytes.Equal(got, b) {
				t.Fatalf("%x parses and appends as %x", b, got)
			}
		}
	})
}

func FuzzSegmentName(f *testing.F) {
	f.Add("0000000000000001.seg")
	f.Fuzz(func(t *testing.T, name string) {
		if e, ok := parseSegmentName(name, segmentSuffix); ok && segmentName(e) != name {
			t.Fatalf("%q parses as %d", name, e)
		}
	})
}

// FuzzScan scans arbitrary bytes as a segment: groups that are given were written as they are.
func FuzzScan(f *testing.F) {
	h := segmentHeader{version: formatVersion, lane: 1, epoch: 2, salt: 3, size: 16 * blockSize}
	body := appendBatch(nil, testBatch(5, 0, 2, 30))
	g := groupHeader{lane: 1, epoch: 2, salt: 3, sequence: 1, bodyLen: uint32(len(body)), dir: []dirEntry{{5, 0, 2, uint32(len(body)), checksum(body), KindRecords, 0}}}
	f.Add(append(appendGroupHeader(nil, &g), body...), uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint16, x byte) {
		file := make([]byte, h.size)
		copy(file[segmentDataStart:len(file)-blockSize], b)
		if int(at) < len(b) {
			file[segmentDataStart+int(at)%(int(h.size)-segmentDataStart)] ^= x
		}
		s := newScanner(bytes.NewReader(file), &h, h.size)
		for pos := int64(segmentDataStart); ; {
			g, err := s.next(pos)
			if err != nil {
				t.Fatal(err)
			}
			if g == nil {
				break
			}
			_ = g.batches(func(i int, b *Batch, size uint32) error {
				if b.Shard != g.dir[i].shard || int(size) > len(file) {
					t.Fatalf("entry %d of shard %d holds %+v", i, g.dir[i].shard, b)
				}
				return nil
			}, func(int) error { return nil })
			pos = g.pos + g.diskLen()
		}
	})
}
