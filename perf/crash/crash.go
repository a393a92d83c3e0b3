package crash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"felix/client"
	"felix/wal"
)

// Config says what Run does.
type Config struct {
	Felixd string // the program, see Build
	Dir    string // for data directories; what is in it when Run fails is left there
	Cycles int    // kills under load
	Seed   uint64
	Args   []string             // further arguments of felixd
	Logf   func(string, ...any) // one line per cycle; nil means none
}

// A Report is what Run has seen.
type Report struct {
	Kills, StartKills int   // under load; of brokers that were starting
	Acked             int64 // records acknowledged with their offsets
	Blind             int64 // records acknowledged without
	Seen              int64 // records that subscriptions delivered
	Read              int64 // records read back, again in each cycle
	TornEnds          int   // lanes whose end was torn by a kill
	SlowestStart      time.Duration
	SlowestSettle     time.Duration // until every publish that lived through a kill had its answer
}

func (r Report) String() string {
	return fmt.Sprintf("%d kills under load and %d during the start: %d records acknowledged (%d without offset), %d delivered, %d read back; %d torn ends; slowest start %v, slowest settling %v",
		r.Kills, r.StartKills, r.Acked, r.Blind, r.Seen, r.Read, r.TornEnds, r.SlowestStart.Round(time.Millisecond), r.SlowestSettle.Round(time.Millisecond))
}

const (
	shards             = 6
	cyclesPerDirectory = 20
	cycleTimeout       = 1 * time.Minute // a cycle takes seconds; this ends one that hangs
	maxAcks            = 2000            // batches acknowledged before a kill, at most
	maxKillDelay       = 3 * time.Millisecond
	maxStartDelay      = 60 * time.Millisecond
)

// modes are the streams' names and what they are made under.
var modes = [...]string{"on_commit", "periodic", "none"}

// Run runs the cycles. The first thing that does not hold ends it.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	r := &run{c: c, rand: rand.New(rand.NewPCG(c.Seed, 0))}
	for done := 0; done < c.Cycles; {
		n := min(cyclesPerDirectory, c.Cycles-done)
		dir := filepath.Join(c.Dir, fmt.Sprintf("from-%d", done))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return r.report, err
		}
		if err := r.directory(ctx, dir, done, n); err != nil {
			return r.report, fmt.Errorf("seed %d, data in %s: %w", c.Seed, dir, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			return r.report, err
		}
		done += n
	}
	return r.report, nil
}

type run struct {
	c      Config
	rand   *rand.Rand
	report Report

	// Of the present directory.
	host       *host
	ledger     *ledger
	survivor   *client.Client // lives through the kills
	publishers []*publisher   // its, one per mode
	followers  []*follower    // its, one per mode
}

// directory makes a data directory and kills n brokers on it.
func (r *run) directory(ctx context.Context, dir string, first, n int) (err error) {
	r.host = &host{felixd: r.c.Felixd, dir: dir, args: r.c.Args}
	r.ledger = newLedger()
	r.publishers, r.followers, r.survivor = nil, nil, nil
	defer func() {
		l := &r.ledger.counts
		r.report.Acked += l.acked
		r.report.Blind += l.blind
		r.report.Seen += l.seen
		r.report.Read += l.read
	}()
	if err := r.create(ctx); err != nil {
		return fmt.Errorf("create the streams: %w", err)
	}
	defer func() { err = errors.Join(err, r.endSurvivors()) }()
	for i := range n {
		if err := r.bounded(ctx, r.cycle); err != nil {
			return fmt.Errorf("cycle %d: %w", first+i, err)
		}
	}
	if err := r.bounded(ctx, r.last); err != nil {
		return fmt.Errorf("after cycle %d: %w", first+n-1, err)
	}
	return nil
}

func (r *run) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, cycleTimeout)
	defer cancel()
	return f(ctx)
}

// create makes a stream per mode by first use, each under a broker with that mode, which is killed once the first
// record is acknowledged: the catalog must then hold the stream.
func (r *run) create(ctx context.Context) error {
	for _, mode := range modes {
		err := r.bounded(ctx, func(ctx context.Context) error {
			b, _, err := r.host.start(ctx, "--fsync-mode", mode, "--dev-shards", fmt.Sprint(shards))
			if err != nil {
				return err
			}
			err = r.first(ctx, mode)
			return errors.Join(err, b.kill())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) first(ctx context.Context, stream string) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := newPublisher(r.ledger, c, stream, plain, r.rand)
	if err != nil {
		return err
	}
	p.mustAnswer = true
	p.send(ctx)
	return p.settle(ctx)
}

func (r *run) dial(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	return client.Dial(ctx, r.host.ready.Listen, append(opts, client.WithCAFile(r.host.ready.CAFile), client.WithCloseTimeout(100*time.Millisecond))...)
}

// startSurvivors makes the client that lives as long as the directory.
func (r *run) startSurvivors(ctx context.Context) (err error) {
	r.survivor, err = r.dial(ctx, client.WithReconnect(client.ReconnectPolicy{Deadline: settleTimeout}))
	if err != nil {
		return err
	}
	for _, mode := range modes {
		p, err := newPublisher(r.ledger, r.survivor, mode, idempotent, r.rand)
		if err != nil {
			return err
		}
		p.mustAnswer = true
		r.publishers = append(r.publishers, p)
		f, err := follow(ctx, r.ledger, r.survivor, mode)
		if err != nil {
			return err
		}
		r.followers = append(r.followers, f)
	}
	return nil
}

// endSurvivors closes what lives as long as the directory. Only the first call does something.
func (r *run) endSurvivors() error {
	if r.survivor == nil {
		return nil
	}
	var errs []error
	for _, f := range r.followers {
		errs = append(errs, f.close())
	}
	errs = append(errs, r.survivor.Close())
	r.survivor = nil
	return errors.Join(errs...)
}

// cycle starts the broker, verifies what the last one left, loads it and kills it.
func (r *run) cycle(ctx context.Context) error {
	if r.rand.IntN(4) == 0 {
		if err := r.killStarting(ctx); err != nil {
			return err
		}
	}
	b, took, err := r.host.start(ctx)
	if err != nil {
		return err
	}
	r.report.SlowestStart = max(r.report.SlowestStart, took)
	settled, err := r.verify(ctx)
	if err != nil {
		return errors.Join(err, b.dump())
	}
	mode := r.rand.IntN(len(modes))
	if r.rand.IntN(3) > 0 {
		mode = 0
	}
	acks := int64(math.Exp(r.rand.Float64() * math.Log(maxAcks))) // as often 1 to 10 as 200 to 2,000
	delay := time.Duration(r.rand.Int64N(int64(maxKillDelay)))
	reached, err := r.load(ctx, b, mode, acks, delay)
	if err != nil {
		return err
	}
	r.report.Kills++
	r.c.Logf("mode %s, killed %v after ack %d (of %d by its end); start %v, settled in %v",
		modes[mode], delay.Round(time.Microsecond), acks, reached, took.Round(time.Millisecond), settled.Round(time.Millisecond))
	return r.offline()
}

// killStarting kills a broker some time after its start, ready or not.
func (r *run) killStarting(ctx context.Context) error {
	b, err := r.host.launch(ctx)
	if err != nil {
		return err
	}
	timer := time.NewTimer(time.Duration(r.rand.Int64N(int64(maxStartDelay))))
	defer timer.Stop()
	select {
	case <-timer.C:
		r.report.StartKills++
		return b.kill()
	case <-b.ended: // a port was taken meanwhile, or the start that follows fails as well and says why
		return nil
	}
}

// verify lets everything that lived through the kill settle, and reads all streams back.
func (r *run) verify(ctx context.Context) (settled time.Duration, err error) {
	begun := time.Now()
	if r.survivor == nil {
		if err := r.startSurvivors(ctx); err != nil {
			return 0, err
		}
	}
	// A client that only waits learns of the kill by its idle timeout of 6 s; one that sends is told by the new broker.
	active := r.rand.IntN(5) > 0
	for _, p := range r.publishers {
		if active {
			for i := range p.keys {
				p.sendTo(ctx, i)
			}
		}
		if err := p.settle(ctx); err != nil {
			return 0, fmt.Errorf("%v after the start: %w", time.Since(begun).Round(time.Millisecond), err)
		}
	}
	settled = time.Since(begun)
	r.report.SlowestSettle = max(r.report.SlowestSettle, settled)
	c, err := r.dial(ctx)
	if err != nil {
		return settled, err
	}
	defer c.Close()
	for _, mode := range modes {
		if err := verify(ctx, r.ledger, c, mode, shards); err != nil {
			return settled, err
		}
	}
	return settled, r.followersAlive()
}

func (r *run) followersAlive() error {
	for _, f := range r.followers {
		select {
		case <-f.ended:
			return errors.Join(f.err, fmt.Errorf("the subscription of %s has ended", f.stream))
		default:
		}
	}
	return nil
}

// load publishes until the broker has acknowledged acks batches, and kills it a moment later. It returns how many were
// acknowledged in the end.
func (r *run) load(ctx context.Context, b *broker, mode int, acks int64, delay time.Duration) (reached int64, err error) {
	c, err := r.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var mortals []*publisher
	for _, m := range []manner{plain, plain, plain, atLeastOnce, idempotent} {
		p, err := newPublisher(r.ledger, c, modes[mode], m, r.rand)
		if err != nil {
			return 0, err
		}
		mortals = append(mortals, p)
	}
	stop, end := context.WithCancel(ctx)
	defer end()
	var (
		acked   atomic.Int64
		enough  = make(chan struct{})
		wait    sync.WaitGroup
		fails   = make(chan error, len(mortals)+len(r.publishers))
		onAcked = func() {
			if acked.Add(1) == acks {
				close(enough)
			}
		}
	)
	for _, p := range append(append([]*publisher(nil), mortals...), r.publishers...) {
		wait.Go(func() {
			if err := p.run(ctx, stop, onAcked); err != nil {
				fails <- err
			}
		})
	}
	select {
	case <-enough:
		timer := time.NewTimer(delay)
		<-timer.C
	case err = <-fails:
	case <-b.ended:
	case <-ctx.Done():
		err = fmt.Errorf("%d of %d batches acknowledged: %w", acked.Load(), acks, ctx.Err())
	}
	if err == nil {
		err = b.kill()
	} else {
		err = errors.Join(err, b.dump())
	}
	end()
	wait.Wait()
	close(fails)
	for failure := range fails {
		err = errors.Join(err, failure)
	}
	if err != nil {
		return acked.Load(), err
	}
	// The mortals' client ends with what it knows.
	_ = c.Close() // that nobody took the rest is the point
	for _, p := range mortals {
		if err := p.settle(ctx); err != nil {
			return acked.Load(), err
		}
	}
	return acked.Load(), nil
}

// offline reads the lanes as a killed broker left them.
func (r *run) offline() error {
	lanes, err := filepath.Glob(filepath.Join(r.host.dir, "data", "lanes", "lane-*"))
	if err != nil || len(lanes) == 0 {
		return fmt.Errorf("lanes in %s: %v, %w", r.host.dir, lanes, err)
	}
	for _, lane := range lanes {
		v, err := wal.Verify(nil, lane)
		if err != nil {
			return fmt.Errorf("offline: %w", err)
		}
		if v.Cut != nil {
			r.report.TornEnds++
		}
		if len(v.Damage) > 0 {
			return fmt.Errorf("offline: %s is damaged after a kill: %+v", lane, v.Damage)
		}
	}
	return nil
}

// last verifies what the last kill left, ends a broker in order, and verifies that, too.
func (r *run) last(ctx context.Context) error {
	b, _, err := r.host.start(ctx)
	if err != nil {
		return err
	}
	if _, err := r.verify(ctx); err != nil {
		return errors.Join(err, b.dump())
	}
	if err := r.endSurvivors(); err != nil {
		return errors.Join(err, b.dump())
	}
	// The subscriptions' books: contiguous up to where they are, and all of it read back, or the ledger had objected.
	if err := b.stop(); err != nil {
		return err
	}
	if err := r.offline(); err != nil {
		return err
	}
	if b, _, err = r.host.start(ctx); err != nil {
		return fmt.Errorf("after an orderly end: %w", err)
	}
	c, err := r.dial(ctx)
	if err != nil {
		return errors.Join(err, b.dump())
	}
	for _, mode := range modes {
		if err := verify(ctx, r.ledger, c, mode, shards); err != nil {
			return errors.Join(fmt.Errorf("after an orderly end: %w", err), c.Close(), b.dump())
		}
	}
	return errors.Join(c.Close(), b.stop())
}
