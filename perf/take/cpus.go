package take

import (
	"context"
	"fmt"
	"io"
	"time"

	"felix/perf/ceiling"
	"felix/perf/load"
)

const (
	// apartFrom is how many times the least that a cache line took it takes when CPUs are apart. On one core complex it varies by a half around its
	// mean, on two it takes four times as long.
	apartFrom = 3.0
	// lookTime is how long one look at the cache line takes.
	lookTime = 30 * time.Millisecond
	// pause is how long a wait sleeps between two looks.
	pause = 200 * time.Millisecond
	// maxWait is how long a run waits for CPUs that are apart. They mostly come together within seconds.
	maxWait = 10 * time.Second
	// patience is how long a session waits and makes runs again in all.
	patience = 10 * time.Minute
	// firstLooks is how many looks say at the beginning what the least is.
	firstLooks = 10
)

// CPUs says whether the CPUs of the machine are as near each other as they can be. A nil one does not look.
type CPUs struct {
	line  func(context.Context) float64 // nanoseconds of a look; 0 is none
	sleep func(context.Context, time.Duration) error
	least float64 // that was seen
	left  time.Duration
	// For Notes.
	waited        time.Duration
	repeated, all int
	stayed        int // of all that count, those that count although the CPUs were apart
}

// WatchCPUs looks a few times, which takes about 2.5 s, and returns what goes on looking. It is nil, which is good for everything, where there is one CPU.
func WatchCPUs(ctx context.Context, progress io.Writer) *CPUs {
	c := &CPUs{
		line:  func(ctx context.Context) float64 { return ceiling.Line(ctx, lookTime) },
		sleep: ceiling.Sleep,
		left:  patience,
	}
	for range firstLooks {
		if c.look(ctx) == 0 || c.sleep(ctx, pause) != nil {
			return nil
		}
	}
	fmt.Fprintf(progress, "a cache line from CPU to CPU and back takes %.0f ns at best\n", c.least)
	return c
}

// look is what a cache line takes now, in nanoseconds; 0 when nobody can tell.
func (c *CPUs) look(ctx context.Context) float64 {
	if c == nil {
		return 0
	}
	ns := c.line(ctx)
	if ns > 0 && (c.least == 0 || ns < c.least) {
		c.least = ns
	}
	return ns
}

// apart says whether ns is that of CPUs that are apart.
func (c *CPUs) apart(ns float64) bool { return c != nil && ns > apartFrom*c.least }

// near waits until the CPUs are not apart, for maxWait at most and while there is patience left, and returns the last look in nanoseconds.
func (c *CPUs) near(ctx context.Context) float64 {
	ns := c.look(ctx)
	for range maxWait / (pause + lookTime) {
		if !c.apart(ns) || c.left <= 0 || c.sleep(ctx, pause) != nil {
			break
		}
		c.waited += pause + lookTime
		c.left -= pause + lookTime
		ns = c.look(ctx)
	}
	return ns
}

// while runs f when the CPUs are near and returns the longer look of before and after, in nanoseconds, and how long f took.
func (c *CPUs) while(ctx context.Context, f func() error) (line float64, took time.Duration, err error) {
	before := c.near(ctx)
	began := time.Now()
	if err := f(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	return max(before, c.look(ctx)), took, nil
}

// again says whether what was made tries times before, and took so long, is made again because of the line, and counts it.
func (c *CPUs) again(line float64, took time.Duration, tries int) bool {
	if !c.apart(line) || tries >= maxApart || c.left <= 0 {
		return false
	}
	c.left -= took
	c.repeated++
	return true
}

// Probe runs f, which measures something, as a Maker makes runs: when the CPUs are near, and again when they were apart at its end.
func (c *CPUs) Probe(ctx context.Context, f func() error) error {
	for tries := 0; ; tries++ {
		line, took, err := c.while(ctx, f)
		if err != nil {
			return err
		}
		if !c.again(line, took, tries) {
			c.counted(line)
			return nil
		}
	}
}

// counted counts a run or probe that counts.
func (c *CPUs) counted(ns float64) {
	if c == nil {
		return
	}
	c.all++
	if c.apart(ns) {
		c.stayed++
	}
}

// note writes into a report of one run what the cache line took, the longer of before and after.
func (c *CPUs) note(r *load.Report, ns float64) {
	if c == nil || ns == 0 || len(r.Runs) == 0 {
		return
	}
	run := &r.Runs[len(r.Runs)-1]
	run.LineNs = &ns
	if c.apart(ns) {
		run.Notes = append(run.Notes, fmt.Sprintf("the CPUs were apart: a cache line to another and back took %.0f ns, and %.0f at best", ns, c.least))
	}
}

// Notes are what a reader of the session should know.
func (c *CPUs) Notes() []string {
	if c == nil || c.all == 0 {
		return nil
	}
	return []string{fmt.Sprintf("CPUs: a cache line to another and back took %.0f ns at best; %.0f s were spent waiting while it took more than %g times as long, %d runs and probes were made again because it did when they ended, and %d of %d count although it did",
		c.least, c.waited.Seconds(), apartFrom, c.repeated, c.stayed, c.all)}
}
