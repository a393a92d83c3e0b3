package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"felix"
	"felix/client"
	"felix/perf/load"
)

// A bench is a broker in this process with what its clients need.
type bench struct{ broker *felix.Broker }

// startBench starts a broker in a temporary directory. change may be nil.
func startBench(ctx context.Context, change func(*felix.Config)) (*bench, error) {
	var c felix.Config
	c.Limits.AckWait = time.Minute // a busy disk is no fault
	if change != nil {
		change(&c)
	}
	b, err := felix.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &bench{b}, nil
}

func (b *bench) stream(ctx context.Context, name string, durable bool, slow felix.Policy) error {
	return b.broker.CreateStream(ctx, felix.StreamConfig{Name: name, Durable: durable, OnSlow: slow, OnSlowGiven: true})
}

// dial connects a client of its own, with one connection per purpose.
func (b *bench) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, b.broker.Addr().String(), client.WithCAFile(b.broker.CAFile()), client.WithConnections(1))
}

// A crew is goroutines of which the first that fails ends the others.
type crew struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
}

func newCrew(ctx context.Context) *crew {
	g := &crew{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

func (g *crew) do(f func(ctx context.Context) error) {
	g.all.Go(func() {
		if err := f(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

// wait returns the first error once all have ended.
func (g *crew) wait() error {
	g.all.Wait()
	err := context.Cause(g.ctx)
	g.cancel(nil)
	return err
}

// putNumber and numberOf write and read the number at the front of a record.
func putNumber(record []byte, n uint64) { binary.BigEndian.PutUint64(record, n) }

func numberOf(record []byte) (n uint64, ok bool) {
	if len(record) < 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(record), true
}

// checkRecord holds a record that has been received against its offset.
func checkRecord(m client.Msg, next client.Offset) error {
	n, ok := numberOf(m.Data)
	switch {
	case m.Offset != next:
		return fmt.Errorf("offset %d was delivered where %d comes next", m.Offset, next)
	case !ok || n != uint64(m.Offset):
		return fmt.Errorf("offset %d holds record %d", m.Offset, n)
	}
	return nil
}

// await polls a condition that nothing signals. It ends with the context.
func await(ctx context.Context, what string, done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// residentBytes is the memory of a process.
func residentBytes(pid int) (int64, error) {
	usage, err := load.ProcessUsage(pid)
	return int64(usage[load.RSSBytes]), err
}

// openFiles is how many descriptors this process has open, besides those of files below a directory.
func openFiles(besides string) (n int, err error) {
	const descriptors = "/proc/self/fd"
	entries, err := os.ReadDir(descriptors)
	for _, e := range entries {
		target, err := os.Readlink(descriptors + "/" + e.Name())
		if err == nil && !strings.HasPrefix(target, besides) { // an error: it was what read the directory
			n++
		}
	}
	return n, err
}

// books are counts that must come back to where they were.
type books struct {
	Goroutines, Files                             int
	Connections, Unauthenticated, Streams         int64
	Subscriptions, Ingress, Slots, Waiting, Bytes int64 // Bytes: of event frames that only subscribers hold
}

func (b *bench) books() (books, error) {
	files, err := openFiles(b.broker.DataDir()) // how many segments the log has open depends on what was written
	s := b.broker.Stats()
	return books{
		Goroutines: runtime.NumGoroutine(), Files: files,
		Connections: s.Connections, Unauthenticated: s.Unauthenticated, Streams: s.Streams, Subscriptions: s.Subscriptions,
		Ingress: s.IngressBytes, Slots: s.SlotsInUse, Waiting: s.SlotsWaiting, Bytes: s.HeldBytes - s.RingBytes,
	}, err
}

// settle waits until the books are as want says. When they do not come there the error has both.
func (b *bench) settle(ctx context.Context, want books) error {
	var now books
	var failed error
	err := await(ctx, "the books to balance", func() bool {
		now, failed = b.books()
		return failed != nil || now == want
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%w\n have %+v\n want %+v", err, now, want)
	}
	return nil
}
