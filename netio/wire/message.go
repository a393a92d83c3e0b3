package wire

import (
	"fmt"
	"unicode/utf8"
)

// Message is one JSON message. The types of this package that implement it are pointers to the structs in messages_*.go, and *Unknown.
type Message interface {
	// MessageType returns the field "type".
	MessageType() string
	// fields lists the other fields in the order in which they are written.
	fields(f *fields)
}

// The types of messages that this package reads, then those that a broker without caches must tell apart (Unknown.Type).
const (
	TypeAuth                 = "auth"
	TypeAuthOK               = "auth_ok"
	TypeOK                   = "ok"
	TypeError                = "error"
	TypeUnsupported          = "unsupported"
	TypeExtension            = "extension"
	TypeTopology             = "topology"
	TypeTopologyView         = "topology_view"
	TypePublish              = "publish"
	TypePublishBatch         = "publish_batch"
	TypePublishWidth         = "publish_width"
	TypePublishIdempotent    = "publish_idempotent"
	TypePublishOK            = "publish_ok"
	TypePublishError         = "publish_error"
	TypePublishRefused       = "publish_refused"
	TypeProducerInit         = "producer_init"
	TypeProducerInitOK       = "producer_init_ok"
	TypeSubscribe            = "subscribe"
	TypeSubscribed           = "subscribed"
	TypeSubscribeCursorError = "subscribe_cursor_error"
	TypeEventStreamHello     = "event_stream_hello"
	TypeEvent                = "event"
	TypeEventBatch           = "event_batch"
	TypeSubscriptionLagged   = "subscription_lagged"
	TypeShardMoved           = "shard_moved"
	TypeStreamDeleted        = "stream_deleted"
	TypeStreamShards         = "stream_shards"
	TypeStreamShardsView     = "stream_shards_view"
	TypeShardOwners          = "shard_owners"
	TypeShardOwnersView      = "shard_owners_view"
	TypeNotLeader            = "not_leader"
	TypeStreamRead           = "stream_read"
	TypeStreamRecords        = "stream_records"
	TypeOffsetForTime        = "offset_for_time"
	TypeOffsetValue          = "offset_value"

	TypeShardInspect          = "shard_inspect"
	TypeShardInspectInfo      = "shard_inspect_info"
	TypeSubscriptionsList     = "subscriptions_list"
	TypeSubscriptionsListInfo = "subscriptions_list_info"

	TypeCachePut = "cache_put"
	TypeCacheGet = "cache_get"
)

// Scope names a stream.
type Scope struct {
	TenantID, Namespace, Stream string
}

// Path returns tenant/namespace/stream, for logs and errors. (It is not String, which the messages that embed a Scope would inherit.)
func (s Scope) Path() string { return s.TenantID + "/" + s.Namespace + "/" + s.Stream }

func (s *Scope) fields(f *fields) {
	f.str("tenant_id", &s.TenantID)
	f.str("namespace", &s.Namespace)
	f.str("stream", &s.Stream)
}

// Unknown is a message of a type that has no struct here. It carries enough to answer `unsupported`, and, for cache_put and cache_get,
// which no feature gates, `error`.
type Unknown struct {
	Type         string
	RequestID    uint64
	HasRequestID bool // false too when request_id is not a number from 0 to 2^64-1
}

func (m *Unknown) MessageType() string { return m.Type }

func (m *Unknown) fields(f *fields) { f.laxRequestID(&m.RequestID, &m.HasRequestID) }

// Unsupported returns the answer for a peer that offered FeatureUnsupported.
func (m *Unknown) Unsupported() *Unsupported {
	return &Unsupported{RequestType: m.Type, RequestID: m.RequestID, HasRequestID: m.HasRequestID}
}

// A MessageError is a JSON message that cannot be read. It wraps ErrMalformed. Type and RequestID are there as far as they could be read,
// so that the refusal can name the request.
type MessageError struct {
	Type         string // empty when the body is not an object with a type
	RequestID    uint64
	HasRequestID bool
	Problem      string // one sentence without the type
}

func (e *MessageError) Error() string {
	if e.Type == "" {
		return "wire: malformed message: " + e.Problem
	}
	return fmt.Sprintf("wire: malformed message %q: %s", cut(e.Type), e.Problem)
}

// Unwrap returns ErrMalformed.
func (e *MessageError) Unwrap() error { return ErrMalformed }

// newMessage returns an empty message of the type, nil when it has no struct.
func newMessage(messageType string) Message {
	switch messageType {
	case TypeAuth:
		return new(Auth)
	case TypeAuthOK:
		return new(AuthOK)
	case TypeOK:
		return new(OK)
	case TypeError:
		return new(Error)
	case TypeUnsupported:
		return new(Unsupported)
	case TypeExtension:
		return new(Extension)
	case TypeTopology:
		return new(Topology)
	case TypeTopologyView:
		return new(TopologyView)
	case TypePublish:
		return new(PublishMessage)
	case TypePublishBatch:
		return new(PublishBatch)
	case TypePublishWidth:
		return new(PublishWidth)
	case TypePublishIdempotent:
		return new(PublishIdempotent)
	case TypePublishOK:
		return new(PublishOK)
	case TypePublishError:
		return new(PublishError)
	case TypePublishRefused:
		return new(PublishRefused)
	case TypeProducerInit:
		return new(ProducerInit)
	case TypeProducerInitOK:
		return new(ProducerInitOK)
	case TypeSubscribe:
		return new(Subscribe)
	case TypeSubscribed:
		return new(Subscribed)
	case TypeSubscribeCursorError:
		return new(SubscribeCursorError)
	case TypeEventStreamHello:
		return new(EventStreamHello)
	case TypeEvent:
		return new(Event)
	case TypeEventBatch:
		return new(EventBatch)
	case TypeSubscriptionLagged:
		return new(SubscriptionLagged)
	case TypeShardMoved:
		return new(ShardMoved)
	case TypeStreamDeleted:
		return new(StreamDeleted)
	case TypeStreamShards:
		return new(StreamShards)
	case TypeStreamShardsView:
		return new(StreamShardsView)
	case TypeShardOwners:
		return new(ShardOwners)
	case TypeShardOwnersView:
		return new(ShardOwnersView)
	case TypeNotLeader:
		return new(NotLeader)
	case TypeStreamRead:
		return new(StreamRead)
	case TypeStreamRecords:
		return new(StreamRecords)
	case TypeOffsetForTime:
		return new(OffsetForTime)
	case TypeOffsetValue:
		return new(OffsetValue)
	case TypeShardInspect:
		return new(ShardInspect)
	case TypeShardInspectInfo:
		return new(ShardInspectInfo)
	case TypeSubscriptionsList:
		return new(SubscriptionsList)
	case TypeSubscriptionsListInfo:
		return new(SubscriptionsListInfo)
	}
	return nil
}

// ParseMessage reads the payload of a frame with flags 0. A type without a struct here gives *Unknown. Any error is a *MessageError. The
// message keeps nothing of body.
func ParseMessage(body []byte) (Message, error) {
	if !utf8.Valid(body) {
		return nil, &MessageError{Problem: "it is not UTF-8"}
	}
	f := fields{in: new(object)}
	if problem := f.in.index(body); problem != "" {
		return nil, &MessageError{Problem: problem}
	}
	messageType := f.typeField()
	if f.problem != "" {
		return nil, &MessageError{Problem: f.problem}
	}
	m := newMessage(messageType)
	if m == nil {
		m = &Unknown{Type: messageType}
	}
	m.fields(&f)
	if f.problem != "" {
		e := &MessageError{Type: messageType, Problem: f.problem}
		f.problem = ""
		f.laxRequestID(&e.RequestID, &e.HasRequestID)
		return nil, e
	}
	return m, nil
}

// AppendMessage appends the frame for m, header included, to dst. Fields stand in the order of the published encoders. Strings that are
// not UTF-8 are written with U+FFFD in place of what is wrong. Of Unknown, type and request id are written.
func AppendMessage(dst []byte, m Message) []byte {
	start := len(dst)
	dst = AppendHeader(dst, Header{})
	f := fields{out: append(dst, `{"type":`...)}
	f.out = appendJSONString(f.out, m.MessageType())
	m.fields(&f)
	f.out = append(f.out, '}')
	PutHeader(f.out[start:], Header{Length: frameLength(len(f.out) - start)})
	return f.out
}
