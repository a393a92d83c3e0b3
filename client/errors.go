package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

// What went wrong, to be tested with errors.Is. An *Error matches by its code and class.
var (
	// ErrNotFound: the broker does not know the tenant, namespace or stream. Nothing was applied.
	ErrNotFound = errors.New("client: not found")
	// ErrOverloaded: the broker refused for lack of room. Nothing was applied; wait at least Error.RetryAfter.
	ErrOverloaded = errors.New("client: broker is overloaded")
	// ErrUnauthenticated: the token is missing, wrong or revoked.
	ErrUnauthenticated = errors.New("client: unauthenticated")
	// ErrForbidden: the token does not allow the request.
	ErrForbidden = errors.New("client: forbidden")
	// ErrInvalid: the request cannot be carried out as it stands. Nothing was sent or applied.
	ErrInvalid = errors.New("client: invalid request")
	// ErrUnsupported: the broker does not serve this kind of request. Nothing was sent.
	ErrUnsupported = errors.New("client: not supported by the broker")
	// ErrUnavailable: no broker could be reached, or none serves the shard now. Nothing was applied.
	ErrUnavailable = errors.New("client: unavailable")
	// ErrOutcomeUnknown: the request may have been applied or not, because its answer was lost or says so.
	ErrOutcomeUnknown = errors.New("client: outcome unknown")
	// ErrStorage: the broker's disk failed. Error.Retry says whether a publish may have been kept (RetryOutcomeUnknown) or was not
	// (RetryRetry), and whether reading again may help.
	ErrStorage = errors.New("client: the broker's disk failed")
	// ErrClosed: the client, publisher or subscription was closed.
	ErrClosed = errors.New("client: closed")
	// ErrStreamDeleted: the stream of a subscription was deleted.
	ErrStreamDeleted = errors.New("client: stream deleted")
)

// Code says why a broker refused; act on Retry, not on it. The names are those of wire.Code.
type Code = wire.Code

// Retry is what may be done after a failure.
type Retry = wire.Retry

// The classes of an Error.
const (
	RetryRetry          = wire.RetryRetry          // nothing was applied: try again
	RetryAfter          = wire.RetryAfter          // nothing was applied: try again after Error.RetryAfter
	RetryRedirect       = wire.RetryRedirect       // nothing was applied: another broker serves the shard
	RetryOutcomeUnknown = wire.RetryOutcomeUnknown // it may have been applied
	RetryFatal          = wire.RetryFatal          // nothing was applied, and trying again does not help
)

// An Error is a request that failed. Get it with errors.As. It is not changed after it was returned.
type Error struct {
	Op         string        // "publish", "subscribe", "connect", ...
	Stream     string        // empty when the request names none
	Code       Code          // 0 when the failure is the client's or the network's, or an old broker sent none
	Retry      Retry         // what may be done
	Reason     string        // refines Code; empty for most
	RetryAfter time.Duration // least wait before another try; 0 when the broker named none
	Message    string        // for people
	Err        error         // cause, nil when the broker refused
}

// Error names the operation, the stream, what went wrong and what that means.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("client: ")
	b.WriteString(e.Op)
	if e.Stream != "" {
		fmt.Fprintf(&b, " %q", e.Stream)
	}
	if e.Code != 0 {
		b.WriteString(": ")
		b.WriteString(e.Code.String())
		if e.Reason != "" {
			fmt.Fprintf(&b, " (%s)", e.Reason)
		}
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Retry == RetryOutcomeUnknown {
		b.WriteString("; it may have been applied or not")
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; retry after %v", e.RetryAfter)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinel errors of this package by code and class.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrOutcomeUnknown:
		return e.Retry == RetryOutcomeUnknown
	case ErrNotFound:
		return e.Code == wire.CodeNotFound
	case ErrOverloaded:
		return e.Code == wire.CodeOverloaded
	case ErrUnauthenticated:
		return e.Code == wire.CodeUnauthenticated || e.Code == wire.CodeRevoked
	case ErrForbidden:
		return e.Code == wire.CodeForbidden
	case ErrStorage:
		return e.Code == wire.CodeStorage
	case ErrInvalid:
		return e.Code == wire.CodeInvalidRequest
	case ErrUnavailable:
		switch e.Code {
		case 0:
			return e.Retry == RetryRetry
		case wire.CodeShardUnavailable, wire.CodeNotLeader, wire.CodeDraining:
			return e.Retry != RetryOutcomeUnknown
		}
	}
	return false
}

// A GapError says that the records [From, To) of a shard were missed: dropped for a subscriber that was too slow, or no longer kept when
// it came back. The subscription goes on with To.
type GapError struct {
	Stream   string
	Shard    uint32
	From, To Offset
}

func (e *GapError) Error() string {
	return fmt.Sprintf("client: subscribe %q: shard %d: %d records missed, offsets %d to %d", e.Stream, e.Shard, e.To-e.From, e.From, e.To-1)
}

// A CursorError says that a subscription cannot start at an offset, or a page be read from there. Start at Available, or at the earliest or latest record.
type CursorError struct {
	Op        string // "subscribe" or "read"
	Stream    string
	Shard     uint32
	Requested Offset
	Available Offset // the oldest offset kept, or, when InFuture, the shard's next one
	InFuture  bool   // Requested was never published; otherwise it is no longer kept
}

func (e *CursorError) Error() string {
	if e.InFuture {
		return fmt.Sprintf("client: %s %q: shard %d: offset %d is in the future, the next one is %d", e.Op, e.Stream, e.Shard, e.Requested, e.Available)
	}
	return fmt.Sprintf("client: %s %q: shard %d: offset %d is no longer kept, the oldest one is %d", e.Op, e.Stream, e.Shard, e.Requested, e.Available)
}

// A ProducerError says why a broker refused a batch of an idempotent publisher, which ends the publisher: what it had in flight after
// this batch cannot be ordered any more. Make a new publisher to go on.
type ProducerError struct {
	Stream   string
	Shard    uint32
	Sequence uint64 // of the refused batch
	Reason   string // sequence_gap, unknown_producer, sequence_expired or sequence_reused
	Message  string
}

func (e *ProducerError) Error() string {
	return fmt.Sprintf("client: publish %q: shard %d: idempotent batch %d refused: %s: %s", e.Stream, e.Shard, e.Sequence, e.Reason, e.Message)
}

// invalidf is a refusal before anything was sent.
func invalidf(op, stream, format string, args ...any) *Error {
	return &Error{Op: op, Stream: stream, Code: wire.CodeInvalidRequest, Retry: RetryFatal, Message: fmt.Sprintf(format, args...)}
}

// unsupported is the refusal to send what the broker did not announce.
func unsupported(op, stream, what string) *Error {
	return &Error{Op: op, Stream: stream, Retry: RetryFatal, Message: "the broker does not serve " + what, Err: ErrUnsupported}
}

func closedError(op, stream string) *Error {
	return &Error{Op: op, Stream: stream, Retry: RetryFatal, Err: ErrClosed}
}

// unavailable is a failure of the network before anything was applied.
func unavailable(op, stream string, cause error) *Error {
	return &Error{Op: op, Stream: stream, Retry: RetryRetry, Err: cause}
}

// lost is a failure of the network, or of the caller's patience, after something was sent.
func lost(op, stream string, cause error) *Error {
	return &Error{Op: op, Stream: stream, Retry: RetryOutcomeUnknown, Err: cause}
}

// contextError is the end of a caller's context before anything was sent.
func contextError(op, stream string, ctx context.Context) *Error {
	return &Error{Op: op, Stream: stream, Retry: RetryFatal, Message: "nothing was sent", Err: context.Cause(ctx)}
}

// refusal is an error message of the broker. An error without a code is one of an old broker: its class is that of a request whose
// connection failed.
func refusal(op, stream string, m *wire.Error) *Error {
	e := &Error{Op: op, Stream: stream, Retry: RetryOutcomeUnknown, Message: m.Message}
	if m.HasCode {
		e.Code, e.Retry, e.Reason, e.RetryAfter = m.Code, m.Retry, m.Reason, time.Duration(m.RetryAfterMillis)*time.Millisecond
		if m.Code == 0 {
			e.Message = m.CodeName + ": " + m.Message
		}
	}
	return e
}

// withOp returns e under the name of the caller's operation.
func (e *Error) withOp(op, stream string) *Error {
	if e.Op == op && e.Stream == stream {
		return e
	}
	named := *e
	named.Op, named.Stream = op, stream
	return &named
}

// asError returns err as an *Error of the operation: as it is when it is one, else as unavailable.
func asError(op, stream string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e.withOp(op, stream)
	}
	return unavailable(op, stream, err)
}

// dialError classifies a failed handshake. What cannot get better by itself is fatal: a certificate that does not verify, a protocol that
// the peer does not speak.
func dialError(addr string, err error) *Error {
	e := &Error{Op: "connect", Retry: RetryRetry, Message: addr, Err: err}
	var transport *quic.TransportError
	var verify *x509.UnknownAuthorityError
	var host *x509.HostnameError
	var version *quic.VersionNegotiationError
	switch {
	case errors.As(err, &transport) && transport.ErrorCode.IsCryptoError(),
		errors.As(err, &verify), errors.As(err, &host), errors.As(err, &version):
		e.Retry = RetryFatal
	}
	return e
}
