package load

import "time"

// A schedule is when batches are due, fixed before the run: all publishers together send one every interval, in turn, so that they do not
// send at the same moment.
type schedule struct {
	perBatch   float64 // nanoseconds between two batches of all publishers; 0 means a closed loop
	publishers int
}

func newSchedule(recordsPerSecond float64, batch, publishers int) schedule {
	if recordsPerSecond == 0 {
		return schedule{}
	}
	return schedule{float64(batch) * float64(time.Second) / recordsPerSecond, publishers}
}

func (s schedule) open() bool { return s.perBatch > 0 }

// due is when batch k of publisher i is due, on the run's clock. It is computed from k, so that errors do not add up.
func (s schedule) due(i, k int) int64 {
	return int64(s.perBatch * (float64(k)*float64(s.publishers) + float64(i)))
}

// before is how many batches of publisher i are due before end.
func (s schedule) before(i int, end int64) int {
	k := max(int((float64(end)/s.perBatch-float64(i))/float64(s.publishers)), 0)
	for k > 0 && s.due(i, k-1) >= end {
		k--
	}
	for s.due(i, k) < end {
		k++
	}
	return k
}
