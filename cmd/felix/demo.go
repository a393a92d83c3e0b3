package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"felix"
	"felix/client"
)

// The demo's size. Every publisher has keys of its own, so that the order of a key is that of one publisher.
const (
	demoStream      = "demo"
	demoShards      = 8
	demoRecords     = 200_000
	demoPublishers  = 4
	demoInFlight    = 64 // publishes of one publisher that are not answered
	demoKeys        = 64 // of one publisher
	demoPayload     = 256
	demoPatience    = 30 * time.Second // without a record; then the run has failed
	demoEnd         = "end"            // payload of the last record of each shard
	maxDemoRecords  = 10_000_000
	demoHeadBytes   = 4 + 8 + 8 + 4 // record number, place in its key's order, time sent, checksum of the rest
	latencyMost     = int64(10 * time.Minute)
	latencyAccuracy = 3 // digits
)

func (a *app) demoCommand() *cobra.Command {
	records, memory := 0, false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a broker in this process, send records through it and check every one",
		Long: "Demo starts a broker with its defaults on a free port, publishes keyed records from 4 publishers through real\n" +
			"sockets, subscribes from the start, and checks that every acknowledged record arrived exactly once and in the order of\n" +
			"its key. The stream is on disk, in a temporary directory that is removed at the end, and an ack means that the record is\n" +
			"there; --memory takes one in memory. It ends with 1 when a single record is wrong.",
		Args:        withArgs(0, 0, "no arguments"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if records < demoPublishers || records > maxDemoRecords {
				return usage(cmd, fmt.Sprintf("records is %d; give a number from %d to %d", records, demoPublishers, maxDemoRecords))
			}
			return a.demo(cmd.Context(), records/demoPublishers, memory)
		},
	}
	cmd.Flags().IntVar(&records, "records", demoRecords, "records to publish")
	cmd.Flags().BoolVar(&memory, "memory", false, "keep the stream in memory")
	return cmd
}

// demoResult is the outcome. The order of the fields is that of --output json.
type demoResult struct {
	Records       int     `json:"records"`
	PayloadBytes  int     `json:"payload_bytes"`
	Publishers    int     `json:"publishers"`
	InFlight      int     `json:"in_flight"`
	Shards        int     `json:"shards"`
	Storage       string  `json:"storage"`         // disk or memory
	Fsync         string  `json:"fsync,omitempty"` // on disk: what an ack waited for
	Cores         int     `json:"cores"`
	Seconds       float64 `json:"seconds"` // from the first publish to the last record at the subscriber
	RecordsPerSec float64 `json:"records_per_second"`
	Ack           spread  `json:"ack_micros"`
	EndToEnd      spread  `json:"end_to_end_micros"`
	Acknowledged  int     `json:"acknowledged"`
	Refused       int     `json:"refused"`
	Delivered     int     `json:"delivered"`
	Lost          int     `json:"lost"`
	Duplicated    int     `json:"duplicated"`
	OutOfOrder    int     `json:"out_of_order"`
	Damaged       int     `json:"damaged"` // another payload, shard or offset than published
}

// wrong is the number of records that are not as they should be.
func (r *demoResult) wrong() int {
	return r.Refused + r.Lost + r.Duplicated + r.OutOfOrder + r.Damaged
}

// spread is a distribution in microseconds.
type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func newSpread(h *hdrhistogram.Histogram) spread {
	micros := func(nanos int64) float64 { return float64(nanos/100) / 10 }
	return spread{micros(h.ValueAtPercentile(50)), micros(h.ValueAtPercentile(99)), micros(h.Max())}
}

func (s spread) String() string {
	text := func(micros float64) string { return durationText(time.Duration(micros * float64(time.Microsecond))) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s", text(s.P50), text(s.P99), text(s.Max))
}

// demo runs the demo with so many records from each publisher.
func (a *app) demo(ctx context.Context, perPublisher int, memory bool) error {
	broker, err := felix.Start(ctx, felix.Config{})
	if err != nil {
		return &problem{exitFailure, "the broker of the demo did not start", strings.ReplaceAll(err.Error(), "\n", "; "), "felix demo again, once that is mended"}
	}
	defer broker.Close()
	config := felix.StreamConfig{Name: demoStream, Shards: demoShards, Durable: true, FsyncMode: felix.OnCommit, FsyncGiven: true}
	if memory {
		config = felix.StreamConfig{Name: demoStream, Shards: demoShards, OnSlow: felix.Block}
	}
	if err := broker.CreateStream(ctx, config); err != nil {
		return &problem{exitFailure, "the stream of the demo was not created", err.Error(), "felix demo again"}
	}
	run := newDemoRun(broker, perPublisher)
	result, err := run.do(ctx)
	if err != nil {
		return err
	}
	result.Cores, _ = broker.Cores()
	result.Storage = "memory"
	if !memory {
		result.Storage, result.Fsync = "disk", config.FsyncMode.String()
	}
	if a.output == "json" {
		err = a.printJSON(result)
	} else {
		err = a.printDemo(result)
	}
	if err != nil {
		return err
	}
	if n := result.wrong(); n > 0 {
		return &problem{
			exitFailure, fmt.Sprintf("%s wrong", count(n, "record")),
			fmt.Sprintf("%d refused, %d lost, %d duplicated, %d out of order, %d damaged", result.Refused, result.Lost, result.Duplicated, result.OutOfOrder, result.Damaged),
			"felix demo again, and report it with this output and felix version",
		}
	}
	return nil
}

// demoRun is one run: what was published and acknowledged, what came back.
type demoRun struct {
	broker       *felix.Broker
	perPublisher int
	started      time.Time

	// By record number. Each publisher writes its own part of acked; the subscriber reads it when all have ended.
	acked []demoAck
	seen  []bool // by the subscriber
	heard []demoAck
	next  []uint64 // by key: place of the next record in its order

	acks, endToEnd *hdrhistogram.Histogram
	result         demoResult
}

// demoAck is where a record is.
type demoAck struct {
	known  bool
	shard  uint32
	offset uint64
}

func newDemoRun(broker *felix.Broker, perPublisher int) *demoRun {
	n := perPublisher * demoPublishers
	return &demoRun{
		broker: broker, perPublisher: perPublisher,
		acked: make([]demoAck, n), seen: make([]bool, n), heard: make([]demoAck, n), next: make([]uint64, demoPublishers*demoKeys),
		acks: newHistogram(), endToEnd: newHistogram(),
		result: demoResult{Records: n, PayloadBytes: demoPayload, Publishers: demoPublishers, InFlight: demoInFlight, Shards: demoShards},
	}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, latencyMost, latencyAccuracy) }

// dial makes a client of the demo's broker.
func (d *demoRun) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, d.broker.Addr().String(), client.WithCAFile(d.broker.CAFile()))
}

// do subscribes, publishes and compares.
func (d *demoRun) do(ctx context.Context) (*demoResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	sub, err := reader.Subscribe(ctx, demoStream, client.FromEarliest())
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	writers := make([]*client.Client, demoPublishers)
	for i := range writers {
		if writers[i], err = d.dial(ctx); err != nil {
			return nil, err
		}
		defer writers[i].Close()
	}

	d.started = time.Now()
	var failures [demoPublishers + 1]error
	var latencies [demoPublishers]*hdrhistogram.Histogram
	var publishing, ending sync.WaitGroup
	for i, writer := range writers {
		latencies[i] = newHistogram()
		publishing.Go(func() { failures[i] = d.publish(ctx, writer, i, latencies[i]) })
	}
	// Behind the last record of each shard goes one that says so: what has not come before it was lost.
	ending.Go(func() {
		publishing.Wait()
		for shard := range uint32(demoShards) {
			if _, err := reader.Publish(ctx, demoStream, []byte(demoEnd), client.ToShard(shard)); err != nil {
				failures[demoPublishers] = err
				cancel()
				return
			}
		}
	})
	readErr := d.receive(ctx, sub)
	if readErr != nil {
		cancel() // publishers of a stream that is not read would wait for room
	}
	ending.Wait()
	for _, err := range append(failures[:], readErr) {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if readErr != nil {
		return nil, readErr
	}
	for _, h := range latencies {
		d.acks.Merge(h)
	}
	d.compare()
	return &d.result, nil
}

// publish sends the records of publisher i and waits for each answer.
func (d *demoRun) publish(ctx context.Context, c *client.Client, i int, latency *hdrhistogram.Histogram) error {
	p, err := c.Publisher(demoStream)
	if err != nil {
		return err
	}
	type sent struct {
		number int
		at     time.Time
		future *client.Future
	}
	var open []sent // oldest first, at most demoInFlight
	settle := func() error {
		s := open[0]
		open = open[1:]
		ack, err := s.future.Wait(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return nil // refused: it has no ack, and compare counts it
		}
		latency.RecordValue(int64(time.Since(s.at)))
		d.acked[s.number] = demoAck{true, ack.Shard, uint64(ack.Offset)}
		return nil
	}
	payload := make([]byte, demoPayload)
	for n := range d.perPublisher {
		number := i*d.perPublisher + n
		key := i*demoKeys + n%demoKeys
		at := time.Now()
		fillDemoPayload(payload, number, uint64(n/demoKeys), at.Sub(d.started))
		open = append(open, sent{number, at, p.PublishAsync(ctx, payload, client.Key(demoKey(key)))})
		if len(open) == demoInFlight {
			if err := settle(); err != nil {
				return err
			}
		}
	}
	for len(open) > 0 {
		if err := settle(); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

func demoKey(key int) string { return fmt.Sprintf("publisher-%d-key-%d", key/demoKeys, key%demoKeys) }

// fillDemoPayload writes a record: its number, its place in the order of its key, when it was sent, and a checksum that covers
// these and what follows.
func fillDemoPayload(payload []byte, number int, place uint64, at time.Duration) {
	binary.BigEndian.PutUint32(payload[4:], uint32(number))
	binary.BigEndian.PutUint64(payload[8:], place)
	binary.BigEndian.PutUint64(payload[16:], uint64(at))
	for i := demoHeadBytes; i < len(payload); i++ {
		payload[i] = byte(number + i)
	}
	binary.BigEndian.PutUint32(payload, crc32.ChecksumIEEE(payload[4:]))
}

// readDemoPayload reads a record that fillDemoPayload wrote.
func readDemoPayload(payload []byte) (number int, place uint64, at time.Duration, ok bool) {
	if len(payload) != demoPayload || crc32.ChecksumIEEE(payload[4:]) != binary.BigEndian.Uint32(payload) {
		return 0, 0, 0, false
	}
	return int(binary.BigEndian.Uint32(payload[4:])), binary.BigEndian.Uint64(payload[8:]), time.Duration(binary.BigEndian.Uint64(payload[16:])), true
}

// receive takes records until every shard has ended. It fails when none has come for demoPatience.
func (d *demoRun) receive(ctx context.Context, sub *client.Subscription) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	patience := time.AfterFunc(demoPatience, stop)
	defer patience.Stop()
	ended := 0
	for m, err := range sub.All(reading) {
		var gap *client.GapError
		if errors.As(err, &gap) {
			continue // compare finds what is missing
		}
		if err != nil {
			return err
		}
		patience.Reset(demoPatience)
		if string(m.Data) != demoEnd {
			d.take(m.Shard, uint64(m.Offset), m.Data)
			d.result.Seconds = time.Since(d.started).Seconds()
			continue
		}
		if ended++; ended == demoShards {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return &problem{
		exitUnavailable, "the demo did not end",
		fmt.Sprintf("%d of %d records arrived, and then none for %v", d.result.Delivered, d.result.Records, demoPatience),
		"felix demo again, and report it with this output and felix version",
	}
}

// take checks one record that came.
func (d *demoRun) take(shard uint32, offset uint64, payload []byte) {
	number, place, at, ok := readDemoPayload(payload)
	if !ok || number >= len(d.seen) {
		d.result.Damaged++
		return
	}
	d.endToEnd.RecordValue(int64(time.Since(d.started) - at))
	if d.seen[number] {
		d.result.Duplicated++
		return
	}
	d.seen[number] = true
	d.heard[number] = demoAck{true, shard, offset}
	d.result.Delivered++
	i, n := number/d.perPublisher, number%d.perPublisher
	key := i*demoKeys + n%demoKeys
	if place < d.next[key] {
		d.result.OutOfOrder++
		return
	}
	d.next[key] = place + 1
}

// compare holds what came against what was acknowledged.
func (d *demoRun) compare() {
	r := &d.result
	for number, ack := range d.acked {
		switch {
		case !ack.known:
			r.Refused++
		case !d.seen[number]:
			r.Acknowledged++
			r.Lost++
		default:
			r.Acknowledged++
			if d.heard[number] != ack {
				r.Damaged++
			}
		}
	}
	r.RecordsPerSec = float64(int(float64(r.Delivered) / r.Seconds))
	r.Ack, r.EndToEnd = newSpread(d.acks), newSpread(d.endToEnd)
}

// printDemo prints the table and how to go on.
func (a *app) printDemo(r *demoResult) error {
	stored := "in memory"
	if r.Storage == "disk" {
		stored = "durable (" + r.Fsync + ": an ack means on disk)"
	}
	fmt.Fprintf(a.stdout, "%s of %s, %d publishers with %d in flight each, %s, %s, TLS\nstream %s\n\n",
		count(r.Records, "record"), bytesText(int64(r.PayloadBytes)), r.Publishers, r.InFlight, count(r.Shards, "shard"), count(r.Cores, "core"), stored)
	rate := fmt.Sprintf("%s records/s, %s/s", humanize.Comma(int64(r.RecordsPerSec)), bytesText(int64(r.RecordsPerSec)*int64(r.PayloadBytes)))
	err := printTable(a.stdout, nil, [][]string{
		{"  rate", rate},
		{"  ack", r.Ack.String()},
		{"  end to end", r.EndToEnd.String()},
		{"  acknowledged", humanize.Comma(int64(r.Acknowledged))},
		{"  delivered", humanize.Comma(int64(r.Delivered))},
		{"  lost", humanize.Comma(int64(r.Lost))},
		{"  duplicated", humanize.Comma(int64(r.Duplicated))},
		{"  out of order", humanize.Comma(int64(r.OutOfOrder))},
	})
	if err != nil {
		return err
	}
	felixd, tool := commandNames()
	_, err = fmt.Fprintf(a.stdout, "\nGo on, each in a terminal of its own:\n\n  %s\n  %s sub orders --from earliest\n  %s pub orders hello\n", felixd, tool, tool)
	return err
}

// commandNames is how this command and felixd are called from here: "go run" leaves its binary in a temporary directory, which is
// no way to call it again.
func commandNames() (felixd, felix string) {
	executable, err := os.Executable()
	if err == nil && strings.Contains(executable, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/felixd", "go run ./cmd/felix"
	}
	return "felixd", "felix"
}
