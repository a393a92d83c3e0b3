package wal_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"felix/wal"
	"felix/wal/faultfs"
)

func TestInspectVerifyDump(t *testing.T) {
	d := faultfs.New(8 << 20)
	o := openOwner(t, "l", diskOptions(d))
	for range 100 {
		o.mustPublish(1, 2, 800)
		o.mustPublish(2, 1, 10)
	}
	o.mustClose()
	before := d.Ops()
	in, err := wal.Inspect(d, "l")
	if err != nil {
		t.Fatal(err)
	}
	if in.Lane != 9 || len(in.Shards) != 2 || len(in.Segments) < 3 || !in.Segments[0].Sealed || !in.Segments[0].Footer || in.Shards[0].Offsets != "[0, 200)" {
		t.Errorf("%+v", in)
	}
	if _, err := json.Marshal(in); err != nil {
		t.Error(err)
	}
	v, err := wal.Verify(d, "l")
	if err != nil || len(v.Damage) > 0 || v.Cut != nil || v.Batches < 200 {
		t.Errorf("%+v, %v", v, err)
	}
	var text, js bytes.Buffer
	if err := wal.Dump(d, "l", &text, wal.DumpOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), " records shard 1 "); n != 100 {
		t.Errorf("%d batches of shard 1 dumped", n)
	}
	if err := wal.Dump(d, "l", &js, wal.DumpOptions{Shard: 2, From: 10, To: 20, JSON: true, Payloads: true}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for dec := json.NewDecoder(&js); dec.More(); {
		var line map[string]any
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line["kind"] == "records" {
			n++
		}
	}
	if n != 11 { // the batch that ends at 10 is shown too
		t.Errorf("%d batches of [10, 20)", n)
	}
	if d.Ops() != before {
		t.Error("an offline function changed the disk")
	}
}
