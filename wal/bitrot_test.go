package wal_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

var bitRotTrials = flag.Int("bitrot.trials", 300, "bit rot trials; 10000 for the nightly run")

// TestBitRot flips 1 to 8 bits at places that hold data. Nothing changed is ever served, nothing acknowledged goes missing
// without being named, no end moves back, and the offline verify sees it.
func TestBitRot(t *testing.T) {
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	opts.CheckpointBytes = 32 << 10
	o := openOwner(t, "l", opts)
	for i := range 120 {
		o.mustPublish(uint64(i%4+1), 1+i%5, 700)
		if i%20 == 0 {
			b := &wal.Batch{Kind: wal.KindRegister, Slot: 1, Shard: uint64(i%4 + 1), Records: le64(uint64(i))}
			if err := o.do(func(token uint64) error { _, err := o.lane.Append(b, wal.OnCommit, token); return err }); err != nil {
				t.Fatal(err)
			}
		}
	}
	ends := map[uint64]wire.Offset{}
	for shard := range uint64(4) {
		_, ends[shard+1], _ = o.lane.RangeOffCore(shard + 1)
	}
	o.mustClose()
	ranges := wal.DataRanges(d, "l")
	byWhat := map[string][]wal.DataRange{}
	var kinds []string
	for _, r := range ranges {
		if byWhat[r.What] == nil {
			kinds = append(kinds, r.What)
		}
		byWhat[r.What] = append(byWhat[r.What], r)
	}
	t.Logf("kinds of places: %v", kinds)
	rng := rand.New(rand.NewPCG(1, 2))
	trials := *bitRotTrials
	if wal.RaceEnabled && trials <= 300 {
		trials /= 5
	}
	for trial := range trials {
		image := d.Crash(faultfs.KeepAll, rng)
		list := byWhat[kinds[trial%len(kinds)]]
		place := list[rng.IntN(len(list))]
		bits := map[[2]int64]bool{}
		for range 1 + rng.IntN(8) {
			bits[[2]int64{place.From + rng.Int64N(place.To-place.From), rng.Int64N(8)}] = true
		}
		for b := range bits {
			image.Flip("l/"+place.Name, b[0], uint(b[1]))
		}
		if err := checkRotten(t, image, opts, place, ends); err != nil {
			t.Fatalf("trial %d, %d bits in a %s of %s at [%d, %d): %v", trial, len(bits), place.What, place.Name, place.From, place.To, err)
		}
	}
}

func checkRotten(t *testing.T, image *faultfs.Disk, opts wal.Options, place wal.DataRange, ends map[uint64]wire.Offset) error {
	v, err := wal.Verify(image, "l")
	if err != nil {
		return err
	}
	if len(v.Damage) == 0 && !place.Last {
		return errors.New("verify sees nothing")
	}
	opts.FS, opts.MarkAfter = image, time.Hour
	o, err := tryOpen(t, "l", opts)
	if err != nil {
		return err
	}
	defer o.mustClose()
	if o.rec.Cut != nil && !place.Last {
		return errors.New("taken for a torn end")
	}
	for shard, want := range ends {
		good, errs := readAll(t, o.lane, shard, 700, wal.Limits{})
		lost := map[wire.Offset]bool{}
		for _, e := range errs {
			var d *wal.DamageError
			if !errors.As(e, &d) {
				return e
			}
			for off := d.From; off < d.To; off++ {
				lost[off] = true
			}
		}
		for _, off := range good {
			lost[off] = true
		}
		for off := range want {
			if !lost[off] {
				return errors.New("a record is neither served nor named as damaged")
			}
		}
		if end, _ := o.lane.End(shard); end < want {
			return errors.New("an end moved back")
		}
	}
	return nil
}
