package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds of the waits around a run.
const (
	askTimeout   = 2 * time.Second  // for the broker's counters
	closeTimeout = 10 * time.Second // for taking down what a run made
	// interruptPatience is how long a run that is cut short waits while no answer comes.
	interruptPatience = 2 * time.Second
)

// ErrInvalid is what the error of Run is when the Config cannot be run; Validate says the same.
var ErrInvalid = errors.New("the load cannot be run")

// Run makes the runs that c asks for and reports. It returns an error when c is not valid (ErrInvalid), when its stream is not there
// (ErrNoStream) or cannot be made, and when no publisher or subscriber can be opened. Whatever happens once records are under way is in the
// report. When ctx ends, the run stops sending, waits for what is under way, and the report holds what there is.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c = c.WithDefaults()
	report := &Report{Scenario: c.Scenario, Config: c.report(), Machine: ThisMachine()}
	stream, err := c.Target.Open(ctx, StreamSpec{Existing: c.Stream, Shards: c.Shards, Durability: c.Durability, Slow: c.Slow > 0})
	if err != nil {
		return nil, err
	}
	closing := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return stream.Close(ctx)
	}
	first := 1
	if c.Runs > 1 {
		first = 0
	}
	for number := first; number <= c.Runs && (ctx.Err() == nil || number == first); number++ {
		r := &run{c: c, number: number, stream: stream}
		result, err := r.do(ctx)
		if err != nil {
			return nil, errors.Join(err, closing())
		}
		result.Discarded = number == 0
		report.Machine.SocketBytes = max(report.Machine.SocketBytes, int64(r.last[SocketBytes]))
		report.Config.CountedAt = r.countedAt
		report.Runs = append(report.Runs, result)
	}
	report.sum()
	if err := closing(); err != nil {
		last := &report.Runs[len(report.Runs)-1]
		last.Notes = append(last.Notes, fmt.Sprintf("stream %s was left behind: %v", stream.Name(), err))
	}
	return report, nil
}

// A run is one run of Run. Fields without a comment are fixed once the load begins.
type run struct {
	c        Config
	number   int
	stream   Stream
	schedule schedule
	stamps   stamper

	publishers []*publisher
	readers    []*reader
	slow       []Subscriber

	epoch time.Time // zero of the run's clock
	begin int64     // of the measured time, on the run's clock
	end   int64

	latencies *recorder

	// Owned by the goroutine of do.
	wall           time.Time // the wall clock at the epoch
	samples        []sample  // of the measured time
	last           Counters  // that the broker told
	asks, asksLost int
	askedErr       error
	mostRSS        float64
	countedAt      string
}

// now is the run's clock: nanoseconds since the epoch, which a step of the wall clock does not move.
func (r *run) now() int64 { return int64(time.Since(r.epoch)) }

// counts reports whether what was due then belongs to the measured time.
func (r *run) counts(due int64) bool { return due >= r.begin && due < r.end }

// do makes the run.
func (r *run) do(ctx context.Context) (RunReport, error) {
	c := &r.c
	r.schedule = newSchedule(c.Rate, c.Batch, c.Publishers)
	r.stamps = newStamper(rand.New(rand.NewPCG(c.Seed, 1<<40|uint64(r.number))))
	r.latencies = newRecorder()
	// give ends every wait of what is under way; it is not the caller's context, so that an interrupted run can take its answers.
	give, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer r.close()
	if err := r.open(ctx); err != nil {
		return RunReport{}, err
	}
	before := r.ask(give)
	f := facts{acks: c.Acks, batch: int64(c.Batch), perAnswer: int64(max(c.Target.Info().RecordsPerAnswer, 1)), before: before, least: leastUnacked(c.Target)}
	drops := kernelDrops()

	stop := make(chan struct{})
	r.wall, r.epoch = c.WallClock(), time.Now()
	r.begin = int64(max(c.Warmup, 0))
	r.end = r.begin + int64(c.Duration)
	reading, stopReading := context.WithCancel(give)
	var publishing, receiving sync.WaitGroup
	for _, s := range r.readers {
		receiving.Go(func() { s.work(reading) })
	}
	for _, p := range r.publishers {
		publishing.Go(func() { p.work(give, stop) })
	}
	f.ended = r.measure(ctx, give)
	stopped := r.now()
	close(stop)

	patience := c.Patience
	if !f.ended {
		patience = min(patience, interruptPatience)
	}
	ended := make(chan struct{})
	go func() {
		publishing.Wait()
		close(ended)
	}()
	if !r.await(ctx, patience, ended) {
		f.unsettled = r.unsettled()
		giveUp()
		<-ended
	}
	after := r.settleCounts(ctx, give, &f, patience)
	for _, p := range r.publishers {
		f.tally.add(p.tally())
		f.missed += p.missed(stopped)
	}
	f.after, f.askedErr, f.asks, f.asksLost = after, r.askedErr, r.asks, r.asksLost
	f.bytes = f.tally.offered * int64(max(c.Size, 0)+recordOverhead)
	r.awaitReaders(ctx, f, patience)
	stopReading()
	receiving.Wait()
	for _, s := range r.readers {
		f.readers = append(f.readers, readerFacts{s.delivered.Load(), s.duplicates.Load(), s.gaps.Load(), s.err})
	}
	r.latencies.collect()
	return r.report(f, drops), nil
}

// open opens subscribers, then publishers.
func (r *run) open(ctx context.Context) error {
	c := &r.c
	for i := range c.Subscribers {
		slow := i >= c.Subscribers-c.Slow
		in, err := r.stream.Subscribe(ctx, SubscriberSpec{Index: i, Slow: slow, Of: c.Subscribers})
		if err != nil {
			return fmt.Errorf("subscriber %d of %d: %w", i+1, c.Subscribers, err)
		}
		if slow {
			r.slow = append(r.slow, in)
		} else {
			r.readers = append(r.readers, &reader{run: r, index: i, in: in})
		}
	}
	for i := range c.Publishers {
		p := newPublisher(r, i)
		if err := p.open(ctx); err != nil {
			return fmt.Errorf("publisher %d of %d: %w", i+1, c.Publishers, err)
		}
		r.publishers = append(r.publishers, p)
	}
	return nil
}

// close ends publishers and subscribers. What goes wrong then is nobody's figure: the counts are settled.
func (r *run) close() {
	for _, p := range r.publishers {
		_ = p.out.Close()
	}
	for _, s := range r.readers {
		_ = s.in.Close()
	}
	for _, s := range r.slow {
		_ = s.Close()
	}
}

// measure waits for the end of the measured time and samples meanwhile. It reports false when ctx ended before.
func (r *run) measure(ctx, give context.Context) (ended bool) {
	marks := []int64{}
	for at := int64(r.c.Interval); at < r.begin; at += int64(r.c.Interval) {
		marks = append(marks, at)
	}
	for at := r.begin; at < r.end; at += int64(r.c.Interval) {
		marks = append(marks, at)
	}
	marks = append(marks, r.end)
	for _, at := range marks {
		if !pause(ctx, nil, time.Duration(at-r.now())) {
			if r.now() > r.begin {
				r.sample(give, Measuring) // the last part counts as well
			}
			return false
		}
		if r.now() >= at+int64(r.c.Interval) && at != r.begin && at != r.end {
			continue // the broker took long to answer; the next sample covers this one
		}
		phase := Measuring
		if at < r.begin {
			phase = Warming
		}
		r.sample(give, phase)
	}
	return true
}

// await waits until done is closed. It gives up, and reports false, when nothing has come for as long as patience says; the end of ctx
// shortens that.
func (r *run) await(ctx context.Context, patience time.Duration, done <-chan struct{}) bool {
	interrupted := ctx.Done()
	seen := r.progress()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	tick := time.NewTicker(r.c.Interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return true
		case <-interrupted:
			interrupted = nil
			patience = min(patience, interruptPatience)
			timer.Reset(patience)
		case <-tick.C:
			if now := r.progress(); now != seen {
				seen = now
				timer.Reset(patience)
			}
		case <-timer.C:
			if now := r.progress(); now != seen {
				seen = now
				timer.Reset(patience)
				continue
			}
			return false
		}
	}
}

// progress grows with every answer and record.
func (r *run) progress() (n int64) {
	for _, p := range r.publishers {
		p.mu.Lock()
		n += p.settledRecords()
		p.mu.Unlock()
	}
	for _, s := range r.readers {
		n += s.delivered.Load() + s.gaps.Load()
	}
	return n
}

// unsettled is how many publishers have something under way.
func (r *run) unsettled() (n int) {
	for _, p := range r.publishers {
		p.mu.Lock()
		n += count(p.settledRecords() < p.offered.Load())
		p.mu.Unlock()
	}
	return n
}

// settleCounts asks the broker for its counts at the end. Records without ack may still be on their way into its logs: their counts are
// awaited.
func (r *run) settleCounts(ctx, give context.Context, f *facts, patience time.Duration) Counters {
	give = context.WithoutCancel(give) // the broker may answer, even if publishers were given up
	after := r.ask(give)
	if r.c.Acks != AcksNone {
		return after
	}
	var sent float64
	for _, p := range r.publishers {
		sent += float64(p.tally().sent)
	}
	deadline := time.Now().Add(patience)
	for {
		appended, ok := after.since(f.before, AppendedRecords)
		if !ok || appended >= sent || time.Now().After(deadline) || !pause(ctx, nil, 20*time.Millisecond) {
			return after
		}
		next := r.ask(give)
		if next[AppendedRecords] > after[AppendedRecords] {
			deadline = time.Now().Add(patience)
		}
		after = next
	}
}

// awaitReaders waits until every reader has all that can be there.
func (r *run) awaitReaders(ctx context.Context, f facts, patience time.Duration) {
	if len(r.readers) == 0 {
		return
	}
	expected := f.tally.acked + f.tally.sent + f.tally.unknown
	done := make(chan struct{})
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() {
		for !r.haveAll(expected) {
			if !pause(watching, nil, time.Millisecond) {
				return
			}
		}
		close(done)
	})
	r.await(ctx, patience, done)
	stop()
	watch.Wait()
}

func (r *run) haveAll(expected int64) bool {
	for _, s := range r.readers {
		if s.delivered.Load()+s.gaps.Load() < expected {
			return false
		}
	}
	return true
}
