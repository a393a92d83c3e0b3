package netio

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
	"felix/wal"
)

// This file serves reads of a log without a subscription. They wait for the disk in the stream's own goroutine, never on a loop.

const (
	// pageBytes bounds the memory of pages in all, from the read until the client has taken the answer. Beyond it
	// requests wait, in order.
	pageBytes = 64 << 20
	// pageMakeBytes is reserved while a page is made, whatever was asked for: as read, as records and as JSON with a third
	// more it is in memory nearly four times, and one large record comes alone.
	pageMakeBytes = 4 * replicate.MaxReadBytes
	// pageRecordBytes is at least what a record takes in the JSON of a page besides its payload.
	pageRecordBytes = 96
	// pageTimeout is how long a client may take to read a page; then its stream is reset.
	pageTimeout = 10 * time.Second
)

// streamRead answers with a page of committed records.
func (st *stream) streamRead(m *wire.StreamRead) error {
	if refused := st.ownStream("stream_read"); refused != nil {
		return st.refuseFor(refused)
	}
	shard, refused := st.logOf("stream_read", m.Scope, m.Shard)
	if refused != nil {
		return st.refuseFor(refused)
	}
	answer := &wire.StreamRecords{NextOffset: m.From, RequestID: m.RequestID}
	if m.HasEnd && m.End <= m.From {
		return st.reply(answer)
	}
	server := st.conn.server
	maxRecords, maxBytes := server.limits.ReadRecords, min(replicate.MaxReadBytes, server.limits.FrameBytes)
	if m.MaxRecords > 0 {
		maxRecords = int(min(uint64(maxRecords), m.MaxRecords))
	}
	if m.MaxBytes > 0 {
		maxBytes = int(min(uint64(maxBytes), m.MaxBytes))
	}
	held := int64(pageMakeBytes)
	if err := server.pages.reserve(st.conn.quic.Context(), held); err != nil {
		return err
	}
	defer func() { server.pages.release(held) }()
	page, next, err := shard.ReadOffCore(m.From, m.End, maxRecords, maxBytes)
	if err != nil || shard.Stream().Gone() {
		return st.readFailed(shard, err)
	}
	n, ok := fitPage(page, server.limits.FrameBytes)
	if !ok {
		return st.refuse(wire.CodeInvalidRequest, fmt.Sprintf("the record at offset %d has %d bytes, which in JSON exceed a frame of %d; subscribe at that offset to read it",
			page[0].Offset, len(page[0].Payload), server.limits.FrameBytes))
	}
	if n < len(page) {
		next = page[n].Offset
	}
	answer.NextOffset = next
	answer.Records = make([]wire.StreamRecord, n)
	for i, r := range page[:n] {
		answer.Records[i] = wire.StreamRecord{Offset: r.Offset, Payload: r.Payload, TimestampMicros: uint64(max(r.Micros, 0))}
	}
	frame := wire.AppendMessage(nil, answer)
	if spare := held - int64(len(frame)); spare > 0 {
		held -= spare
		server.pages.release(spare) // what the client takes its time for is the frame
	}
	return st.replyPage(frame)
}

// replyPage writes an answer for which bytes of the pages are held, on a stream that does not publish.
func (st *stream) replyPage(frame []byte) error {
	late := time.AfterFunc(pageTimeout, func() { st.send.CancelWrite(stopRefused) })
	defer late.Stop()
	_, err := st.send.Write(frame)
	return err
}

// fitPage returns how many records of a page fit a frame as JSON; ok is false when there are some and not even the first does.
func fitPage(page []replicate.Record, frameBytes int) (n int, ok bool) {
	size := pageRecordBytes // of the message around them
	for i, r := range page {
		size += base64.StdEncoding.EncodedLen(len(r.Payload)) + pageRecordBytes
		if size > frameBytes {
			return i, i > 0
		}
	}
	return len(page), true
}

// offsetForTime answers where a time is in a shard.
func (st *stream) offsetForTime(m *wire.OffsetForTime) error {
	shard, refused := st.logOf("offset_for_time", m.Scope, m.Shard)
	if refused != nil {
		return st.refuseFor(refused)
	}
	offset, ok, err := shard.OffsetForTimeOffCore(int64(min(m.AtMicros, math.MaxInt64)))
	if err != nil || shard.Stream().Gone() {
		return st.readFailed(shard, err)
	}
	return st.reply(&wire.OffsetValue{Offset: offset, HasOffset: ok, RequestID: m.RequestID})
}

// logOf resolves a shard whose log is to be read.
func (st *stream) logOf(request string, s wire.Scope, shard uint32) (*replicate.Shard, *refusal) {
	found, refused := st.route([]byte(s.TenantID), []byte(s.Namespace), []byte(s.Stream), nil, false, shard, true)
	if refused == nil && !found.Stream().Config.Durable {
		refused = &refusal{
			code:    wire.CodeInvalidRequest,
			message: fmt.Sprintf("%s needs the log of a durable stream, and stream %s is in memory; subscribe from the earliest record or from an offset", request, s.Stream),
		}
	}
	return found, refused
}

// readFailed answers a read that brought nothing.
func (st *stream) readFailed(shard *replicate.Shard, err error) error {
	if s := shard.Stream(); s.Gone() {
		return st.refuseFor(notFound(s.Config.Tenant, s.Config.Namespace, s.Config.Name))
	}
	var cursor *fanout.CursorError
	if errors.As(err, &cursor) {
		return st.reply(&wire.SubscribeCursorError{Reason: cursor.Reason, Requested: cursor.Requested, Available: cursor.Available})
	}
	return st.refuseFor(unreadableLog(err))
}

// unreadableLog is the refusal of a read that the disk failed. Damage stays; what else went wrong may pass.
func unreadableLog(err error) *refusal {
	r := &refusal{code: wire.CodeStorage, retry: wire.RetryRetry, message: "the log cannot be read: " + strings.TrimPrefix(err.Error(), "wal: ")}
	if errors.As(err, new(*wal.DamageError)) {
		r.retry = wire.RetryFatal
	}
	return r
}
