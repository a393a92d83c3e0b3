package felix

import (
	"fmt"
	"log/slog"
	"sync"

	"felix/netio"
)

// A subscriberWatch looks for subscriptions that have work, whose client reads, and that do not move: records would wait for ever, and
// nobody be told. It only tells, as the watchdog does, which calls look. A client that does not read is its own affair.
type subscriberWatch struct {
	server *netio.Server
	log    *slog.Logger

	mu      sync.Mutex
	stalled []netio.StalledSubscriber // guarded by mu: found at the last look; at most one per subscription
}

// maxToldSubscribers bounds the subscriptions that one look logs and /ready names. Those beyond are counted.
const maxToldSubscribers = 10

// look compares with the look before, watchInterval ago.
func (w *subscriberWatch) look() {
	w.server.FlushLog()
	stalled := w.server.LookAtSubscribers()
	told, more := 0, 0
	for _, s := range stalled {
		switch {
		case !s.New:
		case told < maxToldSubscribers:
			told++
			w.log.Error("a subscriber has work and does not move; felix subscription ls shows it", "subscriber", s.SubscriberID, "stream", s.Path(), "shard", s.Shard,
				"client", s.Peer, "state", s.State, "frames_queued", s.Depth, "records_taken", s.Taken, "next_offset", uint64(s.Next))
		default:
			more++
		}
	}
	if more > 0 {
		w.log.Error("further subscribers have work and do not move", "subscribers", more)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = stalled
}

// warnings are for /ready: the broker serves others.
func (w *subscriberWatch) warnings() (list []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.stalled {
		if i == maxToldSubscribers {
			return append(list, fmt.Sprintf("%d further subscribers do not move", len(w.stalled)-i))
		}
		list = append(list, s.String())
	}
	return list
}
