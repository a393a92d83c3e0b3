package replicate

import (
	"felix/fanout"
	"felix/netio/wire"
)

// A SubscriptionView is where a subscription stands in its shard.
type SubscriptionView struct {
	fanout.Stats
	Tail       wire.Offset // first offset readers may not see
	LagRecords uint64      // between Position and Tail
	LagBytes   uint64      // of these: what is queued, and for the rest an estimate by the mean size of the records in memory
}

// Inspect looks at a subscription of the shard. It is for use on the shard's loop and takes well under a microsecond.
func (s *Shard) Inspect(sub *fanout.Subscription) SubscriptionView {
	v := SubscriptionView{Stats: sub.Stats(), Tail: s.mayDeliver()}
	if v.Position < v.Tail {
		v.LagRecords = uint64(v.Tail - v.Position)
	}
	v.LagBytes = uint64(max(sub.QueuedBytes(), 0))
	if v.Next < v.Tail {
		v.LagBytes += uint64(v.Tail-v.Next) * uint64(s.ring.MeanRecordBytes())
	}
	return v
}

// LogErr returns why the log of a durable shard has stopped; nil while it goes on, and in memory. It may be called from any goroutine.
func (s *Shard) LogErr() error {
	if s.log == nil {
		return nil
	}
	return s.log.lane.lane.Err()
}
