package replicate

import (
	"fmt"
	"time"

	"felix/core"
	"felix/netio/wire"
)

// Outcome is how an Append ended.
type Outcome uint8

const (
	// Pending: Done has not been called.
	Pending Outcome = iota
	// Appended: the records are at Base, Base+1, ...; for an empty batch Base is the tail.
	Appended
	// Duplicate: the batch was appended before, at Base; nothing was appended.
	Duplicate
	// SequenceGap: Sequence is above the expected one, which is in Expected.
	SequenceGap
	// UnknownProducer: the shard knows no batch of the producer, and Sequence is not 0.
	UnknownProducer
	// SequenceExpired: the batch is older than those remembered.
	SequenceExpired
	// SequenceReused: the sequence is remembered with other payloads, at Base; nothing was appended.
	SequenceReused
	// StreamGone: the stream was deleted.
	StreamGone
	// Overloaded: as many appends wait at the shard as may, or this one did until its Deadline, or one before it of its producer was
	// refused for now; nothing was appended.
	Overloaded
	// DiskFull: the log has no room on its disk; nothing was appended. It resumes by itself.
	DiskFull
	// TooLarge: the batch is beyond what the log takes at once; nothing was appended.
	TooLarge
	// StorageFailed: the log has stopped after a disk error, or its end is not known after damage; nothing was appended.
	StorageFailed
	// OutcomeUnknown: the disk failed after the batch had been handed to the log. Only the next start tells whether it is there.
	OutcomeUnknown
)

var outcomeNames = [...]string{"pending", "appended", "duplicate", "sequence_gap", "unknown_producer", "sequence_expired",
	"sequence_reused", "stream_gone", "overloaded", "disk_full", "too_large", "storage_failed", "outcome_unknown"}

// String returns the name in log lines.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Completer is told the outcome of an Append.
type Completer interface {
	// OnAppended runs exactly once per Append, on the loop of the shard, possibly before Shard.Append returns. From then on a and
	// its Records belong to the caller again. It may call Shard.Append.
	OnAppended(l *core.Loop, a *Append)
}

// An Append is one batch for one shard. The caller fills in the first group, hands it to Shard.Append and leaves it alone until
// Done is called.
type Append struct {
	Shard   *Shard // for the caller's use on the way to the owner
	Records []byte // Count x (u32 len, payload), checked; copied once
	Count   uint32 // 0 appends nothing and is answered with the tail
	// Idempotent batches are appended once per ProducerID, shard and Sequence.
	Idempotent           bool
	ProducerID, Sequence uint64
	Done                 Completer
	// Deadline is when, on the clock of the loops, the batch is refused as Overloaded if it still waits to be appended: held back by a
	// subscriber or by a busy log. Zero means never.
	Deadline time.Duration

	// The answer.
	Outcome  Outcome
	Base     wire.Offset // Appended, Duplicate, SequenceReused
	Expected uint64      // SequenceGap

	next   *Append // in appendQueue
	repeat bool    // a Duplicate that waits until the first is durable
}

// end returns one past the last record.
func (a *Append) end() wire.Offset { return a.Base + wire.Offset(a.Count) }

// finish gives the answer. a is not touched after.
func (a *Append) finish(l *core.Loop, o Outcome) {
	a.Outcome = o
	a.Done.OnAppended(l, a)
}

// An appendQueue holds appends that wait, oldest first: Shard.held those that subscribers or a busy log hold back,
// shardLog.pending those that wait for the disk. They are those of publishes that hold a slot, so their number is bounded there;
// HostConfig.MaxHeld is the second bound of those held.
type appendQueue struct {
	first, last *Append
	n           int
}

func (h *appendQueue) push(a *Append) {
	if h.last == nil {
		h.first = a
	} else {
		h.last.next = a
	}
	h.last = a
	h.n++
}

// pushFront puts back what pop returned.
func (h *appendQueue) pushFront(a *Append) {
	a.next = h.first
	h.first = a
	if h.last == nil {
		h.last = a
	}
	h.n++
}

func (h *appendQueue) pop() *Append {
	a := h.first
	h.first, a.next = a.next, nil
	if h.first == nil {
		h.last = nil
	}
	h.n--
	return a
}
