package felix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"felix/replicate"
	"felix/wal"
)

// lanePrefix names the directories of lanes: lanes/lane-0, lanes/lane-1, ...
const lanePrefix = "lane-"

// A temporary data directory gets small segments: whoever starts a broker for a test does not want it to prepare
// megabytes of log.
const (
	temporarySegmentBytes = 8 << 20
	temporaryZeroAhead    = 1 << 20
)

// openLanes opens every lane of the data directory and, when there are fewer than cores, makes new ones. They are dealt
// to the cores in order, so that a directory written with another number of cores is served whole and nothing is
// rewritten.
func (b *Broker) openLanes() error {
	root := filepath.Join(b.dir.path, "lanes")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return b.dir.unusable(err)
	}
	ids, err := laneIDs(root)
	if err != nil {
		return err
	}
	for id := uint64(0); len(ids) < len(b.hosts); id++ {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	type opened struct {
		lane      *wal.Lane
		recovered *wal.Recovered
		recovery  time.Duration
		unsynced  atomic.Int64
		err       error
	}
	lanes := make([]opened, len(ids))
	var wait sync.WaitGroup
	for i, id := range ids {
		host := b.hosts[i%len(b.hosts)]
		wait.Go(func() {
			o := &lanes[i]
			dir := filepath.Join(root, lanePrefix+strconv.FormatUint(id, 10))
			begun := b.elapsed()
			o.lane, o.recovered, o.err = wal.Open(dir, b.laneOptions(id, b.group.Loop(host.Core()).WakeOffCore, &o.unsynced))
			o.recovery = b.elapsed() - begun
		})
	}
	wait.Wait()
	var errs []error
	for i := range lanes {
		o := &lanes[i]
		if o.err != nil {
			errs = append(errs, withoutRights(o.err))
			continue
		}
		b.hosts[i%len(b.hosts)].AddLane(ids[i], o.lane, o.recovered)
		lane := brokerLane{Lane: o.lane, id: ids[i], recovery: o.recovery, unsynced: &o.unsynced}
		if o.recovered.Cut != nil {
			lane.cut = o.recovered.Cut.Bytes
		}
		b.lanes = append(b.lanes, lane)
		b.reportRecovery(ids[i], o.recovered)
	}
	return errors.Join(errs...)
}

// withoutRights gives the error of a file that this user may not open or write its remedy.
func withoutRights(err error) error {
	var file *fs.PathError
	if errors.As(err, &file) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)) {
		return fmt.Errorf("the log file %s cannot be used: %w; make everything in that directory readable and writable for this user", file.Path, file.Err)
	}
	return err
}

// laneIDs lists the lanes of a directory. Anything else in it is left alone.
func laneIDs(root string) ([]uint64, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("the lanes in %s cannot be listed: %w; make the directory readable for this user", root, plain(err))
	}
	var ids []uint64
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), lanePrefix)
		id, err := strconv.ParseUint(name, 10, 32)
		if ok && err == nil && strconv.FormatUint(id, 10) == name && e.IsDir() {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (b *Broker) laneOptions(id uint64, notify func(), unsynced *atomic.Int64) wal.Options {
	c := b.config.Log
	o := wal.Options{
		Lane:         id,
		Now:          b.config.Now,
		Notify:       notify,
		Backend:      c.Backend,
		WrapBackend:  b.storage.wrap(unsynced),
		SegmentBytes: c.SegmentBytes,
		SyncInterval: c.SyncInterval,
		Log:          func(line string) { b.log.Warn(line) },
	}
	if b.dir.temporary && o.SegmentBytes == 0 {
		o.SegmentBytes, o.ZeroAhead = temporarySegmentBytes, temporaryZeroAhead
	}
	return o
}

// reportRecovery tells what a lane's recovery found that an operator should know.
func (b *Broker) reportRecovery(id uint64, r *wal.Recovered) {
	for _, notice := range r.Notices {
		b.log.Warn("log: "+notice, "lane", id)
	}
	if r.Cut != nil {
		b.log.Info("log: a torn end was cut off; nothing in it was acknowledged", "lane", id, "segment", r.Cut.Segment, "byte", r.Cut.Byte)
	}
	for _, d := range r.Damage {
		b.log.Error("log: damage; the shards in it refuse what is lost and serve the rest", "lane", id, "damage", fmt.Sprintf("%+v", d))
		b.damage = append(b.damage, fmt.Sprintf("lane %d is damaged: %+v", id, d))
	}
}

// openCatalog reads the journal and restores the catalog with it.
func (b *Broker) openCatalog() error {
	var records [][]byte
	var err error
	if b.journal, records, err = openJournal(b.dir.meta("catalog.journal")); err != nil {
		return err
	}
	b.newCatalog()
	if err := b.catalog.Restore(records); err != nil {
		return fmt.Errorf("%s: %w", b.journal.path, err)
	}
	for _, notice := range b.catalog.Notices() {
		b.log.Warn(notice)
	}
	for _, o := range b.catalog.Orphans() {
		b.log.Warn("log: a shard belongs to no stream of the catalog; it is kept and not served", "lane", o.Lane, "stream", o.Stream, "shard", o.Index, "start", o.Start, "end", o.End)
	}
	return b.journal.compact(b.catalog.Snapshot())
}

// LogShard takes apart the number under which the log keeps a shard: the id of its stream and its place in it. It is for tools that read
// the log without a broker.
func LogShard(number uint64) (stream uint64, index uint32) {
	return number / replicate.MaxShards, uint32(number % replicate.MaxShards)
}

// closeLanes writes what was accepted and closes the lanes. The loops must run.
func (b *Broker) closeLanes() error {
	var errs []error
	for _, host := range b.hosts {
		errs = append(errs, host.CloseOffCore())
	}
	if b.journal != nil {
		errs = append(errs, b.journal.close())
	}
	return errors.Join(errs...)
}

// laneTroubles are the lanes that stopped after a disk error, for /ready.
func (b *Broker) laneTroubles() []string {
	var list []string
	for _, lane := range b.lanes {
		if err := lane.Err(); err != nil {
			list = append(list, fmt.Sprintf("lane %d: %v", lane.id, err))
		}
	}
	return list
}

// Log says how durable streams are kept.
type Log struct {
	// FsyncMode is what records of durable streams wait for that name no mode [fsync_mode]: OnCommit, the default,
	// Periodic or NoSync.
	FsyncMode FsyncMode
	// SyncInterval bounds how long a record under Periodic stays unsynced, 1 ms to 1 minute [fsync_interval_ms]. Zero
	// means 250 ms. It does not choose the mode.
	SyncInterval time.Duration
	// SegmentBytes is the size of a segment, 1 MiB to 4 GiB in steps of 4 KiB [segment_bytes]. Zero means 64 MiB, or
	// 8 MiB in a temporary directory.
	SegmentBytes int64
	// Retention bounds what each shard of a durable stream keeps, where the stream names nothing itself
	// [retention_seconds, retention_bytes]. Its zero fields bound nothing.
	Retention Retention
	// Backend chooses how groups are written [storage_backend]. The zero value tries io_uring and falls back to
	// calls.
	Backend StorageBackend
}
