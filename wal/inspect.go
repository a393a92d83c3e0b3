package wal

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"felix/netio/wire"
)

// The functions here read a lane's directory offline: they change nothing and take no lock, so on a running lane what
// they say about the tail is provisional. They are what `felix wal` prints.

// SegmentInfo is one segment file.
type SegmentInfo struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	Sealed    bool   `json:"sealed"`
	Footer    bool   `json:"footer"` // its footer reads back
	UsedBytes int64  `json:"used_bytes"`
	Shards    int    `json:"shards"`
	Created   string `json:"created"` // RFC 3339
}

// Inspection is a lane's directory as recovery would take it.
type Inspection struct {
	Dir      string        `json:"dir"`
	Lane     uint64        `json:"lane"`
	Version  int           `json:"format_version"`
	Segments []SegmentInfo `json:"segment_files"`
	Spares   int           `json:"spare_segments"`
	*Recovered
}

// Inspect reads what recovery reads. Nil fsys means OSFS.
func Inspect(fsys FS, dir string) (*Inspection, error) {
	r, done, err := loadOffline(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &Inspection{Dir: dir, Lane: r.lane, Version: formatVersion, Spares: len(r.spares), Recovered: &r.rec}
	for _, s := range r.segments {
		size, err := s.file.Size()
		if err != nil {
			return nil, fmt.Errorf("wal: size of %s: %w", s.name, err)
		}
		_, _, ok := readFooter(s.file, &s.segmentHeader, size)
		out.Segments = append(out.Segments, SegmentInfo{Name: s.name, Bytes: size, Sealed: s.sealed, Footer: ok, UsedBytes: s.pos, Shards: len(s.touched),
			Created: time.UnixMicro(s.created).UTC().Format(time.RFC3339)})
	}
	return out, nil
}

func loadOffline(fsys FS, dir string) (*recovery, func(), error) {
	if fsys == nil {
		fsys = OSFS{}
	}
	r := &recovery{fs: fsys, dir: dir, anyLane: true, readOnly: true}
	done := func() {
		for _, s := range r.segments {
			s.file.Close()
		}
	}
	if err := r.load(); err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}

// Verification is the result of reading every byte that means something.
type Verification struct {
	Dir      string   `json:"dir"`
	Lane     uint64   `json:"lane"`
	Segments int      `json:"segments"`
	Groups   int      `json:"groups"`
	Batches  int      `json:"batches"`
	Bytes    int64    `json:"bytes_read"`
	Damage   []Damage `json:"damage,omitempty"`
	Notices  []string `json:"notices,omitempty"`
	Cut      *Cut     `json:"cut,omitempty"`
}

// Verify reads every segment from front to back: both header copies, every group, batch, footer and seal, the order of
// the groups, and whether every shard's offsets are there. Nil fsys means OSFS.
func Verify(fsys FS, dir string) (*Verification, error) {
	r, done, err := loadOffline(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer done()
	v := &Verification{Dir: dir, Lane: r.lane, Segments: len(r.segments), Damage: r.rec.Damage, Notices: r.rec.Notices, Cut: r.rec.Cut}
	for _, s := range r.segments {
		_, bad, err := readSegmentHeader(s.file)
		if err != nil {
			return nil, fmt.Errorf("wal: read %s: %w", s.name, err)
		}
		if bad > 0 {
			v.report(Damage{Lane: r.lane, Segment: s.name, Bytes: segmentDataStart, Reason: "one of two copies of the segment header is unreadable; nothing is lost"})
		}
		if err := v.segment(r, s); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// report adds a place of damage unless recovery has named it.
func (v *Verification) report(d Damage) {
	for _, o := range v.Damage {
		if o.Segment == d.Segment && o.Byte == d.Byte {
			return
		}
	}
	v.Damage = append(v.Damage, d)
}

func (v *Verification) segment(r *recovery, s *segment) error {
	sc, err := r.scanner(s)
	if err != nil {
		return err
	}
	later := r.lastSegment != nil && s.epoch < r.lastSegment.epoch
	var sequence uint64
	end := int64(segmentDataStart)
	for pos := end; ; {
		g, err := sc.next(pos)
		if err != nil {
			return fmt.Errorf("wal: read %s: %w", s.name, err)
		}
		if g == nil || r.cutBefore(s, g.pos) {
			break
		}
		if g.skipped > 0 {
			v.report(r.damageBefore(s, pos, g))
		}
		if sequence > 0 && g.skipped == 0 && g.sequence != sequence+1 {
			v.report(Damage{Lane: r.lane, Segment: s.name, Byte: g.pos, Reason: fmt.Sprintf("group %d follows group %d", g.sequence, sequence)})
		}
		sequence = g.sequence
		v.Groups++
		_ = g.batches(func(_ int, b *Batch, _ uint32) error {
			v.Batches++
			if b.Kind.takesOffsets() {
				if _, err := wire.CheckRecords(b.Records, b.Count); err != nil {
					v.report(Damage{Lane: r.lane, Segment: s.name, Byte: g.pos, Reason: "records of a batch do not parse", Shards: []ShardRange{newShardRange(b.Shard, b.Base, b.End())}})
				}
			}
			return nil
		}, func(i int) error {
			e := &g.dir[i]
			d := Damage{Lane: r.lane, Segment: s.name, Byte: g.pos + g.entryOffset(i), Bytes: int64(e.size), Reason: "checksum of a batch does not match"}
			if e.kind.takesOffsets() {
				d.Shards = []ShardRange{newShardRange(e.shard, e.base, e.end())}
			}
			v.report(d)
			return nil
		})
		pos = g.pos + g.diskLen()
		end = pos
	}
	v.Bytes += sc.read
	// A segment before the last was sealed, unless its footer found no room.
	if _, _, ok := readFooter(s.file, &s.segmentHeader, sc.end+blockSize); later && !ok && end+s.footerRoom(0) <= s.size-blockSize {
		v.report(Damage{Lane: r.lane, Segment: s.name, Byte: end, Bytes: s.size - end, Reason: "footer or seal of a full segment does not read back; nothing is lost, it is scanned instead"})
	}
	return nil
}

// entryOffset is where directory entry i starts in its group.
func (g *group) entryOffset(i int) int64 {
	off := int64(g.headLen())
	for k := range i {
		off += int64(g.dir[k].size)
	}
	return off
}

// cutBefore says whether the group at pos is behind the torn end.
func (r *recovery) cutBefore(s *segment, pos int64) bool {
	for _, g := range r.stale {
		if g.seg == s && g.pos <= pos {
			return true
		}
	}
	return false
}

// DumpOptions choose what Dump prints.
type DumpOptions struct {
	Shard    uint64      // 0 means every shard
	From, To wire.Offset // of that shard; To 0 means no end
	JSON     bool        // one object a line
	Payloads bool        // with the record bytes, in JSON as base64
}

// dumpLine is one batch as Dump prints it in JSON.
type dumpLine struct {
	Segment  string `json:"segment"`
	Byte     int64  `json:"byte"`
	Sequence uint64 `json:"group"`
	Durable  uint64 `json:"durable"`
	Kind     string `json:"kind,omitempty"`
	Shard    uint64 `json:"shard,omitempty"`
	Base     uint64 `json:"base"`
	Count    uint32 `json:"count"`
	Bytes    int    `json:"bytes"`
	Time     string `json:"time,omitempty"`
	Term     Term   `json:"term,omitempty"`
	Index    uint64 `json:"index,omitempty"`
	Producer uint64 `json:"producer,omitempty"`
	Seq      uint64 `json:"producer_sequence,omitempty"`
	Moved    bool   `json:"moved,omitempty"`
	Bad      string `json:"bad,omitempty"`
	Records  []byte `json:"records,omitempty"`
}

// Dump prints every batch in log order. Nil fsys means OSFS.
func Dump(fsys FS, dir string, w io.Writer, o DumpOptions) error {
	r, done, err := loadOffline(fsys, dir)
	if err != nil {
		return err
	}
	defer done()
	enc := json.NewEncoder(w)
	put := func(d dumpLine) error {
		if o.JSON {
			return enc.Encode(d)
		}
		if d.Bad != "" {
			_, err = fmt.Fprintf(w, "%s byte %d group %d: %s\n", d.Segment, d.Byte, d.Sequence, d.Bad)
			return err
		}
		_, err = fmt.Fprintf(w, "%s byte %d group %d %s shard %d [%d, %d) %d bytes %s\n", d.Segment, d.Byte, d.Sequence, d.Kind, d.Shard, d.Base, d.Base+uint64(d.Count), d.Bytes, d.Time)
		if err == nil && o.Payloads {
			_, err = fmt.Fprintf(w, "%q\n", d.Records)
		}
		return err
	}
	for _, s := range r.segments {
		sc, err := r.scanner(s)
		if err != nil {
			return err
		}
		for pos := int64(segmentDataStart); ; {
			g, err := sc.next(pos)
			if err != nil {
				return fmt.Errorf("wal: read %s: %w", s.name, err)
			}
			if g == nil {
				break
			}
			if g.skipped > 0 {
				if err := put(dumpLine{Segment: s.name, Byte: pos, Sequence: g.sequence, Bad: fmt.Sprintf("%d bytes before it hold no readable group", g.skipped)}); err != nil {
					return err
				}
			}
			pos = g.pos + g.diskLen()
			line := dumpLine{Segment: s.name, Byte: g.pos, Sequence: g.sequence, Durable: g.durable}
			if len(g.dir) == 0 {
				line.Kind = "mark"
				if err := put(line); err != nil {
					return err
				}
			}
			err = g.batches(func(_ int, b *Batch, size uint32) error {
				if o.Shard != 0 && (b.Shard != o.Shard || b.End() < o.From || o.To > 0 && b.Base >= o.To) {
					return nil
				}
				d := line
				d.Kind, d.Shard, d.Base, d.Count, d.Bytes = b.Kind.String(), b.Shard, uint64(b.Base), b.Count, int(size)
				d.Time = time.UnixMicro(b.Time).UTC().Format(time.RFC3339Nano)
				d.Term, d.Index, d.Producer, d.Seq, d.Moved = b.Term, b.Index, b.Producer, b.Sequence, b.Flags&flagMoved != 0
				if o.Payloads {
					d.Records = b.Records
				}
				return put(d)
			}, func(i int) error {
				d := line
				d.Shard, d.Base, d.Count, d.Bad = g.dir[i].shard, uint64(g.dir[i].base), g.dir[i].count, "checksum does not match"
				return put(d)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// String names the kind as Dump prints it.
func (k Kind) String() string {
	names := map[Kind]string{KindRecords: "records", KindCache: "cache", KindCommit: "commit", KindCursor: "cursor", KindTermStart: "term-start",
		KindRegister: "register", KindEntry: "entry", kindStart: "start", kindTruncate: "truncate", kindDelete: "delete", kindRelease: "release",
		kindCheckpoint: "checkpoint", kindFooter: "footer", kindIndex: "index"}
	if n, ok := names[k]; ok {
		return n
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}
