package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

var powerCutOps = flag.Int("powercut.ops", 500, "operations of the power-cut workload; 10000 for the nightly run")

// cutModel is what the owner of a lane knows: what it asked for and what it was told is durable. mu guards it against
// the disk's hook, which runs on the lane's goroutines.
type cutModel struct {
	mu     sync.Mutex
	shards map[uint64]*cutShard
	nextID uint64
}

type cutShard struct {
	mode    wal.Mode
	issued  wire.Offset // highest end ever asked for
	acked   wire.Offset // durable end as completed
	seen    wire.Offset // highest end a subscriber saw
	started wire.Offset // highest start asked for
	ackedAt wire.Offset // highest start completed
	deleted int         // 1 asked, 2 completed
	content [][]uint32  // per offset, versions written; the last one is current
	unclear bool        // a truncation is under way
	cuts    int         // truncations begun
	reg     [2]uint64   // register: completed, asked
}

func (m *cutModel) clone() map[uint64]cutShard {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[uint64]cutShard, len(m.shards))
	for id, s := range m.shards {
		c := *s
		c.content = append([][]uint32(nil), s.content...)
		out[id] = c
	}
	return out
}

func cutPayload(shard uint64, off wire.Offset, version uint32, size int) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(20+size))
	p = binary.LittleEndian.AppendUint64(p, shard)
	p = binary.LittleEndian.AppendUint64(p, uint64(off))
	p = binary.LittleEndian.AppendUint32(p, version)
	return append(p, bytes.Repeat([]byte{byte(shard) ^ byte(off)}, size)...)
}

// checkLane compares an open lane with what was promised before (acked) and what was asked for by now (issued).
func checkLane(l *wal.Lane, rec *wal.Recovered, acked, issued map[uint64]cutShard) error {
	if len(rec.Damage) > 0 || len(rec.Suspect) > 0 {
		return fmt.Errorf("damage after a power cut: %v %v %v", rec.Damage, rec.Suspect, rec.Notices)
	}
	for id, a := range acked {
		i := issued[id]
		start, end, ok := l.RangeOffCore(id)
		if i.deleted > 0 {
			if ok && a.deleted == 2 {
				return fmt.Errorf("shard %d is back after its delete was acknowledged", id)
			}
			continue
		}
		if !ok {
			if a.acked > 0 && a.mode == wal.OnCommit {
				return fmt.Errorf("shard %d is gone, %d records were acknowledged", id, a.acked)
			}
			continue
		}
		if end > i.issued || start > i.started {
			return fmt.Errorf("shard %d has [%d, %d), asked for were start %d and end %d", id, start, end, i.started, i.issued)
		}
		if a.mode == wal.OnCommit && !a.unclear && a.cuts == i.cuts && (end < a.acked || end < a.seen || start < a.ackedAt) {
			return fmt.Errorf("shard %d has [%d, %d), acknowledged were start %d and end %d, seen %d", id, start, end, a.ackedAt, a.acked, a.seen)
		}
		if err := readBack(l, id, start, end, &a, &i); err != nil {
			return err
		}
		if v, _, ok, err := l.RegisterOffCore(id, 3); err != nil {
			return err
		} else if a.reg[0] > 0 && !ok {
			return fmt.Errorf("shard %d lost its register", id)
		} else if ok {
			if got := binary.LittleEndian.Uint64(v); got < a.reg[0] || got > i.reg[1] {
				return fmt.Errorf("shard %d register is %d, acknowledged %d, asked for %d", id, got, a.reg[0], i.reg[1])
			}
		}
	}
	return nil
}

func readBack(l *wal.Lane, id uint64, start, end wire.Offset, a, i *cutShard) error {
	r := l.NewReaderOffCore(id, start)
	defer r.Close()
	for r.Offset() < end {
		batches, err := r.Read(wal.Limits{})
		if err != nil {
			return fmt.Errorf("shard %d at %d of [%d, %d): %w", id, r.Offset(), start, end, err)
		}
		if len(batches) == 0 {
			return fmt.Errorf("shard %d: nothing at %d of [%d, %d)", id, r.Offset(), start, end)
		}
		for _, b := range batches {
			off := b.Base
			for p := range wire.AllRecords(b.Records) {
				if len(p) < 20 || binary.LittleEndian.Uint64(p) != id || binary.LittleEndian.Uint64(p[8:]) != uint64(off) {
					return fmt.Errorf("shard %d: offset %d holds another record", id, off)
				}
				version := binary.LittleEndian.Uint32(p[16:])
				if !bytes.Equal(p, cutPayload(id, off, version, len(p)-20)[4:]) {
					return fmt.Errorf("shard %d: offset %d has a changed payload", id, off)
				}
				versions := i.content[off]
				if !a.unclear && off < a.acked {
					// What was current then, or anything asked for since.
					versions = versions[len(a.content[off])-1:]
				}
				known := false
				for _, v := range versions {
					known = known || v == version
				}
				if !known {
					return fmt.Errorf("shard %d: offset %d has version %d, expected one of %v", id, off, version, versions)
				}
				off++
			}
			if off != b.End() {
				return fmt.Errorf("shard %d: batch at %d has %d records of %d", id, b.Base, off-b.Base, b.Count)
			}
		}
	}
	return nil
}

// cutter opens crash images of a disk and checks them.
type cutter struct {
	model    *cutModel
	opts     wal.Options
	rng      *rand.Rand
	rngMu    sync.Mutex
	cuts     atomic.Int64
	again    atomic.Int64 // cuts during recovery
	failures chan error
}

func (c *cutter) rand() *rand.Rand {
	c.rngMu.Lock()
	defer c.rngMu.Unlock()
	return rand.New(rand.NewPCG(c.rng.Uint64(), c.rng.Uint64()))
}

var survivals = []faultfs.Survival{faultfs.DropAll, faultfs.KeepAll, faultfs.Torn512, faultfs.Torn4K, faultfs.Shuffled}

// hook cuts the power at one operation of d.
// acked is what was promised before the operation; the lane's other goroutine may go on meanwhile.
func (c *cutter) hook(d *faultfs.Disk, op faultfs.Op, acked map[uint64]cutShard, nested bool) {
	if len(c.failures) > 0 {
		return
	}
	rng := c.rand()
	for i, s := range survivals {
		// By default every operation is cut with what survives in two of the five ways, one of them the harshest; the
		// nightly run tries all.
		if i > 0 && i != 1+rng.IntN(len(survivals)-1) && *powerCutOps < 5000 {
			continue
		}
		image := d.Crash(s, rng)
		issued := c.model.clone()
		if nested {
			c.again.Add(1)
		} else {
			c.cuts.Add(1)
		}
		if !nested && rng.IntN(48) == 0 {
			image.OnOp(func(op faultfs.Op) { c.hook(image, op, acked, true) })
		}
		err := c.check(image, acked, issued)
		image.OnOp(nil)
		if err != nil {
			select {
			case c.failures <- fmt.Errorf("cut at %s %s byte %d (%d bytes), survival %d, nested %v: %w", op.Kind, op.Name, op.Off, op.Len, s, nested, err):
			default:
			}
			return
		}
	}
}

func (c *cutter) check(image *faultfs.Disk, acked, issued map[uint64]cutShard) error {
	opts := c.opts
	opts.FS, opts.Notify, opts.MarkAfter = image, nil, time.Hour
	l, rec, err := wal.Open("lane", opts)
	if err != nil {
		return fmt.Errorf("start refused: %w", err)
	}
	image.OnOp(nil)
	err = checkLane(l, rec, acked, issued)
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	return err
}

// cutOwner drives the workload as a core's loop would.
type cutOwner struct {
	*cutModel
	t      *testing.T
	lane   *wal.Lane
	notify chan struct{}
	done   map[uint64]func() // by token, called under mu
	token  uint64
	rng    *rand.Rand
}

func (o *cutOwner) OnDurable(_ uint64, _ wire.Offset, token uint64, err error) {
	if err != nil {
		o.t.Errorf("completion: %v", err)
	}
	o.mu.Lock()
	o.done[token]()
	o.mu.Unlock()
	delete(o.done, token)
}

// try runs fn until the lane takes it.
func (o *cutOwner) try(fn func(token uint64) error, done func()) {
	o.token++
	o.done[o.token] = done
	for {
		err := fn(o.token)
		if err == nil {
			return
		}
		if !errors.Is(err, wal.ErrBusy) {
			o.t.Fatalf("refused: %v", err)
		}
		o.lane.Commit()
		if o.lane.Drain(o) == 0 {
			o.wait()
		}
	}
}

func (o *cutOwner) wait() {
	select {
	case <-o.notify:
	case <-time.After(5 * time.Minute): // the hook opens many lanes in between, perhaps on a machine that is busy elsewhere
		o.t.Fatal("the lane does not answer")
	}
}

func (o *cutOwner) settle() {
	o.lane.Commit()
	for len(o.done) > 0 {
		if o.lane.Drain(o) == 0 {
			o.wait()
		}
		o.lane.Commit()
	}
}

func (o *cutOwner) add(id uint64, mode wal.Mode) {
	o.mu.Lock()
	o.shards[id] = &cutShard{mode: mode}
	o.mu.Unlock()
}

func (o *cutOwner) publish(id uint64, s *cutShard) {
	base, _ := o.lane.End(id)
	n := 1 + o.rng.IntN(6)
	b := &wal.Batch{Kind: wal.KindRecords, Shard: id, Base: base, Count: uint32(n), Time: 1}
	o.mu.Lock()
	for k := range n {
		off := base + wire.Offset(k)
		version := uint32(o.token)
		if int(off) < len(s.content) {
			s.content[off] = append(s.content[off][:len(s.content[off]):len(s.content[off])], version)
		} else {
			s.content = append(s.content, []uint32{version})
		}
		size := o.rng.IntN(400)
		if o.rng.IntN(40) == 0 {
			size = 9000
		}
		b.Records = append(b.Records, cutPayload(id, off, version, size)...)
	}
	s.issued = max(s.issued, b.End())
	o.mu.Unlock()
	end := b.End()
	o.try(func(token uint64) error { _, err := o.lane.Append(b, s.mode, token); return err }, func() { s.acked = max(s.acked, end) })
}

func (o *cutOwner) step(ids []uint64) []uint64 {
	k := o.rng.IntN(len(ids))
	id := ids[k]
	s := o.shards[id]
	switch p := o.rng.IntN(100); {
	case p < 70:
		o.publish(id, s)
	case p < 80:
		start, end, ok := o.lane.RangeOffCore(id)
		if !ok || s.mode != wal.OnCommit || end == start {
			break
		}
		to := start + wire.Offset(o.rng.IntN(int(end-start)+1))
		if o.rng.IntN(3) == 0 {
			to = end
		}
		o.mu.Lock()
		s.seen, s.started = max(s.seen, end), max(s.started, to)
		o.mu.Unlock()
		o.try(func(token uint64) error { return o.lane.SetStart(id, to, wal.OnCommit, token) }, func() { s.ackedAt = max(s.ackedAt, to) })
	case p < 84:
		o.mu.Lock()
		s.reg[1]++
		value := binary.LittleEndian.AppendUint64(nil, s.reg[1])
		now := s.reg[1]
		o.mu.Unlock()
		b := &wal.Batch{Kind: wal.KindRegister, Slot: 3, Shard: id, Records: value}
		o.try(func(token uint64) error { _, err := o.lane.Append(b, wal.OnCommit, token); return err }, func() { s.reg[0] = max(s.reg[0], now) })
	case p < 86 && s.mode == wal.OnCommit:
		o.settle()
		start, end, ok := o.lane.RangeOffCore(id)
		if !ok || start == end {
			break
		}
		to := start + wire.Offset(o.rng.IntN(int(end-start)))
		o.mu.Lock()
		s.unclear = true
		s.cuts++
		o.mu.Unlock()
		o.try(func(token uint64) error { return o.lane.Truncate(id, to, wal.OnCommit, token) }, func() { s.acked, s.seen = to, to })
		o.publish(id, s)
		o.settle()
		o.mu.Lock()
		s.unclear = false
		o.mu.Unlock()
	case p < 87 && len(ids) > 3:
		o.mu.Lock()
		s.deleted = 1
		o.nextID++
		fresh := o.nextID
		o.mu.Unlock()
		o.try(func(token uint64) error { return o.lane.Delete(id, wal.OnCommit, token) }, func() { s.deleted = 2 })
		o.add(fresh, s.mode)
		ids[k] = fresh
	}
	return ids
}

// TestPowerCut cuts the power at every operation on the disk of a scripted workload, and again at the operations of
// recovery: no acknowledged record is lost, no start refused, nothing a subscriber saw disappears.
func TestPowerCut(t *testing.T) {
	ops := *powerCutOps
	if wal.RaceEnabled && ops <= 500 {
		ops /= 5
	}
	for _, zero := range []int64{-1, 32 << 10} {
		t.Run(fmt.Sprintf("zero-ahead=%d", zero), func(t *testing.T) { powerCut(t, ops/2, zero) })
	}
}

func powerCut(t *testing.T, ops int, zero int64) {
	rng := rand.New(rand.NewPCG(uint64(ops), uint64(zero)))
	model := &cutModel{shards: map[uint64]*cutShard{}}
	disk := faultfs.New(8 << 20)
	notify := make(chan struct{}, 1)
	var clock atomic.Int64
	opts := wal.Options{Lane: 3, FS: disk, SegmentBytes: 64 << 10, MaxGroupBytes: 16 << 10, Backend: wal.BackendSync, ZeroAhead: zero,
		SyncInterval: time.Millisecond, MarkAfter: time.Millisecond, SpareSegments: 2, SparseShare: 30, CheckpointBytes: 32 << 10,
		Now: func() time.Time { return time.UnixMicro(clock.Add(7)) },
		Notify: func() {
			select {
			case notify <- struct{}{}:
			default:
			}
		}}
	c := &cutter{model: model, opts: opts, rng: rng, failures: make(chan error, 1)}
	disk.OnOp(func(op faultfs.Op) { c.hook(disk, op, model.clone(), false) })
	l, _, err := wal.Open("lane", opts)
	if err != nil {
		t.Fatal(err)
	}
	o := &cutOwner{cutModel: model, t: t, lane: l, notify: notify, done: map[uint64]func(){}, rng: rand.New(rand.NewPCG(1, uint64(ops)))}
	ids := []uint64{1, 2, 3, 4, 5, 6}
	o.nextID = 6
	for i, id := range ids {
		o.add(id, []wal.Mode{wal.OnCommit, wal.OnCommit, wal.OnCommit, wal.OnCommit, wal.Periodic, wal.None}[i])
	}
	for n := range ops {
		ids = o.step(ids)
		if o.rng.IntN(3) == 0 {
			o.lane.Commit()
		}
		if o.rng.IntN(4) == 0 {
			o.settle()
		}
		o.lane.Drain(o)
		select {
		case err := <-c.failures:
			t.Fatalf("operation %d: %v", n, err)
		default:
		}
	}
	o.settle()
	stats := l.StatsOffCore()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-c.failures:
		t.Fatal(err)
	default:
	}
	t.Logf("%d operations, %d disk operations, %d cuts, %d cuts during recovery; %d groups, %d rolls, %d released, %d recycled, %d batches moved, %d marks",
		ops, disk.Ops(), c.cuts.Load(), c.again.Load(), stats.Groups, stats.Rolls, stats.Released, stats.Recycled, stats.MovedBatches, stats.Marks)
	if c.cuts.Load() == 0 || c.again.Load() == 0 {
		t.Error("no cuts were made")
	}
}
