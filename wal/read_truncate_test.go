package wal

import (
	"errors"
	"testing"

	"felix/netio/wire"
)

// hold appends n one-letter records to shard 1 and leaves them in the open group.
func (r *rig) hold(base wire.Offset, letter string, n int) {
	r.t.Helper()
	b := &Batch{Kind: KindRecords, Shard: 1, Base: base, Count: uint32(n)}
	for range n {
		b.Records = wire.AppendRecord(b.Records, []byte(letter))
	}
	if _, err := r.lane.Append(b, OnCommit, 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) truncate(end wire.Offset) {
	r.t.Helper()
	if err := r.lane.Truncate(1, end, OnCommit, 0); err != nil {
		r.t.Fatal(err)
	}
}

// settle writes the open group and waits for it.
func (r *rig) settle() {
	r.t.Helper()
	r.lane.Commit()
	r.until(func() bool { return r.lane.inFlight == 0 })
}

// letters reads to the visible end.
func letters(t *testing.T, reader *Reader) (text string) {
	t.Helper()
	for {
		batches, err := reader.Read(Limits{Records: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return text
		}
		for _, b := range batches {
			for p := range wire.AllRecords(b.Records) {
				text += string(p)
			}
		}
	}
}

// TestTruncateWithinAGroup replaces records by others in the very group that holds them, as a follower does that catches up fast.
func TestTruncateWithinAGroup(t *testing.T) {
	dir := t.TempDir()
	r := openRig(t, dir, testOptions())
	r.hold(0, "a", 5)
	r.hold(5, "b", 5)
	r.truncate(5)
	r.hold(5, "c", 2)
	r.hold(7, "d", 2)
	r.truncate(8)
	r.hold(8, "e", 1)
	r.settle()
	if groups := r.lane.StatsOffCore().Groups; groups != 2 {
		t.Fatalf("%d groups, want the checkpoint of the open and one more", groups)
	}
	const want = "aaaaaccde"
	for range 2 {
		reader := r.lane.NewReaderOffCore(1, 0)
		for from := range want {
			reader.Seek(wire.Offset(from))
			if got := letters(t, reader); got != want[from:] {
				t.Errorf("from %d reads %q, want %q", from, got, want[from:])
			}
		}
		reader.Close()
		r.close()
		r = openRig(t, dir, testOptions())
	}
	r.close()
}

// TestTruncateUnderAReader takes back what a reader that stands in the segment would have read next.
func TestTruncateUnderAReader(t *testing.T) {
	r := openRig(t, t.TempDir(), testOptions())
	defer r.close()
	r.hold(0, "a", 5)
	r.settle()
	r.hold(5, "b", 5)
	r.settle()
	reader := r.lane.NewReaderOffCore(1, 0)
	defer reader.Close()
	if _, err := reader.Read(Limits{Records: 5}); err != nil {
		t.Fatal(err)
	}
	r.truncate(5)
	r.hold(5, "c", 2)
	r.settle()
	if got := letters(t, reader); got != "cc" {
		t.Errorf("reads %q, want the records that replaced the others", got)
	}
	// The end goes back between the look at it and the read: that is no damage.
	r.hold(7, "d", 5)
	r.settle()
	_, end, cuts, _ := r.lane.rangeAndCuts(1)
	reader.leave()
	reader.cuts = cuts
	r.truncate(7)
	r.settle()
	if err := reader.collect(end, Limits{Bytes: 1000, Records: 1000}); err != errTakenBack {
		t.Errorf("a read up to %d of a shard that ends at 7 by now: %v", end, err)
	}
	if batches, err := reader.Read(Limits{}); err != nil || len(batches) > 0 {
		t.Errorf("the next one: %v, %v", batches, err)
	}
}

// TestFallBackUnderAReader does the same with a lane that stops: what was never synced is not damaged.
func TestFallBackUnderAReader(t *testing.T) {
	r := openRig(t, t.TempDir(), testOptions())
	r.publish(1, 5, 10, OnCommit)
	r.publish(1, 5, 10, None)
	_, end, cuts, _ := r.lane.rangeAndCuts(1)
	reader := r.lane.NewReaderOffCore(1, 5)
	defer reader.Close()
	reader.cuts = cuts
	_ = r.lane.fail(errors.New("test"))
	if err := reader.collect(end, Limits{Bytes: 1000, Records: 1000}); err != errTakenBack {
		t.Errorf("a read up to %d: %v", end, err)
	}
	if err := r.lane.Close(); !errors.Is(err, ErrPoisoned) {
		t.Error(err)
	}
}

// TestReadUpToTheMiddleOfAGroup stops between two batches of one group. The next read must not look for the second behind it.
func TestReadUpToTheMiddleOfAGroup(t *testing.T) {
	r := openRig(t, t.TempDir(), testOptions())
	defer r.close()
	r.hold(0, "a", 2)
	r.hold(2, "b", 2)
	r.settle()
	r.hold(4, "c", 2)
	r.settle()
	reader := r.lane.NewReaderOffCore(1, 0)
	defer reader.Close()
	if batches, err := reader.Read(Limits{To: 2}); err != nil || len(batches) != 1 {
		t.Fatal(batches, err)
	}
	if reader.seg != nil {
		t.Errorf("the reader stands at byte %d, behind the group that it needs", reader.pos)
	}
	if got := letters(t, reader); got != "bbcc" {
		t.Errorf("then reads %q", got)
	}
}
