package wal

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"felix/netio/wire"
)

// rig is a lane with its owner: the test goroutine is the core's loop.
type rig struct {
	t      testing.TB
	lane   *Lane
	rec    *Recovered
	notify chan struct{}
	tokens map[uint64]wire.Offset // completed without error
	failed map[uint64]error
	next   uint64
}

func (r *rig) OnDurable(_ uint64, upTo wire.Offset, token uint64, err error) {
	if err != nil {
		r.failed[token] = err
		return
	}
	r.tokens[token] = upTo
}

func testOptions() Options {
	return Options{Lane: 7, Now: time.Now, SegmentBytes: 1 << 20, ZeroAhead: -1, Backend: BackendSync, MarkAfter: time.Hour}
}

func openRig(t testing.TB, dir string, opts Options) *rig {
	t.Helper()
	r := &rig{t: t, notify: make(chan struct{}, 1), tokens: map[uint64]wire.Offset{}, failed: map[uint64]error{}}
	opts.Notify = func() {
		select {
		case r.notify <- struct{}{}:
		default:
		}
	}
	l, rec, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r.lane, r.rec = l, rec
	return r
}

func (r *rig) wait() {
	r.t.Helper()
	select {
	case <-r.notify:
	case <-time.After(time.Minute):
		r.t.Fatal("no completion within a minute")
	}
}

// until drains, and commits what has gathered, until cond holds.
func (r *rig) until(cond func() bool) {
	r.t.Helper()
	for {
		r.lane.Drain(r)
		r.lane.Commit()
		if cond() {
			return
		}
		r.wait()
	}
}

// append appends and commits, retrying while the lane is busy.
func (r *rig) append(b *Batch, mode Mode) (uint64, error) {
	r.t.Helper()
	r.next++
	for {
		_, err := r.lane.Append(b, mode, r.next)
		if err != ErrBusy {
			r.lane.Commit()
			return r.next, err
		}
		r.lane.Commit()
		r.until(func() bool { return true })
		if r.lane.inFlight > 0 || len(r.notify) == 0 {
			r.wait()
		}
	}
}

// publish appends n records of the given size to the shard and waits for them.
func (r *rig) publish(shard uint64, n, size int, mode Mode) {
	r.t.Helper()
	base, _ := r.lane.End(shard)
	token, err := r.append(testBatch(shard, base, n, size), mode)
	if err != nil {
		r.t.Fatalf("append to %d: %v", shard, err)
	}
	r.until(func() bool { _, ok := r.tokens[token]; return ok || r.failed[token] != nil })
	if err := r.failed[token]; err != nil {
		r.t.Fatalf("append to %d: %v", shard, err)
	}
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.lane.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
}

// testBatch makes records whose content follows from shard and offset.
func testBatch(shard uint64, base wire.Offset, n, size int) *Batch {
	b := &Batch{Kind: KindRecords, Shard: shard, Base: base, Count: uint32(n), Time: time.Now().UnixMicro()}
	for i := range n {
		b.Records = append(b.Records, testRecord(shard, base+wire.Offset(i), size)...)
	}
	return b
}

func testRecord(shard uint64, off wire.Offset, size int) []byte {
	p := make([]byte, size)
	seed := []byte(fmt.Sprintf("%d/%d;", shard, off))
	for i := range p {
		p[i] = seed[i%len(seed)]
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(size))
	return append(out, p...)
}

func TestAppendReopen(t *testing.T) {
	dir := t.TempDir()
	r := openRig(t, dir, testOptions())
	for i := range 100 {
		r.publish(uint64(i%3+1), 2, 100, OnCommit)
	}
	r.close()
	r = openRig(t, dir, testOptions())
	defer r.close()
	if len(r.rec.Shards) != 3 || r.rec.Cut != nil || len(r.rec.Damage) > 0 {
		t.Fatalf("recovered %+v", r.rec)
	}
	for _, s := range r.rec.Shards {
		if want := wire.Offset(66); s.End < want || s.Start != 0 {
			t.Errorf("shard %d has [%d, %d)", s.Shard, s.Start, s.End)
		}
	}
}

func TestRollReopen(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 64 << 10
	r := openRig(t, dir, opts)
	for i := range 200 {
		r.publish(uint64(i%3+1), 2, 1000, OnCommit)
	}
	if n := r.lane.StatsOffCore().Rolls; n < 5 {
		t.Fatalf("%d rolls", n)
	}
	r.close()
	r = openRig(t, dir, opts)
	defer r.close()
	if len(r.rec.Shards) != 3 || r.rec.Cut != nil || len(r.rec.Damage) > 0 || len(r.rec.Notices) > 0 {
		t.Fatalf("recovered %+v", r.rec)
	}
}
