package wire

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestAllocationBudgets(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	publish := samplePublish()
	publishBody := AppendPublish(nil, publish)[HeaderBytes:]
	ackBody := AppendAckOK(nil, 7, 100, true)[HeaderBytes:]
	events := sampleEvents()
	eventsBody := AppendEvents(nil, events)[HeaderBytes:]
	frame := AppendAckOK(nil, 7, 100, true)
	failed := sampleAcks()[0]
	dst := make([]byte, 0, 4096)
	var parsedPublish Publish
	var parsedAck Ack
	var parsedEvents Events
	var sum uint64
	check := func(name string, f func()) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check("Publish.Parse", func() { must(parsedPublish.Parse(publish.Flags, publishBody)) })
	check("AppendPublish", func() { dst = AppendPublish(dst[:0], publish) })
	check("AllRecords", func() {
		for p := range AllRecords(publish.Records) {
			sum += uint64(len(p))
		}
	})
	check("AppendAckOK", func() { dst = AppendAckOK(dst[:0], 7, 100, true) })
	check("AppendAck of a failure", func() { dst = AppendAck(dst[:0], failed) })
	check("Ack.Parse of a success", func() { must(parsedAck.Parse(FlagPublishAck|FlagAckOffset, ackBody)) })
	check("Events.Parse", func() { must(parsedEvents.Parse(events.Flags, eventsBody)) })
	check("Events.All", func() {
		for e := range parsedEvents.All() {
			sum += uint64(e.Offset)
		}
	})
	check("AppendEvents", func() { dst = AppendEvents(dst[:0], events) })
	check("PutEventsHead", func() { PutEventsHead(dst[:EventsHeadBytes], 100, 64, 1<<20) })
	check("KeyHash", func() { sum += KeyHash(publish.Key) })
	check("ShardOf", func() { sum += uint64(ShardOf(RoutingJumpHash, publish.Key, true, 48)) })
	check("SplitFrame", func() {
		_, body, _, ok, err := SplitFrame(frame, MaxFrameBytes)
		must(err)
		if !ok {
			t.Fatal("frame is not whole")
		}
		sum += uint64(len(body))
	})
	check("SplitFrame of a part", func() {
		_, _, _, _, err := SplitFrame(frame[:5], MaxFrameBytes)
		must(err)
	})
}

// allocBound is invariant 3 of doc.go.
func allocBound(inputBytes int) uint64 { return 4*uint64(inputBytes) + 64<<10 }

// checkAllocated fails when f allocates more than allocBound. Other goroutines of the process count as well, so it takes the least of a few
// runs.
func checkAllocated(t *testing.T, name string, inputBytes int, f func()) {
	t.Helper()
	if raceEnabled {
		f()
		return
	}
	var least uint64
	for try := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; try == 0 || n < least {
			least = n
		}
		if least <= allocBound(inputBytes) {
			return
		}
	}
	t.Errorf("%s: %d bytes allocated for %d bytes of input, at most %d are allowed", name, least, inputBytes, allocBound(inputBytes))
}

// The inputs that cost most per byte.
func TestParseMessageAllocations(t *testing.T) {
	const n = 1 << 20
	fill := func(head, element, tail string) []byte {
		count := (n - len(head) - len(tail)) / (len(element) + 1)
		return []byte(head + strings.Repeat(element+",", count) + element + tail)
	}
	const batch = `{"type":"publish_batch","tenant_id":"t","namespace":"n","stream":"s","payloads":[`
	const owners = `{"type":"shard_owners_view","request_id":1,"owners":[`
	const ports = `{"type":"auth_ok","server_flags":1,"listener_ports":[`
	var growing bytes.Buffer
	growing.WriteString(batch)
	for i := 0; growing.Len() < n; i++ {
		fmt.Fprintf(&growing, `"\u0059%s",`, strings.Repeat("AAAA", i)+"Q==")
	}
	growing.WriteString(`""]}`)
	for name, body := range map[string][]byte{
		"empty payloads":     fill(batch, `""`, `]}`),
		"small payloads":     fill(batch, `"AA=="`, `]}`),
		"escaped payloads":   fill(batch, `"\u0041A=="`, `]}`),
		"growing payloads":   growing.Bytes(),
		"one payload":        []byte(batch + `"` + strings.Repeat("AAAA", n/4) + `"]}`),
		"no strings":         fill(batch, `7`, `]}`),
		"empty owners":       fill(owners, `{}`, `]}`),
		"short owners":       fill(owners, `{"shard":0,"generation":0}`, `]}`),
		"escaped owners":     fill(owners, `{"shard":0,"generation":0,"node_id":"\n","\u0061":"\u0061","addr":"\n"}`, `]}`),
		"bad last owner":     fill(owners, `{"shard":0,"generation":0}`, `,{}]}`),
		"brokers":            fill(`{"type":"topology_view","brokers":[`, `{"node_id":"","addr":""}`, `]}`),
		"ports":              fill(ports, `0`, `]}`),
		"no ports":           fill(ports, `[]`, `]}`),
		"long escaped token": []byte(`{"type":"auth","tenant_id":"t","token":"` + strings.Repeat(`\n`, n/2) + `"}`),
		"long type":          []byte(`{"type":"` + strings.Repeat(`x`, n) + `"}`),
		"long name":          []byte(`{"type":"ok","` + strings.Repeat(`\n`, n/2) + `":1}`),
		"long extension":     []byte(`{"type":"extension","name":"x","body":[` + strings.Repeat(`[],`, n/3) + `0]}`),
		"unknown fields":     fill(`{"type":"ok","x":[`, `{}`, `]}`),
	} {
		t.Run(name, func(t *testing.T) {
			checkAllocated(t, name, len(body), func() { _, _ = ParseMessage(body) })
		})
	}
}
