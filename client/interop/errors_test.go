package interop

import "testing"

// What a broker refuses arrives as the client's own type for it, and the client stays usable.
func TestRefusals(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t, "--auto-create=false")
		b.create(streamConfig{Stream: "known", Shards: 1})
		d := startDriver(t, surface).connect(b, b.Listen)

		d.fails("NotFoundError", "subscribe", command{"name": "s", "stream": "unknown"})
		if f := d.fails("NotFoundError", "publish", command{"stream": "unknown", "records": numbered("r", 1)}); f.Code != "not_found" {
			t.Errorf("the code of an unknown stream is %v", f.Code)
		}
		if n := d.do("stream_shards", command{"stream": "unknown"}).Shards; n != 0 {
			t.Errorf("an unknown stream has %d shards, want 0", n)
		}
		// Caches come later. The refusal must have a code, or the client gives its connection up.
		if f := d.fails("FelixError", "cache_get", command{"cache": "c", "key": "k"}); f.Code != "invalid_request" {
			t.Errorf("the code of a cache request is %v: %v", f.Code, f)
		}
		sameOffsets(t, "known", d.do("publish", command{"stream": "known", "records": numbered("r", 3)}).Offsets, 0, 3)
		if n := sum(b.metric("felix_quic_connections_accepted_total")); n > 1+float64(len(b.Ports)) {
			t.Errorf("%v connections were made; a refusal must not cost one", n)
		}
	})
}

func sum(values map[string]float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
