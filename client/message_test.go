package client

import (
	"bytes"
	"errors"
	"testing"

	"felix/netio/wire"
)

func testTopic() *topic {
	c := newClient(defaultConfig())
	return c.topicFor("default", "orders")
}

// The frame of a message is the codec's, and its bound holds.
func TestMessageFrame(t *testing.T) {
	topic := testTopic()
	for name, m := range map[string]message{
		"one":        {data: []byte("hello"), single: true, acked: true},
		"empty":      {single: true, acked: true},
		"unacked":    {data: []byte("hello"), single: true},
		"keyed":      {data: []byte("hello"), single: true, acked: true, key: "k1", keyed: true},
		"empty key":  {data: []byte("hello"), single: true, keyed: true},
		"batch":      {batch: [][]byte{[]byte("a"), nil, []byte("ccc")}, acked: true, key: "k1", keyed: true},
		"idempotent": {batch: [][]byte{[]byte("a")}, acked: true, idempotent: true, producer: 1 << 63, sequence: 9},
		"shard 0":    {data: []byte("hello"), single: true, acked: true, explicit: true},
	} {
		m.topic = topic
		check(t, m.prepare(wire.KnownFlags))
		if m.json != nil {
			t.Errorf("%s: in JSON", name)
			continue
		}
		frame := m.appendFrame(nil, 77)
		if len(frame) > m.frameBytes() {
			t.Errorf("%s: %d bytes, the bound is %d", name, len(frame), m.frameBytes())
		}
		h, body, rest, ok, err := wire.SplitFrame(frame, wire.MaxFrameBytes)
		var p wire.Publish
		if err != nil || !ok || len(rest) != 0 || p.Parse(h.Flags, body) != nil {
			t.Errorf("%s: not a frame: %v", name, err)
			continue
		}
		if p.Acked() != m.acked || p.Acked() && p.RequestID != 77 || p.HasKey() != m.keyed || string(p.Key) != m.key ||
			p.Idempotent() != m.idempotent || p.ProducerID != m.producer || p.Sequence != m.sequence ||
			string(p.Tenant) != "default" || string(p.Namespace) != "default" || string(p.Stream) != "orders" {
			t.Errorf("%s: %+v", name, p)
		}
		if !bytes.Equal(frame, wire.AppendPublish(nil, &p)) {
			t.Errorf("%s: the codec writes another frame", name)
		}
		var records [][]byte
		for r := range wire.AllRecords(p.Records) {
			records = append(records, r)
		}
		var want [][]byte
		m.eachRecord(func(r []byte) { want = append(want, r) })
		if len(records) != len(want) || len(records) != int(p.Count) {
			t.Errorf("%s: %d records, want %d", name, len(records), len(want))
		}
		if !m.acked {
			continue
		}
		// Sent again it is the same but for the request id.
		again := message{topic: topic, again: frame, acked: true}
		second := again.appendFrame(nil, 78)
		p.RequestID = 78
		if !bytes.Equal(second, wire.AppendPublish(nil, &p)) {
			t.Errorf("%s: differs when sent again", name)
		}
		if key, keyed, explicit := frameKey(frame); string(key) != m.key || keyed != m.keyed || explicit {
			t.Errorf("%s: key %q, %v, %v", name, key, keyed, explicit)
		}
	}
}

// JSON is for a named shard and for brokers that cannot read the binary form.
func TestMessageJSON(t *testing.T) {
	topic := testTopic()
	for name, tt := range map[string]struct {
		m     message
		flags wire.Flags
	}{
		"shard":      {message{data: []byte("hello"), single: true, acked: true, shard: 2, explicit: true}, wire.KnownFlags},
		"keyed":      {message{data: []byte("hello"), single: true, acked: true, keyed: true, key: "k"}, wire.FlagPublishBatch | wire.FlagPublishAcked},
		"old broker": {message{batch: [][]byte{[]byte("a"), []byte("b")}, acked: true}, wire.FlagPublishBatch},
		"unanswered": {message{data: []byte("hello"), single: true, shard: 2, explicit: true}, wire.KnownFlags},
	} {
		m := tt.m
		m.topic = topic
		check(t, m.prepare(tt.flags))
		if m.json == nil {
			t.Errorf("%s: in binary", name)
			continue
		}
		bound := m.frameBytes()
		frame := m.appendFrame(nil, 1<<63)
		if len(frame) > bound {
			t.Errorf("%s: %d bytes, the bound is %d", name, len(frame), bound)
		}
		_, body, _, _, err := wire.SplitFrame(frame, wire.MaxFrameBytes)
		check(t, err)
		parsed, err := wire.ParseMessage(body)
		check(t, err)
		p := parsed.(*wire.PublishBatch)
		if p.HasRequestID != m.acked || m.acked && p.RequestID != 1<<63 || p.HasShard != m.explicit || p.Shard != m.shard || p.HasKey != m.keyed {
			t.Errorf("%s: %+v", name, p)
		}
		if m.acked {
			again := message{topic: topic, again: frame, acked: true}
			if second := again.appendFrame(nil, 5); len(second) > again.frameBytes() {
				t.Errorf("%s: %d bytes when sent again, the bound is %d", name, len(second), again.frameBytes())
			}
		}
	}
	m := message{topic: topic, single: true, acked: true, idempotent: true}
	if err := m.prepare(wire.FlagPublishBatch | wire.FlagPublishAcked); !errors.Is(err, ErrUnsupported) {
		t.Errorf("idempotent to an old broker: %v", err)
	}
}

// What the short reader of publish_ok takes, the codec reads alike.
func FuzzParsePublishOK(f *testing.F) {
	for _, m := range []wire.PublishOK{{RequestID: 7}, {RequestID: 1<<64 - 1, Offset: 3, HasOffset: true}, {RequestID: 12, Offset: 999999999999, HasOffset: true}} {
		f.Add(wire.AppendMessage(nil, &m)[wire.HeaderBytes:])
	}
	f.Add([]byte(`{"type":"publish_ok","request_id":01}`))
	f.Add([]byte(`{"type":"publish_ok","request_id":1,"offset":}`))
	f.Add([]byte(`{"type":"publish_ok","request_id":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, ok := parsePublishOK(body)
		if !ok {
			return
		}
		m, err := wire.ParseMessage(body)
		if err != nil {
			t.Fatalf("%q: the codec refuses it: %v", body, err)
		}
		p, ok := m.(*wire.PublishOK)
		if !ok || p.RequestID != a.requestID || p.Offset != a.offset || p.HasOffset != a.hasOffset {
			t.Fatalf("%q: %+v, the codec reads %+v", body, a, m)
		}
	})
}

func TestParsePublishOKTakesTheUsualForm(t *testing.T) {
	body := wire.AppendMessage(nil, &wire.PublishOK{RequestID: 123, Offset: 456, HasOffset: true})[wire.HeaderBytes:]
	if a, ok := parsePublishOK(body); !ok || a.requestID != 123 || a.offset != 456 || !a.hasOffset {
		t.Fatalf("%+v, %v", a, ok)
	}
}
