package wal_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// owner drives a lane as a core's loop would; the test's goroutine is the loop.
type owner struct {
	t      testing.TB
	lane   *wal.Lane
	rec    *wal.Recovered
	notify chan struct{}
	done   map[uint64]error
	token  uint64
	log    chan string
}

func (o *owner) OnDurable(_ uint64, _ wire.Offset, token uint64, err error) { o.done[token] = err }

func diskOptions(d *faultfs.Disk) wal.Options {
	var clock atomic.Int64
	return wal.Options{Lane: 9, FS: d, SegmentBytes: 64 << 10, MaxGroupBytes: 16 << 10, Backend: wal.BackendSync, ZeroAhead: -1,
		MarkAfter: time.Hour, Now: func() time.Time { return time.UnixMicro(clock.Add(1000)) }}
}

func tryOpen(t testing.TB, dir string, opts wal.Options) (*owner, error) {
	t.Helper()
	o := &owner{t: t, notify: make(chan struct{}, 1), done: map[uint64]error{}, log: make(chan string, 100)}
	opts.Notify = func() {
		select {
		case o.notify <- struct{}{}:
		default:
		}
	}
	opts.Log = func(line string) {
		select {
		case o.log <- line:
		default:
		}
	}
	var err error
	o.lane, o.rec, err = wal.Open(dir, opts)
	return o, err
}

func openOwner(t testing.TB, dir string, opts wal.Options) *owner {
	t.Helper()
	o, err := tryOpen(t, dir, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return o
}

func (o *owner) wait() {
	o.t.Helper()
	select {
	case <-o.notify:
	case <-time.After(30 * time.Second):
		o.t.Fatal("the lane does not answer")
	}
}

// do runs fn until the lane is not busy, commits, and returns the refusal or the completion's error.
func (o *owner) do(fn func(token uint64) error) error {
	o.t.Helper()
	o.token++
	token := o.token
	for {
		err := fn(token)
		if err == nil {
			break
		}
		if err != wal.ErrBusy {
			return err
		}
		o.lane.Commit()
		if o.lane.Drain(o) == 0 {
			o.wait()
		}
	}
	o.lane.Commit()
	for {
		o.lane.Drain(o)
		o.lane.Commit()
		if err, ok := o.done[token]; ok {
			return err
		}
		o.wait()
	}
}

func records(shard uint64, base wire.Offset, n, size int) []byte {
	var out []byte
	for i := range n {
		p := make([]byte, size)
		for k := range p {
			p[k] = byte(shard)*31 + byte(base) + byte(i) + byte(k)
		}
		out = wire.AppendRecord(out, p)
	}
	return out
}

func (o *owner) publish(shard uint64, n, size int, mode wal.Mode) error {
	o.t.Helper()
	base, _ := o.lane.End(shard)
	return o.do(func(token uint64) error {
		_, err := o.lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: shard, Base: base, Count: uint32(n), Records: records(shard, base, n, size)}, mode, token)
		return err
	})
}

func (o *owner) mustPublish(shard uint64, n, size int) {
	o.t.Helper()
	if err := o.publish(shard, n, size, wal.OnCommit); err != nil {
		o.t.Fatalf("publish to %d: %v", shard, err)
	}
}

func (o *owner) mustClose() {
	o.t.Helper()
	if err := o.lane.Close(); err != nil {
		o.t.Fatalf("close: %v", err)
	}
}

// readAll reads a shard from its start and returns the offsets that read back and the errors in between.
func readAll(t testing.TB, l *wal.Lane, shard uint64, size int, lim wal.Limits) (good []wire.Offset, errs []error) {
	t.Helper()
	start, end, ok := l.RangeOffCore(shard)
	if !ok {
		return nil, []error{wal.ErrUnknownShard}
	}
	r := l.NewReaderOffCore(shard, start)
	defer r.Close()
	for r.Offset() < end {
		batches, err := r.Read(lim)
		if err != nil {
			errs = append(errs, err)
			d, ok := err.(*wal.DamageError)
			if !ok || d.To <= r.Offset() {
				return good, errs
			}
			r.Seek(d.To)
			continue
		}
		if len(batches) == 0 {
			t.Fatalf("nothing at %d of [%d, %d)", r.Offset(), start, end)
		}
		for _, b := range batches {
			off := b.Base
			for p := range wire.AllRecords(b.Records) {
				if want := records(shard, off, 1, len(p))[4:]; len(p) != size && size >= 0 || string(p) != string(want) && !sameTail(p, shard, off) {
					t.Fatalf("shard %d offset %d holds another payload", shard, off)
				}
				good = append(good, off)
				off++
			}
		}
	}
	return good, errs
}

// sameTail accepts a record that was written as the i-th of a batch: its bytes start from base + i.
func sameTail(p []byte, shard uint64, off wire.Offset) bool {
	for k := range p {
		if p[k] != byte(shard)*31+byte(off)+byte(k) {
			return false
		}
	}
	return true
}

func offsetsAre(got []wire.Offset, from, to wire.Offset) error {
	if len(got) != int(to-from) {
		return fmt.Errorf("%d offsets, want [%d, %d)", len(got), from, to)
	}
	for i, o := range got {
		if o != from+wire.Offset(i) {
			return fmt.Errorf("offset %d at place %d of [%d, %d)", o, i, from, to)
		}
	}
	return nil
}

func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
