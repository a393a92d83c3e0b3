package wire

// StreamRead asks for a page of committed records of one shard of a durable stream. It never waits for records.
type StreamRead struct {
	Scope
	Shard      uint32
	From       Offset
	End        Offset // one past the last offset wanted
	HasEnd     bool   // false: as far as there are records
	MaxRecords uint64 // 0 is absent: the broker's bound
	MaxBytes   uint64 // of payload; 0 is absent: the broker's bound. One larger record comes alone
	RequestID  uint64
}

func (m *StreamRead) MessageType() string { return TypeStreamRead }

func (m *StreamRead) fields(f *fields) {
	m.Scope.fields(f)
	num(f, "shard", &m.Shard)
	num(f, "from", &m.From)
	optNum(f, "end", &m.End, &m.HasEnd)
	optNonzero(f, "max_records", &m.MaxRecords)
	optNonzero(f, "max_bytes", &m.MaxBytes)
	num(f, "request_id", &m.RequestID)
}

// StreamRecords answers StreamRead.
type StreamRecords struct {
	Records    []StreamRecord // in order; offsets may jump where records are gone. None: there are none yet
	NextOffset Offset         // where the next page begins; the read is done when it reaches End
	RequestID  uint64
}

// StreamRecord is one entry of a StreamRecords.
type StreamRecord struct {
	Offset          Offset
	Payload         []byte
	Publisher       string // who published it; empty is absent
	TimestampMicros uint64 // append time, microseconds since 1970
}

func (m *StreamRecords) MessageType() string { return TypeStreamRecords }

func (m *StreamRecords) fields(f *fields) {
	list(f, "records", &m.Records, len(`{"offset":0,"payload":"","timestamp_micros":0}`), (*StreamRecord).fields)
	num(f, "next_offset", &m.NextOffset)
	num(f, "request_id", &m.RequestID)
}

func (r *StreamRecord) fields(f *fields) {
	num(f, "offset", &r.Offset)
	f.bytes("payload", &r.Payload)
	f.optStr("publisher", &r.Publisher)
	num(f, "timestamp_micros", &r.TimestampMicros)
}

// OffsetForTime asks for the first record of one shard of a durable stream that was appended at or after a time.
type OffsetForTime struct {
	Scope
	Shard     uint32
	AtMicros  uint64 // microseconds since 1970
	RequestID uint64
}

func (m *OffsetForTime) MessageType() string { return TypeOffsetForTime }

func (m *OffsetForTime) fields(f *fields) {
	m.Scope.fields(f)
	num(f, "shard", &m.Shard)
	num(f, "at_micros", &m.AtMicros)
	num(f, "request_id", &m.RequestID)
}

// OffsetValue answers OffsetForTime.
type OffsetValue struct {
	Offset    Offset
	HasOffset bool // false: there is no such record yet
	RequestID uint64
}

func (m *OffsetValue) MessageType() string { return TypeOffsetValue }

func (m *OffsetValue) fields(f *fields) {
	optNum(f, "offset", &m.Offset, &m.HasOffset)
	num(f, "request_id", &m.RequestID)
}
