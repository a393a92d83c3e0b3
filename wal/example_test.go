package wal_test

import (
	"fmt"
	"os"
	"time"

	"felix/netio/wire"
	"felix/wal"
)

// sink takes completions on the owner's loop.
type sink struct{ durable wire.Offset }

func (s *sink) OnDurable(_ uint64, upTo wire.Offset, _ uint64, err error) {
	if err == nil {
		s.durable = upTo
	}
}

// The owner appends, commits and drains; here the example's goroutine is the loop and a channel its inbox.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "lane")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	wake := make(chan struct{}, 1)
	lane, _, err := wal.Open(dir, wal.Options{Lane: 1, Now: time.Now, SegmentBytes: 1 << 20, Notify: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		panic(err)
	}
	const shard, token = 42, 7
	records := wire.AppendRecord(wire.AppendRecord(nil, []byte("one")), []byte("two"))
	batch := wal.Batch{Kind: wal.KindRecords, Shard: shard, Base: 0, Count: 2, Time: time.Now().UnixMicro(), Records: records}
	if _, err := lane.Append(&batch, wal.OnCommit, token); err != nil {
		panic(err)
	}
	lane.Commit()
	var s sink
	for lane.Drain(&s) == 0 {
		<-wake
	}
	fmt.Println("durable up to", s.durable)

	reader := lane.NewReaderOffCore(shard, 0)
	batches, err := reader.Read(wal.Limits{})
	if err != nil {
		panic(err)
	}
	for p := range wire.AllRecords(batches[0].Records) {
		fmt.Println(string(p))
	}
	reader.Close()
	if err := lane.Close(); err != nil {
		panic(err)
	}
	// Output:
	// durable up to 2
	// one
	// two
}
