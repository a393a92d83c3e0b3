package replicate

import (
	"errors"
	"fmt"
	"time"

	"felix/core"
	"felix/netio/wire"
	"felix/wal"
)

// retryInterval is how often what a lane refused as busy is tried again without being told: a lane that is stopped by its own upkeep
// tells nobody.
const retryInterval = 100 * time.Millisecond

// A hostLane is one lane of a host with what waits for it. It is owned by the host's loop, except where a field says otherwise.
type hostLane struct {
	id   uint64
	lane *wal.Lane
	host *Host

	// Owned by the catalog, under its lock: what the lane holds of shards that no stream has claimed, and the shards placed here.
	recovered map[uint64]wal.ShardState
	load      int

	// slots finds a shard by the token of a completion. A shard gets its place with its first append and keeps it until the completion
	// of its deletion, the last one it can have.
	slots []*Shard
	free  []uint32

	completed []*Shard // had completions in this Drain
	blocked   []*Shard // were refused as busy, oldest first; each is in here once
	spare     []*Shard // memory of the last such list
	deletes   []*Shard // deleted, and not yet in the lane
	tables    []*Shard // have producers that no table in the lane has
	batch     wal.Batch
	bytes     uint64 // appended in this life
	closed    bool
}

// What a completion is of; the low bits of its token. The others are the place in slots.
const (
	tokenAppend uint64 = iota
	tokenDelete
	tokenOther // registers and starts: nobody waits for them

	tokenBits = 2
)

// AddLane gives the host a lane to keep durable shards in, as wal.Open returned it. id is the lane's id, which the catalog records; it
// is unique over all hosts. The lane's Notify is the loop's WakeOffCore. It is called before the catalog is made and before the group
// starts; from then on the lane belongs to the host, which closes it.
func (h *Host) AddLane(id uint64, lane *wal.Lane, recovered *wal.Recovered) {
	hl := &hostLane{id: id, lane: lane, host: h, recovered: make(map[uint64]wal.ShardState)}
	for _, s := range recovered.Shards {
		hl.recovered[s.Shard] = s
	}
	h.lanes = append(h.lanes, hl)
}

// Lanes is the part of a host that takes the completions of its lanes. It is an agent of its own, visited before the one that sends
// answers: a publish whose records have reached the disk is answered and offered in the pass that learns it.
type Lanes struct{ host *Host }

// Lanes returns the agent. A host without lanes needs none.
func (h *Host) Lanes() *Lanes { return &Lanes{h} }

// Work is called by the loop.
func (a *Lanes) Work(l *core.Loop) (did int) {
	for _, hl := range a.host.lanes {
		did += hl.work(l)
	}
	if a.host.restored {
		// Timers cannot be armed before the loop runs.
		a.host.restored = false
		if len(a.host.aging) > 0 && !a.host.timer.Armed() {
			l.Arm(&a.host.timer, agingInterval, a.host.sweepAgingFunc)
		}
	}
	return did
}

// work takes completions and goes on with what the lane had refused.
func (hl *hostLane) work(l *core.Loop) (did int) {
	did = hl.drain(l)
	if len(hl.blocked) > 0 {
		did += hl.unblock(l)
	}
	if len(hl.deletes) > 0 {
		did += hl.delete(l)
	}
	if did > 0 {
		// The slots that completions freed have let waiters in, which go with this group and not with the one after it; and the disk
		// works on it while the answers are written.
		hl.lane.Commit()
	}
	return did
}

func (hl *hostLane) drain(l *core.Loop) int {
	n := hl.lane.Drain(hl)
	for i, s := range hl.completed {
		hl.completed[i] = nil
		s.log.completed = false
		s.complete(l)
	}
	hl.completed = hl.completed[:0]
	return n
}

// OnDurable implements wal.Sink. It only notes: appends that finish may append again, which the lane does not expect in here.
func (hl *hostLane) OnDurable(id uint64, upTo wire.Offset, token uint64, err error) {
	place := token >> tokenBits
	s := hl.slots[place]
	if s == nil || s.log.id != id {
		panic(fmt.Sprintf("BUG: replicate: completion of shard %d in lane %d, where %d has none", id, hl.id, place))
	}
	switch token & (1<<tokenBits - 1) {
	case tokenAppend:
		if err != nil {
			s.log.failed = true
		} else {
			s.log.durable = upTo
		}
		if !s.log.completed {
			s.log.completed = true
			hl.completed = append(hl.completed, s)
		}
	case tokenDelete:
		if err == nil {
			s.stream.unburied.Add(-1)
		}
		hl.slots[place] = nil
		hl.free = append(hl.free, uint32(place))
	}
}

// token returns the token for a batch of s.
func (hl *hostLane) token(s *Shard, kind uint64) uint64 {
	log := s.log
	if !log.placed {
		log.placed = true
		if n := len(hl.free); n > 0 {
			log.place = hl.free[n-1]
			hl.free = hl.free[:n-1]
			hl.slots[log.place] = s
		} else {
			log.place = uint32(len(hl.slots))
			hl.slots = append(hl.slots, s)
		}
	}
	return uint64(log.place)<<tokenBits | kind
}

// unblock goes on with the appends of shards that were refused as busy, until one is refused again.
func (hl *hostLane) unblock(l *core.Loop) (did int) {
	list := hl.blocked
	hl.blocked, hl.spare = hl.spare[:0], list
	for i, s := range list {
		list[i] = nil
		if len(hl.blocked) > 0 {
			hl.blocked = append(hl.blocked, s)
			continue
		}
		if s.gone {
			continue
		}
		s.log.blocked = false
		before := s.held.n
		s.goOn(l)
		did += max(before-s.held.n, 0)
	}
	return did
}

// delete has the lane forget the shards of deleted streams.
func (hl *hostLane) delete(l *core.Loop) (did int) {
	for len(hl.deletes) > 0 {
		s := hl.deletes[0]
		err := error(nil)
		if _, known := hl.lane.End(s.log.id); known {
			err = hl.lane.Delete(s.log.id, wal.OnCommit, hl.token(s, tokenDelete))
		} else {
			s.stream.unburied.Add(-1)
			if s.log.placed {
				hl.slots[s.log.place] = nil
				hl.free = append(hl.free, s.log.place)
			}
		}
		if errors.Is(err, wal.ErrBusy) || errors.Is(err, wal.ErrDiskFull) {
			hl.host.retryLater(l)
			break
		}
		// Any other error means that the lane takes nothing more: the next start deletes what the catalog says is deleted.
		hl.deletes[0] = nil
		hl.deletes = hl.deletes[1:]
		did++
	}
	return did
}

// retryLater makes a pass after retryInterval.
func (h *Host) retryLater(l *core.Loop) {
	if !h.retry.Armed() {
		l.Arm(&h.retry, retryInterval, func(*core.Loop) {})
	}
}

// commit hands over what the pass has appended.
func (h *Host) commit() {
	for _, hl := range h.lanes {
		hl.lane.Commit()
	}
}

// CloseLanes writes what was appended and the tables of producers, and closes the lanes; appends end with StorageFailed from then on.
// It runs on the host's loop, once nothing is published any more, and waits for the disk. It returns the errors that had stopped
// lanes. Calling it again does nothing.
func (h *Host) CloseLanes(l *core.Loop) error {
	l.AssertOwner()
	h.readers.close()
	var errs []error
	for _, hl := range h.lanes {
		if hl.closed {
			continue
		}
		hl.closed = true
		hl.work(l)
		for _, s := range hl.tables {
			if !s.gone && s.log.tableDirty {
				_ = s.writeTable(wal.OnCommit) // what it would have said is in the batches, too
			}
		}
		hl.tables = nil
		if err := hl.lane.Close(); err != nil {
			errs = append(errs, fmt.Errorf("lane %d: %w", hl.id, err))
		}
		hl.drain(l)
		hl.unblock(l) // the lane refuses for good now
	}
	return errors.Join(errs...)
}

// CloseOffCore runs CloseLanes on the loop and waits until no goroutine of the host reads a lane any more. It is called after the
// group has started and before it closes; whoever gives up before the start closes the lanes itself.
func (h *Host) CloseOffCore() error {
	if len(h.lanes) == 0 {
		return nil
	}
	done := make(chan error, 1)
	err := h.loop.PostOffCore(core.Func(func(l *core.Loop) { done <- h.CloseLanes(l) }))
	if err != nil {
		return fmt.Errorf("replicate: lanes of core %d are not closed: %w", h.loop.ID(), err)
	}
	err = <-done
	h.readers.wait()
	return err
}
