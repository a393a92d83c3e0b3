package wire

// Auth opens every stream of a client.
type Auth struct {
	TenantID          string
	Token             string // may be empty
	ClientFlags       Flags  // frames that the client can read
	HasClientFlags    bool   // false: the answer is OK instead of AuthOK
	ClientFeatures    Features
	HasClientFeatures bool
}

func (m *Auth) MessageType() string { return TypeAuth }

func (m *Auth) fields(f *fields) {
	f.str("tenant_id", &m.TenantID)
	f.str("token", &m.Token)
	optNum(f, "client_flags", &m.ClientFlags, &m.HasClientFlags)
	f.features("client_features", "client_features_hi", &m.ClientFeatures, &m.HasClientFeatures)
}

// OfferedFlags returns what the client can read: OriginalV1Flags when it says nothing.
func (m *Auth) OfferedFlags() Flags {
	if !m.HasClientFlags {
		return OriginalV1Flags
	}
	return m.ClientFlags
}

// AuthOK answers an Auth that carried client flags.
type AuthOK struct {
	ServerFlags       Flags // what the broker implements and the client offered
	ServerFeatures    Features
	HasServerFeatures bool
	ListenerPorts     []uint16 // further ports of the same host; none is the same as absent
	PublishWindow     uint32   // unanswered publishes per stream or connection
	HasPublishWindow  bool     // only to a client that offered FeaturePublishPipeline
}

func (m *AuthOK) MessageType() string { return TypeAuthOK }

func (m *AuthOK) fields(f *fields) {
	num(f, "server_flags", &m.ServerFlags)
	f.features("server_features", "server_features_hi", &m.ServerFeatures, &m.HasServerFeatures)
	f.ports("listener_ports", &m.ListenerPorts)
	optNum(f, "publish_window", &m.PublishWindow, &m.HasPublishWindow)
}

// OK answers an Auth without client flags.
type OK struct{}

func (m *OK) MessageType() string { return TypeOK }
func (m *OK) fields(*fields)      {}

// Error refuses the one request on its stream. It carries no request id.
type Error struct {
	Message string // for people

	// Code, Retry, Reason and RetryAfterMillis count with HasCode, the last two with HasDetail besides. They are sent only to a client that
	// offered FeatureErrorCodes. A code that this package does not know has Code 0 and its name in CodeName.
	Code             Code
	CodeName         string
	Retry            Retry
	HasCode          bool
	Reason           string
	RetryAfterMillis uint64 // milliseconds; 0 is none
	HasDetail        bool
}

func (m *Error) MessageType() string { return TypeError }

func (m *Error) fields(f *fields) {
	f.str("message", &m.Message)
	f.failure(failure{&m.Code, &m.CodeName, &m.Retry, &m.HasCode, &m.Reason, &m.RetryAfterMillis, &m.HasDetail})
}

// NewError returns an Error with the code's default class.
func NewError(code Code, message string) *Error {
	return &Error{Message: message, Code: code, Retry: code.DefaultRetry(), HasCode: true}
}

// Unsupported answers a request of a type that the broker does not serve, for a client that offered FeatureUnsupported.
type Unsupported struct {
	RequestType  string
	Extension    string // name of the extension when RequestType is "extension"; empty is absent
	RequestID    uint64
	HasRequestID bool
}

func (m *Unsupported) MessageType() string { return TypeUnsupported }

func (m *Unsupported) fields(f *fields) {
	f.str("request_type", &m.RequestType)
	f.optStr("extension", &m.Extension)
	optNum(f, "request_id", &m.RequestID, &m.HasRequestID)
}

// Extension is a request of the reserved area. A broker without extensions answers Unsupported.
type Extension struct {
	Name         string
	RequestID    uint64
	HasRequestID bool
	Body         []byte // one JSON value as it stands in the message, a copy; nil is absent
}

func (m *Extension) MessageType() string { return TypeExtension }

func (m *Extension) fields(f *fields) {
	f.str("name", &m.Name)
	f.laxRequestID(&m.RequestID, &m.HasRequestID)
	f.optRaw("body", &m.Body)
}

// Unsupported returns the answer for a peer that offered FeatureUnsupported.
func (m *Extension) Unsupported() *Unsupported {
	return &Unsupported{RequestType: TypeExtension, Extension: m.Name, RequestID: m.RequestID, HasRequestID: m.HasRequestID}
}

// Topology asks for the brokers that a client may dial.
type Topology struct{}

func (m *Topology) MessageType() string { return TypeTopology }
func (m *Topology) fields(*fields)      {}

// TopologyView answers Topology.
type TopologyView struct {
	Brokers []Broker // only addresses that clients can reach; none is a good answer
}

// Broker is one entry of a TopologyView.
type Broker struct {
	NodeID string
	Addr   string // host:port
}

func (m *TopologyView) MessageType() string { return TypeTopologyView }

func (m *TopologyView) fields(f *fields) {
	list(f, "brokers", &m.Brokers, len(`{"node_id":"","addr":""}`), (*Broker).fields)
}

func (b *Broker) fields(f *fields) {
	f.str("node_id", &b.NodeID)
	f.str("addr", &b.Addr)
}

// NotLeader redirects a request to the broker that owns the shard. Only for clients that offered FeatureRedirect.
type NotLeader struct {
	NodeID     string
	Addr       string // host:port; empty is absent
	Generation uint64
}

func (m *NotLeader) MessageType() string { return TypeNotLeader }

func (m *NotLeader) fields(f *fields) {
	f.str("node_id", &m.NodeID)
	f.optStr("addr", &m.Addr)
	num(f, "generation", &m.Generation)
}
