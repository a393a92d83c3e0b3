package wal

import (
	"fmt"
	"slices"

	"felix/netio/wire"
)

// Recovered is what Open found. It belongs to the caller.
type Recovered struct {
	Shards []ShardState `json:"shards"` // sorted by id
	// Damage is what was durable and does not read back. The shards in it refuse the named offsets and serve the rest.
	Damage []Damage `json:"damage,omitempty"`
	// Notices are things an operator should know and that harm nothing: foreign files, a damaged copy.
	Notices []string `json:"notices,omitempty"`
	// Cut is the torn end that was cut off, nil when the log ended cleanly.
	Cut *Cut `json:"cut,omitempty"`
	// Suspect names shards whose true end is not known, because damage could not be attributed and nothing later
	// vouches for them. They refuse appends until SetStart moves them past anything that can have been acknowledged.
	Suspect      []uint64 `json:"suspect,omitempty"`
	Segments     int      `json:"segments"`
	LogBytes     int64    `json:"log_bytes"`     // in segments, including what is dead
	ScannedBytes int64    `json:"scanned_bytes"` // read to get here
	Groups       int      `json:"groups"`        // scanned
	Sequence     uint64   `json:"sequence"`      // of the last group kept
}

// Cut says where a torn end was cut off. Nothing in it was acknowledged as durable.
type Cut struct {
	Segment string `json:"segment"`
	Byte    int64  `json:"byte"`
	Groups  int    `json:"groups"` // whole groups behind the torn one, from writes that were never synced
	Bytes   int64  `json:"bytes"`  // of these
}

// ShardState is one shard as the log has it.
type ShardState struct {
	Shard      uint64      `json:"shard"`
	Start, End wire.Offset `json:"-"`
	Offsets    string      `json:"offsets"` // "[start, end)"
	Term       Term        `json:"term,omitempty"`
	Index      uint64      `json:"index,omitempty"`
	LastTime   int64       `json:"last_time"` // microseconds since 1970
	Bytes      int64       `json:"bytes"`     // in the log, about
	Slots      []uint8     `json:"slots,omitempty"`
}

// recovery reads a lane's directory. It changes nothing; Open carries out what it found (finish).
type recovery struct {
	fs       FS
	dir      string
	lane     uint64
	log      uint64 // of the segments that name one
	logFrom  string // the first segment that did
	anyLane  bool   // offline tools take the lane from the files
	readOnly bool

	pool     *filePool
	idx      *index
	segments []*segment // by epoch
	byEpoch  map[uint64]*segment
	spares   []string
	fresh    []string // unfinished files of ours
	released map[uint64]bool
	missing  []string   // names of segments that the checkpoint lists and the directory lacks or cannot read
	doubtful []*segment // older segments without a footer or cut short: holes may stem from them
	table    *checkpoint
	refs     []groupRef
	kept     int        // leading refs folded while the log was intact
	stale    []groupRef // groups behind the cut, whose headers are cleared
	suspect  map[uint64]struct{}

	lastSegment *segment // holds the last kept group, nil when there is none
	lastFooter  bool     // that group is a footer, so the segment is sealed
	sequence    uint64
	durable     uint64
	echo        []shardEnd
	rec         Recovered
}

// groupRef is a group of the scanned part of the log.
type groupRef struct {
	seg      *segment
	pos, len int64
	sequence uint64
	durable  uint64
	bad      bool
}

// load reads the directory into r. The caller closes the segments' files.
func (r *recovery) load() error {
	r.idx = newIndex()
	r.pool = &filePool{fs: r.fs, readOnly: r.readOnly}
	r.byEpoch, r.released, r.suspect = map[uint64]*segment{}, map[uint64]bool{}, map[uint64]struct{}{}
	if err := r.list(); err != nil {
		return err
	}
	if err := r.checkChain(); err != nil {
		return err
	}
	base, err := r.findBase()
	if err != nil {
		return err
	}
	if err := r.foldOlder(base); err != nil {
		return err
	}
	if err := r.foldNewer(base); err != nil {
		return err
	}
	r.report()
	r.quarantine()
	return nil
}

// list opens every segment and refuses what cannot be a lane's directory.
func (r *recovery) list() error {
	names, err := r.fs.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("wal: read directory %s: %w", r.dir, err)
	}
	for _, name := range names {
		path := r.dir + "/" + name
		if name == lockName {
			continue
		}
		if _, ok := parseSegmentName(name, spareSuffix); ok {
			r.spares = append(r.spares, name)
			continue
		}
		if _, ok := parseSegmentName(name, freshSuffix); ok {
			r.fresh = append(r.fresh, name)
			continue
		}
		epoch, ok := parseSegmentName(name, segmentSuffix)
		if !ok {
			r.notice("%s is not a file of this lane and is left alone; move it elsewhere", path)
			continue
		}
		if err := r.openSegment(name, path, epoch); err != nil {
			return err
		}
	}
	slices.SortFunc(r.segments, func(a, b *segment) int {
		if a.epoch < b.epoch {
			return -1
		}
		return 1
	})
	r.rec.Segments = len(r.segments)
	return nil
}

func (r *recovery) openSegment(name, path string, epoch uint64) error {
	h, err := r.fs.Open(path, r.readOnly)
	if err != nil {
		return fmt.Errorf("wal: open segment %s: %w", path, err)
	}
	f := r.pool.adopt(path, h, false)
	refuse := func(format string, args ...any) error {
		f.Close()
		return fmt.Errorf("wal: "+format, args...)
	}
	hdr, bad, err := readSegmentHeader(f)
	size, serr := f.Size()
	switch {
	case serr != nil:
		return refuse("size of segment %s: %w", path, serr)
	case err == errNoSegment:
		f.Close()
		r.missing = append(r.missing, name)
		r.rec.Damage = append(r.rec.Damage, Damage{Lane: r.lane, Segment: name, Bytes: size, Reason: "both copies of the segment header are unreadable"})
		return nil
	case err != nil:
		return refuse("read segment %s: %w", path, err)
	case hdr.version != formatVersion:
		return refuse("segment %s has format version %d and this program reads version %d; start the version of felix that wrote it", path, hdr.version, formatVersion)
	case hdr.epoch != epoch:
		return refuse("segment %s says inside that it is %s; rename it back", path, segmentName(hdr.epoch))
	case !r.anyLane && hdr.lane != r.lane:
		return refuse("segment %s belongs to lane %d and this directory is opened as lane %d; move it back to its own directory", path, hdr.lane, r.lane)
	}
	if hdr.log != 0 && r.log != 0 && hdr.log != r.log {
		return refuse("segments %s and %s are of two logs; move the one that does not belong here elsewhere, or restore the whole directory from one backup", path, r.logFrom)
	}
	r.lane = hdr.lane
	if r.log == 0 {
		r.log, r.logFrom = hdr.log, name
	}
	if bad > 0 {
		r.notice("%s: one of two copies of the segment header is unreadable; the other is used", path)
	}
	if size < hdr.size {
		r.notice("%s is %d bytes and was %d; what the rest held is reported as damage if it held anything", path, size, hdr.size)
	}
	s := newSegment(hdr, name, f)
	if size < hdr.size {
		r.doubtful = append(r.doubtful, s)
	}
	r.segments = append(r.segments, s)
	r.byEpoch[epoch] = s
	r.rec.LogBytes += size
	return nil
}

func (r *recovery) notice(format string, args ...any) {
	r.rec.Notices = append(r.rec.Notices, fmt.Sprintf(format, args...))
}

func (r *recovery) scanner(s *segment) (*scanner, error) {
	size, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("wal: size of segment %s: %w", s.name, err)
	}
	return newScanner(s.file, &s.segmentHeader, size), nil
}

// findBase returns the index of the newest segment that opens with a readable checkpoint, 0 without one, and keeps the
// checkpoint.
func (r *recovery) findBase() (int, error) {
	for i := len(r.segments) - 1; i >= 0; i-- {
		s := r.segments[i]
		sc, err := r.scanner(s)
		if err != nil {
			return 0, err
		}
		sc.win = sc.win[:min(len(sc.win), 64<<10)]
		g, ok, err := sc.at(segmentDataStart)
		r.rec.ScannedBytes += sc.read
		if err != nil {
			return 0, fmt.Errorf("wal: read segment %s: %w", s.name, err)
		}
		if !ok || len(g.dir) != 1 || g.dir[0].kind != kindCheckpoint || g.bad > 0 {
			continue
		}
		var c checkpoint
		err = g.batches(func(_ int, b *Batch, _ uint32) error { return parseCheckpoint(b.Records, &c) }, func(int) error { return errBadTable })
		if err == nil {
			r.table = &c
			return i, nil
		}
	}
	return 0, nil
}

// foldOlder folds the segments before base, from their footers where these read back.
func (r *recovery) foldOlder(base int) error {
	if r.table == nil {
		return nil
	}
	live := map[uint64]bool{}
	for _, e := range r.table.segments {
		live[e] = true
		if e != r.segments[base].epoch && r.byEpoch[e] == nil && !slices.Contains(r.missing, segmentName(e)) {
			r.missing = append(r.missing, segmentName(e))
		}
	}
	kept := make(map[uint64]bool, len(r.table.shards))
	for i := range r.table.shards {
		kept[r.table.shards[i].id] = true
	}
	keep := func(shard uint64) bool { return kept[shard] }
	for _, s := range r.segments[:base] {
		s.sealed = true
		if !live[s.epoch] {
			r.released[s.epoch] = true
			continue
		}
		size, err := s.file.Size()
		if err != nil {
			return fmt.Errorf("wal: size of segment %s: %w", s.name, err)
		}
		if runs, g, ok := readFooter(s.file, &s.segmentHeader, size); ok {
			s.footerPos, s.lastTime, s.pos = g.pos, g.written, g.pos+g.diskLen()
			r.rec.ScannedBytes += int64(len(g.body))
			r.idx.foldRuns(s, runs, keep)
			continue
		}
		r.notice("%s has no readable footer and was scanned; it is made new when the segment is rewritten", s.name)
		if err := r.scanOlder(s, keep); err != nil {
			return err
		}
	}
	r.idx.reconcile(r.table, func(e uint64) *segment { return r.byEpoch[e] })
	return nil
}

// scanOlder folds one sealed segment group by group. All of it is durable, so what does not parse is damage; the holes
// that it leaves name the shards.
func (r *recovery) scanOlder(s *segment, keep func(uint64) bool) error {
	sc, err := r.scanner(s)
	if err != nil {
		return err
	}
	if !slices.Contains(r.doubtful, s) {
		r.doubtful = append(r.doubtful, s)
	}
	defer func() { r.rec.ScannedBytes += sc.read }()
	for pos := int64(segmentDataStart); ; {
		g, err := sc.next(pos)
		if err != nil {
			return fmt.Errorf("wal: read segment %s: %w", s.name, err)
		}
		if g == nil {
			s.pos = pos
			return nil
		}
		if g.skipped > 0 {
			r.rec.Damage = append(r.rec.Damage, r.damageBefore(s, pos, g))
		}
		r.rec.Groups++
		s.lastTime = g.written
		r.raiseMoved(g, keep)
		r.fold(s, g, keep)
		pos = g.pos + g.diskLen()
	}
}

// raiseMoved makes room in the index for the moved batches of an older segment. The segments they came from may be gone,
// so nothing before them tells that their shards reach this far.
func (r *recovery) raiseMoved(g *group, keep func(uint64) bool) {
	for i := range g.dir {
		if e := &g.dir[i]; e.kind.takesOffsets() && e.flags&flagMoved != 0 && keep(e.shard) {
			s := r.idx.shard(e.shard)
			s.end = max(s.end, e.end())
		}
	}
}

// foldNewer folds the log from base on. Groups are folded while each follows the one before; at the first that does
// not, the rest is read for the durable mark, which tells damage from a torn end.
func (r *recovery) foldNewer(base int) error {
	intact := true
	for i := base; i < len(r.segments); i++ {
		s := r.segments[i]
		sc, err := r.scanner(s)
		if err != nil {
			return err
		}
		for pos := int64(segmentDataStart); ; {
			g, err := sc.next(pos)
			if err != nil {
				return fmt.Errorf("wal: read segment %s: %w", s.name, err)
			}
			if g == nil {
				break
			}
			ref := groupRef{s, g.pos, g.diskLen(), g.sequence, g.durable, g.bad > 0}
			if intact && (ref.bad || !r.follows(&ref)) {
				intact = false
			}
			r.refs = append(r.refs, ref)
			r.rec.Groups++
			r.durable = max(r.durable, g.durable)
			if intact {
				r.kept++
				r.keep(&r.refs[len(r.refs)-1], g)
			}
			pos = g.pos + ref.len
		}
		r.rec.ScannedBytes += sc.read
	}
	if intact {
		return nil
	}
	return r.foldDamaged()
}

// follows says whether ref is the group after the last kept one, at the place where that must be.
func (r *recovery) follows(ref *groupRef) bool {
	if r.lastSegment == nil {
		return ref.pos == segmentDataStart
	}
	if ref.sequence != r.sequence+1 {
		return false
	}
	return ref.seg == r.lastSegment && ref.pos == r.lastSegment.pos || ref.seg != r.lastSegment && ref.pos == segmentDataStart
}

// keep folds a group and makes it the last.
func (r *recovery) keep(ref *groupRef, g *group) {
	if r.lastSegment != nil && r.lastSegment != ref.seg {
		r.lastSegment.sealed = true
	}
	r.lastSegment, r.sequence = ref.seg, ref.sequence
	ref.seg.pos, ref.seg.lastTime = ref.pos+ref.len, g.written
	r.lastFooter = len(g.dir) > 0 && g.dir[0].kind == kindFooter
	if r.lastFooter && g.bad == 0 {
		ref.seg.footerPos = g.pos
	}
	r.fold(ref.seg, g, func(uint64) bool { return true })
	r.echo = r.idx.echoOf(r.echo[:0], g.dir, g.sequence)
}

// fold applies the batches of g. Entries that do not read back leave holes and are reported.
func (r *recovery) fold(s *segment, g *group, keep func(uint64) bool) {
	_ = g.batches(func(i int, b *Batch, size uint32) error {
		switch b.Kind {
		case kindRelease:
			r.released[uint64(b.Base)] = true
		case kindCheckpoint:
			var c checkpoint
			if parseCheckpoint(b.Records, &c) == nil {
				if g.pos != segmentDataStart || r.table == nil {
					r.idx.reconcile(&c, nil)
				}
				clear(r.suspect)
			}
		default:
			if keep(b.Shard) {
				r.idx.apply(b, size, s, g.pos, i)
			}
			if b.Kind.takesOffsets() && b.Flags&flagMoved == 0 {
				delete(r.suspect, b.Shard)
			}
		}
		return nil
	}, func(i int) error {
		r.badEntry(s, g, i, keep)
		return nil
	})
}
