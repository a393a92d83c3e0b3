package wire

// PublishMessage publishes one record. Clients use it towards brokers that cannot read a binary publish.
type PublishMessage struct {
	Scope
	Payload      []byte
	Key          []byte
	HasKey       bool // an empty key is a key
	Shard        uint32
	HasShard     bool // the shard beats the key
	RequestID    uint64
	HasRequestID bool
	Ack          AckMode
}

func (m *PublishMessage) MessageType() string { return TypePublish }

func (m *PublishMessage) fields(f *fields) {
	m.Scope.fields(f)
	f.bytes("payload", &m.Payload)
	f.optBytes("key", &m.Key, &m.HasKey)
	optNum(f, "shard", &m.Shard, &m.HasShard)
	optNum(f, "request_id", &m.RequestID, &m.HasRequestID)
	f.ackMode("ack", &m.Ack)
}

// PublishBatch publishes records together, to one shard.
type PublishBatch struct {
	Scope
	Count        uint32
	Records      []byte // Count records as `(u32 len, payload)*`, as in Publish; AllRecords
	Key          []byte
	HasKey       bool // an empty key is a key
	Shard        uint32
	HasShard     bool // the shard beats the key
	RequestID    uint64
	HasRequestID bool
	Ack          AckMode
}

func (m *PublishBatch) MessageType() string { return TypePublishBatch }

func (m *PublishBatch) fields(f *fields) {
	m.Scope.fields(f)
	f.records("payloads", &m.Count, &m.Records)
	f.optBytes("key", &m.Key, &m.HasKey)
	optNum(f, "shard", &m.Shard, &m.HasShard)
	optNum(f, "request_id", &m.RequestID, &m.HasRequestID)
	f.ackMode("ack", &m.Ack)
}

// PublishIdempotent publishes a batch under a producer's sequence. It is always answered.
type PublishIdempotent struct {
	Scope
	Count      uint32
	Records    []byte // Count records as `(u32 len, payload)*`, as in Publish; AllRecords
	Key        []byte
	HasKey     bool // an empty key is a key
	Shard      uint32
	HasShard   bool // the shard beats the key
	RequestID  uint64
	ProducerID uint64
	Sequence   uint64 // counts batches from 0 per producer and shard
}

func (m *PublishIdempotent) MessageType() string { return TypePublishIdempotent }

func (m *PublishIdempotent) fields(f *fields) {
	m.Scope.fields(f)
	f.records("payloads", &m.Count, &m.Records)
	f.optBytes("key", &m.Key, &m.HasKey)
	optNum(f, "shard", &m.Shard, &m.HasShard)
	num(f, "request_id", &m.RequestID)
	num(f, "producer_id", &m.ProducerID)
	num(f, "sequence", &m.Sequence)
}

// PublishWidth tells the shard count and routing that the client's keyed batches to a stream are routed by, until the next one on the
// same stream. It is never answered.
type PublishWidth struct {
	Scope
	Shards  uint32
	Routing Routing // RoutingModulo is left out
}

func (m *PublishWidth) MessageType() string { return TypePublishWidth }

func (m *PublishWidth) fields(f *fields) {
	m.Scope.fields(f)
	num(f, "shards", &m.Shards)
	f.routing("routing", &m.Routing)
}

// ProducerInit asks for a producer id.
type ProducerInit struct {
	RequestID uint64
}

func (m *ProducerInit) MessageType() string { return TypeProducerInit }
func (m *ProducerInit) fields(f *fields)    { num(f, "request_id", &m.RequestID) }

// ProducerInitOK answers ProducerInit.
type ProducerInitOK struct {
	RequestID  uint64
	ProducerID uint64 // 64 random bits
}

func (m *ProducerInitOK) MessageType() string { return TypeProducerInitOK }

func (m *ProducerInitOK) fields(f *fields) {
	num(f, "request_id", &m.RequestID)
	num(f, "producer_id", &m.ProducerID)
}

// PublishOK answers a JSON publish, and an idempotent one in either form.
type PublishOK struct {
	RequestID uint64
	Offset    Offset // of the first record
	HasOffset bool   // only to a client that offered FlagAckOffset, and only after the write
}

func (m *PublishOK) MessageType() string { return TypePublishOK }

func (m *PublishOK) fields(f *fields) {
	num(f, "request_id", &m.RequestID)
	optNum(f, "offset", &m.Offset, &m.HasOffset)
}

// PublishError refuses a JSON publish, or an idempotent one in either form.
type PublishError struct {
	RequestID uint64
	Message   string // for people

	// Code and what follows are as in Error.
	Code             Code
	CodeName         string
	Retry            Retry
	HasCode          bool
	Reason           string
	RetryAfterMillis uint64 // milliseconds; 0 is none
	HasDetail        bool
}

func (m *PublishError) MessageType() string { return TypePublishError }

func (m *PublishError) fields(f *fields) {
	num(f, "request_id", &m.RequestID)
	f.str("message", &m.Message)
	f.failure(failure{&m.Code, &m.CodeName, &m.Retry, &m.HasCode, &m.Reason, &m.RetryAfterMillis, &m.HasDetail})
}

// PublishRefused says that nothing was appended because of the sequence, or of the shard's state.
type PublishRefused struct {
	RequestID uint64
	Reason    RefusalReason
	Message   string // for people
}

// RefusalKind says why a publish was refused.
type RefusalKind uint8

const (
	RefusalSequenceGap     RefusalKind = iota + 1 // RefusalReason.Expected is the sequence that comes next
	RefusalUnknownProducer                        // unknown producer, and the sequence is not 0
	RefusalSequenceExpired                        // older than what is remembered
	RefusalSequenceReused                         // other payloads under a remembered sequence; only for FeatureSequenceReused
	RefusalOffsetMismatch                         // RefusalReason.Tail is the shard's next offset
	RefusalNotLeader                              // RefusalReason.NodeID and Addr own the shard
)

var refusalNames = [...]string{
	RefusalSequenceGap: "sequence_gap", RefusalUnknownProducer: "unknown_producer", RefusalSequenceExpired: "sequence_expired",
	RefusalSequenceReused: "sequence_reused", RefusalOffsetMismatch: "offset_mismatch", RefusalNotLeader: "not_leader",
}

// String returns the name in JSON, "refusal_N" for a value without one.
func (k RefusalKind) String() string {
	if k == 0 || int(k) >= len(refusalNames) {
		return "refusal_" + itoa(uint64(k))
	}
	return refusalNames[k]
}

// RefusalReason is a kind with its data.
type RefusalReason struct {
	Kind     RefusalKind
	Expected uint64 // RefusalSequenceGap
	Tail     Offset // RefusalOffsetMismatch
	NodeID   string // RefusalNotLeader
	Addr     string // RefusalNotLeader: IP:port; empty is absent
}

func (m *PublishRefused) MessageType() string { return TypePublishRefused }

func (m *PublishRefused) fields(f *fields) {
	num(f, "request_id", &m.RequestID)
	f.refusal("reason", &m.Reason)
	f.str("message", &m.Message)
}
