package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"felix/perf/load"
	"felix/perf/session"
	"felix/perf/stats"
)

// A Figure is something that a run measures.
type Figure string

const (
	cpuPerMillion    Figure = "broker_cpu_sec_per_million"     // seconds per million acked records, which is microseconds per record
	cpuNet           Figure = "broker_cpu_sec_per_million_net" // without what keeps idle connections alive
	brokerCores      Figure = "broker_cpu_cores"
	ackedRate        Figure = "acked_per_sec"
	packetsPerRecord Figure = "packets_per_record" // both directions
	keepAliveCores   Figure = "keep_alive_cpu_cores"
	heldBytes        Figure = "held_bytes" // heap in use and stacks, for each of what was counted
	liveBytes        Figure = "live_bytes" // live objects and stacks likewise
	rssBytes         Figure = "rss_bytes"
	logBytes         Figure = "log_bytes" // on disk before the run
)

// A Sample is one run.
type Sample struct {
	Discarded bool               `json:"discarded"`
	Void      string             `json:"void"` // why it means nothing, "" when it does
	Figures   map[Figure]float64 `json:"figures"`
	Report    *load.Report       `json:"report"` // of its load; null without one
}

// String tells the figures.
func (s Sample) String() string {
	var words []string
	for _, f := range slices.Sorted(func(yield func(Figure) bool) {
		for f := range s.Figures {
			if !yield(f) {
				return
			}
		}
	}) {
		words = append(words, fmt.Sprintf("%s %s", f, session.Number(s.Figures[f])))
	}
	if s.Void != "" {
		words = append(words, "void: "+s.Void)
	}
	return strings.Join(words, ", ")
}

// A Series is every run of a variant.
type Series struct {
	Part    string   `json:"part"`
	Variant string   `json:"variant"`
	Samples []Sample `json:"samples"`
}

// values are those of the runs that count and have the figure.
func (s *Series) values(f Figure) (values []float64) {
	for _, sample := range s.Samples {
		if v, ok := sample.Figures[f]; ok && !sample.Discarded {
			values = append(values, v)
		}
	}
	return values
}

// void is why a run that counts means nothing, "" when all do mean something.
func (s *Series) void() string {
	for _, sample := range s.Samples {
		if sample.Void != "" && !sample.Discarded {
			return sample.Void
		}
	}
	return ""
}

func (s *Series) median(f Figure) float64 {
	values := s.values(f)
	if len(values) == 0 {
		return math.NaN()
	}
	return session.Median(values)
}

// NotShown is the verdict of a row whose interval holds its bound.
const NotShown = session.Verdict(stats.NotShown)

// A Row is a target and what was measured. Null is what is not known.
type Row struct {
	Part    string          `json:"part"`
	What    string          `json:"what"`
	Target  string          `json:"target"` // "" when there is none
	Unit    string          `json:"unit"`
	Value   *float64        `json:"value"`
	Low     *float64        `json:"low"` // of the 95 % interval
	High    *float64        `json:"high"`
	Bound   *float64        `json:"bound"`
	AtMost  bool            `json:"at_most"` // Value is to be at most Bound; otherwise at least
	Spread  *float64        `json:"spread"`  // (max - min) / median of the runs
	Runs    int             `json:"runs"`
	Verdict session.Verdict `json:"verdict"`
	Detail  string          `json:"detail"` // what else a reader should see
}

// known is a number that is one.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// spread is (max - min) / median.
func spread(values []float64) *float64 {
	if v, ok := session.SpreadOf(values); ok {
		return known(v)
	}
	return nil
}

// judge fills in the verdict. Without a bound there is none to give.
func (r Row) judge(void ...string) Row {
	for _, reason := range void {
		if reason != "" && r.Verdict == "" {
			r.Verdict, r.Detail = session.VoidRun, strings.TrimPrefix(r.Detail+"; void: "+reason, "; ")
		}
	}
	inside := func(v float64) bool { return r.AtMost && v <= *r.Bound || !r.AtMost && v >= *r.Bound }
	switch {
	case r.Verdict != "":
	case r.Bound == nil:
		r.Verdict = session.NoTarget
	case r.Value == nil:
		r.Verdict = session.NotMeasured
	case r.Low == nil || r.High == nil, inside(*r.Low) != inside(*r.High):
		r.Verdict = NotShown
	case inside(*r.Low):
		r.Verdict = session.Meets
	default:
		r.Verdict = session.Misses
	}
	return r
}

// noTarget is the bound of rows that have none.
var noTarget = math.NaN()

// value is a row about the median of a figure. noTarget as bound means that there is nothing to judge.
func value(s *Series, f Figure, row Row, bound float64) Row {
	values := s.values(f)
	row.Part, row.Runs, row.AtMost = s.Part, len(values), true
	row.Value, row.Bound, row.Spread = known(s.median(f)), known(bound), spread(values)
	if low, high := stats.MeanInterval(values); len(values) > 1 {
		row.Low, row.High = known(low), known(high)
	}
	return row.judge(s.void())
}

// ratio is a row about a figure of s against the same of base.
func ratio(s, base *Series, f Figure, row Row, bound float64, atMost bool) Row {
	values, before := s.values(f), base.values(f)
	row.Part, row.Unit, row.Runs, row.AtMost = s.Part, "x", min(len(values), len(before)), atMost
	row.Value, row.Bound, row.Spread = known(s.median(f)/base.median(f)), known(bound), spread(values)
	if c, err := stats.Compare(before, values); err == nil {
		row.Low, row.High = known(1+c.Low), known(1+c.High)
	}
	medians := fmt.Sprintf("%s against %s", session.Number(s.median(f)), session.Number(base.median(f)))
	row.Detail = strings.TrimSuffix(medians+"; "+row.Detail, "; ")
	return row.judge(s.void(), base.void())
}

// miss is how far a row is from its bound: above 1 it is missed.
func (r Row) miss() float64 {
	if r.Value == nil || r.Bound == nil || *r.Bound == 0 {
		return 0
	}
	if r.AtMost {
		return *r.Value / *r.Bound
	}
	return *r.Bound / *r.Value
}

// sorted returns the rows with those that are missed first, the worst first, then those without a verdict, those that are met, and those
// without a target.
func sorted(rows []Row) []Row {
	rows = slices.Clone(rows)
	order := []session.Verdict{session.Misses, session.VoidRun, session.NotMeasured, NotShown, session.Meets, session.NoTarget}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if by := cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict)); by != 0 || a.Verdict != session.Misses {
			return by
		}
		return cmp.Compare(b.miss(), a.miss())
	})
	return rows
}
