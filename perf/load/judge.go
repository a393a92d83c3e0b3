package load

import (
	"fmt"
	"math"
)

// facts is what is known at the end of a run. Everything is counted from its start to its end.
type facts struct {
	acks      Acks
	batch     int64
	perAnswer int64 // records at most that an answer may be for, in batches of one
	tally     tally
	readers   []readerFacts
	before    Counters // of the broker; empty when it counts nothing
	after     Counters
	askedErr  error // why the broker could not be asked, the last time
	asksLost  int   // times it could not be asked in between
	asks      int
	bytes     int64 // sent
	least     int64 // bytes that a run without acks must send
	measured  int64 // records acknowledged, or received, within the measured time
	ended     bool  // the measured time was over; otherwise the run was cut short
	missed    int64 // records due and not sent
	unsettled int   // publishers that were given up while something was under way
}

// readerFacts is what one reading subscriber got.
type readerFacts struct {
	delivered, duplicates, gaps int64
	err                         error
}

// A verdict is the counts of a run and why they mean nothing, if so.
type verdict struct {
	acked, refused, unknown int64
	expected, delivered     int64
	duplicates, gaps        int64
	void, notes             []string
}

// judge settles the counts and holds them against each other.
func judge(f facts) verdict {
	v := verdict{acked: f.tally.acked, refused: f.tally.refused, unknown: f.tally.unknown}
	bad := func(format string, args ...any) { v.void = append(v.void, fmt.Sprintf(format, args...)) }
	note := func(format string, args ...any) { v.notes = append(v.notes, fmt.Sprintf(format, args...)) }

	restarted := f.restarted()
	switch {
	case restarted:
		note("the broker was started again during the run, and its counts with it: they were not compared")
	case f.askedErr != nil:
		bad("the broker could not be asked for its counts at the end: %v", f.askedErr)
	case f.asksLost > 0:
		note("the broker did not answer %d of %d questions for its counts", f.asksLost, f.asks)
	}
	appended, counted := f.after.since(f.before, AppendedRecords)
	counted = counted && !restarted && f.askedErr == nil

	if f.tally.doubles > 0 {
		bad("the target settled %d batches that were not under way", f.tally.doubles)
	}
	if f.acks == AcksNone {
		f.unacked(&v, int64(appended), counted, bad)
	} else {
		if f.tally.sent > 0 {
			bad("%d records were handed over without an answer, and every one was to be answered", f.tally.sent)
		}
		if counted {
			most := v.acked + v.unknown
			switch {
			case int64(appended) < v.acked:
				bad("%d records were acknowledged, and the broker took only %d", v.acked, int64(appended))
			case int64(appended) > most:
				bad("the broker took %d records, and at most %d of this run can be there: does somebody else publish to it?", int64(appended), most)
			}
			if answers, ok := f.after.since(f.before, AckedBatches); ok {
				each := f.batch
				if each == 1 {
					each = f.perAnswer
				}
				if n := int64(answers); n*each < v.acked {
					bad("%d records were acknowledged, and the broker's %d answers are for at most %d", v.acked, n, n*each)
				} else if f.batch == 1 && n > 0 && n < v.acked {
					note("the client sent records that waited together: %.1f to a frame", float64(v.acked)/answers)
				}
			}
		} else if len(f.before) == 0 && f.askedErr == nil && !restarted {
			note("the broker counts nothing that could be compared")
		}
	}
	if sum := v.acked + v.refused + v.unknown; sum != f.tally.offered {
		bad("%d records were sent, and %d acknowledged + %d refused + %d unknown are %d", f.tally.offered, v.acked, v.refused, v.unknown, sum)
	}
	f.judgeReaders(&v, bad)
	if f.unsettled > 0 {
		note("%d publishers were given up with batches under way", f.unsettled)
	}
	if v.refused+v.unknown > 0 {
		first := ""
		if f.tally.err != nil {
			first = ": " + f.tally.err.Error()
		}
		note("%d records refused, %d unknown%s", v.refused, v.unknown, first)
	}
	if f.missed > 0 {
		note("the rate was not reached: %d records were due and not sent; their lateness counts as if they had been answered at the end", f.missed)
	}
	switch {
	case !f.ended:
		note("cut short")
		if f.measured == 0 {
			bad("it was cut short before anything was measured")
		}
	case f.measured == 0:
		bad("nothing was acknowledged in the measured time")
	}
	return v
}

// unacked settles the counts of a run without acks: what the broker has counted is as good as acknowledged.
func (f *facts) unacked(v *verdict, appended int64, counted bool, bad func(string, ...any)) {
	handed := f.tally.sent
	if f.tally.acked > 0 {
		bad("%d records were answered, and none was to be", f.tally.acked)
	}
	if f.ended && f.bytes < f.least {
		bad("%.0f MB were sent without acks, and buffers on the way hold %.0f MB: at least twice that says something", float64(f.bytes)/1e6, float64(f.least)/2e6)
	}
	switch {
	case counted:
		v.acked = min(appended, handed)
		if dropped, ok := f.after.since(f.before, DroppedBatches); ok {
			v.refused += min(int64(dropped)*f.batch, handed-v.acked)
		}
		if appended > f.tally.offered {
			bad("the broker took %d records, and %d were sent: does somebody else publish to it?", appended, f.tally.offered)
		}
	case len(f.readers) > 0:
		got := int64(math.MaxInt64)
		for _, r := range f.readers {
			got = min(got, r.delivered)
		}
		v.acked = min(got, handed)
	default:
		bad("nobody can say whether the records arrived: there are no acks, no counts of the broker and no subscribers")
	}
	v.unknown = f.tally.offered - v.acked - v.refused
	if lost := f.tally.offered - v.acked; lost > 0 {
		bad("%d of %d records were not seen by the broker, and a run without acks counts only when nothing is lost", lost, f.tally.offered)
	}
}

// judgeReaders holds what was received against what was acknowledged.
func (f *facts) judgeReaders(v *verdict, bad func(string, ...any)) {
	wrong, duplicated, gapped := 0, 0, 0
	var firstErr error
	for _, r := range f.readers {
		expected := min(max(r.delivered, v.acked), v.acked+v.unknown)
		v.expected += expected
		v.delivered += r.delivered
		v.duplicates += r.duplicates
		v.gaps += r.gaps
		wrong += count(r.delivered != expected)
		duplicated += count(r.duplicates > 0)
		gapped += count(r.gaps > 0)
		if firstErr == nil {
			firstErr = r.err
		}
	}
	n := len(f.readers)
	if wrong > 0 {
		bad("%d of %d subscribers did not get every record once: %d delivered, %d expected", wrong, n, v.delivered, v.expected)
	}
	if duplicated > 0 {
		bad("%d of %d subscribers got records again, %d in all", duplicated, n, v.duplicates)
	}
	if gapped > 0 {
		bad("%d of %d subscribers have gaps, of %d records in all", gapped, n, v.gaps)
	}
	if firstErr != nil {
		bad("a subscription ended: %v", firstErr)
	}
}

// restarted reports whether the broker's counts began anew.
func (f *facts) restarted() bool {
	if start, ok := f.after.since(f.before, StartTime); ok && start != 0 {
		return true
	}
	appended, ok := f.after.since(f.before, AppendedRecords)
	return ok && appended < 0
}

func count(so bool) int {
	if so {
		return 1
	}
	return 0
}
