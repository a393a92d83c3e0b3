package wal

import (
	"fmt"
	"time"
)

// checkChain refuses a directory in which a segment does not follow the one before it: a file of an older copy of the log. (Those of
// other logs are told by their headers.) Folding it would take its checkpoint for the truth, and free what that does not list. It reads two group
// headers and the seal of each segment; what does not read back is left to the rest of recovery.
func (r *recovery) checkChain() error {
	var last, first, footer groupHeader
	var before *segment // the newest one so far whose end is known
	for _, s := range r.segments {
		if r.headerAt(s, segmentDataStart, &first) && before != nil {
			follows := first.sequence > last.sequence && first.written >= last.written
			if before.epoch+1 == s.epoch {
				follows = follows && first.sequence == last.sequence+1
			}
			if !follows {
				return fmt.Errorf("wal: segment %s/%s begins with group %d of %s and %s ends with group %d of %s, so one of the two is from an older copy of the log; move that one elsewhere, or restore the whole directory from one backup",
					r.dir, s.name, first.sequence, microTime(first.written), before.name, last.sequence, microTime(last.written))
			}
		}
		var b [sealSize]byte
		var end seal
		if _, err := s.file.ReadAt(b[:], s.size-blockSize); err != nil || parseSeal(b[:], &end) != nil || end.epoch != s.epoch || end.salt != s.salt {
			continue
		}
		if r.headerAt(s, end.footerPos, &footer) && footer.sequence == end.lastSequence {
			before = s
			last.sequence, last.written = footer.sequence, footer.written
		}
	}
	return nil
}

// microTime spells a time of the log for people.
func microTime(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

// headerAt reads the group header at pos of s. It returns false when there is none that belongs to the segment.
func (r *recovery) headerAt(s *segment, pos int64, h *groupHeader) bool {
	if pos < segmentDataStart || pos%blockSize != 0 || pos >= s.size-blockSize {
		return false
	}
	b := make([]byte, blockSize)
	if _, err := s.file.ReadAt(b, pos); err != nil {
		return false
	}
	n, _, err := peekGroupHeader(b)
	if err != nil {
		return false
	}
	if n > len(b) {
		b = make([]byte, n)
		if _, err := s.file.ReadAt(b, pos); err != nil {
			return false
		}
	}
	return parseGroupHeader(b, h) == nil && h.lane == s.lane && h.epoch == s.epoch && h.salt == s.salt
}
