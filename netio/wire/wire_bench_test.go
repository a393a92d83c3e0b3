package wire

import "testing"

// batch256 is a batch of count records of 256 bytes.
func batch256(count uint32) *Publish {
	p := &Publish{
		Flags: FlagPublishBatch | FlagPublishAcked | FlagPublishKeyed, RequestID: 7, AckMode: AckPerBatch, Key: []byte("customer-17"),
		Tenant: []byte("default"), Namespace: []byte("default"), Stream: []byte("orders"), Count: count,
	}
	for range count {
		p.Records = AppendRecord(p.Records, make([]byte, 256))
	}
	return p
}

func BenchmarkPublishParse(b *testing.B) {
	for name, count := range map[string]uint32{"records=1": 1, "records=64": 64} {
		b.Run(name, func(b *testing.B) {
			src := batch256(count)
			body := AppendPublish(nil, src)[HeaderBytes:]
			var p Publish
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := p.Parse(src.Flags, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendPublish(b *testing.B) {
	for name, count := range map[string]uint32{"records=1": 1, "records=64": 64} {
		b.Run(name, func(b *testing.B) {
			p := batch256(count)
			dst := make([]byte, 0, p.FrameBytes())
			b.ReportAllocs()
			b.SetBytes(int64(p.FrameBytes()))
			for b.Loop() {
				dst = AppendPublish(dst[:0], p)
			}
		})
	}
}

func BenchmarkAppendAckOK(b *testing.B) {
	dst := make([]byte, 0, MaxAckOKBytes)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendAckOK(dst[:0], 7, 100, true)
	}
}

func BenchmarkAckParse(b *testing.B) {
	body := AppendAckOK(nil, 7, 100, true)[HeaderBytes:]
	var a Ack
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Parse(FlagPublishAck|FlagAckOffset, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEventsParseAll(b *testing.B) {
	src := batch256(64)
	e := Events{Flags: EventsHeadFlags, Base: 100, Count: 64, Records: src.Records}
	body := AppendEvents(nil, &e)[HeaderBytes:]
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	sum := 0
	for b.Loop() {
		if err := e.Parse(EventsHeadFlags, body); err != nil {
			b.Fatal(err)
		}
		for event := range e.All() {
			sum += len(event.Payload)
		}
	}
	if sum == 0 {
		b.Fatal("no payload was seen")
	}
}

func BenchmarkPutEventsHead(b *testing.B) {
	head := make([]byte, EventsHeadBytes)
	b.ReportAllocs()
	for b.Loop() {
		PutEventsHead(head, 100, 64, 64*260)
	}
}

func BenchmarkSplitFrame(b *testing.B) {
	frame := AppendAckOK(nil, 7, 100, true)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, ok, err := SplitFrame(frame, MaxFrameBytes); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkKeyHash(b *testing.B) {
	key := []byte("customer-17")
	var sum uint64
	b.ReportAllocs()
	for b.Loop() {
		sum += KeyHash(key)
	}
	_ = sum
}

func BenchmarkShardOf(b *testing.B) {
	key := []byte("customer-17")
	for _, routing := range []Routing{RoutingModulo, RoutingJumpHash} {
		b.Run("routing="+routing.String(), func(b *testing.B) {
			var sum uint32
			b.ReportAllocs()
			for b.Loop() {
				sum += ShardOf(routing, key, true, 48)
			}
			_ = sum
		})
	}
}

// The handshake of a client is 41 of these.
func BenchmarkParseMessageAuth(b *testing.B) {
	body := AppendMessage(nil, &Auth{TenantID: "default", Token: "token", ClientFlags: DefaultClientFlags, HasClientFlags: true,
		ClientFeatures: FeaturesOf(0xFB77FFFF, 15), HasClientFeatures: true})[HeaderBytes:]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMessage(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendMessageAuthOK(b *testing.B) {
	m := &AuthOK{ServerFlags: 0x177F, ServerFeatures: FeaturesOf(0xC006EA21, 0xE), HasServerFeatures: true, PublishWindow: 256, HasPublishWindow: true}
	dst := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendMessage(dst[:0], m)
	}
}

func BenchmarkParseMessagePublishBatch(b *testing.B) {
	src := batch256(64)
	body := AppendMessage(nil, &PublishBatch{Scope: Scope{"default", "default", "orders"}, Count: 64, Records: src.Records, RequestID: 1,
		HasRequestID: true, Ack: AckPerBatch})[HeaderBytes:]
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := ParseMessage(body); err != nil {
			b.Fatal(err)
		}
	}
}
