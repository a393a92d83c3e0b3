package wire_test

import (
	"fmt"

	"felix/netio/wire"
)

// A reader takes whole frames off its buffer and goes by their kind.
func Example() {
	received := wire.AppendMessage(nil, &wire.ProducerInit{RequestID: 1})
	received = wire.AppendPublish(received, &wire.Publish{
		Flags: wire.FlagPublishAcked, RequestID: 2, AckMode: wire.AckPerBatch,
		Tenant: []byte("default"), Namespace: []byte("default"), Stream: []byte("orders"),
		Count: 1, Records: wire.AppendRecord(nil, []byte("hello")),
	})
	for {
		h, body, rest, ok, err := wire.SplitFrame(received, wire.MaxFrameBytes)
		if err != nil {
			fmt.Println(err) // nothing after it can be trusted, or it is too large: end the stream
			return
		}
		if !ok {
			return // wait for more bytes
		}
		received = rest
		switch h.Flags.Kind() {
		case wire.FrameMessage:
			m, err := wire.ParseMessage(body)
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println("message", m.MessageType())
		case wire.FramePublish:
			var p wire.Publish
			if err := p.Parse(h.Flags, body); err != nil {
				id, ok := wire.PublishRequestID(body)
				fmt.Println("refuse", id, ok, err)
				continue
			}
			for payload := range wire.AllRecords(p.Records) {
				fmt.Printf("publish %d to %s: %s\n", p.RequestID, p.Stream, payload)
			}
		default:
			fmt.Println(h.Flags.Err())
		}
	}
	// Output:
	// message producer_init
	// publish 2 to orders: hello
}
