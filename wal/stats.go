package wal

import (
	"sync/atomic"
	"time"
)

// laneStats are counters that only grow.
type laneStats struct {
	batches, bodyBytes               atomic.Uint64
	groups, syncs, marks, rolls      atomic.Uint64
	logBytes                         atomic.Uint64
	zeroedGroups, zeroedBytes        atomic.Uint64
	recycled, released, movedBatches atomic.Uint64
	diskFull                         atomic.Uint64
	spares                           atomic.Int64 // kept now
	backend                          atomic.Pointer[string]

	rateAt    atomic.Int64 // clock of the last look, microseconds
	rateBytes atomic.Uint64
}

// rate estimates how many bytes two seconds of the present rate are, looking at most once a second. fallback is the
// answer before the first second is over. Only the keeper calls it.
func (s *laneStats) rate(now time.Time, fallback int64) int64 {
	at, us := s.rateAt.Load(), now.UnixMicro()
	if at == 0 || us < at {
		s.rateAt.Store(us)
		s.rateBytes.Store(s.logBytes.Load())
		return fallback
	}
	if us-at < 1e6 {
		return fallback
	}
	n := s.logBytes.Load()
	per := int64(n-s.rateBytes.Load()) * 2e6 / (us - at)
	if us-at > 2e6 {
		s.rateAt.Store(us)
		s.rateBytes.Store(n)
	}
	return per
}

// Stats is a snapshot of a lane's counters. Each grows over the life of the Lane.
type Stats struct {
	Backend      string
	Batches      uint64 // appended by the owner and written
	BodyBytes    uint64 // encoded bytes of these
	Groups       uint64 // written, marks and checkpoints included
	Syncs        uint64
	Marks        uint64
	Rolls        uint64
	LogBytes     uint64 // written to segments, headers and padding included, zeroing apart
	ZeroedGroups uint64 // groups that went into blocks written before
	ZeroedBytes  uint64 // zeros written ahead
	Recycled     uint64 // segments made from spares
	Released     uint64 // segments emptied by retention
	MovedBatches uint64
	DiskFull     uint64 // failed tries to make a segment for want of space
	Segments     int    // that hold log
	Pending      int64  // bytes appended or kept free for upkeep, and not written; falls as groups are written
	OpenSegments int    // sealed ones whose file is open for reads
	DiskBytes    int64  // of all files: segments that hold log, the next one, those about to be freed, spares
	Failed       error
}

// StatsOffCore returns the lane's counters.
func (l *Lane) StatsOffCore() Stats {
	s := &l.stats
	out := Stats{Batches: s.batches.Load(), BodyBytes: s.bodyBytes.Load(), Groups: s.groups.Load(), Syncs: s.syncs.Load(), Marks: s.marks.Load(),
		Rolls: s.rolls.Load(), LogBytes: s.logBytes.Load(), ZeroedGroups: s.zeroedGroups.Load(), ZeroedBytes: s.zeroedBytes.Load(),
		Recycled: s.recycled.Load(), Released: s.released.Load(), MovedBatches: s.movedBatches.Load(), DiskFull: s.diskFull.Load(), Failed: l.Err(), Pending: l.promised.Load()}
	if p := s.backend.Load(); p != nil {
		out.Backend = *p
	}
	out.OpenSegments = l.keep.pool.opened()
	out.DiskBytes = s.spares.Load() * l.opts.SegmentBytes // others are not kept
	k := &l.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	out.Segments = len(k.segments)
	for _, list := range [][]*segment{k.segments, k.dead} {
		for _, seg := range list {
			out.DiskBytes += seg.size
		}
	}
	if k.next != nil {
		out.DiskBytes += k.next.size
	}
	return out
}
