package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// vector is one frame of testdata/vectors, from a pair of files or from a line of messages.jsonl.
type vector struct {
	Name            string   `json:"name"`
	Kind            string   `json:"kind"`
	Flags           Flags    `json:"flags"`
	PayloadJSON     string   `json:"payload_json"`
	PayloadHex      string   `json:"payload_hex"`
	FrameHex        string   `json:"frame_hex"`
	TenantID        string   `json:"tenant_id"`
	Namespace       string   `json:"namespace"`
	Stream          string   `json:"stream"`
	Payloads        []string `json:"payloads_utf8"`
	Key             *string  `json:"key_utf8"`
	RequestID       uint64   `json:"request_id"`
	AckMode         string   `json:"ack_mode"`
	ProducerID      uint64   `json:"producer_id"`
	Sequence        uint64   `json:"sequence"`
	Status          string   `json:"status"`
	Message         *string  `json:"message"`
	Code            *string  `json:"code"`
	Retry           string   `json:"retry"`
	Detail          *detail  `json:"detail"`
	Owner           *owner   `json:"owner"`
	Offset          *Offset  `json:"offset"`
	BaseOffset      Offset   `json:"base_offset"`
	SkippedBefore   uint64   `json:"skipped_before"`
	Publisher       string   `json:"publisher_utf8"`
	Timestamps      []uint64 `json:"timestamps_micros"`
	SubscriptionID  uint64   `json:"subscription_id"`
	frame           []byte
	header          Header
	body            []byte
	fromMessageFile bool
}

type detail struct {
	Reason           string `json:"reason"`
	RetryAfterMillis uint64 `json:"retry_after_ms"`
}

type owner struct {
	NodeID     string `json:"node_id"`
	Addr       string `json:"addr"`
	Generation uint64 `json:"generation"`
}

const vectorDir = "testdata/vectors"

func loadVectors(t testing.TB) []*vector {
	t.Helper()
	var vectors []*vector
	add := func(text []byte, where string) *vector {
		v := new(vector)
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		var err error
		if v.frame, err = hex.DecodeString(v.FrameHex); err != nil {
			t.Fatalf("%s: frame_hex: %v", where, err)
		}
		var rest []byte
		var ok bool
		v.header, v.body, rest, ok, err = SplitFrame(v.frame, MaxFrameBytes)
		if !ok || err != nil || len(rest) != 0 {
			t.Fatalf("%s: SplitFrame: ok %v, %d bytes left, %v", where, ok, len(rest), err)
		}
		vectors = append(vectors, v)
		return v
	}
	paths, err := filepath.Glob(vectorDir + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if filepath.Base(path) == "shard_routing.json" {
			continue
		}
		v := add(mustRead(t, path), path)
		onDisk := strings.TrimSpace(string(mustRead(t, strings.TrimSuffix(path, ".json")+".hex")))
		if onDisk != v.FrameHex {
			t.Fatalf("%s: frame_hex is not what the hex file holds", path)
		}
		if hex.EncodeToString(v.body) != v.PayloadHex {
			t.Fatalf("%s: payload_hex is not the part of frame_hex after the header", path)
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(mustRead(t, vectorDir+"/messages.jsonl")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		add(lines.Bytes(), "messages.jsonl").fromMessageFile = true
	}
	if len(vectors) < 120 {
		t.Fatalf("%d vectors found, want at least 120: is %s complete?", len(vectors), vectorDir)
	}
	return vectors
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recordsOf(payloads ...string) []byte {
	var records []byte
	for _, p := range payloads {
		records = AppendRecord(records, []byte(p))
	}
	return records
}

func TestVectorsBinary(t *testing.T) {
	seen := map[FrameKind]int{}
	for _, v := range loadVectors(t) {
		if v.Kind == "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			if v.header.Flags != v.Flags {
				t.Fatalf("header flags %#04x, described as %#04x", uint16(v.header.Flags), uint16(v.Flags))
			}
			seen[v.Flags.Kind()]++
			switch v.Kind {
			case "binary_publish_batch", "binary_acked_publish_batch":
				v.checkPublish(t)
			case "binary_publish_ack":
				v.checkAck(t)
			case "binary_shared_event_batch", "binary_event_batch":
				v.checkEvents(t)
			default:
				t.Fatalf("kind %q is not tested", v.Kind)
			}
		})
	}
	if seen[FramePublish] < 7 || seen[FrameAck] < 9 || seen[FrameEvents] < 8 {
		t.Errorf("binary vectors seen: %v", seen)
	}
}

func (v *vector) checkPublish(t *testing.T) {
	want := Publish{
		Flags: v.Flags, RequestID: v.RequestID, ProducerID: v.ProducerID, Sequence: v.Sequence,
		Tenant: []byte(v.TenantID), Namespace: []byte(v.Namespace), Stream: []byte(v.Stream),
		Count: uint32(len(v.Payloads)), Records: recordsOf(v.Payloads...),
	}
	if v.AckMode != "" {
		var ok bool
		if want.AckMode, ok = ParseAckMode(v.AckMode); !ok {
			t.Fatalf("ack_mode %q", v.AckMode)
		}
	}
	if want.Acked() != (v.AckMode != "") || want.HasKey() != (v.Key != nil) {
		t.Fatalf("flags %v do not fit ack_mode %q, key %v", v.Flags, v.AckMode, v.Key)
	}
	if v.Key != nil {
		want.Key = []byte(*v.Key)
	}
	var got Publish
	if err := got.Parse(v.header.Flags, v.body); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, got, want)
	checkBytes(t, AppendPublish(nil, &want), v.frame)
	if n := want.FrameBytes(); n != len(v.frame) {
		t.Errorf("FrameBytes %d, want %d", n, len(v.frame))
	}
	if want.Acked() {
		if id, ok := PublishRequestID(v.body); !ok || id != v.RequestID {
			t.Errorf("PublishRequestID %d, %v, want %d", id, ok, v.RequestID)
		}
	}
}

func (v *vector) checkAck(t *testing.T) {
	want := Ack{RequestID: v.RequestID, Failed: v.Status == "error"}
	if v.Message != nil {
		want.Message = *v.Message
	}
	if v.Code != nil {
		code, ok := ParseCode(*v.Code)
		if !ok {
			t.Fatalf("code %q is unknown", *v.Code)
		}
		want.HasCode, want.Code, want.Retry = true, code, ParseRetry(v.Retry)
	}
	if v.Detail != nil {
		want.HasDetail, want.Reason, want.RetryAfterMillis = true, v.Detail.Reason, v.Detail.RetryAfterMillis
	}
	if v.Owner != nil {
		want.Owner = &Owner{NodeID: v.Owner.NodeID, Addr: v.Owner.Addr, Generation: v.Owner.Generation}
	}
	if v.Offset != nil {
		want.HasOffset, want.Offset = true, *v.Offset
	}
	var got Ack
	if err := got.Parse(v.header.Flags, v.body); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, got, want)
	checkBytes(t, AppendAck(nil, &want), v.frame)
	if !want.Failed && want.Owner == nil {
		checkBytes(t, AppendAckOK(nil, want.RequestID, want.Offset, want.HasOffset), v.frame)
	}
}

func (v *vector) checkEvents(t *testing.T) {
	want := Events{Flags: v.Flags, SubscriptionID: v.SubscriptionID, Base: v.BaseOffset, Skipped: v.SkippedBefore, Count: uint32(len(v.Payloads))}
	if v.Publisher != "" {
		want.Publisher = []byte(v.Publisher)
	}
	if v.Timestamps == nil {
		want.Records = recordsOf(v.Payloads...)
	} else {
		for i, p := range v.Payloads {
			want.Records = AppendTimedRecord(want.Records, v.Timestamps[i], []byte(p))
		}
	}
	var got Events
	if err := got.Parse(v.header.Flags, v.body); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, got, want)

	i := 0
	for e := range got.All() {
		wantEvent := EventRecord{Offset: v.BaseOffset + Offset(i), Payload: []byte(v.Payloads[i])}
		if v.Timestamps != nil {
			wantEvent.TimestampMicros = v.Timestamps[i]
		}
		checkEqual(t, e, wantEvent)
		i++
	}
	if i != len(v.Payloads) {
		t.Errorf("All gave %d events, want %d", i, len(v.Payloads))
	}
	if v.Flags.Has(FlagEventBatch) {
		return // read, never written
	}
	checkBytes(t, AppendEvents(nil, &want), v.frame)
	if n := want.FrameBytes(); n != len(v.frame) {
		t.Errorf("FrameBytes %d, want %d", n, len(v.frame))
	}
	switch v.Flags {
	case EventsHeadFlags:
		frame := append(make([]byte, EventsHeadBytes), want.Records...)
		PutEventsHead(frame, want.Base, want.Count, len(want.Records))
		checkBytes(t, frame, v.frame)
	case EventsHeadPlainFlags:
		frame := append(make([]byte, EventsHeadPlainBytes), want.Records...)
		PutEventsHeadPlain(frame, want.Count, len(want.Records))
		checkBytes(t, frame, v.frame)
	}
}

func checkEqual[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func checkBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

var (
	updates = Scope{"t1", "default", "updates"}
	demo    = Scope{"t1", "default", "demo"}
)

// messageVectors are the values of every vector that is a message with a struct.
var messageVectors = map[string]Message{
	"auth_extended_features": &Auth{TenantID: "t1", Token: "demo-token", ClientFlags: 25, HasClientFlags: true,
		ClientFeatures: FeatureTopology | FeatureSecondWord | FeatureInspect, HasClientFeatures: true},
	"auth_with_capabilities": &Auth{TenantID: "t1", Token: "demo-token", ClientFlags: 25, HasClientFlags: true},
	"auth_ok":                &AuthOK{ServerFlags: 25},
	"auth_ok_extended_features": &AuthOK{ServerFlags: 25,
		ServerFeatures: FeatureTopology | FeatureSecondWord | FeatureInspect, HasServerFeatures: true},
	"ok":          &OK{},
	"error":       &Error{Message: "oops"},
	"error_coded": &Error{Message: "draining", Code: CodeDraining, Retry: RetryRetry, HasCode: true},
	"unsupported": &Unsupported{RequestType: "widget_get", RequestID: 9, HasRequestID: true},
	"extension":   &Extension{Name: "acme.widget", RequestID: 9, HasRequestID: true, Body: []byte(`{"a":1}`)},
	"topology":    &Topology{},
	"topology_view": &TopologyView{Brokers: []Broker{
		{NodeID: "b1", Addr: "10.0.0.1:5000"}}},
	"not_leader": &NotLeader{NodeID: "b2", Addr: "10.0.0.2:5000", Generation: 7},

	"publish": &PublishMessage{Scope: demo, Payload: []byte("hello")},
	"publish_batch": &PublishBatch{Scope: updates, Count: 2, Records: recordsOf("hello", ""), Key: []byte("k1"), HasKey: true,
		Shard: 2, HasShard: true, RequestID: 1, HasRequestID: true, Ack: AckPerBatch},
	"publish_width":     &PublishWidth{Scope: updates, Shards: 4, Routing: RoutingJumpHash},
	"producer_init":     &ProducerInit{RequestID: 1},
	"producer_init_ok":  &ProducerInitOK{RequestID: 1, ProducerID: 1<<64 - 1},
	"publish_ok":        &PublishOK{RequestID: 1},
	"publish_ok_offset": &PublishOK{RequestID: 1, Offset: 10, HasOffset: true},
	"publish_error":     &PublishError{RequestID: 1, Message: "stream not found"},
	"publish_error_coded": &PublishError{RequestID: 1, Message: "busy", Code: CodeOverloaded, Retry: RetryAfter, HasCode: true,
		Reason: ReasonPublishQueueFull, RetryAfterMillis: 50, HasDetail: true},
	"publish_idempotent": &PublishIdempotent{Scope: updates, Count: 1, Records: recordsOf("hello"), Key: []byte("k1"), HasKey: true,
		RequestID: 2, ProducerID: 1<<64 - 1},
	"publish_refused_gap":     &PublishRefused{RequestID: 2, Reason: RefusalReason{Kind: RefusalSequenceGap, Expected: 4}, Message: "gap"},
	"publish_refused_unknown": &PublishRefused{RequestID: 2, Reason: RefusalReason{Kind: RefusalUnknownProducer}, Message: "unknown"},
	"publish_refused_expired": &PublishRefused{RequestID: 2, Reason: RefusalReason{Kind: RefusalSequenceExpired}, Message: "old"},
	"publish_refused_reused":  &PublishRefused{RequestID: 2, Reason: RefusalReason{Kind: RefusalSequenceReused}, Message: "reused"},
	"publish_refused_not_leader": &PublishRefused{RequestID: 2,
		Reason: RefusalReason{Kind: RefusalNotLeader, NodeID: "b2", Addr: "10.0.0.2:5000"}, Message: "b2 leads"},
	"publish_refused_offset_mismatch": &PublishRefused{RequestID: 2,
		Reason: RefusalReason{Kind: RefusalOffsetMismatch, Tail: 12}, Message: "tail"},

	"subscribe":        &Subscribe{Scope: demo},
	"subscribe_latest": &Subscribe{Scope: updates, Start: StartPosition{Kind: StartLatest}},
	"subscribe_offset": &Subscribe{Scope: updates, Start: StartPosition{Kind: StartOffset, Offset: 42}, Shard: 3, HasShard: true,
		QueueCapacity: 64, HasQueueCapacity: true},
	"subscribed": &Subscribed{SubscriptionID: 5},
	"subscribed_offsets": &Subscribed{SubscriptionID: 5, StartOffset: 42, HasStartOffset: true, LiveOffset: 50, HasLiveOffset: true,
		QueueCapacity: 64, HasQueueCapacity: true},
	"subscribe_cursor_error":        &SubscribeCursorError{Reason: CursorTooOld, Requested: 1, Available: 9},
	"subscribe_cursor_error_future": &SubscribeCursorError{Reason: CursorInFuture, Requested: 99, Available: 9},
	"event_stream_hello":            &EventStreamHello{SubscriptionID: 5},
	"event":                         &Event{Scope: demo, Payload: []byte("world")},
	"event_batch_json":              &EventBatch{Scope: updates, Count: 1, Records: recordsOf("hello"), BaseOffset: 3, HasBaseOffset: true},
	"subscription_lagged":           &SubscriptionLagged{SubscriptionID: 5, ResumeFrom: 60},
	"shard_moved": &ShardMoved{SubscriptionID: 5, ResumeFrom: 60, HasResumeFrom: true, NodeID: "b2", Addr: "10.0.0.2:5000",
		Generation: 7},
	"shard_moved_bare": &ShardMoved{SubscriptionID: 5, Generation: 7},
	"stream_deleted":   &StreamDeleted{SubscriptionID: 5},

	"stream_shards":           &StreamShards{Scope: updates, RequestID: 1},
	"stream_shards_view":      &StreamShardsView{Shards: 4, RequestID: 1},
	"stream_shards_view_jump": &StreamShardsView{Shards: 4, RequestID: 1, Routing: RoutingJumpHash},
	"shard_owners":            &ShardOwners{TenantID: "t1", Namespace: "default", Name: "updates", Kind: ShardKindStream, RequestID: 1},
	"shard_owners_view": &ShardOwnersView{RequestID: 1, Owners: []ShardOwner{
		{Shard: 0},
		{Shard: 1, NodeID: "b2", Addr: "10.0.0.2:5000", Generation: 3},
		{Shard: 2, Generation: 3, Unavailable: ReasonNotAssigned}}},

	"stream_read": &StreamRead{Scope: updates, From: 3, RequestID: 2},
	"stream_records": &StreamRecords{Records: []StreamRecord{{Offset: 3, Payload: []byte("hello"), TimestampMicros: 1_700_000_000_000_000}},
		NextOffset: 4, RequestID: 2},
	"offset_for_time": &OffsetForTime{Scope: updates, AtMicros: 1_700_000_000_000_000, RequestID: 2},
	"offset_value":    &OffsetValue{Offset: 3, HasOffset: true, RequestID: 2},

	"shard_inspect": &ShardInspect{TenantID: "t1", Namespace: "default", Name: "updates", Kind: ShardKindStream, RequestID: 1},
	"shard_inspect_info": &ShardInspectInfo{RequestID: 1,
		View: ShardView{Shards: 1, Role: "leader", Phase: "active", Serving: true, Tail: 9, HasTail: true}},
	"shard_inspect_info_full": &ShardInspectInfo{RequestID: 1, View: ShardView{
		NodeID: "b1", Shards: 2, Role: "leader", Phase: "fencing", Reason: "fencing", Detail: "waiting", Generation: 3, HasGeneration: true,
		Assignment: []byte(`{"generation":3,"leader":"b1","replicas":["b2"],"draining":true,"successor":"b3"}`),
		Fence:      []byte(`{"took":["b1"],"pending":["b2"],"attempts":2,"retry_in_ms":100}`),
		Lease:      []byte(`{"held":true,"remaining_ms":900}`),
		Tail:       9, HasTail: true, Committed: 8, HasCommitted: true, Accepted: 3, HasAccepted: true,
		Replicas: []byte(`[{"node_id":"b2","role":"follower","next_offset":8,"lag":1,"fence":false,"state":"fencing"}]`)}},
	"subscriptions_list": &SubscriptionsList{RequestID: 1},
	"subscriptions_list_filtered": &SubscriptionsList{RequestID: 1, Limit: 10, HasLimit: true,
		Filter: SubscriptionFilter{TenantID: "t1", Namespace: "default", Stream: "updates", HasShard: true, Principal: "user:ann", Dropping: true},
		Cursor: SubscriptionCursor{Scope: updates, SubscriberID: 4}, HasCursor: true},
	"subscriptions_list_info": &SubscriptionsListInfo{RequestID: 1, Subscriptions: []SubscriptionEntry{{
		Scope: updates, SubscriberID: 4, SubscriptionID: 5, HasSubscriptionID: true, Connection: 2, Peer: "127.0.0.1:4000",
		Principal: "user:ann", Policy: "drop_new", Capacity: 512, Position: 9, HasPosition: true, Tail: 9, AgeMillis: 100}}},
}

func TestVectorsJSON(t *testing.T) {
	missing := map[string]bool{}
	for name := range messageVectors {
		missing[name] = true
	}
	unknown := 0
	for _, v := range loadVectors(t) {
		if v.Kind != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			if v.header.Flags.Kind() != FrameMessage {
				t.Fatalf("flags %v", v.header.Flags)
			}
			if string(v.body) != v.PayloadJSON {
				t.Fatalf("the frame holds %s, payload_json is %s", v.body, v.PayloadJSON)
			}
			got, err := ParseMessage(v.body)
			if err != nil {
				t.Fatal(err)
			}
			var plain struct {
				Type      string  `json:"type"`
				RequestID *uint64 `json:"request_id"`
			}
			if err := json.Unmarshal(v.body, &plain); err != nil {
				t.Fatal(err)
			}
			if got.MessageType() != plain.Type {
				t.Errorf("MessageType %q, want %q", got.MessageType(), plain.Type)
			}
			want, hasStruct := messageVectors[v.Name]
			if !hasStruct {
				unknown++
				u := &Unknown{Type: plain.Type}
				if plain.RequestID != nil {
					u.RequestID, u.HasRequestID = *plain.RequestID, true
				}
				checkEqual(t, got, Message(u))
				return
			}
			delete(missing, v.Name)
			checkEqual(t, got, want)
			checkBytes(t, AppendMessage(nil, want), v.frame)
		})
	}
	for name := range missing {
		t.Errorf("there is no vector %q", name)
	}
	if unknown != 47 {
		t.Errorf("%d vectors gave Unknown; 47 are of messages without a struct", unknown)
	}
}

// Every type with a struct has a vector, so that no field list goes unchecked.
func TestEveryMessageHasVector(t *testing.T) {
	types := []string{
		TypeAuth, TypeAuthOK, TypeOK, TypeError, TypeUnsupported, TypeExtension, TypeTopology, TypeTopologyView, TypePublish,
		TypePublishBatch, TypePublishWidth, TypePublishIdempotent, TypePublishOK, TypePublishError, TypePublishRefused, TypeProducerInit,
		TypeProducerInitOK, TypeSubscribe, TypeSubscribed, TypeSubscribeCursorError, TypeEventStreamHello, TypeEvent, TypeEventBatch,
		TypeSubscriptionLagged, TypeShardMoved, TypeStreamDeleted, TypeStreamShards, TypeStreamShardsView, TypeShardOwners,
		TypeShardOwnersView, TypeNotLeader, TypeStreamRead, TypeStreamRecords, TypeOffsetForTime, TypeOffsetValue,
		TypeShardInspect, TypeShardInspectInfo, TypeSubscriptionsList, TypeSubscriptionsListInfo,
	}
	var seen []string
	for _, m := range messageVectors {
		seen = append(seen, m.MessageType())
	}
	for _, typ := range types {
		if !slices.Contains(seen, typ) {
			t.Errorf("no vector for %q", typ)
		}
		m := newMessage(typ)
		if m == nil {
			t.Errorf("newMessage(%q) is nil", typ)
		} else if m.MessageType() != typ {
			t.Errorf("newMessage(%q) has type %q", typ, m.MessageType())
		}
	}
}
