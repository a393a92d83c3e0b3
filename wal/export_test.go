package wal

// WithVersion returns a segment's content with another format version in both headers.
func WithVersion(content []byte, version uint16) []byte {
	out := append([]byte(nil), content...)
	for _, at := range []int{0, blockSize} {
		le.PutUint16(out[at+8:], version)
		le.PutUint32(out[at+4:], checksum(out[at+8:at+segmentHeaderSize]))
	}
	return out
}

// A DataRange is a place of a lane's files that holds data.
type DataRange struct {
	Name     string
	From, To int64
	What     string
	Last     bool // belongs to the last group of the log, which nothing vouches for
}

// DataRanges lists every place that holds data.
func DataRanges(fsys FS, dir string) []DataRange {
	r, done, err := loadOffline(fsys, dir)
	if err != nil {
		panic(err)
	}
	defer done()
	var out []DataRange
	for _, s := range r.segments {
		if r.lastSegment == nil || s.epoch > r.lastSegment.epoch {
			continue
		}
		out = append(out, DataRange{s.name, 0, segmentHeaderSize, "segment header", false}, DataRange{s.name, blockSize, blockSize + segmentHeaderSize, "segment header copy", false})
		sc, err := r.scanner(s)
		if err != nil {
			panic(err)
		}
		for pos := int64(segmentDataStart); ; {
			g, err := sc.next(pos)
			if err != nil || g == nil {
				break
			}
			head := int64(g.headLen())
			last := g.sequence == r.sequence
			out = append(out, DataRange{s.name, g.pos, g.pos + groupFixed, "group header", last})
			if head > groupFixed {
				out = append(out, DataRange{s.name, g.pos + groupFixed, g.pos + head, "directory", last})
			}
			for i := range g.dir {
				from := g.pos + g.entryOffset(i)
				out = append(out, DataRange{s.name, from, from + int64(g.dir[i].size), g.dir[i].kind.String(), last})
			}
			pos = g.pos + g.diskLen()
		}
		if s.sealed && s.footerPos > 0 {
			out = append(out, DataRange{s.name, s.size - blockSize, s.size - blockSize + sealSize, "seal", false})
		}
	}
	return out
}

// RaceEnabled says that the race detector is on; long tests run shorter then.
const RaceEnabled = raceEnabled
