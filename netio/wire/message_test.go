package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseMessageLeniency(t *testing.T) {
	tests := []struct {
		text string
		want Message
	}{
		{` { "type" : "ok" } ` + "\n", &OK{}},
		{`{"request_id":7,"type":"producer_init"}`, &ProducerInit{RequestID: 7}},
		{`{"type":"producer_init","request_id":7,"new":[{"a":[1.5e3,-0,true,false,null,"\u00e4\ud83d\ude00"]}]}`, &ProducerInit{RequestID: 7}},
		{`{"\u0074ype":"ok"}`, &OK{}},
		{`{"type":"auth","tenant_id":"t\u00e4\/\n","token":"","client_flags":null,"client_features":null}`, &Auth{TenantID: "tä/\n"}},
		{`{"type":"auth","tenant_id":"t","token":"","client_features":1,"client_features_hi":"ignored without the marker"}`,
			&Auth{TenantID: "t", ClientFeatures: 1, HasClientFeatures: true}},
		{`{"type":"auth","tenant_id":"t","token":"","client_features":2147483648}`,
			&Auth{TenantID: "t", ClientFeatures: FeatureSecondWord, HasClientFeatures: true}},
		{`{"type":"auth_ok","server_flags":1,"listener_ports":[5001, 5002],"publish_window":256}`,
			&AuthOK{ServerFlags: 1, ListenerPorts: []uint16{5001, 5002}, PublishWindow: 256, HasPublishWindow: true}},
		{`{"type":"auth_ok","server_flags":1,"listener_ports":[]}`, &AuthOK{ServerFlags: 1}},
		{`{"type":"publish","tenant_id":"t","namespace":"n","stream":"s","payload":"","key":"","ack":"none"}`,
			&PublishMessage{Scope: Scope{"t", "n", "s"}, Payload: []byte{}, Key: []byte{}, HasKey: true}},
		{`{"type":"publish","tenant_id":"t","namespace":"n","stream":"s","payload":"aGVs\/G8=","key":null,"shard":null}`,
			&PublishMessage{Scope: Scope{"t", "n", "s"}, Payload: []byte("hel\xfco")}},
		{`{"type":"publish_batch","tenant_id":"t","namespace":"n","stream":"s","payloads":[ "YQ==" , "\u0059g==" ]}`,
			&PublishBatch{Scope: Scope{"t", "n", "s"}, Count: 2, Records: recordsOf("a", "b")}},
		{`{"type":"publish_batch","tenant_id":"t","namespace":"n","stream":"s","payloads":[ ]}`, &PublishBatch{Scope: Scope{"t", "n", "s"}}},
		{`{"type":"publish_width","tenant_id":"t","namespace":"n","stream":"s","shards":3,"routing":"modulo"}`,
			&PublishWidth{Scope: Scope{"t", "n", "s"}, Shards: 3}},
		{`{"type":"subscribe","tenant_id":"t","namespace":"n","stream":"s","start":"earliest","shard":0}`,
			&Subscribe{Scope: Scope{"t", "n", "s"}, Start: StartPosition{Kind: StartEarliest}, HasShard: true}},
		{`{"type":"subscribe","tenant_id":"t","namespace":"n","stream":"s","start":{"offset":18446744073709551615}}`,
			&Subscribe{Scope: Scope{"t", "n", "s"}, Start: StartPosition{Kind: StartOffset, Offset: 1<<64 - 1}}},
		// A code without a class gets its own; a code that is not known is kept by name, an unknown class is fatal.
		{`{"type":"error","message":"m","code":"overloaded"}`, &Error{Message: "m", Code: CodeOverloaded, Retry: RetryAfter, HasCode: true}},
		{`{"type":"error","message":"m","code":"melted"}`, &Error{Message: "m", CodeName: "melted", Retry: RetryFatal, HasCode: true}},
		{`{"type":"error","message":"m","code":"storage","retry":"someday"}`,
			&Error{Message: "m", Code: CodeStorage, Retry: RetryFatal, HasCode: true}},
		{`{"type":"error","message":"m","code":"storage","retry":"retry","detail":{}}`,
			&Error{Message: "m", Code: CodeStorage, Retry: RetryRetry, HasCode: true, HasDetail: true}},
		{`{"type":"error","message":"m","code":null,"retry":null,"detail":null}`, &Error{Message: "m"}},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":{"not_leader":{"node_id":"b2","addr":null}}}`,
			&PublishRefused{RequestID: 2, Reason: RefusalReason{Kind: RefusalNotLeader, NodeID: "b2"}}},
		{`{"type":"topology_view","brokers":[]}`, &TopologyView{}},
		{`{"type":"stream_read","tenant_id":"t","namespace":"n","stream":"s","shard":1,"from":0,"end":0,"max_records":0,"max_bytes":9,"request_id":1}`,
			&StreamRead{Scope: Scope{"t", "n", "s"}, Shard: 1, HasEnd: true, MaxBytes: 9, RequestID: 1}},
		{`{"type":"stream_records","records":[{"offset":1,"payload":"","publisher":"ann","timestamp_micros":2}],"next_offset":2,"request_id":1}`,
			&StreamRecords{Records: []StreamRecord{{Offset: 1, Payload: []byte{}, Publisher: "ann", TimestampMicros: 2}}, NextOffset: 2, RequestID: 1}},
		{`{"type":"stream_records","records":[],"next_offset":0,"request_id":1}`, &StreamRecords{RequestID: 1}},
		{`{"type":"offset_value","offset":null,"request_id":1}`, &OffsetValue{RequestID: 1}},
		{`{"type":"shard_owners","tenant_id":"t","namespace":"n","name":"x","kind":"cache","request_id":1}`,
			&ShardOwners{TenantID: "t", Namespace: "n", Name: "x", Kind: ShardKindCache, RequestID: 1}},
		{`{"type":"extension","name":"x","request_id":"seven"}`, &Extension{Name: "x"}},
		{`{"type":"widget","request_id":-1}`, &Unknown{Type: "widget"}},
		{`{"type":"widget","request_id":18446744073709551616}`, &Unknown{Type: "widget"}},
		{`{"type":"widget","request_id":1.0}`, &Unknown{Type: "widget"}},
		{`{"type":"cache_put","key":"k","request_id":4}`, &Unknown{Type: TypeCachePut, RequestID: 4, HasRequestID: true}},
		{`{"type":""}`, &Unknown{}},
	}
	for _, tt := range tests {
		got, err := ParseMessage([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		checkEqual(t, got, tt.want)
		checkFixpoint(t, got)
	}
}

// checkFixpoint: what is written reads as the same value, and writes as the same bytes.
func checkFixpoint(t *testing.T, m Message) {
	t.Helper()
	frame := AppendMessage(nil, m)
	body := frame[HeaderBytes:]
	if !json.Valid(body) {
		t.Fatalf("%+v is written as %s", m, body)
	}
	again, err := ParseMessage(body)
	if err != nil {
		t.Fatalf("%+v is written as %s: %v", m, body, err)
	}
	checkEqual(t, again, m)
	checkBytes(t, AppendMessage(nil, again), frame)
}

func TestParseMessageErrors(t *testing.T) {
	deep := func(n int) string {
		return `{"type":"ok","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	many := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"type":"ok"`)
		for i := range n {
			fmt.Fprintf(&b, `,"f%d":%d`, i, i)
		}
		return b.String() + "}"
	}
	const scope = `"tenant_id":"t","namespace":"n","stream":"s"`
	tests := []struct {
		text string
		want string // part of the error; "" is no error
	}{
		{``, "not a JSON object"},
		{`[]`, "not a JSON object"},
		{`"ok"`, "not a JSON object"},
		{`{`, `at byte 1: want "`},
		{`{}`, `field "type" is missing`},
		{`{"type":null}`, `field "type" is missing`},
		{`{"type":3}`, `field "type" must be a string`},
		{`{"type":"ok"`, "want ,"},
		{`{"type":"ok",}`, `want "`},
		{`{"type" "ok"}`, "want :"},
		{`{"type":"ok"} x`, "want nothing more"},
		{`{"type":"ok"}{}`, "want nothing more"},
		{`{"type":"ok","type":"ok"}`, `field "type" stands there twice`},
		{`{"type":"ok","\u0074ype":"ok"}`, `field "type" stands there twice`},
		{"{\"type\":\"o\nk\"}", "control character"},
		{"{\"type\":\"\xff\"}", "not UTF-8"},
		{`{"type":"\q"}`, "bad escape"},
		{`{"type":"\ud800"}`, "bad escape"},
		{`{"type":"\udc00\ud800"}`, "bad escape"},
		{`{"type":"\ud800\u0041"}`, "bad escape"},
		{`{"type":"\u12g4"}`, "bad escape"},
		{`{"type":"ok`, "does not end"},
		{`{"type":"ok\`, "bad escape"},
		{`{"type":tru}`, "want a value"},
		{`{"type":"ok","x":01}`, "want ,"},
		{`{"type":"ok","x":1.}`, "want a digit"},
		{`{"type":"ok","x":-}`, "want a digit"},
		{`{"type":"ok","x":1e}`, "want a digit"},
		{`{"type":"ok","x":[1,]}`, "want a value"},
		{`{"type":"ok","x":{"a"}}`, "want :"},
		{`{"type":"ok","x":[1}`, "want ,"},
		{deep(maxNesting - 1), ""},
		{deep(maxNesting), "deep"},
		{deep(100000), "deep"},
		{many(maxObjectFields - 1), ""},
		{many(maxObjectFields), "may have 64 fields"},
		{`{"type":"auth","tenant_id":"t"}`, `field "token" is missing`},
		{`{"type":"auth","tenant_id":1,"token":""}`, `field "tenant_id" must be a string`},
		{`{"type":"auth","tenant_id":"t","token":"","client_flags":65536}`, `field "client_flags" must be an integer from 0 to 65535`},
		{`{"type":"auth","tenant_id":"t","token":"","client_features":4294967296}`, "4294967295"},
		{`{"type":"auth","tenant_id":"t","token":"","client_features":2147483648,"client_features_hi":-1}`, `"client_features_hi"`},
		{`{"type":"producer_init","request_id":18446744073709551616}`, "from 0 to 18446744073709551615"},
		{`{"type":"producer_init","request_id":1e3}`, "must be an integer"},
		{`{"type":"producer_init","request_id":"1"}`, "must be an integer"},
		{`{"type":"producer_init","request_id":-0}`, "must be an integer"},
		{`{"type":"publish",` + scope + `,"payload":"YQ"}`, "not base64 with padding"},
		{`{"type":"publish",` + scope + `,"payload":"YR=="}`, "not base64 with padding"},
		{`{"type":"publish",` + scope + `,"payload":"YQ==\n"}`, "not base64 with padding"},
		{`{"type":"publish",` + scope + `,"payload":"-_8="}`, "not base64 with padding"},
		{`{"type":"publish",` + scope + `,"payload":null}`, `field "payload" is missing`},
		{`{"type":"publish",` + scope + `,"payload":"","ack":"maybe"}`, `field "ack" must be`},
		{`{"type":"subscriptions_list","request_id":1}`, `field "filter" is missing`},
		{`{"type":"subscriptions_list","filter":[],"request_id":1}`, `field "filter" is wrong`},
		{`{"type":"subscriptions_list","filter":{"dropping":1},"request_id":1}`, `field "dropping" must be true or false`},
		{`{"type":"subscriptions_list","filter":{},"cursor":{"shard":1},"request_id":1}`, `field "cursor" is wrong`},
		{`{"type":"shard_inspect_info","view":{"node_id":"","shards":1,"role":"leader","phase":"active","serving":null},"request_id":1}`, `field "serving" is missing`},
		{`{"type":"publish",` + scope + `,"payload":"","shard":4294967296}`, `field "shard" must be an integer`},
		{`{"type":"publish_batch",` + scope + `,"payloads":"YQ=="}`, `field "payloads" must be an array`},
		{`{"type":"publish_batch",` + scope + `,"payloads":["YQ==",7]}`, "element 1 is none"},
		{`{"type":"publish_batch",` + scope + `,"payloads":["YQ==","YQ="]}`, "element 1 is not base64"},
		{`{"type":"publish_width",` + scope + `,"shards":1,"routing":"ring"}`, `field "routing" must be`},
		{`{"type":"subscribe",` + scope + `,"start":"middle"}`, `field "start" must be`},
		{`{"type":"subscribe",` + scope + `,"start":{"time":4}}`, `field "start" is wrong: field "offset" is missing`},
		{`{"type":"subscribe",` + scope + `,"start":4}`, `field "start" must be`},
		{`{"type":"subscribe_cursor_error","reason":"lost","requested":1,"available":1}`, `field "reason" must be`},
		{`{"type":"shard_owners","tenant_id":"t","namespace":"n","name":"x","kind":"queue","request_id":1}`, `field "kind" must be`},
		{`{"type":"shard_owners_view","owners":[{"shard":0,"generation":0},{}],"request_id":1}`, `element 1: field "shard" is missing`},
		{`{"type":"shard_owners_view","owners":[3],"request_id":1}`, `element 0: it is not a JSON object`},
		{`{"type":"topology_view","brokers":{}}`, `field "brokers" must be an array`},
		{`{"type":"auth_ok","server_flags":1,"listener_ports":[70000]}`, `field "listener_ports" must be an integer from 0 to 65535`},
		{`{"type":"stream_read",` + scope + `,"shard":0,"request_id":1}`, `field "from" is missing`},
		{`{"type":"stream_records","records":[{"offset":1,"payload":""}],"next_offset":2,"request_id":1}`, `element 0: field "timestamp_micros" is missing`},
		{`{"type":"offset_for_time",` + scope + `,"shard":0,"at_micros":-1,"request_id":1}`, `field "at_micros" must be an integer`},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":"tired"}`, "no known reason"},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":"sequence_gap"}`, "no known reason"},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":{"unknown_producer":{}}}`, "no known reason"},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":{"sequence_gap":{}}}`, `field "expected" is missing`},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":{}}`, "must have one field"},
		{`{"type":"publish_refused","request_id":2,"message":"","reason":[]}`, `field "reason" must be a string`},
		{`{"type":"error","message":"m","code":"draining","detail":"x"}`, `field "detail" is wrong: it is not a JSON object`},
	}
	for _, tt := range tests {
		m, err := ParseMessage([]byte(tt.text))
		name := tt.text[:min(len(tt.text), 120)]
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var e *MessageError
		if !errors.As(err, &e) || !errors.Is(err, ErrMalformed) || m != nil {
			t.Errorf("%s: %v, %v, want a MessageError", name, m, err)
			continue
		}
		if !strings.Contains(e.Problem, tt.want) {
			t.Errorf("%s: problem %q, want %q in it", name, e.Problem, tt.want)
		}
		if strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 300 {
			t.Errorf("%s: the error is not one sentence: %q", name, err)
		}
	}
}

// A refusal can name the request although a field of it is bad.
func TestMessageErrorNamesRequest(t *testing.T) {
	_, err := ParseMessage([]byte(`{"type":"publish_batch","tenant_id":"t","payloads":[],"request_id":12}`))
	var e *MessageError
	if !errors.As(err, &e) || e.Type != TypePublishBatch || !e.HasRequestID || e.RequestID != 12 {
		t.Errorf("%+v", e)
	}
	want := `wire: malformed message "publish_batch": field "namespace" is missing`
	if err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if _, err = ParseMessage([]byte(`{"type":"producer_init","request_id":"x"}`)); !errors.As(err, &e) || e.HasRequestID {
		t.Errorf("a bad request id: %+v", e)
	}
}

func TestUnsupportedAnswers(t *testing.T) {
	for text, want := range map[string]*Unsupported{
		`{"type":"widget_get","request_id":9}`:                {RequestType: "widget_get", RequestID: 9, HasRequestID: true},
		`{"type":"widget_get","request_id":"9"}`:              {RequestType: "widget_get"},
		`{"type":"group_poll","name":"x"}`:                    {RequestType: "group_poll"},
		`{"type":"extension","name":"acme.x","request_id":1}`: {RequestType: "extension", Extension: "acme.x", RequestID: 1, HasRequestID: true},
	} {
		m, err := ParseMessage([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		u, ok := m.(interface{ Unsupported() *Unsupported })
		if !ok {
			t.Fatalf("%T has no Unsupported", m)
		}
		checkEqual(t, u.Unsupported(), want)
		checkFixpoint(t, want)
	}
}

// Strings are escaped the way the published encoder does: no HTML escapes, short forms for the common control characters.
func TestStringEscapes(t *testing.T) {
	text := "\"\\\b\f\n\r\t\x00\x1f\x7f<>&/ä\u2028😀"
	frame := AppendMessage(nil, &Error{Message: text})
	want := `{"type":"error","message":"\"\\\b\f\n\r\t\u0000\u001f` + "\x7f" + `<>&/ä` + "\u2028" + `😀"}`
	if got := string(frame[HeaderBytes:]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	checkFixpoint(t, &Error{Message: text})
	checkFixpoint(t, &Unknown{Type: text})
	bad, err := ParseMessage(AppendMessage(nil, &Error{Message: "a\xffb"})[HeaderBytes:])
	if err != nil || bad.(*Error).Message != "a\ufffdb" {
		t.Errorf("not UTF-8: %v, %v", bad, err)
	}
}

func TestAppendMessageLeavesOut(t *testing.T) {
	tests := []struct {
		m    Message
		want string
	}{
		{&Auth{ClientFeatures: FeatureTopology | FeatureInspect, HasClientFeatures: true}, `{"type":"auth","tenant_id":"","token":"","client_features":1}`},
		{&Auth{ClientFeatures: FeatureTopology | FeatureSecondWord, HasClientFeatures: true},
			`{"type":"auth","tenant_id":"","token":"","client_features":2147483649}`},
		{&Auth{ClientFlags: 8191, ClientFeatures: FeatureTopology}, `{"type":"auth","tenant_id":"","token":""}`},
		{&Error{Message: "m", HasDetail: true, Reason: "r"}, `{"type":"error","message":"m"}`},
		{&Error{Message: "m", HasCode: true}, `{"type":"error","message":"m"}`},
		{&Error{Message: "m", HasCode: true, Code: CodeStorage}, `{"type":"error","message":"m","code":"storage","retry":"fatal"}`},
		{&Error{Message: "m", HasCode: true, CodeName: "melted", Retry: RetryRetry}, `{"type":"error","message":"m","code":"melted","retry":"retry"}`},
		{NewError(CodeOverloaded, "queue full"), `{"type":"error","message":"queue full","code":"overloaded","retry":"retry_after"}`},
		{&PublishMessage{Key: []byte("k"), Shard: 1, RequestID: 1}, `{"type":"publish","tenant_id":"","namespace":"","stream":"","payload":""}`},
		{&PublishBatch{}, `{"type":"publish_batch","tenant_id":"","namespace":"","stream":"","payloads":[]}`},
		{&ShardOwnersView{}, `{"type":"shard_owners_view","owners":[],"request_id":0}`},
		{&AuthOK{ServerFlags: 0x177F, ServerFeatures: 0xE_C006EA21, HasServerFeatures: true, ListenerPorts: []uint16{5001, 5002},
			PublishWindow: 256, HasPublishWindow: true},
			`{"type":"auth_ok","server_flags":6015,"server_features":3221678625,"server_features_hi":14,"listener_ports":[5001,5002],"publish_window":256}`},
	}
	for _, tt := range tests {
		frame := AppendMessage([]byte("before"), tt.m)[len("before"):]
		if got := string(frame[HeaderBytes:]); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if h, err := ParseHeader(frame); err != nil || h != (Header{Length: uint32(len(tt.want))}) {
			t.Errorf("header %+v, %v", h, err)
		}
	}
	checkPanics(t, "refusal without a reason", func() { AppendMessage(nil, &PublishRefused{}) })
}

func TestAuthOffered(t *testing.T) {
	if got := (&Auth{ClientFlags: 0x1FFF}).OfferedFlags(); got != OriginalV1Flags {
		t.Errorf("a client that says nothing: %v", got)
	}
	if got := (&Auth{HasClientFlags: true}).OfferedFlags(); got != 0 {
		t.Errorf("a client that offers nothing: %v", got)
	}
}
