package wire

// LiveOffsetUnreached is added to a tail to make a live offset that no record reaches, exact in a float64. A client then treats every
// event as history and paces the broker by flow control; a start offset at or above it means what remains after subtracting it.
const LiveOffsetUnreached Offset = 1 << 52

// StartKind is where a subscription begins.
type StartKind uint8

const (
	StartDefault  StartKind = iota // not said: the same as StartLatest
	StartLatest                    // the tail
	StartEarliest                  // the oldest record that is kept
	StartOffset                    // StartPosition.Offset
)

// StartPosition is a StartKind with its offset.
type StartPosition struct {
	Kind   StartKind
	Offset Offset // StartOffset
}

// Subscribe opens a subscription to one shard.
type Subscribe struct {
	Scope
	SubscriptionID    uint64 // sent by old clients only; used when it is free
	HasSubscriptionID bool
	Start             StartPosition
	Shard             uint32 // 0 when absent
	HasShard          bool
	QueueCapacity     uint64 // envelopes in the broker's queue; the broker clamps it
	HasQueueCapacity  bool
}

func (m *Subscribe) MessageType() string { return TypeSubscribe }

func (m *Subscribe) fields(f *fields) {
	m.Scope.fields(f)
	optNum(f, "subscription_id", &m.SubscriptionID, &m.HasSubscriptionID)
	f.start("start", &m.Start)
	optNum(f, "shard", &m.Shard, &m.HasShard)
	optNum(f, "queue_capacity", &m.QueueCapacity, &m.HasQueueCapacity)
}

// Subscribed answers Subscribe. Offsets go to clients that negotiated FlagEventOffsets.
type Subscribed struct {
	SubscriptionID   uint64
	StartOffset      Offset // first offset this subscription will see
	HasStartOffset   bool
	LiveOffset       Offset // tail when it was registered, or LiveOffsetUnreached + tail
	HasLiveOffset    bool
	QueueCapacity    uint64 // what was granted; only when asked
	HasQueueCapacity bool
}

func (m *Subscribed) MessageType() string { return TypeSubscribed }

func (m *Subscribed) fields(f *fields) {
	num(f, "subscription_id", &m.SubscriptionID)
	optNum(f, "start_offset", &m.StartOffset, &m.HasStartOffset)
	optNum(f, "live_offset", &m.LiveOffset, &m.HasLiveOffset)
	optNum(f, "queue_capacity", &m.QueueCapacity, &m.HasQueueCapacity)
}

// CursorReason says why an offset cannot be a start.
type CursorReason uint8

const (
	CursorTooOld   CursorReason = iota + 1 // Available is the oldest offset kept
	CursorInFuture                         // Available is the tail
)

// String returns the name in JSON.
func (r CursorReason) String() string {
	if r == CursorInFuture {
		return "in_future"
	}
	return "too_old"
}

// SubscribeCursorError refuses a start offset.
type SubscribeCursorError struct {
	Reason    CursorReason
	Requested Offset
	Available Offset
}

func (m *SubscribeCursorError) MessageType() string { return TypeSubscribeCursorError }

func (m *SubscribeCursorError) fields(f *fields) {
	f.cursorReason("reason", &m.Reason)
	num(f, "requested", &m.Requested)
	num(f, "available", &m.Available)
}

// EventStreamHello is the first frame of every event stream.
type EventStreamHello struct {
	SubscriptionID uint64
}

func (m *EventStreamHello) MessageType() string { return TypeEventStreamHello }
func (m *EventStreamHello) fields(f *fields)    { num(f, "subscription_id", &m.SubscriptionID) }

// Event delivers one record in JSON.
type Event struct {
	Scope
	Payload   []byte
	Offset    Offset
	HasOffset bool
}

func (m *Event) MessageType() string { return TypeEvent }

func (m *Event) fields(f *fields) {
	m.Scope.fields(f)
	f.bytes("payload", &m.Payload)
	optNum(f, "offset", &m.Offset, &m.HasOffset)
}

// EventBatch delivers records in JSON.
type EventBatch struct {
	Scope
	Count         uint32
	Records       []byte // Count records as `(u32 len, payload)*`; AllRecords
	BaseOffset    Offset // of the first record
	HasBaseOffset bool
}

func (m *EventBatch) MessageType() string { return TypeEventBatch }

func (m *EventBatch) fields(f *fields) {
	m.Scope.fields(f)
	f.records("payloads", &m.Count, &m.Records)
	optNum(f, "base_offset", &m.BaseOffset, &m.HasBaseOffset)
}

// SubscriptionLagged ends an event stream whose subscriber fell behind. Only for clients that offered FeatureSubscriptionLagged.
type SubscriptionLagged struct {
	SubscriptionID uint64
	ResumeFrom     Offset // first offset that was dropped
}

func (m *SubscriptionLagged) MessageType() string { return TypeSubscriptionLagged }

func (m *SubscriptionLagged) fields(f *fields) {
	num(f, "subscription_id", &m.SubscriptionID)
	num(f, "resume_from", &m.ResumeFrom)
}

// ShardMoved ends an event stream whose shard has another owner now. Only for clients that offered FeatureShardMoved.
type ShardMoved struct {
	SubscriptionID uint64
	ResumeFrom     Offset // first offset not offered to this reader
	HasResumeFrom  bool
	NodeID         string // empty is absent
	Addr           string // host:port; empty is absent
	Generation     uint64
}

func (m *ShardMoved) MessageType() string { return TypeShardMoved }

func (m *ShardMoved) fields(f *fields) {
	num(f, "subscription_id", &m.SubscriptionID)
	optNum(f, "resume_from", &m.ResumeFrom, &m.HasResumeFrom)
	f.optStr("node_id", &m.NodeID)
	f.optStr("addr", &m.Addr)
	num(f, "generation", &m.Generation)
}

// StreamDeleted ends an event stream whose stream is gone. Only for clients that offered FeatureStreamDeleted.
type StreamDeleted struct {
	SubscriptionID uint64
}

func (m *StreamDeleted) MessageType() string { return TypeStreamDeleted }
func (m *StreamDeleted) fields(f *fields)    { num(f, "subscription_id", &m.SubscriptionID) }
