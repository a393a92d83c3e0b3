package interop

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
)

// awkward are records that a careless codec breaks: empty, every byte, text that looks like the protocol, more than a packet, more than
// the first window of a stream, and a large one.
func awkward() [][]byte {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return [][]byte{
		{}, {0}, []byte("hello"), every, []byte("FLX1\x00\x01\x00\x00\x00\x00\x00\x04"), []byte(`{"type":"auth_ok"}`),
		random("packet", 1)[0], bytes.Repeat([]byte{0xff}, 1452), bytes.Repeat([]byte("window"), 20_000),
		bytes.Repeat(every, 4096), // 1 MiB
		[]byte("last"),
	}
}

// random returns n records of 0 to 2,000 bytes that depend on the label only.
func random(label string, n int) [][]byte {
	source := rand.NewChaCha8(sha256.Sum256([]byte(label)))
	sizes := rand.New(source)
	records := make([][]byte, n)
	for i := range records {
		records[i] = make([]byte, sizes.IntN(2001))
		_, _ = source.Read(records[i])
	}
	return records
}

// numbered returns n records that name themselves.
func numbered(label string, n int) [][]byte {
	records := make([][]byte, n)
	for i := range records {
		records[i] = fmt.Appendf(nil, "%s %d", label, i)
	}
	return records
}

// sameRecords checks that the published client got exactly these records of a stream, at consecutive offsets.
func sameRecords(t *testing.T, stream string, got []event, from uint64, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d events, want %d", stream, len(got), len(want))
	}
	for i, e := range got {
		offset := from + uint64(i)
		if e.Kind != "record" {
			t.Fatalf("%s: event %d is %s (%s), want a record", stream, i, e.Kind, e.Text)
		}
		if e.Offset == nil || *e.Offset != offset || e.Skipped != 0 {
			t.Fatalf("%s: event %d is at offset %s after %d skipped ones, want %d after none", stream, i, show(e.Offset), e.Skipped, offset)
		}
		if e.Scope != [3]string{tenant, "default", stream} {
			t.Fatalf("%s: event %d says it is of %q", stream, i, e.Scope)
		}
		if !bytes.Equal(e.Payload, want[i]) {
			t.Fatalf("%s: the record at %d is %s, want %s", stream, offset, brief(e.Payload), brief(want[i]))
		}
	}
}

// sameOffsets checks that the published client was told consecutive offsets for what it published.
func sameOffsets(t *testing.T, stream string, got []*uint64, from uint64, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%s: %d publishes were answered, want %d", stream, len(got), n)
	}
	for i, offset := range got {
		if offset == nil || *offset != from+uint64(i) {
			t.Fatalf("%s: publish %d is said to be at %s, want %d", stream, i, show(offset), from+uint64(i))
		}
	}
}

// brief shows a record in a failure.
func brief(record []byte) string {
	if len(record) > 40 {
		return fmt.Sprintf("%q... (%d bytes)", record[:40], len(record))
	}
	return fmt.Sprintf("%q", record)
}
