package load

import (
	"testing"
	"time"
)

// TestSettleAfterGivingUp settles for a publisher that nobody runs any more and that had been woken: the target must not be held up.
func TestSettleAfterGivingUp(t *testing.T) {
	r := &run{c: Config{Scenario: Pub, InFlight: 2}.WithDefaults(), latencies: newRecorder(), epoch: time.Now()}
	p := newPublisher(r, 0)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for token := range p.slots {
			p.slots[token].open.Store(true)
			p.waiting = true
			p.Settle(token, Outcome{Fate: Unknown}, time.Now())
		}
	}()
	select {
	case <-settled:
	case <-time.After(patience):
		t.Fatal("Settle waits for a publisher that is gone")
	}
	if len(p.free) != 2 || len(p.wake) != 1 {
		t.Errorf("%d tokens are free, %d wake", len(p.free), len(p.wake))
	}
}
