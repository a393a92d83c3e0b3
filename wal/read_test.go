package wal_test

import (
	"errors"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

func TestReadLimits(t *testing.T) {
	o := openOwner(t, "l", diskOptions(faultfs.New(8<<20)))
	defer o.mustClose()
	for range 30 {
		o.mustPublish(1, 7, 100)
		o.mustPublish(2, 1, 10)
	}
	r := o.lane.NewReaderOffCore(1, 0)
	defer r.Close()
	next := wire.Offset(0)
	for _, lim := range []wal.Limits{{Records: 1}, {Records: 3}, {Records: 10}, {Bytes: 1}, {Bytes: 250}, {Bytes: 5000}, {To: 68}, {To: 75, Records: 3}, {To: 76}, {}} {
		batches, err := r.Read(lim)
		if err != nil {
			t.Fatalf("%+v: %v", lim, err)
		}
		n, bytes := 0, 0
		for _, b := range batches {
			if b.Base != next {
				t.Fatalf("%+v: batch at %d, want %d", lim, b.Base, next)
			}
			if k, err := wire.CheckRecords(b.Records, b.Count); err != nil || k != len(b.Records) {
				t.Fatalf("%+v: %d records in %d bytes: %v", lim, b.Count, len(b.Records), err)
			}
			next = b.End()
			n += int(b.Count)
			bytes += len(b.Records)
		}
		if n == 0 && (lim.To == 0 || next < lim.To) || lim.Records > 0 && n > lim.Records || lim.Bytes > 0 && n > 1 && bytes > lim.Bytes || lim.To > 0 && next > lim.To {
			t.Errorf("%+v: %d records, %d bytes, up to %d", lim, n, bytes, next)
		}
		if r.Offset() != next {
			t.Errorf("%+v: the reader is at %d, its batches end at %d", lim, r.Offset(), next)
		}
	}
	if next != 210 {
		t.Fatalf("read up to %d, want 210", next)
	}
	if b, err := r.Read(wal.Limits{}); err != nil || len(b) != 0 {
		t.Errorf("at the end: %v %v", b, err)
	}
	o.mustPublish(1, 2, 100)
	if b, err := r.Read(wal.Limits{}); err != nil || len(b) != 1 || b[0].Base != 210 {
		t.Errorf("after an append: %v %v", b, err)
	}
	if _, err := o.lane.NewReaderOffCore(99, 0).Read(wal.Limits{}); !errors.Is(err, wal.ErrUnknownShard) {
		t.Errorf("unknown shard: %v", err)
	}
}

func TestReadAcrossSegmentsAndTrim(t *testing.T) {
	opts := diskOptions(faultfs.New(16 << 20))
	opts.IndexCache = 1
	o := openOwner(t, "l", opts)
	for i := range 300 {
		o.mustPublish(uint64(i%3+1), 3, 500)
	}
	for _, lim := range []wal.Limits{{}, {Records: 2}, {Bytes: 2000}} {
		for shard := uint64(1); shard <= 3; shard++ {
			good, errs := readAll(t, o.lane, shard, 500, lim)
			if err := offsetsAre(good, 0, 300); err != nil || len(errs) > 0 {
				t.Fatalf("shard %d %+v: %v %v", shard, lim, err, errs)
			}
		}
	}
	if err := o.do(func(token uint64) error { return o.lane.SetStart(1, 100, wal.OnCommit, token) }); err != nil {
		t.Fatal(err)
	}
	var trimmed *wal.TrimmedError
	if _, err := o.lane.NewReaderOffCore(1, 99).Read(wal.Limits{}); !errors.As(err, &trimmed) || trimmed.Start != 100 {
		t.Errorf("read below the start: %v", err)
	}
	o.mustClose()
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	good, errs := readAll(t, o.lane, 1, 500, wal.Limits{})
	if err := offsetsAre(good, 100, 300); err != nil || len(errs) > 0 {
		t.Fatalf("after a restart: %v %v", err, errs)
	}
}

func TestReaderKeepsItsSegment(t *testing.T) {
	d := faultfs.New(8 << 20)
	o := openOwner(t, "l", diskOptions(d))
	defer o.mustClose()
	for range 50 {
		o.mustPublish(1, 2, 1000)
	}
	r := o.lane.NewReaderOffCore(1, 0)
	first, err := r.Read(wal.Limits{Records: 2})
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if _, err := r.Read(wal.Limits{Records: 2}); err != nil {
		t.Fatal(err)
	}
	if err := o.do(func(token uint64) error { return o.lane.SetStart(1, 100, wal.OnCommit, token) }); err != nil {
		t.Fatal(err)
	}
	o.mustPublish(1, 1, 1000)
	for o.lane.StatsOffCore().Released == 0 {
		o.mustPublish(2, 1, 10)
	}
	if d.Get("l/0000000000000001.seg") == nil {
		t.Error("a segment went while a reader stood in it")
	}
	r.Close()
	for d.Get("l/0000000000000001.seg") != nil {
		o.mustPublish(2, 1, 10)
	}
}

func TestOffsetForTime(t *testing.T) {
	opts := diskOptions(faultfs.New(16 << 20))
	o := openOwner(t, "l", opts)
	const n = 200
	for i := range n {
		base, _ := o.lane.End(1)
		at := int64(1000 + 10*i)
		if i == 150 {
			at = 5 // a clock that steps back must not turn time around within the shard
		}
		err := o.do(func(token uint64) error {
			_, err := o.lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: 1, Base: base, Count: 2, Time: at, Records: records(1, base, 2, 700)}, wal.OnCommit, token)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for _, c := range []struct {
			at   int64
			want wire.Offset
		}{{0, 0}, {1000, 0}, {1001, 2}, {1010, 2}, {1995, 200}, {2490, 298}, {2491, 302}, {2990, 398}, {2991, 400}, {1 << 50, 400}} {
			if got, err := o.lane.OffsetForTimeOffCore(1, c.at); err != nil || got != c.want {
				t.Errorf("offset for time %d is %d (%v), want %d", c.at, got, err, c.want)
			}
		}
	}
	check()
	r := o.lane.NewReaderOffCore(1, 300)
	if b, err := r.Read(wal.Limits{Records: 2}); err != nil || b[0].Time != 2490 {
		t.Errorf("a batch of a clock that stepped back has time %d, want the 2490 of the one before (%v)", b[0].Time, err)
	}
	r.Close()
	o.mustClose()
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	check()
	if _, err := o.lane.OffsetForTimeOffCore(7, 0); !errors.Is(err, wal.ErrUnknownShard) {
		t.Errorf("unknown shard: %v", err)
	}
}

func TestRetentionStart(t *testing.T) {
	opts := diskOptions(faultfs.New(32 << 20))
	opts.SegmentBytes = 1 << 20
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	const n, size = 3000, 1000
	for i := range n {
		base, _ := o.lane.End(1)
		err := o.do(func(token uint64) error {
			_, err := o.lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: 1, Base: base, Count: 1, Time: int64(i) * 1e6, Records: records(1, base, 1, size)}, wal.OnCommit, token)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, keep := range []int64{0, 1, 100 << 10, 1 << 20, 2 << 20, 100 << 20} {
		at, err := o.lane.RetentionStartOffCore(1, wal.Retention{MaxBytes: keep}, time.UnixMicro(0))
		if err != nil {
			t.Fatal(err)
		}
		least := int64(n-int(at)) * size
		if keep > 0 && least < min(keep-keep/20-2*size, int64(n)*size*95/100) || keep == 0 && at != 0 {
			t.Errorf("to keep %d bytes the start is %d, which keeps %d", keep, at, least)
		}
		if keep > 0 && keep < 3<<20 && least > keep+1<<20 {
			t.Errorf("to keep %d bytes the start is %d, which keeps %d", keep, at, least)
		}
	}
	now := time.UnixMicro(int64(n) * 1e6)
	for _, age := range []time.Duration{time.Second, 100 * time.Second, 2000 * time.Second, time.Hour * 10} {
		at, err := o.lane.RetentionStartOffCore(1, wal.Retention{MaxAge: age}, now)
		if err != nil {
			t.Fatal(err)
		}
		exact := max(0, n-int(age/time.Second))
		if int(at) > exact {
			t.Errorf("for age %v the start is %d, which drops records younger than that (from %d)", age, at, exact)
		}
	}
}

func TestTruncateThenAppendReadsTheNewRecords(t *testing.T) {
	opts := diskOptions(faultfs.New(8 << 20))
	o := openOwner(t, "l", opts)
	put := func(payload string, n int) {
		t.Helper()
		base, _ := o.lane.End(1)
		var recs []byte
		for range n {
			recs = wire.AppendRecord(recs, []byte(payload))
		}
		err := o.do(func(token uint64) error {
			_, err := o.lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: 1, Base: base, Count: uint32(n), Records: recs}, wal.OnCommit, token)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	truncate := func(to wire.Offset) {
		t.Helper()
		if err := o.do(func(token uint64) error { return o.lane.Truncate(1, to, wal.OnCommit, token) }); err != nil {
			t.Fatal(err)
		}
	}
	put("a", 5)
	put("b", 5)
	truncate(3) // within the first batch
	put("c", 4)
	truncate(7) // nothing
	put("d", 2)
	truncate(8)
	put("e", 1)
	for range 2 {
		got := ""
		r := o.lane.NewReaderOffCore(1, 0)
		for {
			batches, err := r.Read(wal.Limits{Records: 2})
			if err != nil {
				t.Fatal(err)
			}
			if len(batches) == 0 {
				break
			}
			for _, b := range batches {
				for p := range wire.AllRecords(b.Records) {
					got += string(p)
				}
			}
		}
		r.Close()
		if got != "aaaccccde" {
			t.Errorf("reads %q, want aaaccccde", got)
		}
		o.mustClose()
		o = openOwner(t, "l", opts)
	}
	o.mustClose()
}
