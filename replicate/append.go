package replicate

import (
	"fmt"

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
	// Overloaded: as many appends wait at the shard as may; nothing was appended.
	Overloaded
)

var outcomeNames = [...]string{"pending", "appended", "duplicate", "sequence_gap", "unknown_producer", "sequence_expired",
	"sequence_reused", "stream_gone", "overloaded"}

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

	// The answer.
	Outcome  Outcome
	Base     wire.Offset // Appended, Duplicate, SequenceReused
	Expected uint64      // SequenceGap

	next *Append // in heldAppends
}

// finish gives the answer. a is not touched after.
func (a *Append) finish(l *core.Loop, o Outcome) {
	a.Outcome = o
	a.Done.OnAppended(l, a)
}

// heldAppends are the appends that wait while subscribers hold a shard back, oldest first. They are those of publishes that hold a
// slot, so their number is bounded there; HostConfig.MaxHeld is the second bound.
type heldAppends struct {
	first, last *Append
	n           int
}

func (h *heldAppends) push(a *Append) {
	if h.last == nil {
		h.first = a
	} else {
		h.last.next = a
	}
	h.last = a
	h.n++
}

func (h *heldAppends) pop() *Append {
	a := h.first
	h.first, a.next = a.next, nil
	if h.first == nil {
		h.last = nil
	}
	h.n--
	return a
}
