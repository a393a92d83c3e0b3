package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"felix/client"
	"felix/perf/crash"
	"felix/perf/load"
)

type overloadOptions struct {
	publishers, inFlight, size int
	times                      int // more publishers under overload
	duration                   time.Duration
	budget                     int64
	resident                   int64   // bound of the broker's memory; 0 means none
	share                      float64 // of the saturated rate that the overloaded one must reach; 0 means none
}

func prepareOverload(flags *flag.FlagSet) func(context.Context, *report) error {
	var o overloadOptions
	flags.IntVar(&o.publishers, "publishers", 16, "of the saturated run")
	flags.IntVar(&o.inFlight, "inflight", 64, "records of each that wait for their ack")
	flags.IntVar(&o.size, "size", 1<<10, "bytes of a record")
	flags.IntVar(&o.times, "times", 10, "as many publishers under overload")
	flags.DurationVar(&o.duration, "duration", time.Minute, "of each run")
	flags.Int64Var(&o.budget, "budget", 256<<20, "memory_budget of the broker")
	flags.Int64Var(&o.resident, "resident", 320<<20, "bytes that the broker may take")
	flags.Float64Var(&o.share, "share", 0.9, "of the saturated rate that must be left")
	return func(ctx context.Context, r *report) error { return overload(ctx, r, o) }
}

// overload publishes with as many publishers as saturate a broker and then with many more. The broker is a process of its own.
func overload(ctx context.Context, r *report, o overloadOptions) (err error) {
	dir, err := os.MkdirTemp("", "felix-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDaemon(ctx, dir, "--memory-budget", strconv.FormatInt(o.budget, 10), "--max-connections-per-ip", "0", "--auto-create-memory")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	saturated, err := d.load(ctx, o, o.publishers)
	if err != nil {
		return fmt.Errorf("the saturated run: %w", err)
	}
	r.say("saturated:  %v", saturated)
	over, err := d.load(ctx, o, o.publishers*o.times)
	if err != nil {
		return fmt.Errorf("the overloaded run: %w", err)
	}
	r.say("overloaded: %v; %.2f of the saturated rate", over, over.rate/saturated.rate)
	switch {
	case o.resident > 0 && over.resident > o.resident:
		return fmt.Errorf("the broker took %d MiB with a budget of %d MiB, more than %d MiB", over.resident>>20, o.budget>>20, o.resident>>20)
	case over.rate < o.share*saturated.rate:
		return fmt.Errorf("%.0f records/s under overload are less than %.2f of %.0f", over.rate, o.share, saturated.rate)
	}
	return nil
}

// A loadResult is what a run has seen. Every record was acknowledged or refused, and the broker counts the same.
type loadResult struct {
	publishers     int
	acked, refused uint64
	received       uint64 // by a subscriber
	missed         uint64 // of which it was told
	rate           float64
	resident       int64 // the most memory of the broker
}

func (l loadResult) String() string {
	return fmt.Sprintf("%d publishers: %.0f records/s, %d acknowledged, %d refused; a subscriber received %d and was told of %d missed; broker at most %d MiB",
		l.publishers, l.rate, l.acked, l.refused, l.received, l.missed, l.resident>>20)
}

// clientsOf is how many clients a number of publishers shares.
func clientsOf(publishers int) int { return max(publishers/8, 1) }

// load runs publishers for the duration, each with a bounded number of records in flight, beside one subscriber.
func (d *daemon) load(ctx context.Context, o overloadOptions, publishers int) (result loadResult, err error) {
	result.publishers = publishers
	stream := fmt.Sprintf("load-%d", publishers)
	before, err := d.metrics(ctx)
	if err != nil {
		return result, err
	}
	var clients []*client.Client
	for range clientsOf(publishers) + 1 {
		c, err := d.dial(ctx)
		if err != nil {
			return result, err
		}
		defer c.Close()
		clients = append(clients, c)
	}
	reader := clients[len(clients)-1]
	sub, err := reader.Subscribe(ctx, stream, client.FromEarliest())
	if err != nil {
		return result, err
	}
	var acked, refused, received, missed atomic.Uint64
	var next atomic.Uint64 // offset that the subscriber comes to
	follow := newCrew(ctx)
	reading, end := context.WithCancel(ctx)
	defer end()
	follow.do(func(context.Context) error {
		for {
			m, err := sub.Next(reading)
			var gap *client.GapError
			switch {
			case reading.Err() != nil:
				return nil
			case errors.As(err, &gap):
				if uint64(gap.From) != next.Load() || gap.To <= gap.From {
					return fmt.Errorf("a gap from %d to %d where %d comes next", gap.From, gap.To, next.Load())
				}
				missed.Add(uint64(gap.To - gap.From))
				next.Store(uint64(gap.To))
			case err != nil:
				return err
			case uint64(m.Offset) != next.Load():
				return fmt.Errorf("offset %d was delivered where %d comes next", m.Offset, next.Load())
			default:
				received.Add(1)
				next.Add(1)
			}
		}
	})

	running, stop := context.WithTimeout(ctx, o.duration)
	defer stop()
	group := newCrew(ctx)
	for i := range publishers {
		publisher, err := clients[i%clientsOf(publishers)].Publisher(stream)
		if err != nil {
			return result, err
		}
		for range o.inFlight {
			group.do(func(ctx context.Context) error {
				record := make([]byte, o.size)
				for running.Err() == nil {
					_, err := publisher.Publish(ctx, record)
					switch {
					case err == nil:
						acked.Add(1)
					case errors.Is(err, client.ErrOverloaded):
						refused.Add(1) // nothing was stored; the next one is tried at once, as a client that knows no better does
					default:
						return err
					}
				}
				return nil
			})
		}
	}
	begun := time.Now()
	group.do(func(ctx context.Context) error {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for running.Err() == nil {
			now, err := residentBytes(d.PID)
			if err != nil {
				return err
			}
			result.resident = max(result.resident, now)
			select {
			case <-tick.C:
			case <-running.Done():
			}
		}
		return nil
	})
	if err := group.wait(); err != nil {
		return result, err
	}
	result.rate = float64(acked.Load()) / time.Since(begun).Seconds()

	// A gap shows with the record behind it: records come one by one until the subscriber has the last one.
	for {
		if _, err := clients[0].Publish(ctx, stream, make([]byte, o.size)); err != nil {
			return result, err
		}
		acked.Add(1)
		moment, over := context.WithTimeout(follow.ctx, time.Second)
		err := await(moment, "the subscriber", func() bool { return next.Load() == acked.Load() })
		over()
		if err == nil || follow.ctx.Err() != nil {
			break
		}
	}
	end()
	if err := follow.wait(); err != nil {
		return result, fmt.Errorf("the subscriber: %w", err)
	}
	result.acked, result.refused, result.received, result.missed = acked.Load(), refused.Load(), received.Load(), missed.Load()
	return result, d.balance(ctx, before, result)
}

// balance holds what clients have seen against the broker's counts.
func (d *daemon) balance(ctx context.Context, before map[string]float64, l loadResult) error {
	after, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, b := range []struct {
		metric string
		want   uint64
	}{
		{"felix_publish_records_total", l.acked},
		{`felix_publish_requests_total{result="dropped"}`, 0},
		{"felix_sub_records_dropped_total", l.missed},
	} {
		if got := after[b.metric] - before[b.metric]; got != float64(b.want) {
			problems = append(problems, fmt.Errorf("%s rose by %.0f, clients count %d", b.metric, got, b.want))
		}
	}
	if l.received+l.missed != l.acked {
		problems = append(problems, fmt.Errorf("%d records received and %d missed are not the %d acknowledged", l.received, l.missed, l.acked))
	}
	for _, gauge := range []string{"felix_broker_ingress_queue_depth", "felix_broker_ingress_bytes"} {
		err := await(ctx, gauge+" to be 0", func() bool {
			after, err = d.metrics(ctx)
			return err != nil || after[gauge] == 0
		})
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// A daemon is a felixd process.
type daemon struct {
	*load.Process
	http http.Client
}

// startDaemon builds felixd into dir and runs it. It returns when clients can connect.
func startDaemon(ctx context.Context, dir string, args ...string) (*daemon, error) {
	program, err := crash.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	p, err := load.StartProcess(ctx, load.ProcessConfig{Command: []string{program}, Args: args, DataDir: filepath.Join(dir, "data")})
	if err != nil {
		return nil, err
	}
	return &daemon{p, http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{}}}, nil
}

// stop drains felixd and waits for its end.
func (d *daemon) stop() error {
	d.http.CloseIdleConnections()
	return d.Stop()
}

func (d *daemon) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, d.Listen, client.WithCAFile(d.CAFile), client.WithConnections(1))
}

// metrics reads every sample that the broker shows.
func (d *daemon) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	samples := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			value, err := strconv.ParseFloat(line[i+1:], 64)
			if err != nil {
				return nil, fmt.Errorf("the metric %q: %w", line, err)
			}
			samples[line[:i]] = value
		}
	}
	return samples, nil
}
