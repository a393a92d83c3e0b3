package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDemo(t *testing.T) {
	f := &fixture{t: t}
	text := f.ok("", "demo", "--records", "8000")
	for _, want := range []string{"8,000 records of 256 B, 4 publishers", "\nstream durable (on_commit: an ack means on disk)\n", "\n  acknowledged  8,000\n", "\n  delivered     8,000\n", "\n  lost          0\n", "\n  duplicated    0\n", "\n  out of order  0\n", " pub orders hello\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	var r demoResult
	if err := json.Unmarshal([]byte(f.ok("", "demo", "--records", "4000", "--memory", "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Storage != "memory" || r.Fsync != "" || r.Records != 4000 || r.Acknowledged != 4000 || r.Delivered != 4000 || r.wrong() != 0 || r.RecordsPerSec <= 0 || r.Ack.P50 <= 0 || r.EndToEnd.Max < r.EndToEnd.P50 {
		t.Errorf("%+v", r)
	}
}

// TestDemoNotices gives the checks records that are wrong, one kind at a time.
func TestDemoNotices(t *testing.T) {
	const perPublisher = 4 * demoKeys
	type got struct {
		number int
		shard  uint32
		offset uint64
	}
	// A stream in which everything is right: publisher 0, all on shard 0.
	right := func() (d *demoRun, records []got) {
		d = newDemoRun(nil, perPublisher)
		d.started = time.Now()
		for n := range d.acked {
			d.acked[n] = demoAck{true, 0, uint64(n)}
			records = append(records, got{n, 0, uint64(n)})
		}
		return d, records
	}
	feed := func(d *demoRun, records []got) *demoResult {
		payload := make([]byte, demoPayload)
		for _, r := range records {
			fillDemoPayload(payload, r.number, uint64(r.number%perPublisher/demoKeys), 0)
			d.take(r.shard, r.offset, payload)
		}
		d.result.Seconds = 1
		d.compare()
		return &d.result
	}
	check := func(name string, r *demoResult, want demoResult) {
		t.Helper()
		if r.Lost != want.Lost || r.Duplicated != want.Duplicated || r.OutOfOrder != want.OutOfOrder || r.Refused != want.Refused || r.Damaged != want.Damaged {
			t.Errorf("%s: lost %d, duplicated %d, out of order %d, refused %d, damaged %d", name, r.Lost, r.Duplicated, r.OutOfOrder, r.Refused, r.Damaged)
		}
	}
	d, records := right()
	check("all right", feed(d, records), demoResult{})
	d, records = right()
	check("one lost", feed(d, records[1:]), demoResult{Lost: 1})
	d, records = right()
	check("one twice", feed(d, append(records, records[7])), demoResult{Duplicated: 1})
	d, records = right()
	records[3], records[3+demoKeys] = records[3+demoKeys], records[3]
	check("two of a key swapped", feed(d, records), demoResult{OutOfOrder: 1})
	d, records = right()
	records[3], records[4] = records[4], records[3]
	check("two of different keys swapped", feed(d, records), demoResult{})
	d, records = right()
	d.acked[5] = demoAck{}
	check("one refused", feed(d, append(records[:5:5], records[6:]...)), demoResult{Refused: 1})
	d, records = right()
	records[9].offset++
	check("one elsewhere", feed(d, records), demoResult{Damaged: 1})
	d, records = right()
	d.take(0, 0, []byte("nonsense"))
	check("one unreadable", feed(d, records), demoResult{Damaged: 1})

	payload := make([]byte, demoPayload)
	fillDemoPayload(payload, 12, 3, 45)
	if number, place, at, ok := readDemoPayload(payload); !ok || number != 12 || place != 3 || at != 45 {
		t.Errorf("read back %d, %d, %d, %v", number, place, at, ok)
	}
	for i := range payload {
		payload[i] ^= 1
		if _, _, _, ok := readDemoPayload(payload); ok {
			t.Errorf("a flipped bit in byte %d is not seen", i)
		}
		payload[i] ^= 1
	}
}
