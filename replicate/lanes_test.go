package replicate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
	"felix/wal/faultfs"
)

// A memoryJournal is a Journal that outlives brokers.
type memoryJournal struct {
	mu      sync.Mutex
	records [][]byte
	fail    error
}

func (j *memoryJournal) Append(record []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.records = append(j.records, record)
	return nil
}

// durable says where the lanes of a broker are.
type durable struct {
	dir     string
	lanes   int // per core; 0 means 1
	wal     wal.Options
	journal *memoryJournal
}

// openBroker is newBroker with lanes and a catalog restored from the journal.
func openBroker(t testing.TB, o options, d durable) *broker {
	t.Helper()
	b := &broker{t: t, slabs: fanout.NewSlabs(fanout.SlabsConfig{})}
	b.clock.Store(int64(time.Second))
	group, err := core.NewGroup(core.Config{
		Cores: max(o.cores, 1), CheckOwner: !o.unowned,
		Now: func() time.Duration { return time.Duration(b.clock.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.group = group
	o.host.Slabs = b.slabs
	lane := uint64(0)
	for _, l := range group.Loops() {
		host := NewHost(l, o.host)
		for range max(d.lanes, 1) {
			w := d.wal
			w.Lane, w.Notify = lane, l.WakeOffCore
			if w.Now == nil {
				w.Now = time.Now
			}
			if w.SegmentBytes == 0 {
				w.SegmentBytes = 4 << 20
			}
			w.ZeroAhead, w.Backend = -1, wal.BackendSync
			opened, recovered, err := wal.Open(filepath.Join(d.dir, fmt.Sprint("lane-", lane)), w)
			if err != nil {
				t.Fatal(err)
			}
			host.AddLane(lane, opened, recovered)
			lane++
		}
		l.AddAgent(host.Lanes())
		l.AddAgent(host)
		b.hosts = append(b.hosts, host)
	}
	o.catalog.Hosts = b.hosts
	if d.journal != nil {
		o.catalog.Journal = d.journal
	}
	b.catalog = NewCatalog(o.catalog)
	var records [][]byte
	if d.journal != nil {
		records = d.journal.records
	}
	if err := b.catalog.Restore(records); err != nil {
		t.Fatal(err)
	}
	group.Start()
	t.Cleanup(func() { b.close() })
	return b
}

// close ends the broker as felix does, and may be called again. It returns the error of the lanes.
func (b *broker) close() (err error) {
	if b.closed {
		return nil
	}
	b.closed = true
	for _, h := range b.hosts {
		err = errors.Join(err, h.CloseOffCore())
	}
	b.group.Close()
	return err
}

// publish appends on the shard's loop and waits for the answer.
func (b *broker) publish(s *Shard, a *Append) *Append {
	b.t.Helper()
	done := make(completion, 1)
	a.Shard, a.Done = s, done
	if err := s.host.loop.PostOffCore(core.Func(func(l *core.Loop) { s.Append(l, a) })); err != nil {
		b.t.Fatal(err)
	}
	return b.wait(done)
}

func (b *broker) wait(done completion) *Append {
	b.t.Helper()
	select {
	case a := <-done:
		return a
	case <-time.After(30 * time.Second):
		b.t.Fatal("no answer within 30 s")
		return nil
	}
}

// eventually has the loop of s look until f is true.
func (b *broker) eventually(s *Shard, what string, f func(l *core.Loop) bool) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for ok := false; !ok; {
		b.on(s, func(l *core.Loop) { ok = f(l) })
		if time.Now().After(deadline) {
			b.t.Fatal("not within 30 s: " + what)
		}
	}
}

// copyDir copies what a killed process would leave.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	for {
		to := t.TempDir()
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil {
			return to
		}
		if !errors.Is(err, os.ErrNotExist) { // the lane has finished a segment meanwhile, and given it its name
			t.Fatal(err)
		}
	}
}

// checkNoSlabs frees the rings of a closed broker and checks that nobody else holds a slab.
func checkNoSlabs(t testing.TB, b *broker) {
	t.Helper()
	b.catalog.EachStream(func(s *Stream) bool {
		for _, shard := range s.Shards {
			shard.ring.Free()
		}
		return true
	})
	if held := b.slabs.Held(); held != 0 {
		t.Errorf("%d bytes of slabs are held", held)
	}
}

func TestLaneFailure(t *testing.T) {
	disk := faultfs.New(64 << 20)
	d := durable{dir: "d", journal: &memoryJournal{}, wal: wal.Options{FS: disk}}
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	sub := &fanout.Subscription{Policy: fanout.CatchUp}
	b.on(s, func(l *core.Loop) { subscribe(t, l, s, sub, wire.StartLatest) })
	check(t, "outcome", b.publish(s, &Append{Records: records(0, 2), Count: 2}).Outcome, Appended)
	disk.Fail(func(op faultfs.Op) error {
		if op.Kind == faultfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	idem := &Append{Records: records(2, 1), Count: 1, Idempotent: true, ProducerID: 3}
	check(t, "outcome", b.publish(s, idem).Outcome, OutcomeUnknown)
	check(t, "outcome of the same again", b.publish(s, idem).Outcome, OutcomeUnknown)
	check(t, "outcome after", b.publish(s, &Append{Records: records(3, 1), Count: 1}).Outcome, StorageFailed)
	idem2 := &Append{Records: records(3, 1), Count: 1, Idempotent: true, ProducerID: 3, Sequence: 1}
	check(t, "outcome after", b.publish(s, idem2).Outcome, StorageFailed)
	check(t, "outcome after, not remembered", b.publish(s, idem2).Outcome, StorageFailed)
	b.on(s, func(*core.Loop) {
		_, end := s.Bounds()
		check(t, "end", end, 2)
		check(t, "pending", s.Stats().Pending, 0)
	})
	check(t, "records delivered", drain(sub), 2)
	b.on(s, func(l *core.Loop) { s.Topic().Unsubscribe(l, sub) })
	if err := b.close(); !errors.Is(err, wal.ErrPoisoned) {
		t.Fatal(err)
	}
	disk.Fail(nil)
	d.wal.FS = disk.Kill()
	b = openBroker(t, options{}, d)
	s = b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	a := b.publish(s, &Append{Records: records(0, 1), Count: 1})
	check(t, "outcome after the restart", a.Outcome, Appended)
	if a.Base < 2 {
		t.Fatalf("offset %d again", a.Base)
	}
}

func TestFullDisk(t *testing.T) {
	disk := faultfs.New(16 << 20)
	d := durable{dir: "d", journal: &memoryJournal{}, wal: wal.Options{FS: disk, SegmentBytes: 1 << 20, ReserveBytes: 1 << 20}}
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	payload := func() *Append { return &Append{Records: wire.AppendRecord(nil, make([]byte, 100<<10)), Count: 1} }
	check(t, "outcome", b.publish(s, payload()).Outcome, Appended)
	free, _ := disk.Free("d")
	disk.Take(free)
	n, outcome := wire.Offset(1), Appended
	for outcome == Appended && n < 1000 {
		a := payload()
		a.Idempotent, a.ProducerID, a.Sequence = true, 1, uint64(n-1)
		if outcome = b.publish(s, a).Outcome; outcome == Appended {
			check(t, "base", a.Base, n)
			n++
		}
	}
	check(t, "outcome on a full disk", outcome, DiskFull)
	a := payload()
	a.Idempotent, a.ProducerID, a.Sequence = true, 1, uint64(n-1)
	check(t, "outcome on a full disk", b.publish(s, a).Outcome, DiskFull)
	disk.Take(-free)
	deadline := time.Now().Add(30 * time.Second)
	for outcome = DiskFull; outcome == DiskFull; {
		a := payload()
		a.Idempotent, a.ProducerID, a.Sequence = true, 1, uint64(n-1)
		outcome = b.publish(s, a).Outcome
		if time.Now().After(deadline) {
			t.Fatal("not resumed within 30 s")
		}
		if outcome == Appended {
			check(t, "base", a.Base, n)
		}
	}
	check(t, "outcome with room again", outcome, Appended)
}

// A stuckBackend writes when it is let.
type stuckBackend struct {
	wal.Backend
	gate chan struct{}
}

func (b *stuckBackend) Write(f wal.File, bufs [][]byte, off int64, sync bool) error {
	<-b.gate
	return b.Backend.Write(f, bufs, off, sync)
}

// stuck makes the lane wait at its disk until the gate is closed.
func stuck(o *wal.Options) (gate chan struct{}) {
	gate = make(chan struct{})
	o.WrapBackend = func(b wal.Backend) wal.Backend { return &stuckBackend{b, gate} }
	return gate
}

func TestBusyLaneHoldsAppendsInOrder(t *testing.T) {
	d := durable{dir: t.TempDir(), wal: wal.Options{MaxGroupBytes: 4 << 10, Groups: 2}}
	gate := stuck(&d.wal)
	b := openBroker(t, options{host: HostConfig{MaxHeld: 20}}, d)
	stream := b.stream(StreamConfig{Name: "s", Durable: true, Shards: 2})
	one, two := stream.Shards[0], stream.Shards[1]
	done := make(completion, 100)
	refused := 0
	b.on(one, func(l *core.Loop) {
		for i := range 40 {
			one.Append(l, &Append{Records: wire.AppendRecord(nil, make([]byte, 1000)), Count: 1, Done: done, Shard: one, Sequence: uint64(i)})
			two.Append(l, &Append{Records: wire.AppendRecord(nil, make([]byte, 1000)), Count: 1, Done: done, Shard: two, Sequence: uint64(i)})
		}
		check(t, "held", one.Stats().Held, 20)
		check(t, "held", two.Stats().Held, 20)
	})
	for len(done) > 0 {
		check(t, "outcome before anything is written", (<-done).Outcome, Overloaded)
		refused++
	}
	close(gate)
	next := map[*Shard]wire.Offset{}
	for range 80 - refused {
		a := b.wait(done)
		check(t, "outcome", a.Outcome, Appended)
		check(t, "base", a.Base, next[a.Shard])
		next[a.Shard]++
	}
	check(t, "records", next[one]+next[two], wire.Offset(80-refused))
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
}

// Deleting a stream answers everything, whatever stage it is in, and is in the lane after.
func TestDeletedDurableStream(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}, wal: wal.Options{MaxGroupBytes: 4 << 10, Groups: 2}}
	gate := stuck(&d.wal)
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	done := make(completion, 100)
	b.on(s, func(l *core.Loop) {
		for range 40 {
			s.Append(l, &Append{Records: wire.AppendRecord(nil, make([]byte, 1000)), Count: 1, Done: done})
		}
	})
	if err := b.catalog.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	check(t, "answers", len(done), 40)
	for range 40 {
		check(t, "outcome", (<-done).Outcome, StreamGone)
	}
	close(gate)
	b.eventually(s, "deleted in the lane", func(*core.Loop) bool { return s.stream.unburied.Load() == 0 })
	b.on(s, func(*core.Loop) {
		_, known := s.log.lane.lane.End(s.log.id)
		check(t, "known to the lane", known, false)
		check(t, "places free", len(s.log.lane.free), 1)
	})
	check(t, "records of a snapshot", len(b.catalog.Snapshot()), 4) // head, tenant, namespace, one deleted name
}
