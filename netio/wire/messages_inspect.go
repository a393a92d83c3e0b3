package wire

// ShardInspect asks where one shard stands on the broker that is asked.
type ShardInspect struct {
	TenantID, Namespace, Name string
	Kind                      ShardKind
	Shard                     uint32
	RequestID                 uint64
}

func (m *ShardInspect) MessageType() string { return TypeShardInspect }

func (m *ShardInspect) fields(f *fields) {
	f.str("tenant_id", &m.TenantID)
	f.str("namespace", &m.Namespace)
	f.str("name", &m.Name)
	f.shardKind("kind", &m.Kind)
	num(f, "shard", &m.Shard)
	num(f, "request_id", &m.RequestID)
}

// ShardInspectInfo answers ShardInspect.
type ShardInspectInfo struct {
	View      ShardView
	RequestID uint64
}

// ShardView is what a broker knows of a shard. A broker that is alone fills in what comes before Generation, and Tail.
type ShardView struct {
	NodeID  string // empty outside a cluster
	Shards  uint32 // of the stream or cache
	Role    string // leader, follower, none
	Phase   string // unassigned, opening, fencing, active, draining, closed, failed
	Serving bool
	Reason  string // why it does not serve; empty is absent
	Detail  string // the same for people; empty is absent

	Generation    uint64
	HasGeneration bool
	Assignment    []byte // one JSON value as it stands in the message; nil is absent. So are Fence, Lease and Replicas
	Fence         []byte
	Lease         []byte
	Tail          Offset // offset of the next record
	HasTail       bool
	Committed     Offset // first offset readers may not see
	HasCommitted  bool
	Accepted      uint64 // accepted_generation
	HasAccepted   bool
	Replicas      []byte
}

func (m *ShardInspectInfo) MessageType() string { return TypeShardInspectInfo }

func (m *ShardInspectInfo) fields(f *fields) {
	f.requiredObject("view", m.View.fields)
	num(f, "request_id", &m.RequestID)
}

func (v *ShardView) fields(f *fields) {
	f.str("node_id", &v.NodeID)
	num(f, "shards", &v.Shards)
	f.str("role", &v.Role)
	f.str("phase", &v.Phase)
	f.boolean("serving", &v.Serving)
	f.optStr("reason", &v.Reason)
	f.optStr("detail", &v.Detail)
	optNum(f, "generation", &v.Generation, &v.HasGeneration)
	f.optRaw("assignment", &v.Assignment)
	f.optRaw("fence", &v.Fence)
	f.optRaw("lease", &v.Lease)
	optNum(f, "tail", &v.Tail, &v.HasTail)
	optNum(f, "committed", &v.Committed, &v.HasCommitted)
	optNum(f, "accepted_generation", &v.Accepted, &v.HasAccepted)
	f.optRaw("replicas", &v.Replicas)
}

// SubscriptionsList asks for the subscriptions of a broker, a page at a time, in order of scope, shard and subscriber.
type SubscriptionsList struct {
	Filter    SubscriptionFilter
	Limit     uint32 // entries of a page, 1 to MaxSubscriptionsPage
	HasLimit  bool   // false: DefaultSubscriptionsPage
	Cursor    SubscriptionCursor
	HasCursor bool // the page begins behind Cursor
	RequestID uint64
}

// Sizes of a page of subscriptions.
const (
	DefaultSubscriptionsPage = 100
	MaxSubscriptionsPage     = 1000
)

// SubscriptionFilter chooses subscriptions. Empty fields choose all.
type SubscriptionFilter struct {
	TenantID, Namespace, Stream string
	Shard                       uint32
	HasShard                    bool
	Principal                   string
	Dropping                    bool // only those for which records were dropped
}

// SubscriptionCursor is the place of a subscription in the order of the list.
type SubscriptionCursor struct {
	Scope
	Shard        uint32
	SubscriberID uint64
}

func (m *SubscriptionsList) MessageType() string { return TypeSubscriptionsList }

func (m *SubscriptionsList) fields(f *fields) {
	f.requiredObject("filter", m.Filter.fields)
	optNum(f, "limit", &m.Limit, &m.HasLimit)
	f.optObject("cursor", &m.HasCursor, m.Cursor.fields)
	num(f, "request_id", &m.RequestID)
}

func (v *SubscriptionFilter) fields(f *fields) {
	f.optStr("tenant_id", &v.TenantID)
	f.optStr("namespace", &v.Namespace)
	f.optStr("stream", &v.Stream)
	optNum(f, "shard", &v.Shard, &v.HasShard)
	f.optStr("principal", &v.Principal)
	f.optFlag("dropping", &v.Dropping)
}

func (c *SubscriptionCursor) fields(f *fields) {
	c.Scope.fields(f)
	num(f, "shard", &c.Shard)
	num(f, "subscriber_id", &c.SubscriberID)
}

// SubscriptionsListInfo answers SubscriptionsList.
type SubscriptionsListInfo struct {
	NodeID        string // empty outside a cluster
	Subscriptions []SubscriptionEntry
	NextCursor    SubscriptionCursor
	HasNextCursor bool // more may follow behind NextCursor
	RequestID     uint64
}

// SubscriptionEntry is one subscription of a list.
type SubscriptionEntry struct {
	Scope
	Shard             uint32
	SubscriberID      uint64 // the broker's number for it
	SubscriptionID    uint64 // the number on its connection
	HasSubscriptionID bool
	Connection        uint64 // the broker's number for the connection; 0 is absent
	Peer              string // host:port of the client; empty is absent
	Principal         string // empty is absent
	Policy            string // block, drop_new, drop_old
	Depth             uint64 // frames queued
	Capacity          uint64 // frames
	Dropped           uint64 // records
	Position          Offset // one past the last record taken from the queue
	HasPosition       bool
	Tail              Offset // first offset readers may not see
	AgeMillis         uint64
}

func (m *SubscriptionsListInfo) MessageType() string { return TypeSubscriptionsListInfo }

func (m *SubscriptionsListInfo) fields(f *fields) {
	f.str("node_id", &m.NodeID)
	list(f, "subscriptions", &m.Subscriptions,
		len(`{"tenant_id":"","namespace":"","stream":"","shard":0,"subscriber_id":0,"policy":"","depth":0,"capacity":0,"dropped":0,"tail":0,"age_ms":0}`),
		(*SubscriptionEntry).fields)
	f.optObject("next_cursor", &m.HasNextCursor, m.NextCursor.fields)
	num(f, "request_id", &m.RequestID)
}

func (e *SubscriptionEntry) fields(f *fields) {
	e.Scope.fields(f)
	num(f, "shard", &e.Shard)
	num(f, "subscriber_id", &e.SubscriberID)
	optNum(f, "subscription_id", &e.SubscriptionID, &e.HasSubscriptionID)
	optNonzero(f, "connection", &e.Connection)
	f.optStr("peer", &e.Peer)
	f.optStr("principal", &e.Principal)
	f.str("policy", &e.Policy)
	num(f, "depth", &e.Depth)
	num(f, "capacity", &e.Capacity)
	num(f, "dropped", &e.Dropped)
	optNum(f, "position", &e.Position, &e.HasPosition)
	num(f, "tail", &e.Tail)
	num(f, "age_ms", &e.AgeMillis)
}

// boolean is a required true or false.
func (f *fields) boolean(name string, v *bool) {
	if f.in == nil {
		f.key(name)
		f.out = append(f.out, boolText(*v)...)
		return
	}
	if value := f.value(name, true); value != nil {
		f.parseBool(name, value, v)
	}
}

// optFlag is a boolean whose false stands for absent.
func (f *fields) optFlag(name string, v *bool) {
	if f.in == nil {
		if *v {
			f.boolean(name, v)
		}
		return
	}
	if value := f.value(name, false); value != nil {
		f.parseBool(name, value, v)
	}
}

func boolText(v bool) string {
	if v {
		return "true"
	}
	return "false"
}

func (f *fields) parseBool(name string, value []byte, v *bool) {
	switch string(value) {
	case "true":
		*v = true
	case "false":
		*v = false
	default:
		f.fail(name, "must be true or false")
	}
}

// requiredObject is a required object with the members listed.
func (f *fields) requiredObject(name string, members func(*fields)) {
	if f.in == nil {
		f.key(name)
		f.object(members)
		return
	}
	if value := f.value(name, true); value != nil {
		f.nested(name, value, members)
	}
}

// optObject is an object that may be absent.
func (f *fields) optObject(name string, has *bool, members func(*fields)) {
	if f.in == nil {
		if *has {
			f.requiredObject(name, members)
		}
		return
	}
	if value := f.value(name, false); value != nil {
		*has = true
		f.nested(name, value, members)
	}
}
