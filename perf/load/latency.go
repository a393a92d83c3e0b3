package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	maxLatency     = int64(10 * time.Minute) // what is above counts as so long
	latencyDigits  = 3
	latencyStripes = 8
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, latencyDigits) }

// record enters n values into h. Times below a nanosecond count as one.
func record(h *hdrhistogram.Histogram, nanos, n int64) {
	_ = h.RecordValues(min(max(nanos, 1), maxLatency), n) // the bounds of h are those
}

// kinds of latency. The corrected ones are empty in a closed loop.
type kind int

const (
	ackCorrected kind = iota
	ackRaw
	e2eCorrected
	e2eRaw
	kinds
)

// A recorder takes latencies from many goroutines: each uses the stripe of its number, so that few wait for each other.
type recorder struct {
	stripes [latencyStripes]struct {
		mu    sync.Mutex
		hists [kinds]*hdrhistogram.Histogram // since the last collect
	}

	// Owned by whoever collects.
	total    [kinds]*hdrhistogram.Histogram
	interval [kinds]*hdrhistogram.Histogram // of the last collect
}

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.stripes {
		for k := range r.stripes[i].hists {
			r.stripes[i].hists[k] = newHistogram()
		}
	}
	for k := range r.total {
		r.total[k], r.interval[k] = newHistogram(), newHistogram()
	}
	return r
}

// add enters n equal values of a kind; with open also the corrected one.
func (r *recorder) add(stripe int, raw kind, corrected, uncorrected, n int64, open bool) {
	s := &r.stripes[stripe%latencyStripes]
	s.mu.Lock()
	record(s.hists[raw], uncorrected, n)
	if open {
		record(s.hists[raw-1], corrected, n)
	}
	s.mu.Unlock()
}

// addCorrected enters n equal corrected values alone: of what was due and never sent.
func (r *recorder) addCorrected(stripe int, raw kind, corrected, n int64) {
	s := &r.stripes[stripe%latencyStripes]
	s.mu.Lock()
	record(s.hists[raw-1], corrected, n)
	s.mu.Unlock()
}

// collect moves what has come since the last call into interval and total.
func (r *recorder) collect() {
	for k := range r.interval {
		r.interval[k].Reset()
	}
	for i := range r.stripes {
		s := &r.stripes[i]
		s.mu.Lock()
		for k, h := range s.hists {
			if h.TotalCount() > 0 {
				r.interval[k].Merge(h)
				h.Reset()
			}
		}
		s.mu.Unlock()
	}
	for k, h := range r.interval {
		if h.TotalCount() > 0 {
			r.total[k].Merge(h)
		}
	}
}

// p99 is that of the last interval: of the corrected kind in an open loop.
func (r *recorder) p99(raw kind, open bool) time.Duration {
	h := r.interval[raw]
	if open {
		h = r.interval[raw-1]
	}
	if h.TotalCount() == 0 {
		return 0
	}
	return time.Duration(h.ValueAtPercentile(99))
}

// latency is the distribution of a kind, nil when nothing was recorded.
func (r *recorder) latency(k kind) *Latency {
	h := r.total[k]
	if h.TotalCount() == 0 {
		return nil
	}
	micros := func(nanos int64) float64 { return float64(nanos) / 1e3 }
	at := func(percentile float64) float64 { return micros(h.ValueAtPercentile(percentile)) }
	// A bucket is a range of values: the extremes are brought back into the order that a reader expects.
	least, most := micros(h.Min()), micros(h.Max())
	within := func(v float64) float64 { return min(max(v, least), most) }
	return &Latency{
		Min: least, P50: within(at(50)), P90: within(at(90)), P99: within(at(99)), P999: within(at(99.9)), P9999: within(at(99.99)), Max: most,
	}
}
