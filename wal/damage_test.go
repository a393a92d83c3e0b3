package wal_test

import (
	"errors"
	"strings"
	"testing"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// wreck makes a lane with one group per publish and destroys the blocks of the named group headers.
func wreck(t *testing.T, groups ...int) (*faultfs.Disk, wal.Options) {
	t.Helper()
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	o.mustPublish(5, 2, 100)
	for shard := uint64(1); shard <= 4; shard++ {
		o.mustPublish(shard, 2, 100)
	}
	o.mustPublish(5, 2, 100)
	for range 2 {
		o.mustPublish(4, 2, 100)
	}
	o.mustClose()
	var heads []wal.DataRange
	for _, r := range wal.DataRanges(d, "l") {
		if r.What == "group header" {
			heads = append(heads, r)
		}
	}
	for _, g := range groups {
		for i := range 8 {
			d.Flip("l/"+heads[g].Name, heads[g].From+int64(i)*7, uint(i))
		}
	}
	return d, opts
}

func TestLostGroupIsNamedByTheNextOnesEcho(t *testing.T) {
	// Group 0 is the checkpoint of the open, 1 is shard 5, 2 to 5 are shards 1 to 4.
	d, opts := wreck(t, 3)
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	if len(o.rec.Damage) != 1 || o.rec.Cut != nil || len(o.rec.Suspect) != 0 {
		t.Fatalf("damage %v, cut %v, suspect %v", o.rec.Damage, o.rec.Cut, o.rec.Suspect)
	}
	dmg := o.rec.Damage[0]
	if len(dmg.Shards) != 1 || dmg.Shards[0].Shard != 2 || dmg.Shards[0].From != 0 || dmg.Shards[0].To != 2 || dmg.Segment == "" || dmg.Byte == 0 || dmg.Lane != 9 {
		t.Errorf("damage %v", dmg)
	}
	if !strings.Contains(dmg.String(), "shard 2 offsets [0, 2)") {
		t.Errorf("damage reads %q", dmg)
	}
	// The damaged shard refuses what is damaged, its offsets are not given out again, all others serve.
	if good, errs := readAll(t, o.lane, 2, 100, wal.Limits{}); len(good) != 0 || len(errs) != 1 {
		t.Errorf("damaged shard: %v %v", good, errs)
	}
	if end, _ := o.lane.End(2); end != 2 {
		t.Errorf("the damaged shard goes on at %d, want 2", end)
	}
	o.mustPublish(2, 1, 100)
	if good, errs := readAll(t, o.lane, 2, 100, wal.Limits{}); len(good) != 1 || len(errs) != 1 {
		t.Errorf("damaged shard after an append: %v %v", good, errs)
	}
	for _, shard := range []uint64{1, 3, 4} {
		if _, errs := readAll(t, o.lane, shard, 100, wal.Limits{}); len(errs) > 0 {
			t.Errorf("shard %d: %v", shard, errs)
		}
	}
	// Moving the start past the hole gives it up.
	if err := o.do(func(token uint64) error { return o.lane.SetStart(2, 2, wal.OnCommit, token) }); err != nil {
		t.Fatal(err)
	}
	if good, errs := readAll(t, o.lane, 2, 100, wal.Limits{}); len(good) != 1 || len(errs) != 0 {
		t.Errorf("after giving up: %v %v", good, errs)
	}
	_ = d
}

func TestTwoLostGroupsMakeTheRestSuspect(t *testing.T) {
	_, opts := wreck(t, 3, 4)
	o := openOwner(t, "l", opts)
	defer o.mustClose()
	if len(o.rec.Damage) != 1 || !o.rec.Damage[0].Unattributed {
		t.Fatalf("damage %v", o.rec.Damage)
	}
	// Shard 3 is named by the echo, shard 5 has a later batch; only shard 1's end is in doubt.
	if len(o.rec.Suspect) != 1 || o.rec.Suspect[0] != 1 {
		t.Fatalf("suspect %v", o.rec.Suspect)
	}
	var d *wal.DamageError
	if err := o.publish(1, 1, 100, wal.OnCommit); !errors.As(err, &d) {
		t.Errorf("append to a suspect shard: %v", err)
	}
	if err := o.do(func(token uint64) error { return o.lane.SetStart(1, 1000, wal.OnCommit, token) }); err != nil {
		t.Fatal(err)
	}
	o.mustPublish(1, 1, 100)
	if _, end, _ := o.lane.RangeOffCore(1); end != 1001 {
		t.Errorf("end %d", end)
	}
}

func TestTornEndIsNotDamage(t *testing.T) {
	d := faultfs.New(8 << 20)
	o := openOwner(t, "l", diskOptions(d))
	o.mustPublish(1, 2, 100)
	o.mustPublish(1, 2, 5000)
	image := d.Crash(faultfs.KeepAll, nil) // before the mark of the close
	o.mustClose()
	var last wal.DataRange
	for _, r := range wal.DataRanges(image, "l") {
		if r.Last && r.What == "records" {
			last = r
		}
	}
	image.Flip("l/"+last.Name, last.To-10, 3)
	opts := diskOptions(image)
	o = openOwner(t, "l", opts)
	if len(o.rec.Damage) > 0 || o.rec.Cut == nil || o.rec.Cut.Bytes != 3*4096 {
		t.Fatalf("damage %v, cut %+v", o.rec.Damage, o.rec.Cut)
	}
	if end, _ := o.lane.End(1); end != 2 {
		t.Errorf("end %d, want 2", end)
	}
	o.mustPublish(1, 1, 100)
	o.mustClose()
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	if good, errs := readAll(t, o.lane, 1, 100, wal.Limits{}); len(errs) > 0 || offsetsAre(good, 0, 3) != nil || o.rec.Cut != nil {
		t.Errorf("%v %v, cut %v", good, errs, o.rec.Cut)
	}
}

func TestDamagedRegisterIsReported(t *testing.T) {
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	o := openOwner(t, "l", opts)
	b := &wal.Batch{Kind: wal.KindRegister, Slot: 2, Shard: 1, Records: []byte("a value of some length")}
	if err := o.do(func(token uint64) error { _, err := o.lane.Append(b, wal.OnCommit, token); return err }); err != nil {
		t.Fatal(err)
	}
	o.mustPublish(1, 1, 10)
	o.mustClose()
	for _, r := range wal.DataRanges(d, "l") {
		if r.What == "register" {
			d.Flip("l/"+r.Name, r.To-3, 1)
		}
	}
	o = openOwner(t, "l", opts)
	defer o.mustClose()
	if len(o.rec.Damage) != 1 || len(o.rec.Damage[0].Shards) != 1 || o.rec.Damage[0].Shards[0].Shard != 1 {
		t.Errorf("damage %v", o.rec.Damage)
	}
	if _, errs := readAll(t, o.lane, 1, 10, wal.Limits{}); len(errs) > 0 {
		t.Errorf("the shard's records: %v", errs)
	}
}

func TestOffsetsAreNeverReused(t *testing.T) {
	d := faultfs.New(8 << 20)
	opts := diskOptions(d)
	for round := range 5 {
		o := openOwner(t, "l", opts)
		base, _ := o.lane.End(1)
		if base != wire.Offset(round*3) {
			t.Fatalf("round %d starts at %d", round, base)
		}
		o.mustPublish(1, 3, 10)
		if err := o.do(func(token uint64) error { return o.lane.SetStart(1, base+3, wal.OnCommit, token) }); err != nil {
			t.Fatal(err)
		}
		o.mustClose()
	}
}
