package replicate

import (
	"time"

	"felix/core"
	"felix/fanout"
	"felix/wal"
)

// agingInterval is how often shards with a bound on age look for records beyond it.
const agingInterval = time.Second

// HostConfig is what a Host is given. It is copied by NewHost.
type HostConfig struct {
	// Slabs is shared by all hosts. Required.
	Slabs *fanout.Slabs
	// Limits bounds rings and topics.
	Limits fanout.Limits
	// NowMicros returns the wall clock in microseconds since 1970, for append times. It is called on the loop, about once per pass
	// that appends. Nil means the loop's own clock.
	NowMicros func() int64
	// MaxHeld bounds the appends that wait at one shard while subscribers hold it back; beyond it they end Overloaded. Zero means
	// 32,768: all slots of 64 cores.
	MaxHeld int
	// ShardProducers and Producers bound the idempotent producers remembered by a shard and by the core, about 1.3 KiB each once
	// they have sent 64 batches. Beyond either the one whose newest batch is oldest is forgotten. Zero means 4,096 and 65,536.
	ShardProducers, Producers int
	// LogRetention bounds durable streams where their own retention has a zero. Zero bounds nothing.
	LogRetention Retention
}

// A Host is the shards of one core. It is an agent of the core's loop.
type Host struct {
	loop  *core.Loop
	cfg   HostConfig
	local *fanout.Local

	dirty, spare []*Shard // shards with something to do at the end of the pass, and the memory of the last such list
	producers    producerList
	scratch      []*fanout.Frame

	// now is the append time of records of the pass that began at stamped.
	now            int64
	stamped        time.Duration
	worked         time.Duration // beginning of the last pass in which Work ran
	aging          []*Shard      // shards with a bound on age and something in their ring, or with any bound and a log
	timer          core.Timer
	sweepAgingFunc func(*core.Loop)

	timed        []*Shard // shards that hold appends with a deadline
	deadline     core.Timer
	expireHeldFn func(*core.Loop)

	lanes             []*hostLane // of durable shards; fixed before the loop starts
	readers           readers
	readerTimer       core.Timer
	expireReadersFunc func(*core.Loop)
	retry             core.Timer
	sweeping          bool   // the lanes are being asked for retention
	restored          bool   // aging was filled before the loop ran
	table             []byte // where tables of producers are encoded
}

// NewHost makes the host of one core. The caller adds it to the loop's agents before the group starts, behind those that send
// answers: an ack then leaves before the record is offered to many subscribers. It panics when cfg is not valid.
func NewHost(l *core.Loop, cfg HostConfig) *Host {
	if cfg.Slabs == nil {
		panic("BUG: replicate: HostConfig.Slabs is nil")
	}
	set(&cfg.MaxHeld, 32768)
	set(&cfg.ShardProducers, 4096)
	set(&cfg.Producers, 65536)
	h := &Host{loop: l, cfg: cfg, local: fanout.NewLocal(l, cfg.Slabs, cfg.Limits), stamped: -1, worked: -1}
	h.sweepAgingFunc = h.sweepAging
	h.expireReadersFunc = h.expireReaders
	h.expireHeldFn = h.expireHeld
	return h
}

func set[T int | uint32](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Core returns the core the host belongs to.
func (h *Host) Core() core.ID { return h.loop.ID() }

// Counters may be called and read from any goroutine.
func (h *Host) Counters() *fanout.Counters { return &h.local.Counters }

// Work seals the frames of the pass and offers them, goes on with appends that were held back, gives memory back when the
// budget is exceeded, and hands what was appended to the lanes. The loop calls it.
func (h *Host) Work(l *core.Loop) (did int) {
	h.worked = l.Now()
	work := h.dirty
	h.dirty, h.spare = h.spare[:0], work
	for i, s := range work {
		work[i] = nil
		s.work(l)
	}
	if h.local.OverBudget() {
		h.local.Trim()
	}
	h.commit()
	return len(work)
}

// add puts s on the list for Work.
func (h *Host) add(l *core.Loop, s *Shard) {
	if len(h.dirty) == 0 && h.worked == l.Now() {
		// Work may have run in this pass already, and the loop park before the next one.
		l.WakeOffCore()
	}
	h.dirty = append(h.dirty, s)
	h.age(l, s)
}

// micros returns the append time for this pass.
func (h *Host) micros(l *core.Loop) int64 {
	if at := l.Now(); at != h.stamped {
		h.stamped = at
		h.now = at.Microseconds()
		if h.cfg.NowMicros != nil {
			h.now = h.cfg.NowMicros()
		}
	}
	return h.now
}

// ages reports whether s has to be looked at once per agingInterval: its stream bounds the age of records and it holds some, or it has a
// log with any bound.
func (s *Shard) ages() bool {
	if s.log != nil {
		return !s.gone && s.log.start < s.appended && s.logRetention() != (wal.Retention{})
	}
	return s.stream.settings.Load().Retention.MaxAge > 0 && s.ring.Memory() > 0
}

// logRetention returns what bounds a durable shard.
func (s *Shard) logRetention() wal.Retention {
	r, defaults := s.stream.settings.Load().Retention, &s.host.cfg.LogRetention
	if r.MaxAge == 0 {
		r.MaxAge = defaults.MaxAge
	}
	if r.MaxSizeBytes == 0 {
		r.MaxSizeBytes = defaults.MaxSizeBytes
	}
	return wal.Retention{MaxAge: r.MaxAge, MaxBytes: r.MaxSizeBytes}
}

// age has s looked at once per agingInterval, while ages says so.
func (h *Host) age(l *core.Loop, s *Shard) {
	if s.aging || !s.ages() {
		return
	}
	s.aging = true
	h.aging = append(h.aging, s)
	if !h.timer.Armed() {
		l.Arm(&h.timer, agingInterval, h.sweepAgingFunc)
	}
}

func (h *Host) sweepAging(l *core.Loop) {
	now, kept := h.micros(l), h.aging[:0]
	var logs []retainee
	for _, s := range h.aging {
		if s.log == nil {
			s.ring.Trim(now)
		}
		if !s.ages() {
			s.aging = false
			continue
		}
		kept = append(kept, s)
		if s.log != nil && !h.sweeping {
			logs = append(logs, retainee{shard: s, retention: s.logRetention()})
		}
	}
	if len(logs) > 0 {
		h.sweepLogs(logs, now)
	}
	clear(h.aging[len(kept):])
	h.aging = kept
	if len(kept) > 0 {
		l.Arm(&h.timer, agingInterval, h.sweepAgingFunc)
	}
}
