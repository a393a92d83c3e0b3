package wal

import (
	"errors"
	"io"
)

// scanner walks the groups of one segment. It reads through a window and finds its way again at the next block that
// holds a group when one does not parse.
type scanner struct {
	f    io.ReaderAt
	h    *segmentHeader
	end  int64 // bytes that can hold groups: the file's real size, without the seal block
	win  []byte
	base int64 // position of win[0]
	n    int   // valid bytes of win
	read int64 // bytes read, for the books
	// ahead, when set, is told after each read where in the file the next one begins.
	ahead func(pos int64)

	g group // the current group
}

// group is one parsed group of a scan. Its slices live until the scanner moves on.
type group struct {
	groupHeader
	pos  int64
	body []byte // nil when the file ends before it
	bad  int    // entries whose bytes do not match their checksum
	// skipped is how many bytes before pos did not parse as groups.
	skipped int64
}

const scanWindow = 1 << 20

func newScanner(f io.ReaderAt, h *segmentHeader, fileSize int64) *scanner {
	return &scanner{f: f, h: h, end: min(h.size-blockSize, fileSize), win: make([]byte, min(scanWindow, alignUp(h.size)))}
}

// need returns the bytes [pos, pos+n), reading them if the window does not hold them. Fewer come back at the end.
func (s *scanner) need(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.end-pos))
	if n <= 0 {
		return nil, nil
	}
	if pos >= s.base && pos+int64(n) <= s.base+int64(s.n) {
		return s.win[pos-s.base:][:n], nil
	}
	// What the window holds of the asked bytes is moved to its front: a group that crosses its end is read once.
	kept := 0
	if pos >= s.base && pos < s.base+int64(s.n) {
		kept = int(s.base + int64(s.n) - pos)
	}
	from := s.win[s.n-kept : s.n]
	if n > len(s.win) {
		s.win = make([]byte, alignUp(int64(n)))
	}
	copy(s.win, from)
	want := int(min(int64(len(s.win)), s.end-pos))
	got, err := s.f.ReadAt(s.win[kept:want], pos+int64(kept))
	if err != nil && !errors.Is(err, io.EOF) {
		s.n = 0
		return nil, err
	}
	s.base, s.n = pos, kept+got
	s.read += int64(got)
	if s.ahead != nil {
		s.ahead(s.base + int64(s.n))
	}
	return s.win[:min(n, s.n)], nil
}

// at reads the group at pos. ok is false when there is none; err is a failed read only.
func (s *scanner) at(pos int64) (g *group, ok bool, err error) {
	g = &s.g
	b, err := s.need(pos, blockSize)
	if err != nil {
		return nil, false, err
	}
	headLen, bodyLen, perr := peekGroupHeader(b)
	if perr != nil {
		return nil, false, nil
	}
	total := int64(headLen) + int64(bodyLen)
	if alignUp(total) > s.h.size-blockSize-pos {
		return nil, false, nil
	}
	if len(b) < headLen {
		if b, err = s.need(pos, headLen); err != nil {
			return nil, false, err
		}
	}
	if parseGroupHeader(b, &g.groupHeader) != nil || g.lane != s.h.lane || g.epoch != s.h.epoch || g.salt != s.h.salt {
		return nil, false, nil
	}
	g.pos, g.bad, g.body, g.skipped = pos, 0, nil, 0
	if b, err = s.need(pos, int(total)); err != nil {
		return nil, false, err
	}
	if len(b) > headLen || bodyLen == 0 {
		g.body = b[headLen:]
	}
	off := 0
	for i := range g.dir {
		if !g.entryValid(i, off) {
			g.bad++
		}
		off += int(g.dir[i].size)
	}
	return g, true, nil
}

// entryValid checks the bytes of directory entry i, which start at off of the body.
func (g *group) entryValid(i, off int) bool {
	e := &g.dir[i]
	end := off + int(e.size)
	return end <= len(g.body) && checksum(g.body[off:end]) == e.crc
}

// next returns the first group at or after pos, nil at the end. g.skipped says how far it had to look.
func (s *scanner) next(pos int64) (*group, error) {
	for from := pos; pos < s.end; pos += blockSize {
		g, ok, err := s.at(pos)
		if err != nil {
			return nil, err
		}
		if ok {
			g.skipped = pos - from
			return g, nil
		}
	}
	return nil, nil
}

// batches calls fn for every readable batch of g, with its place in the directory. Entries that fail their checksum
// or do not parse go to bad.
func (g *group) batches(fn func(i int, b *Batch, size uint32) error, bad func(i int) error) error {
	var b Batch
	off := 0
	for i := range g.dir {
		e := &g.dir[i]
		from := off
		off += int(e.size)
		if g.bad > 0 && !g.entryValid(i, from) || off > len(g.body) || parseBatch(g.body[from:off], &b) != nil ||
			b.Shard != e.shard || b.Base != e.base || b.Count != e.count || b.Kind != e.kind {
			if err := bad(i); err != nil {
				return err
			}
			continue
		}
		if err := fn(i, &b, e.size); err != nil {
			return err
		}
	}
	return nil
}

// readSegmentHeader reads both copies of the header and returns the first good one. bad counts the copies that do not
// parse.
func readSegmentHeader(f io.ReaderAt) (h segmentHeader, bad int, err error) {
	buf := make([]byte, blockSize+segmentHeaderSize)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, 2, err
	}
	found := false
	for _, at := range []int{0, blockSize} {
		var c segmentHeader
		if n < at+segmentHeaderSize || parseSegmentHeader(buf[at:], &c) != nil {
			bad++
			continue
		}
		if !found {
			h, found = c, true
		}
	}
	if !found {
		return h, bad, errNoSegment
	}
	return h, bad, nil
}

// readFooter returns the runs of a sealed segment; ok is false when there is no footer that can be trusted, and the
// segment is scanned instead.
func readFooter(f io.ReaderAt, h *segmentHeader, fileSize int64) (runs []run, g *group, ok bool) {
	if fileSize < h.size {
		return nil, nil, false
	}
	var b [sealSize]byte
	if _, err := f.ReadAt(b[:], h.size-blockSize); err != nil {
		return nil, nil, false
	}
	var s seal
	if parseSeal(b[:], &s) != nil || s.epoch != h.epoch || s.salt != h.salt || s.footerPos < segmentDataStart || s.footerPos%blockSize != 0 {
		return nil, nil, false
	}
	sc := scanner{f: f, h: h, end: min(h.size-blockSize, fileSize), win: make([]byte, 4*blockSize)}
	g, found, err := sc.at(s.footerPos)
	if err != nil || !found || g.sequence != s.lastSequence || g.bad > 0 || len(g.dir) != 2 || g.dir[0].kind != kindFooter || g.dir[1].kind != kindIndex {
		return nil, nil, false
	}
	err = g.batches(func(_ int, b *Batch, _ uint32) error {
		if b.Kind == kindFooter {
			runs, err = parseRuns(b.Records)
			return err
		}
		return nil
	}, func(int) error { return errBadTable })
	return runs, g, err == nil
}
