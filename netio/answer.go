package netio

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quic-go/quic-go"

	"felix/core"
	"felix/netio/wire"
	"felix/replicate"
)

// answers is the sending side of a stream that publishes: what is owed, in request order, and what is encoded and not
// yet written. It is owned by the session's loop, except where a field says otherwise.
type answers struct {
	oldest, newest *publish // owed; linked by after
	encoded        []byte   // answers that may leave
	count          int32    // how many they are
	queued         int      // bytes given to the stream since it was last known to have sent all of them
	dirty          bool     // in ingress.dirty
	waiting        bool     // a goroutine waits in Write; encoded grows behind it
	broken         bool     // the peer or the connection ended the sending side: answers are dropped

	refused replicate.RefusedBatches[producerShard, *refusal] // idempotent batches refused for want of a slot

	readerDone bool          // nothing is read any more
	ended      chan struct{} // closed when readerDone and everything owed has been written or dropped
	over       bool          // ended is closed
}

const (
	// maxKeptAnswers bounds the buffer a stream keeps between writes.
	maxKeptAnswers = 16 << 10
	// maxQueuedAnswers bounds what TryWriteAll is given before a Write waits until all of it is in packets. TryWriteAll queues
	// whatever the peer's window allows (quic-go v0.65.0): a peer with a large one that acknowledges no packets would have
	// its answers pile up without end.
	maxQueuedAnswers = 64 << 10
)

// diskFullRetryMillis is what clients are asked to wait when the disk is full: the lane looks for room about that often.
const diskFullRetryMillis = 1000

// expect puts p at the end of the stream's order.
func (a *answers) expect(p *publish) {
	if a.newest == nil {
		a.oldest = p
	} else {
		a.newest.after = p
	}
	a.newest = p
}

// endable reports that the sending side can be closed: nothing is read any more, everything accepted is finished, also what owes no
// answer, and every answer has been written.
func (st *stream) endable() bool {
	a := &st.answers
	return a.readerDone && a.oldest == nil && len(a.encoded) == 0 && !a.waiting && !a.over && st.unacked.used.Load() == 0
}

// write hands the encoded answers to the stream in one write that does not block. When the peer does not read, or much is queued
// already, a goroutine waits in its place; its window keeps the answers behind it bounded.
func (st *stream) write() {
	a := &st.answers
	if a.waiting {
		return
	}
	if len(a.encoded) > 0 {
		if !a.broken {
			err := quic.ErrWouldBlock
			if a.queued < maxQueuedAnswers {
				err = st.send.TryWriteAll(a.encoded)
			}
			switch {
			case err == nil:
				a.queued += len(a.encoded)
			case errors.Is(err, quic.ErrWouldBlock):
				st.writeBlocked()
				return
			default:
				a.broken = true
			}
		}
		st.written()
	}
	if st.endable() {
		a.over = true
		if st.send != nil && !a.broken {
			st.send.Close()
		}
		close(a.ended)
	}
}

// written forgets the encoded answers and gives their places in the window back.
func (st *stream) written() {
	a := &st.answers
	st.acked.giveBack(a.count)
	a.count = 0
	if cap(a.encoded) > maxKeptAnswers {
		a.encoded = nil
	}
	a.encoded = a.encoded[:0]
}

// writeBlocked writes what is encoded from a goroutine of its own. The stream's reader is still there, or waits for
// ended, so that the connection outlives the goroutine.
func (st *stream) writeBlocked() {
	a := &st.answers
	buf, count := a.encoded, a.count
	a.encoded, a.count = nil, 0
	a.waiting = true
	st.conn.goroutines.Go(func() {
		err := st.writeWaiting(buf)
		// The loop outlives every connection; an error means that the broker is gone without Close.
		_ = st.conn.loop.PostOffCore(core.Func(func(l *core.Loop) {
			a.waiting, a.queued = false, 0
			a.broken = a.broken || err != nil
			st.acked.giveBack(count)
			st.write()
		}))
	})
}

// appendAnswer appends the frame that answers p.
func (p *publish) appendAnswer(dst []byte) []byte {
	if p.raw != nil {
		return append(dst, p.raw...)
	}
	st := p.run.stream
	refused := p.refusal(st.features)
	asJSON := p.json || p.Idempotent
	if refused == nil {
		hasOffset := st.flags.Has(wire.FlagAckOffset) && p.Outcome != replicate.SequenceReused
		if asJSON {
			return wire.AppendMessage(dst, &wire.PublishOK{RequestID: p.requestID, Offset: p.Base, HasOffset: hasOffset})
		}
		return wire.AppendAckOK(dst, p.requestID, p.Base, hasOffset)
	}
	if refused.producer.Kind != 0 {
		return wire.AppendMessage(dst, &wire.PublishRefused{RequestID: p.requestID, Reason: refused.producer, Message: refused.message})
	}
	hasCode := st.features.Has(wire.FeatureErrorCodes)
	if asJSON {
		return wire.AppendMessage(dst, &wire.PublishError{
			RequestID: p.requestID, Message: refused.message,
			Code: refused.code, Retry: refused.class(), HasCode: hasCode,
			Reason: refused.reason, RetryAfterMillis: refused.retryAfterMillis, HasDetail: hasCode && refused.hasDetail(),
		})
	}
	hasCode = hasCode && st.flags.Has(wire.FlagAckCode)
	return wire.AppendAck(dst, &wire.Ack{
		RequestID: p.requestID, Failed: true, Message: refused.message,
		Code: refused.code, Retry: refused.class(), HasCode: hasCode,
		Reason: refused.reason, RetryAfterMillis: refused.retryAfterMillis,
		HasDetail: hasCode && refused.hasDetail() && st.flags.Has(wire.FlagAckDetail),
	})
}

// refusal says why p was not appended; nil when it was, or had been before.
func (p *publish) refusal(client wire.Features) *refusal {
	if p.failed != nil {
		return p.failed
	}
	switch p.Outcome {
	case replicate.Appended, replicate.Duplicate:
		return nil
	case replicate.SequenceGap:
		return &refusal{
			message:  fmt.Sprintf("sequence %d is ahead: %d comes next", p.Sequence, p.Expected),
			producer: wire.RefusalReason{Kind: wire.RefusalSequenceGap, Expected: p.Expected},
		}
	case replicate.UnknownProducer:
		return &refusal{
			message:  fmt.Sprintf("producer %d is not known here: start again at sequence 0 with a new id", p.ProducerID),
			producer: wire.RefusalReason{Kind: wire.RefusalUnknownProducer},
		}
	case replicate.SequenceExpired:
		return &refusal{
			message:  fmt.Sprintf("sequence %d is older than what is remembered", p.Sequence),
			producer: wire.RefusalReason{Kind: wire.RefusalSequenceExpired},
		}
	case replicate.SequenceReused:
		if !client.Has(wire.FeatureSequenceReused) {
			return nil // as older clients expect; nothing was appended
		}
		return &refusal{
			message:  fmt.Sprintf("sequence %d was used for other payloads", p.Sequence),
			producer: wire.RefusalReason{Kind: wire.RefusalSequenceReused},
		}
	case replicate.StreamGone:
		config := &p.Shard.Stream().Config
		return notFound(config.Tenant, config.Namespace, config.Name)
	case replicate.Overloaded:
		return &refusal{
			code:    wire.CodeOverloaded,
			message: "publish queue full: the shard waits for a slow subscriber or for its log; nothing was kept, try again",
			reason:  wire.ReasonPublishQueueFull,
		}
	case replicate.DiskFull:
		return &refusal{
			code:             wire.CodeOverloaded,
			message:          "the broker's disk is full: nothing was appended; free space on it or delete records, and it goes on by itself",
			retryAfterMillis: diskFullRetryMillis,
		}
	case replicate.TooLarge:
		return &refusal{
			code:    wire.CodeInvalidRequest,
			message: fmt.Sprintf("a batch of %d bytes is more than the log takes at once; publish smaller batches", len(p.Records)),
		}
	case replicate.StorageFailed:
		return &refusal{
			code:    wire.CodeStorage,
			retry:   wire.RetryRetry,
			message: "the log of this shard has stopped after a disk error and nothing was appended; the broker's log says more, a restart reads back what is on disk",
		}
	case replicate.OutcomeUnknown:
		return &refusal{
			code:    wire.CodeStorage,
			retry:   wire.RetryOutcomeUnknown,
			message: "the disk failed while the batch was written; the next start of the broker tells whether it is there",
		}
	}
	panic(fmt.Sprintf("BUG: netio: publish finished with outcome %d", p.Outcome))
}

// notFound is the refusal for a name that does not exist. felix-loadgen looks for its first words.
func notFound[S ~string | ~[]byte](tenant, namespace, stream S) *refusal {
	return &refusal{
		code:    wire.CodeNotFound,
		message: fmt.Sprintf("stream not found: %s/%s/%s; create it first", brief(tenant), brief(namespace), brief(stream)),
	}
}

// brief is a client's text as a message repeats it: whole when it could be a name, else its beginning, so that an answer is
// small however long the request was.
func brief[S ~string | ~[]byte](text S) string {
	if len(text) <= replicate.MaxNameBytes {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:replicate.MaxNameBytes]), "") + "..."
}
