package load

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// A sample is everything that is counted, at one moment.
type sample struct {
	at        int64 // on the run's clock: of the broker's counts when it has any, else as counted
	counted   int64 // of what the generator counts, which is before the broker is asked
	acked     int64 // records, by the generator
	sent      int64
	delivered int64
	refused   int64
	unknown   int64
	broker    Counters // nil when it did not answer
	clientCPU time.Duration
}

// ask asks the broker for its counters. They are nil when it does not answer.
func (r *run) ask(ctx context.Context) Counters {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	counters, err := r.c.Target.Counters(ctx)
	r.asks++
	r.askedErr = err
	if err != nil {
		r.asksLost++
		return nil
	}
	r.last = counters
	r.mostRSS = max(r.mostRSS, counters[RSSBytes])
	return counters
}

// sample takes a sample and tells about it.
func (r *run) sample(ctx context.Context, phase Phase) {
	s := sample{clientCPU: processCPU()}
	for _, p := range r.publishers {
		p.mu.Lock()
		s.acked += p.acked
		s.sent += p.sent
		s.refused += p.refused
		s.unknown += p.unknown
		p.mu.Unlock()
	}
	for _, reader := range r.readers {
		s.delivered += reader.delivered.Load()
	}
	s.counted = r.now()
	s.at = s.counted
	s.broker = r.ask(ctx)
	if len(s.broker) > 0 {
		s.at = r.now() // the rates that count are the broker's
	}
	r.latencies.collect()
	if r.c.Progress != nil {
		r.c.Progress(r.tell(s, phase))
	}
	if phase == Measuring {
		r.samples = append(r.samples, s)
	} else {
		r.samples = append(r.samples[:0], s) // the one before, for the first rate that is told
	}
}

// tell makes a Progress of a sample.
func (r *run) tell(s sample, phase Phase) Progress {
	open := r.schedule.open()
	p := Progress{
		Run: r.number, Of: r.c.Runs, Phase: phase, Elapsed: time.Duration(s.at), Total: time.Duration(r.begin),
		AckP99: r.latencies.p99(ackRaw, open), E2EP99: r.latencies.p99(e2eRaw, open),
		Refused: s.refused, Unknown: s.unknown, BrokerGone: s.broker == nil,
	}
	if phase == Measuring {
		p.Elapsed, p.Total = time.Duration(s.at-r.begin), time.Duration(r.end-r.begin)
	}
	if len(r.samples) > 0 {
		before := r.samples[len(r.samples)-1]
		seconds := float64(s.at-before.at) / 1e9
		p.AckedRate = float64(s.acked+s.sent-before.acked-before.sent) / seconds
		if n, ok := s.broker.since(before.broker, AppendedRecords); ok && n >= 0 {
			p.AckedRate = n / seconds
		}
		p.Delivered = float64(s.delivered-before.delivered) / seconds
	}
	return p
}

// report makes the figures of the run.
func (r *run) report(f facts, drops dropsBefore) RunReport {
	measured := r.measured()
	for i := range measured[:max(len(measured)-1, 0)] {
		f.measured += measured[i+1].acked + measured[i+1].sent - measured[i].acked - measured[i].sent + measured[i+1].delivered - measured[i].delivered
	}
	v := judge(f)
	result := RunReport{Interrupted: !f.ended, VoidReasons: append([]string{}, v.void...), Notes: append([]string{}, v.notes...)}
	g := &result.Figures
	g.Offered, g.Acked, g.Refused, g.Unknown = f.tally.offered, v.acked, v.refused, v.unknown
	g.Expected, g.Delivered, g.Duplicates, g.Gaps = v.expected, v.delivered, v.duplicates, v.gaps
	g.Void = len(v.void) > 0

	r.rates(g, &result, measured)
	r.usage(g, &result, measured)
	g.AckUncorrected, g.E2EUncorrected = r.latencies.latency(ackRaw), r.latencies.latency(e2eRaw)
	if r.schedule.open() {
		g.Ack, g.E2E = r.latencies.latency(ackCorrected), r.latencies.latency(e2eCorrected)
	} else {
		g.Ack, g.E2E = copyOf(g.AckUncorrected), copyOf(g.E2EUncorrected)
	}
	if r.mostRSS > 0 {
		g.BrokerRSSMB = ptr(r.mostRSS / 1e6)
	}
	if n, ok := drops.since(); ok {
		g.RcvbufErrors = &n
		if n > 0 {
			result.Notes = append(result.Notes, fmt.Sprintf("the kernel dropped %d datagrams for full receive buffers (all processes); QUIC sent them again", n))
		}
	}
	if step := r.clockStep(); step.Abs() > maxClockStep {
		result.Notes = append(result.Notes, fmt.Sprintf("the wall clock was set by %v during the run; all times here are of the monotonic clock", step.Round(time.Millisecond)))
	}
	return result
}

// maxClockStep is how far wall clock and monotonic clock may differ without a word. A disciplined clock drifts by less than 0.05 %.
const maxClockStep = 100 * time.Millisecond

// clockStep is how far the wall clock was set since the epoch.
func (r *run) clockStep() time.Duration {
	wall := r.c.WallClock().Round(0).Sub(r.wall.Round(0)) // without the monotonic part
	return wall - time.Since(r.epoch)
}

// measured are the samples of the measured time: the first was taken when it began.
func (r *run) measured() []sample {
	i := 0
	for i < len(r.samples) && r.samples[i].at < r.begin {
		i++
	}
	return r.samples[i:]
}

// rates fills in what was done per second.
func (r *run) rates(g *Figures, result *RunReport, measured []sample) {
	r.countedAt = "generator"
	if len(measured) < 2 {
		return
	}
	first, last := measured[0], measured[len(measured)-1]
	seconds := float64(last.at-first.at) / 1e9
	result.Seconds = seconds
	generator := func(s sample) (float64, bool) { return float64(s.acked + s.sent), true }
	broker := func(s sample) (float64, bool) {
		n, ok := s.broker[AppendedRecords]
		return n, ok
	}
	rate, ok := medianRate(measured, broker)
	if ok {
		r.countedAt = "broker"
	} else {
		rate, _ = medianRate(byGenerator(measured), generator)
	}
	g.AckedPerSec = rate
	g.PayloadMBPerSec = rate * float64(max(r.c.Size, 0)) / 1e6
	if len(r.readers) > 0 {
		delivered, _ := medianRate(byGenerator(measured), func(s sample) (float64, bool) { return float64(s.delivered), true })
		g.DeliveredPerSec = &delivered
		g.PayloadMBPerSec = delivered * float64(max(r.c.Size, 0)) / 1e6
	}
	if syncs, ok := last.broker.since(first.broker, Syncs); ok && syncs >= 0 {
		g.SyncsPerSec = ptr(syncs / seconds)
		if records, ok := last.broker.since(first.broker, AppendedRecords); ok && syncs > 0 {
			g.RecordsPerSync = ptr(records / syncs)
		}
	}
	if groups, ok := last.broker.since(first.broker, Groups); ok && groups > 0 {
		if zeroed, ok := last.broker.since(first.broker, ZeroedGroups); ok {
			g.ZeroedGroupShare = ptr(zeroed / groups)
		}
	}
	if packets, ok := last.broker.since(first.broker, Packets); ok && packets > 0 {
		if bytes, ok := last.broker.since(first.broker, PacketBytes); ok {
			g.PacketBytes = ptr(bytes / packets)
		}
	}
}

// byGenerator returns the samples at the times at which the generator counted.
func byGenerator(samples []sample) []sample {
	own := slices.Clone(samples)
	for i := range own {
		own[i].at = own[i].counted
	}
	return own
}

// spaced leaves out samples that come less than a quarter of the mean interval after the one before, as they do when the sampler had to wait
// for a CPU: nothing can be said about such a moment. First and last stay.
func spaced(samples []sample) []sample {
	if len(samples) < 3 {
		return samples
	}
	last := samples[len(samples)-1]
	least := (last.at - samples[0].at) / int64(len(samples)-1) / 4
	kept := []sample{samples[0]}
	for _, s := range samples[1 : len(samples)-1] {
		if s.at-kept[len(kept)-1].at >= least && last.at-s.at >= least {
			kept = append(kept, s)
		}
	}
	return append(kept, last)
}

// medianRate is the median of the rates between samples, without the first and the last tenth of the time. It is false when a sample
// lacks the count or the count fell.
func medianRate(samples []sample, value func(sample) (float64, bool)) (rate float64, ok bool) {
	if len(samples) < 2 {
		return 0, false
	}
	samples = spaced(samples)
	from, to := float64(samples[0].at), float64(samples[len(samples)-1].at)
	margin := (to - from) / 10
	var all, inner []float64
	for i, s := range samples[1:] {
		before, ok1 := value(samples[i])
		now, ok2 := value(s)
		if !ok1 || !ok2 || now < before {
			return 0, false
		}
		if s.at == samples[i].at {
			continue
		}
		rate := (now - before) / (float64(s.at-samples[i].at) / 1e9)
		all = append(all, rate)
		// A hundredth of the margin allows for samples that were taken a little late.
		if float64(samples[i].at) >= from+margin*0.99 && float64(s.at) <= to-margin*0.99 {
			inner = append(inner, rate)
		}
	}
	if len(inner) == 0 {
		inner = all
	}
	return median(inner), len(inner) > 0
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// usage fills in what both sides spent.
func (r *run) usage(g *Figures, result *RunReport, measured []sample) {
	if len(measured) < 2 {
		return
	}
	first, last := measured[0], measured[len(measured)-1]
	seconds := float64(last.at-first.at) / 1e9
	acked := float64(last.acked + last.sent - first.acked - first.sent)
	perMillion := func(cpu float64) *float64 {
		if acked <= 0 {
			return nil
		}
		return ptr(cpu / acked * 1e6)
	}
	client := (last.clientCPU - first.clientCPU).Seconds()
	if r.c.Target.Info().Embedded {
		result.Notes = append(result.Notes, fmt.Sprintf("the broker runs in the generator's process, which used %.2f cores: they cannot be told apart", client/seconds))
		return
	}
	g.ClientCPUCores, g.ClientCPUSecPerMillion = ptr(client/seconds), perMillion(client)
	if cpu, ok := last.broker.since(first.broker, CPUSeconds); ok && cpu >= 0 {
		g.BrokerCPUCores, g.BrokerCPUSecPerMillion = ptr(cpu/seconds), perMillion(cpu)
		return
	}
	result.Notes = append(result.Notes, "the broker's CPU is not known: its admin listener tells")
}

// Join makes one report of runs that were made one by one, each with a broker of its own: counts are sums, rates and latencies medians. With
// more than one the first does not count. Configuration and machine are those of the first. There is at least one report.
func Join(reports ...*Report) *Report {
	joined := &Report{Scenario: reports[0].Scenario, Config: reports[0].Config, Machine: reports[0].Machine}
	joined.Config.Runs = max(len(reports)-1, 1)
	for i, r := range reports {
		for _, run := range r.Runs {
			run.Discarded = i == 0 && len(reports) > 1
			joined.Runs = append(joined.Runs, run)
		}
	}
	joined.sum()
	return joined
}

// sum fills in the figures of the report from those of its runs.
func (report *Report) sum() {
	var counted []*Figures
	for i := range report.Runs {
		r := &report.Runs[i]
		report.Void = report.Void || r.Void
		if r.Discarded && len(report.Runs) > 1 {
			continue
		}
		counted = append(counted, &r.Figures)
		report.Offered += r.Offered
		report.Acked += r.Acked
		report.Refused += r.Refused
		report.Unknown += r.Unknown
		report.Expected += r.Expected
		report.Delivered += r.Delivered
		report.Duplicates += r.Duplicates
		report.Gaps += r.Gaps
	}
	of := func(field func(*Figures) *float64) *float64 {
		var values []float64
		for _, f := range counted {
			if v := field(f); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil
		}
		return ptr(median(values))
	}
	report.AckedPerSec = *of(func(f *Figures) *float64 { return &f.AckedPerSec })
	report.PayloadMBPerSec = *of(func(f *Figures) *float64 { return &f.PayloadMBPerSec })
	report.DeliveredPerSec = of(func(f *Figures) *float64 { return f.DeliveredPerSec })
	report.BrokerCPUCores = of(func(f *Figures) *float64 { return f.BrokerCPUCores })
	report.ClientCPUCores = of(func(f *Figures) *float64 { return f.ClientCPUCores })
	report.BrokerCPUSecPerMillion = of(func(f *Figures) *float64 { return f.BrokerCPUSecPerMillion })
	report.ClientCPUSecPerMillion = of(func(f *Figures) *float64 { return f.ClientCPUSecPerMillion })
	report.ZeroedGroupShare = of(func(f *Figures) *float64 { return f.ZeroedGroupShare })
	report.BrokerRSSMB = of(func(f *Figures) *float64 { return f.BrokerRSSMB })
	report.SyncsPerSec = of(func(f *Figures) *float64 { return f.SyncsPerSec })
	report.RecordsPerSync = of(func(f *Figures) *float64 { return f.RecordsPerSync })
	report.PacketBytes = of(func(f *Figures) *float64 { return f.PacketBytes })
	for _, f := range counted {
		if f.RcvbufErrors != nil {
			if report.RcvbufErrors == nil {
				report.RcvbufErrors = new(int64)
			}
			*report.RcvbufErrors += *f.RcvbufErrors
		}
	}
	latency := func(field func(*Figures) *Latency) *Latency {
		at := func(part func(*Latency) *float64) float64 {
			return *of(func(f *Figures) *float64 {
				if l := field(f); l != nil {
					return part(l)
				}
				return nil
			})
		}
		for _, f := range counted {
			if field(f) != nil {
				return &Latency{
					at(func(l *Latency) *float64 { return &l.Min }), at(func(l *Latency) *float64 { return &l.P50 }),
					at(func(l *Latency) *float64 { return &l.P90 }), at(func(l *Latency) *float64 { return &l.P99 }),
					at(func(l *Latency) *float64 { return &l.P999 }), at(func(l *Latency) *float64 { return &l.P9999 }),
					at(func(l *Latency) *float64 { return &l.Max }),
				}
			}
		}
		return nil
	}
	report.Ack = latency(func(f *Figures) *Latency { return f.Ack })
	report.AckUncorrected = latency(func(f *Figures) *Latency { return f.AckUncorrected })
	report.E2E = latency(func(f *Figures) *Latency { return f.E2E })
	report.E2EUncorrected = latency(func(f *Figures) *Latency { return f.E2EUncorrected })
}

func ptr[T any](v T) *T { return &v }

func copyOf[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return ptr(*v)
}
