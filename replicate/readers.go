package replicate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

const (
	// readerGoroutines bounds the goroutines of a host that read its lanes. They wait for the disk in the loop's place.
	readerGoroutines = 2
	// maxIdleReaders bounds the readers kept between the reads of subscriptions that catch up: each holds about 600 KiB and a segment,
	// and saves finding its place again.
	maxIdleReaders = 16
	// readerIdle is how long one is kept.
	readerIdle = time.Second
)

// readers is where a host reads its lanes off the loop. It has a lock, which is no part of the way of a publish: it is taken once per
// read. Goroutines come with work and go without.
type readers struct {
	mu      sync.Mutex
	queue   []func() // Bound: one read per subscription and one look for retention
	running int      // at most readerGoroutines
	closed  bool
	idle    []idleReader // at most maxIdleReaders
	round   uint64       // of expire
	ended   sync.WaitGroup
}

type idleReader struct {
	lane   *wal.Lane
	shard  uint64
	round  uint64 // in which it was put here
	reader *wal.Reader
}

// submit has job run on a goroutine of the pool, in order of submission. It does nothing once the pool is closed.
func (r *readers) submit(job func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.queue = append(r.queue, job)
	if r.running < readerGoroutines {
		r.running++
		r.ended.Go(r.work)
	}
}

func (r *readers) work() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.closed {
			r.running--
			r.mu.Unlock()
			return
		}
		job := r.queue[0]
		r.queue[0] = nil
		r.queue = r.queue[1:]
		r.mu.Unlock()
		job()
	}
}

// close drops what has not begun and lets go of the segments.
func (r *readers) close() {
	r.mu.Lock()
	r.closed, r.queue = true, nil
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, i := range idle {
		i.reader.Close()
	}
}

// wait waits for what has begun.
func (r *readers) wait() { r.ended.Wait() }

// take returns a reader of the shard that stands at offset from.
func (r *readers) take(lane *wal.Lane, shard uint64, from wire.Offset) *wal.Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, have := range r.idle {
		if have.lane == lane && have.shard == shard && have.reader.Offset() == from {
			r.idle = slices.Delete(r.idle, i, i+1)
			return have.reader
		}
	}
	return lane.NewReaderOffCore(shard, from)
}

// put keeps a reader for the next read from where it stands. The one that has waited longest makes room.
func (r *readers) put(lane *wal.Lane, shard uint64, reader *wal.Reader) {
	r.mu.Lock()
	var out *wal.Reader
	switch {
	case r.closed:
		out = reader
	case len(r.idle) == maxIdleReaders:
		out = r.idle[0].reader
		r.idle = slices.Delete(r.idle, 0, 1)
		fallthrough
	default:
		r.idle = append(r.idle, idleReader{lane, shard, r.round, reader})
	}
	r.mu.Unlock()
	if out != nil {
		out.Close()
	}
}

// expire lets go of readers that have waited for a whole round. It returns whether there are others.
func (r *readers) expire() bool {
	r.mu.Lock()
	n := 0
	for n < len(r.idle) && r.idle[n].round < r.round {
		n++
	}
	out := slices.Clone(r.idle[:n])
	r.idle = slices.Delete(r.idle, 0, n)
	r.round++
	left := len(r.idle) > 0
	r.mu.Unlock()
	for _, i := range out {
		i.reader.Close()
	}
	return left
}

func (h *Host) expireReaders(l *core.Loop) {
	if h.readers.expire() {
		l.Arm(&h.readerTimer, readerIdle, h.expireReadersFunc)
	}
}

// ReadArchive implements fanout.Archive: it reads committed records that the ring has let go of.
func (s *Shard) ReadArchive(l *core.Loop, from wire.Offset, maxFrames, maxBytes int, done func(*core.Loop, []*fanout.Frame, error)) {
	if s.log == nil {
		panic(fmt.Sprintf("BUG: replicate: shard in memory with [%d, ..) is read at %d from a log", s.ring.Start(), from))
	}
	for _, r := range s.log.reads {
		if r.from == from {
			r.done = append(r.done, done)
			return
		}
	}
	h, to := s.host, s.delivered
	r := &archiveRead{from: from, done: []func(*core.Loop, []*fanout.Frame, error){done}}
	s.log.reads = append(s.log.reads, r)
	h.readers.submit(func() {
		frames, err := s.readFrames(from, to, maxFrames, maxBytes)
		if h.loop.PostOffCore(core.Func(func(l *core.Loop) { s.onRead(l, r, frames, err) })) != nil {
			fanout.ReleaseAll(frames)
		}
	})
}

// An archiveRead is a read on its way. Subscriptions that stand at the same offset share it and its frames, in whichever of them there
// is room for. It is owned by the loop.
type archiveRead struct {
	from wire.Offset
	done []func(*core.Loop, []*fanout.Frame, error)
}

func (s *Shard) onRead(l *core.Loop, r *archiveRead, frames []*fanout.Frame, err error) {
	s.log.reads = slices.DeleteFunc(s.log.reads, func(other *archiveRead) bool { return other == r })
	for _, done := range r.done[1:] {
		for _, f := range frames {
			f.Retain(1)
		}
		done(l, slices.Clone(frames), err)
	}
	r.done[0](l, frames, err)
	if h := s.host; !h.readerTimer.Armed() {
		l.Arm(&h.readerTimer, readerIdle, h.expireReadersFunc)
	}
}

// Committed implements fanout.Archive.
func (s *Shard) Committed() wire.Offset { return s.mayDeliver() }

// readFrames reads at least one record of [from, to). It waits for the disk.
func (s *Shard) readFrames(from, to wire.Offset, maxFrames, maxBytes int) ([]*fanout.Frame, error) {
	h, log := s.host, s.log
	lane, limits := log.lane.lane, h.local.Limits()
	reader := h.readers.take(lane, log.id, from)
	batches, err := reader.Read(wal.Limits{Bytes: maxBytes, Records: maxFrames * limits.FrameRecords, To: to})
	if err == nil && len(batches) == 0 {
		if err = lane.Err(); err == nil {
			err = fmt.Errorf("lane %d has no record of shard %d from %d on, of which [.., %d) was delivered", log.lane.id, log.id, from, to)
		}
	}
	if err != nil {
		reader.Close()
		var trimmed *wal.TrimmedError
		if errors.As(err, &trimmed) {
			err = &fanout.CursorError{Reason: wire.CursorTooOld, Requested: from, Available: trimmed.Start}
		}
		return nil, err
	}
	left := 0
	for i := range batches {
		left += len(batches[i].Records)
	}
	p := fanout.NewPacker(h.local.Slabs(), limits)
	for i := range batches {
		b := &batches[i]
		if p.Frames() >= maxFrames && !p.Joins(b.Base, len(b.Records), b.Count) {
			reader.Seek(b.Base)
			break
		}
		p.Add(b.Base, b.Records, b.Count, b.Time, left)
		left -= len(b.Records)
	}
	h.readers.put(lane, log.id, reader)
	return p.Take(), nil
}

// Bounds of a page that ReadOffCore returns.
const (
	MaxReadBytes   = 4 << 20
	MaxReadRecords = 10000
)

// A Record is one record as it was appended.
type Record struct {
	Offset  wire.Offset
	Payload []byte // the caller's
	Micros  int64  // append time, microseconds since 1970
}

// ErrInMemory refuses to read a shard off its loop.
var ErrInMemory = errors.New("the stream is in memory: only subscriptions read it")

// ReadOffCore reads a page of committed records of a durable shard, from offset from on and below end (0: no bound): up to maxRecords
// and maxBytes, at most and by default MaxReadRecords and MaxReadBytes, and at least one when there is one. next is where the next
// page begins. It never waits for records. It may be called from any goroutine but a loop's, and waits for the disk.
//
// Errors: *fanout.CursorError below the start or beyond the high watermark, *wal.DamageError, ErrInMemory, or the failed read.
func (s *Shard) ReadOffCore(from, end wire.Offset, maxRecords, maxBytes int) (page []Record, next wire.Offset, err error) {
	if s.log == nil {
		return nil, from, ErrInMemory
	}
	lane := s.log.lane.lane
	start, visible, _ := lane.RangeOffCore(s.log.id)
	switch {
	case from < start:
		return nil, from, &fanout.CursorError{Reason: wire.CursorTooOld, Requested: from, Available: start}
	case from > visible:
		return nil, from, &fanout.CursorError{Reason: wire.CursorInFuture, Requested: from, Available: visible}
	}
	if end == 0 || end > visible {
		end = visible
	}
	if from >= end {
		return nil, from, nil
	}
	if maxRecords <= 0 || maxRecords > MaxReadRecords {
		maxRecords = MaxReadRecords
	}
	if maxBytes <= 0 || maxBytes > MaxReadBytes {
		maxBytes = MaxReadBytes
	}
	reader := lane.NewReaderOffCore(s.log.id, from)
	defer reader.Close()
	batches, err := reader.Read(wal.Limits{Bytes: maxBytes, Records: maxRecords, To: end})
	if err != nil {
		var trimmed *wal.TrimmedError
		if errors.As(err, &trimmed) {
			err = &fanout.CursorError{Reason: wire.CursorTooOld, Requested: from, Available: trimmed.Start}
		}
		return nil, from, err
	}
	for i := range batches {
		b := &batches[i]
		rest := slices.Clone(b.Records)
		for o := b.Base; o < b.End(); o++ {
			var payload []byte
			payload, rest = wire.NextRecord(rest)
			page = append(page, Record{Offset: o, Payload: payload, Micros: b.Time})
		}
	}
	return page, reader.Offset(), nil
}

// OffsetForTimeOffCore returns the first committed record of a durable shard that was appended at or after a time in microseconds since
// 1970; ok is false when there is none yet. It may be called from any goroutine but a loop's, and waits for the disk.
func (s *Shard) OffsetForTimeOffCore(micros int64) (offset wire.Offset, ok bool, err error) {
	if s.log == nil {
		return 0, false, ErrInMemory
	}
	lane := s.log.lane.lane
	offset, err = lane.OffsetForTimeOffCore(s.log.id, micros)
	if errors.Is(err, wal.ErrUnknownShard) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	_, end, _ := lane.RangeOffCore(s.log.id)
	return offset, offset < end, nil
}

// A retainee is a shard whose retention is looked at.
type retainee struct {
	shard     *Shard
	retention wal.Retention
	start     wire.Offset // the answer
}

// sweepLogs applies the retention of durable shards: the lane is asked off the loop, since its index may be on the disk. There is at
// most one look at a time.
func (h *Host) sweepLogs(list []retainee, nowMicros int64) {
	h.sweeping = true
	h.readers.submit(func() {
		now := time.UnixMicro(nowMicros)
		for i := range list {
			r := &list[i]
			// An error leaves the start at 0, below any: the next look comes in about a second.
			r.start, _ = r.shard.log.lane.lane.RetentionStartOffCore(r.shard.log.id, r.retention, now)
		}
		_ = h.loop.PostOffCore(core.Func(func(l *core.Loop) {
			h.sweeping = false
			for _, r := range list {
				r.shard.setStart(l, r.start)
			}
		}))
	})
}
