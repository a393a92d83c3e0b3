package wal

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"felix/netio/wire"
)

// A Lane is one write-ahead log with one group commit, shared by the shards that its owner appends for.
//
// Three goroutines touch it. The owner (one core's loop) calls the methods without a suffix. The lane's goroutine
// writes groups and is the only one that changes the index. The keeper makes, zeroes and recycles segments. Methods
// ending in OffCore may be called from anywhere.
type Lane struct {
	opts Options
	dir  string
	fs   FS
	lock io.Closer

	// Owner.
	ends     map[uint64]*shardTail
	open     *openGroup   // nil when every buffer is at the lane's goroutine
	free     []*openGroup // emptied buffers
	inFlight int          // groups handed over and not drained
	closed   bool

	// Between the owner and the lane's goroutine. Both channels hold every group there is, so sends never block.
	work chan *openGroup
	done chan *openGroup

	// Room. Whoever wants to write adds to promised first and then looks, so that two can never count on the same
	// bytes. Invariant: promised <= roomActive or promised <= roomNext when an append has been accepted.
	promised   atomic.Int64
	roomActive atomic.Int64
	roomNext   atomic.Int64
	wantRoom   atomic.Int64 // room a batch needs that no segment of ordinary size has
	diskFull   atomic.Bool
	noRoomFor  atomic.Int64 // least cost that no segment could be made for, though smaller ones can; 0 for none

	idx    *index
	w      writer
	keep   keeper
	stats  laneStats
	cache  indexCache
	failed atomic.Pointer[error]
	poller atomic.Pointer[poller] // set by the lane's goroutine where its backend has one

	stop  chan struct{}
	ended sync.WaitGroup
}

// shardTail is the owner's view of a shard.
type shardTail struct {
	appended wire.Offset
	lastTime int64
	suspect  bool // its true end is not known; appends are refused
}

// Open recovers the lane in dir, making the directory if needed, and starts its goroutines. It blocks for as long as
// recovery reads and syncs. On an error nothing has been changed that a later Open would miss.
func Open(dir string, opts Options) (*Lane, *Recovered, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	if err := opts.FS.MkdirAll(dir); err != nil {
		return nil, nil, fmt.Errorf("wal: make directory %s: %w", dir, err)
	}
	lock, err := opts.FS.Lock(dir + "/" + lockName)
	if err != nil {
		return nil, nil, err
	}
	l := &Lane{opts: opts, dir: dir, fs: opts.FS, lock: lock, ends: map[uint64]*shardTail{}, stop: make(chan struct{}),
		work: make(chan *openGroup, opts.Groups), done: make(chan *openGroup, opts.Groups)}
	for range opts.Groups {
		l.free = append(l.free, &openGroup{})
	}
	rec, err := l.recover()
	if err != nil {
		l.closeFiles()
		lock.Close()
		return nil, nil, err
	}
	for i := range rec.Shards {
		s := &rec.Shards[i]
		l.ends[s.Shard] = &shardTail{appended: s.End, lastTime: s.LastTime}
	}
	for _, id := range rec.Suspect {
		if t := l.ends[id]; t != nil {
			t.suspect = true
		}
	}
	l.ended.Add(2)
	go l.writeLoop()
	go l.keepLoop()
	return l, rec, nil
}

// Append copies b into the open group and returns the shard's end after it. It never waits for the disk. mode says
// what the batch waits for, token comes back with its completion. b.Base must be the shard's end (for a register, any
// offset up to it), b.Kind one that the owner writes; anything else is a bug in the caller and panics.
//
// Errors: ErrBusy (try again after Notify), ErrDiskFull, ErrTooLarge, ErrPoisoned, ErrClosed, or a *DamageError for a
// shard whose end is not known. A refused append changes nothing.
func (l *Lane) Append(b *Batch, mode Mode, token uint64) (wire.Offset, error) {
	if b.Kind >= kindStart || b.Kind == 0 {
		panic(fmt.Sprintf("BUG: wal: append of kind %d", b.Kind))
	}
	if b.Kind.takesOffsets() != (b.Count > 0) {
		panic(fmt.Sprintf("BUG: wal: append of kind %d with %d records", b.Kind, b.Count))
	}
	t := l.tail(b.Shard)
	if t.suspect && b.Kind.takesOffsets() {
		return 0, &DamageError{Shard: b.Shard, From: t.appended, To: t.appended, Reason: "the log's end is not known after damage that named no shard"}
	}
	if b.Kind.takesOffsets() && b.Base != t.appended {
		panic(fmt.Sprintf("BUG: wal: append to shard %d at %d, its end is %d", b.Shard, b.Base, t.appended))
	}
	if len(b.Extensions) > 1<<16-1 || !validExtensions(b.Extensions) {
		panic(fmt.Sprintf("BUG: wal: append to shard %d with malformed extensions of %d bytes", b.Shard, len(b.Extensions)))
	}
	b.Time = max(b.Time, t.lastTime)
	if err := l.add(b, mode, token, false); err != nil {
		return 0, err
	}
	if b.Kind.takesOffsets() {
		t.appended = b.End()
		t.lastTime = b.Time
	}
	return t.appended, nil
}

// SetStart moves the shard's first kept offset up to start; records below are gone for readers as soon as the record
// is written, and their bytes follow. A start beyond the end moves the end too, which is how a damaged or replaced
// shard goes on. A start at or below the present one changes nothing.
func (l *Lane) SetStart(shard uint64, start wire.Offset, mode Mode, token uint64) error {
	t := l.tail(shard)
	if err := l.control(kindStart, shard, start, mode, token); err != nil {
		return err
	}
	if start > t.appended {
		t.appended, t.suspect = start, false
	}
	return nil
}

// Truncate forgets the shard's records from end on, so that the next append goes there.
func (l *Lane) Truncate(shard uint64, end wire.Offset, mode Mode, token uint64) error {
	t := l.tail(shard)
	if end > t.appended {
		panic(fmt.Sprintf("BUG: wal: truncate shard %d to %d, its end is %d", shard, end, t.appended))
	}
	if err := l.control(kindTruncate, shard, end, mode, token); err != nil {
		return err
	}
	t.appended = end
	return nil
}

// Delete removes the shard. Its id must not be used again.
func (l *Lane) Delete(shard uint64, mode Mode, token uint64) error {
	if err := l.control(kindDelete, shard, 0, mode, token); err != nil {
		return err
	}
	delete(l.ends, shard)
	return nil
}

func (l *Lane) control(kind Kind, shard uint64, base wire.Offset, mode Mode, token uint64) error {
	return l.add(&Batch{Kind: kind, Shard: shard, Base: base, Time: l.opts.Now().UnixMicro()}, mode, token, true)
}

func (l *Lane) tail(shard uint64) *shardTail {
	t := l.ends[shard]
	if t == nil {
		t = &shardTail{}
		l.ends[shard] = t
	}
	return t
}

// End returns the offset after the shard's last append, and false for a shard that the lane does not know.
func (l *Lane) End(shard uint64) (wire.Offset, bool) {
	t := l.ends[shard]
	if t == nil {
		return 0, false
	}
	return t.appended, true
}

// add reserves room for b and copies it into the open group.
func (l *Lane) add(b *Batch, mode Mode, token uint64, reserve bool) error {
	if l.closed {
		return ErrClosed
	}
	if err := l.Err(); err != nil {
		return err
	}
	size := b.encodedSize()
	if size > l.opts.MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes to shard %d, the limit is %d", ErrTooLarge, size, b.Shard, l.opts.MaxBatchBytes)
	}
	if g := l.open; g != nil && len(g.dir) > 0 && (len(g.body)+size > l.opts.MaxGroupBytes || len(g.dir) >= maxGroupEntries) {
		l.handOver()
	}
	if l.open == nil {
		if len(l.free) == 0 {
			return ErrBusy
		}
		l.open = l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
	}
	cost := int64(size) + batchCost
	if len(l.open.dir) == 0 {
		cost += groupCost
	}
	if err := l.promise(cost, reserve); err != nil {
		return err
	}
	upTo := b.Base
	if b.Kind.takesOffsets() {
		upTo = b.End()
	}
	l.open.cost += cost
	l.open.add(b, mode, token, upTo)
	return nil
}

// promise reserves cost bytes of log, or says why not. Control records of the owner may use the reserve, so that
// deletion goes on when the disk is full.
func (l *Lane) promise(cost int64, reserve bool) error {
	total := l.promised.Add(cost)
	extra := int64(0)
	if reserve {
		extra = l.controlReserve()
	}
	// A next segment that is not there has no reserve either.
	next := l.roomNext.Load()
	if total <= l.roomActive.Load()+extra || next > 0 && total <= next+extra {
		return nil
	}
	l.promised.Add(-cost)
	if least := l.noRoomFor.Load(); l.diskFull.Load() || least > 0 && cost >= least {
		return ErrDiskFull
	}
	if ordinary := l.opts.SegmentBytes - segmentDataStart - 2*blockSize - l.controlReserve(); cost > l.roomNext.Load() && (cost > ordinary || l.roomNext.Load() > 0) {
		l.wantRoom.Store(cost)
		l.keep.poke()
	}
	return ErrBusy
}

// controlReserve is the end of a segment that only control records may use.
func (l *Lane) controlReserve() int64 { return min(64<<10, l.opts.SegmentBytes/16) }

// Commit hands the open group to the lane's goroutine when nothing is there; otherwise what is appended meanwhile joins the group, and
// the owner commits again after Drain, when it has appended what the completions let in.
func (l *Lane) Commit() {
	if l.open == nil || len(l.open.dir) == 0 || l.inFlight > 0 {
		return
	}
	l.handOver()
}

func (l *Lane) handOver() {
	l.inFlight++
	l.work <- l.open
	l.open = nil
}

// Sink takes completions. Err is nil when the batch has reached what its mode promises: then every offset of the shard
// below upTo has. With an error the outcome of the batch is unknown until the next recovery.
type Sink interface {
	OnDurable(shard uint64, upTo wire.Offset, token uint64, err error)
}

// Drain gives s the completions since the last call, in append order, and returns how many there were. It does not block.
func (l *Lane) Drain(s Sink) int {
	if p := l.poller.Load(); p != nil && l.inFlight > 0 && !l.closed {
		(*p).Poll()
	}
	n := 0
	for {
		select {
		case g := <-l.done:
			l.inFlight--
			for i := range g.dir {
				s.OnDurable(g.dir[i].shard, g.upTo[i], g.tokens[i], g.err)
			}
			n += len(g.dir)
			g.reset(l.opts.MaxGroupBytes)
			l.free = append(l.free, g)
			continue
		default:
		}
		return n
	}
}

// Err returns the error that poisoned the lane, nil while it works. Any goroutine may call it.
func (l *Lane) Err() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail poisons the lane. After a failed sync Linux may mark dirty pages clean, so that a retry would succeed without
// writing them: the only state that can be trusted is what recovery reads back.
func (l *Lane) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	if l.failed.CompareAndSwap(nil, &err) {
		l.idx.fallBack()
		l.opts.Log(fmt.Sprintf("lane %d: %v", l.opts.Lane, err))
	}
	return *l.failed.Load()
}

// Close writes what was appended, proves it durable, stops the goroutines and closes the files. It blocks for the disk
// and is called on the owner's loop; Drain still gives the last completions. It returns the error that poisoned the
// lane, if any.
func (l *Lane) Close() error {
	if l.closed {
		return ErrClosed
	}
	if l.open != nil && len(l.open.dir) > 0 {
		l.handOver()
	}
	l.closed = true
	close(l.work)
	close(l.stop)
	l.ended.Wait()
	l.closeFiles()
	if err := l.lock.Close(); err != nil && l.Err() == nil {
		return fmt.Errorf("wal: unlock %s: %w", l.dir, err)
	}
	return l.Err()
}

func (l *Lane) now() time.Time { return l.opts.Now() }
