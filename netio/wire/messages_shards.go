package wire

// StreamShards asks for the shard count of a stream.
type StreamShards struct {
	Scope
	RequestID uint64
}

func (m *StreamShards) MessageType() string { return TypeStreamShards }

func (m *StreamShards) fields(f *fields) {
	m.Scope.fields(f)
	num(f, "request_id", &m.RequestID)
}

// StreamShardsView answers StreamShards.
type StreamShardsView struct {
	Shards    uint32 // 0: the broker does not know the stream
	RequestID uint64
	Routing   Routing // RoutingModulo is left out
}

func (m *StreamShardsView) MessageType() string { return TypeStreamShardsView }

func (m *StreamShardsView) fields(f *fields) {
	num(f, "shards", &m.Shards)
	num(f, "request_id", &m.RequestID)
	f.routing("routing", &m.Routing)
}

// ShardKind says what the shards of a request are shards of.
type ShardKind uint8

const (
	ShardKindStream ShardKind = iota + 1
	ShardKindCache
)

// String returns the name in JSON.
func (k ShardKind) String() string {
	if k == ShardKindCache {
		return "cache"
	}
	return "stream"
}

// ShardOwners asks who owns the shards of a stream or cache.
type ShardOwners struct {
	TenantID, Namespace, Name string
	Kind                      ShardKind
	RequestID                 uint64
}

func (m *ShardOwners) MessageType() string { return TypeShardOwners }

func (m *ShardOwners) fields(f *fields) {
	f.str("tenant_id", &m.TenantID)
	f.str("namespace", &m.Namespace)
	f.str("name", &m.Name)
	f.shardKind("kind", &m.Kind)
	num(f, "request_id", &m.RequestID)
}

// ShardOwnersView answers ShardOwners.
type ShardOwnersView struct {
	Owners    []ShardOwner // one per shard, in order; none: the broker does not know the name
	RequestID uint64
}

// ShardOwner is one entry of a ShardOwnersView.
type ShardOwner struct {
	Shard       uint32
	NodeID      string // empty is absent
	Addr        string // host:port; empty is absent
	Generation  uint64 // 0 outside a cluster
	Unavailable string // a Reason of CodeShardUnavailable; empty is absent
}

func (m *ShardOwnersView) MessageType() string { return TypeShardOwnersView }

func (m *ShardOwnersView) fields(f *fields) {
	list(f, "owners", &m.Owners, len(`{"shard":0,"generation":0}`), (*ShardOwner).fields)
	num(f, "request_id", &m.RequestID)
}

func (o *ShardOwner) fields(f *fields) {
	num(f, "shard", &o.Shard)
	f.optStr("node_id", &o.NodeID)
	f.optStr("addr", &o.Addr)
	num(f, "generation", &o.Generation)
	f.optStr("unavailable", &o.Unavailable)
}
