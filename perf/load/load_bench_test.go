package load

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// nothing is a publisher whose broker answers at once.
type nothing struct{ sink Sink }

func (n *nothing) Publish(_ context.Context, token, _ int, _ [][]byte) {
	n.sink.Settle(token, Outcome{Fate: Acked}, time.Now())
}
func (n *nothing) Push(context.Context)        {}
func (n *nothing) Flush(context.Context) error { return nil }
func (n *nothing) Close() error                { return nil }

// engine is a run that measures from now on, with a publisher and a reader of it.
func engine(rate float64) (*publisher, *reader) {
	c := Config{Scenario: E2E, Target: &Fake{}, Rate: rate, Batch: 4, Duration: time.Hour}.WithDefaults()
	r := &run{c: c, schedule: newSchedule(c.Rate, c.Batch, c.Publishers), stamps: newStamper(rand.New(rand.NewPCG(1, 2))), latencies: newRecorder()}
	r.epoch, r.end = time.Now(), int64(time.Hour)
	p := newPublisher(r, 0)
	p.out = &nothing{p}
	return p, &reader{run: r}
}

// publishOne is one turn of a publisher.
func (p *publisher) publishOne(k int) {
	token, ok := p.take(context.Background(), nil)
	if !ok {
		panic("no token")
	}
	now := p.run.now()
	p.send(context.Background(), token, k, now, now)
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, rate := range map[string]float64{"closed loop": 0, "open loop": 1e6} {
		p, s := engine(rate)
		k := 0
		turn := func() {
			p.publishOne(k)
			k++
			s.now = -1
			for i, payload := range p.payloads {
				s.take(Record{Shard: 3, Offset: uint64(4*k + i), HasOffset: true, Payload: payload})
			}
			s.flushStamps()
			s.publish()
		}
		for range 100 {
			turn()
		}
		if n := testing.AllocsPerRun(2000, turn); n != 0 {
			t.Errorf("%s: %v allocations to publish, settle and receive a batch", name, n)
		}
		p.run.latencies.collect()
		if got := p.run.latencies.total[e2eRaw].TotalCount(); got != int64(4*k) || p.tally().acked != int64(4*k) || s.delivered.Load() != int64(4*k) || s.gaps.Load() != 0 {
			t.Errorf("%s: %d times, %d acked, %d delivered of %d", name, got, p.tally().acked, s.delivered.Load(), 4*k)
		}
	}
}

// BenchmarkEngine is what the engine itself takes for a batch of 4 records of 256 B, published, answered and received.
func BenchmarkEngine(b *testing.B) {
	for name, rate := range map[string]float64{"closed": 0, "open": 1e6} {
		b.Run(name, func(b *testing.B) {
			p, s := engine(rate)
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				p.publishOne(k)
				s.now = -1
				for i, payload := range p.payloads {
					s.take(Record{Offset: uint64(4*k + i), HasOffset: true, Payload: payload})
				}
				s.flushStamps()
				s.publish()
			}
		})
	}
}
