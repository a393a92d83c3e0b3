package load

import (
	"context"
	"testing"
	"time"

	"felix"
	"felix/client"
)

// outcomes is a Sink that keeps what it is told, by token.
type outcomes map[int][]Outcome

func (o outcomes) Settle(token int, outcome Outcome, _ time.Time) {
	o[token] = append(o[token], outcome)
}

// A flush that fails gives what has no answer an unknown outcome, once, also when the answer comes after all.
func TestFlushSettlesWhatHasNoAnswer(t *testing.T) {
	b := startBroker(t, felix.Config{})
	target := newTarget(t, GeneratorClient, FelixConfig{Addr: b.Addr().String(), Admin: b.AdminAddr().String(), CAFile: b.CAFile()})
	stream, err := target.Open(t.Context(), StreamSpec{Shards: 1, Durability: Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context())
	got := outcomes{}
	made, err := stream.Publisher(t.Context(), PublisherSpec{Acks: AcksBatch, InFlight: 3, Batch: 1, Size: 1, Sink: got})
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*clientPublisher)
	p.flights[1].open.Store(true) // under way
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for p.Flush(ended) == nil { // with nothing under way in the client either may be first
	}
	p.flights[1].done(client.Ack{}, nil)
	if len(got) != 1 || len(got[1]) != 1 || got[1][0].Fate != Unknown || got[1][0].Err == nil {
		t.Errorf("outcomes %+v, want one of token 1, unknown", got)
	}
}
