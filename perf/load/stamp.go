package load

import (
	"encoding/binary"
	"math/rand/v2"
)

// A stamper writes and reads the two times at the front of a payload. They are masked with a number of the run's own, so that records
// of somebody else do not look like ours.
type stamper struct{ mask uint64 }

func newStamper(random *rand.Rand) stamper { return stamper{random.Uint64()} }

func (s stamper) put(payload []byte, due, sent int64) {
	binary.LittleEndian.PutUint64(payload, uint64(due)^s.mask)
	binary.LittleEndian.PutUint64(payload[8:], uint64(sent)^s.mask)
}

// get returns the times of a payload that arrived at now. It is false for one that is not ours.
func (s stamper) get(payload []byte, now int64) (due, sent int64, ok bool) {
	if len(payload) < StampBytes {
		return 0, 0, false
	}
	due = int64(binary.LittleEndian.Uint64(payload) ^ s.mask)
	sent = int64(binary.LittleEndian.Uint64(payload[8:]) ^ s.mask)
	return due, sent, due >= 0 && due <= sent && sent <= now
}
