package main

import (
	"fmt"

	"felix/perf/load"
	"felix/perf/session"
)

// A pair is a promise and how both sides keep it.
type pair struct {
	session.Pair
	config     load.Config // without Target and times; the same for both
	mode       mode        // of NATS
	syncAlways bool        // of NATS
}

// What is not equal, by what a pair does.
const (
	notBatched    = "NATS has no batches: the same number of records, one publish each, from the buffer of nats.go"
	notKept       = "felix keeps the records for replay and gives them offsets; core NATS keeps nothing"
	notPaced      = "a full subscriber holds felix's publishers back for as long as it takes; nats-server slows a publisher by milliseconds and then cuts the subscriber off, which would void the run"
	notAcked      = "felix acknowledges each batch; the answer of NATS is that to a ping behind it: it was read and queued for every subscriber"
	notSharded    = "felix has one stream of 48 shards, NATS 48 streams"
	notSyncedSoon = "felix syncs within 250 ms, nats-server by default every 2 minutes"
	notTheBroker  = "the request goes through the server to a responder in the generator and back, which is two deliveries more; felix answers itself, and keeps the record"
)

// pairs returns all of them, in the order of the promise.
func pairs() []pair {
	var all []pair
	add := func(p pair, name, promise string, figure session.Figure, atLeast, aimAt float64, notEqual ...string) {
		if p.config.Batch > 1 {
			notEqual = append(notEqual, notBatched)
		}
		p.Pair = session.Pair{Name: name, Promise: promise, Figure: figure, AtLeast: atLeast, AimAt: aimAt, NotEqual: notEqual}
		all = append(all, p)
	}
	type shape struct {
		name        string
		size, batch int
	}
	single, batched, large := shape{"256B-1", 256, 1}, shape{"256B-64", 256, 64}, shape{"4KiB-64", 4096, 64}
	shapes := []shape{single, batched, large}

	for _, s := range shapes {
		atLeast := 0.0
		if s.size == 256 {
			atLeast = 0.6
		}
		add(pair{mode: core, config: load.Config{Scenario: load.Pub, Acks: load.AcksNone, Size: s.size, Batch: s.batch}},
			"core-"+s.name, "fire and forget, in memory", session.AckedPerSec, atLeast, 0, notKept)
	}
	// The same with a subscriber that checks that nothing is lost: what it receives is the figure.
	for _, s := range []shape{batched, large} {
		add(pair{mode: core, config: load.Config{Scenario: load.E2E, Publishers: 64, Subscribers: 1, Acks: load.AcksNone, Size: s.size, Batch: s.batch}},
			"core-read-"+s.name, "fire and forget, one subscriber gets everything", session.DeliveredPerSec, 0, 0, notKept, notPaced)
	}
	for _, promise := range []struct {
		name, text string
		mode       mode
		always     bool
		durability load.Durability
		// Batches in flight of each publisher. With 64 records to a batch NATS would hold 262,144 of them, and take 26 s to answer the last where
		// it syncs each: what is here saturates both and is answered soon.
		batches  int
		atLeast  float64
		aimAt    float64
		notEqual []string
	}{
		{"jetstream-memory", "acked, in memory", memory, false, load.Memory, 16, 1, 0, []string{notSharded}},
		{"jetstream-sync", "acked, each on disk", file, true, load.OnCommit, 4, 5, 12, []string{notSharded}},
		{"jetstream-file", "acked, synced later", file, false, load.Periodic, 16, 1, 0, []string{notSharded, notSyncedSoon}},
	} {
		for _, s := range shapes {
			inFlight := 64
			if s.batch > 1 {
				inFlight = promise.batches
			}
			add(pair{mode: promise.mode, syncAlways: promise.always, config: load.Config{Scenario: load.Pub, Size: s.size, Batch: s.batch, InFlight: inFlight, Durability: promise.durability}},
				promise.name+"-"+s.name, promise.text, session.AckedPerSec, promise.atLeast, promise.aimAt, promise.notEqual...)
		}
	}
	add(pair{mode: file, syncAlways: true, config: load.Config{Scenario: load.Pub, Size: 1024, InFlight: 1, Durability: load.OnCommit}},
		"jetstream-sync-waiting-1KiB", "acked, each on disk, one in flight each", session.AckedPerSec, 5, 12, notSharded)

	lone := load.Config{Scenario: load.Pub, Publishers: 1, Acks: load.AcksEach}
	add(pair{mode: request, config: lone}, "lone-request", "one at a time, answered", session.AckP50, 1, 0, notTheBroker)
	add(pair{mode: memory, config: lone}, "lone-jetstream-memory", "one at a time, acked, in memory", session.AckP50, 1, 0, notSharded)
	lone.Durability = load.OnCommit
	add(pair{mode: file, syncAlways: true, config: lone}, "lone-jetstream-sync", "one at a time, acked, on disk", session.AckP50, 1, 0, notSharded)

	for _, n := range []int{10, 50} {
		for _, s := range []shape{batched, large} {
			add(pair{mode: core, config: load.Config{Scenario: load.FanOut, Subscribers: n, Size: s.size, Batch: s.batch}},
				fmt.Sprintf("fanout%d-%s", n, s.name), fmt.Sprintf("in memory, %d subscribers get everything", n), session.DeliveredPerSec, 1, 0, notKept, notPaced, notAcked)
		}
	}
	return all
}
