package interop

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"felix/client"
)

// kill ends the broker with SIGKILL. It is then no fault that it has not drained.
func (b *broker) kill() {
	b.t.Helper()
	if err := b.cmd.Process.Kill(); err != nil {
		b.t.Fatalf("felixd is gone before it is killed: %v\n%s", err, b.stderr.String())
	}
	within(b.t, b.ended, "felixd to be killed")
	b.err = nil
}

// startOn starts felixd on a data directory, whose streams are made durable and with so many shards by their first use.
// After another broker it takes its ports.
func startOn(t *testing.T, dir string, shards int, after *broker) *broker {
	t.Helper()
	args := []string{"--data", dir, "--dev-shards", strconv.Itoa(shards), "--segment-bytes", "4 MiB"}
	if after != nil {
		args = append(args, "--listen", after.Listen)
		if len(after.Ports) > 0 {
			var ports []string
			for _, p := range after.Ports {
				ports = append(ports, strconv.Itoa(int(p)))
			}
			args = append(args, "--listener-ports", strings.Join(ports, ","))
		}
	}
	return startBroker(t, args...)
}

// The published client is told offsets by acks that mean "on disk"; after an orderly restart it reads everything from the
// earliest record on, and what it publishes then goes on where the log ended.
func TestDurableStreamAcrossARestart(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		const stream, merged, shards, count = "kept", "kept-merged", 4, 200
		dir := t.TempDir()
		b := startOn(t, dir, 1, nil)
		d := startDriver(t, surface).connect(b, b.Listen)
		first := append(awkward(), random("first", count)...)
		sameOffsets(t, stream, d.do("publish", command{"stream": stream, "records": first}).Offsets, 0, len(first))
		d.end()
		b.drain()

		b = startOn(t, dir, shards, nil) // the number of shards of streams that are still to be made
		d = startDriver(t, surface).connect(b, b.Listen)
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "earliest"})
		sameRecords(t, stream, d.next("s", len(first)), 0, first)
		second := numbered("second", count)
		sameOffsets(t, stream, d.do("publish", command{"stream": stream, "records": second}).Offsets, uint64(len(first)), count)
		sameRecords(t, stream, d.next("s", count), uint64(len(first)), second)

		mergedRecords, keys := keyed("merged", count)
		d.do("publish", command{"stream": merged, "records": mergedRecords, "keys": keys})
		d.end()
		b.kill()

		b = startOn(t, dir, 1, nil)
		d = startDriver(t, surface).connect(b, b.Listen)
		if n := d.do("stream_shards", command{"stream": merged}).Shards; n != shards {
			t.Fatalf("the stream has %d shards after the restart, want %d", n, shards)
		}
		d.do("subscribe_sharded", command{"name": "m", "stream": merged, "start": "earliest"})
		want := byShard(mergedRecords, keys, shards)
		sameShards(t, merged, d.next("m", count), nil, want)
		next := map[uint32]uint64{}
		for shard := range want {
			next[shard] = uint64(len(want[shard]))
		}
		more, keys := keyed("more", count)
		d.do("publish", command{"stream": merged, "records": more, "keys": keys})
		sameShards(t, merged, d.next("m", count), next, byShard(more, keys, shards))
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "earliest"})
		sameRecords(t, stream, d.next("s", len(first)+count), 0, append(first, second...))
	})
}

// The broker is killed under load and started again on its data and its ports. The subscription of the published client goes
// on by itself and has seen, in the end, exactly what is stored, without a gap and without a repetition; a publish of it that
// may be repeated is stored; and every record that was acknowledged before the kill is where the ack said.
func TestDurableSubscriptionAcrossAKill(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		const stream, own, enough = "survives", "own", 500
		dir := t.TempDir()
		b := startOn(t, dir, 1, nil)
		d := startDriver(t, surface).connect(b, b.Listen)
		first := numbered("first", 20)
		sameOffsets(t, stream, d.do("publish", command{"stream": stream, "records": first}).Offsets, 0, len(first))
		sameOffsets(t, own, d.do("publish", command{"stream": own, "records": first[:1]}).Offsets, 0, 1)
		d.do("subscribe", command{"name": "s", "stream": stream, "start": "earliest"})
		sameRecords(t, stream, d.next("s", len(first)), 0, first)

		// Our own client publishes until the broker is gone, with a window full of records whose outcome nobody knows.
		loaded, err := client.Dial(t.Context(), b.Listen, client.WithTenant(tenant), client.WithCAFile(b.CAFile))
		if err != nil {
			t.Fatal(err)
		}
		p, err := loaded.Publisher(stream)
		if err != nil {
			t.Fatal(err)
		}
		loading, stop := context.WithCancel(t.Context())
		defer stop()
		acked := map[uint64]string{}
		reached, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			records := random("load", 100)
			var futures []*client.Future
			var sent [][]byte
			for i := 0; loading.Err() == nil; i++ {
				futures = append(futures, p.PublishAsync(loading, records[i%len(records)]))
				sent = append(sent, records[i%len(records)])
				if i == enough {
					if _, err := futures[0].Wait(loading); err != nil {
						ended <- err
						return
					}
					close(reached)
				}
			}
			_ = loaded.Close() // what has no answer by now gets none
			for i, f := range futures {
				ack, err := f.Wait(context.Background())
				if err == nil {
					acked[uint64(ack.Offset)] = string(sent[i])
				}
			}
			ended <- nil
		}()
		publishing := d.start("publish", command{"stream": own, "records": numbered("repeated", 50), "at_least_once": true})
		within(t, reached, "the load")
		b.kill()
		stop()
		if err := within(t, ended, "the load to end"); err != nil {
			t.Fatal(err)
		}

		b = startOn(t, dir, 1, b)
		c := b.dial()
		last := []byte("last")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ack, err := c.Publish(ctx, stream, last)
		if err != nil {
			t.Fatal(err)
		}
		stored := collect(t, subscribe(t, c, stream, client.FromEarliest()), int(ack.Offset)+1)
		payloads := make([][]byte, len(stored))
		for i, e := range stored {
			payloads[i] = e.Payload
			if want, ok := acked[uint64(i)]; ok && want != string(e.Payload) {
				t.Fatalf("at %d there is %s, and %s was acknowledged", i, brief(e.Payload), brief([]byte(want)))
			}
			delete(acked, uint64(i))
		}
		if len(acked) > 0 {
			t.Fatalf("%d records were acknowledged at offsets beyond the end, %d", len(acked), len(stored))
		}
		sameRecords(t, stream, stored, 0, payloads) // offsets without a gap
		sameRecords(t, stream, stored[:len(first)], 0, first)
		sameRecords(t, stream, d.next("s", len(stored)-len(first)), uint64(len(first)), payloads[len(first):])

		told := d.finish(publishing, "publish across the kill")
		if told.Error != nil {
			t.Fatalf("publish across the kill: %v", told.Error)
		}
		end := *told.Offsets[len(told.Offsets)-1]
		kept := collect(t, subscribe(t, c, own, client.FromEarliest()), int(end)+1)
		for i, want := range numbered("repeated", 50) {
			offset := told.Offsets[i]
			if offset == nil || *offset > end || string(kept[*offset].Payload) != string(want) {
				t.Fatalf("record %d is said to be at %s, and is not", i, show(offset))
			}
		}
	})
}
