// Coldstart makes a large log, takes it out of the page cache, and measures how long felixd takes until clients can connect. It
// also measures the scan of a log that is one segment, which is the part of a start that grows with what was written last.
//
//	go run ./perf/coldstart -bytes 10GiB            -dir chooses the disk; as much must be free as is asked for
//
// The log is a durable stream of one shard, written by package wal with fsync mode none and closed in order, in segments of
// the default size. Ready is the time from starting the process to its first line of output, which it prints when clients can
// connect; first read and last read are those of a client's first page after that. Pages are dropped with
// posix_fadvise, which needs no rights; what another process has mapped stays.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"felix"
	"felix/client"
	"felix/netio/wire"
	"felix/perf/crash"
	"felix/wal"
)

func main() {
	bytes := flag.String("bytes", "10GiB", "size of the log")
	dir := flag.String("dir", "", "directory on the disk to be measured (default the system's for temporary files)")
	flag.Parse()
	n, err := parseBytes(*bytes)
	if err == nil {
		err = run(context.Background(), *dir, n, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coldstart:", err)
		os.Exit(1)
	}
}

// maxBytes bounds the log.
const maxBytes = 1 << 40

// parseBytes reads a size as 256MiB or 10GiB.
func parseBytes(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1<<20 || n >= maxBytes {
		return 0, fmt.Errorf("-bytes is %q; give a size from 1MiB to 1023GiB", s)
	}
	return int64(n), nil
}

// Records of the log, and how many are appended together.
const (
	recordBytes  = 4 << 10
	batchRecords = 256
	stream       = "log"
)

// maxScan bounds the log of one segment that is scanned.
const maxScan = 1 << 30

// A result is what a run has measured.
type result struct {
	records              uint64
	logBytes             int64
	segments             int
	scanned, scanSegment int64 // bytes that a start of the large log reads; that the scan of one segment has read
	scanTook             time.Duration
	ready                time.Duration
	first, last          time.Duration // pages read after that
}

func run(ctx context.Context, parent string, bytes int64, out io.Writer) (err error) {
	work, err := os.MkdirTemp(parent, "felix-coldstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if free, err := (wal.OSFS{}).Free(work); err != nil || free < bytes+bytes/8+2<<30 {
		return fmt.Errorf("%s has %d MiB free, %w; a log of %d MiB and the scan need %d", work, free>>20, err, bytes>>20, (bytes+bytes/8)>>20+2<<10)
	}
	r, err := measure(ctx, work, bytes)
	if err != nil {
		return err
	}
	r.print(out)
	return nil
}

func (r *result) print(out io.Writer) {
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	rate := float64(r.scanSegment) / r.scanTook.Seconds() / (1 << 30)
	fmt.Fprintf(out, "log         %s in %d segments, %d records of %d bytes, out of the page cache\n", mib(r.logBytes), r.segments, r.records, recordBytes)
	fmt.Fprintf(out, "ready       %v after the start of the process, %s of the log read\n", r.ready.Round(time.Millisecond), mib(r.scanned))
	fmt.Fprintf(out, "first read  %v, the oldest record; %v, the newest\n", r.first.Round(time.Microsecond), r.last.Round(time.Microsecond))
	fmt.Fprintf(out, "scan        %s of one segment in %v from the page cache, %.1f GiB/s\n", mib(r.scanSegment), r.scanTook.Round(time.Millisecond), rate)
}

func measure(ctx context.Context, work string, bytes int64) (*result, error) {
	data := filepath.Join(work, "data")
	r := &result{}
	number, err := makeStream(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("make the stream: %w", err)
	}
	lane := filepath.Join(data, "lanes", "lane-0")
	if r.records, err = fill(lane, wal.Options{}, number, bytes); err != nil {
		return nil, fmt.Errorf("fill the log: %w", err)
	}
	inspection, err := wal.Inspect(nil, lane)
	if err != nil {
		return nil, err
	}
	r.logBytes, r.segments, r.scanned = inspection.LogBytes, inspection.Recovered.Segments, inspection.ScannedBytes

	// A log of one segment that is full and not sealed, without the next one that stood ready.
	scanned := filepath.Join(work, "scan")
	size := min(bytes, maxScan)
	if _, err := fill(scanned, wal.Options{SegmentBytes: size + size/16}, 1, size); err != nil {
		return nil, fmt.Errorf("fill the segment: %w", err)
	}
	segments, err := filepath.Glob(filepath.Join(scanned, "*.seg"))
	if err != nil {
		return nil, err
	}
	for _, next := range segments[1:] {
		if err := os.Remove(next); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	if inspection, err = wal.Inspect(nil, scanned); err != nil {
		return nil, err
	}
	r.scanTook, r.scanSegment = time.Since(begun), inspection.ScannedBytes

	if err := drop(data); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(scanned); err != nil {
		return nil, err
	}
	return r, start(ctx, work, data, r)
}

// makeStream makes a data directory with a durable stream, and returns the number under which its lane keeps its shard.
func makeStream(ctx context.Context, data string) (number uint64, err error) {
	b, err := felix.Start(ctx, felix.Config{DataDir: data, Cores: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.CreateStream(ctx, felix.StreamConfig{Name: stream, Durable: true}); err != nil {
		return 0, err
	}
	c, err := client.Dial(ctx, b.Addr().String(), client.WithCAFile(b.CAFile()))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Publish(ctx, stream, make([]byte, recordBytes)); err != nil {
		return 0, err
	}
	s, err := b.Catalog().Stream(felix.DefaultName, felix.DefaultName, stream)
	if err != nil {
		return 0, err
	}
	for number = 0; ; number++ {
		if id, index := felix.LogShard(number); id == s.ID && index == 0 {
			return number, nil
		}
	}
}

// An owner fills a lane. It takes completions.
type owner struct {
	failed error
}

func (o *owner) OnDurable(_ uint64, _ wire.Offset, _ uint64, err error) {
	if err != nil {
		o.failed = err
	}
}

// fill appends records to a shard of the lane in dir until they take the given number of bytes, and closes the lane. It returns
// how many records the shard has.
func fill(dir string, opts wal.Options, shard uint64, bytes int64) (records uint64, err error) {
	notify := make(chan struct{}, 1)
	opts.Now = time.Now
	opts.ZeroAhead = -1
	opts.Notify = func() {
		select {
		case notify <- struct{}{}:
		default:
		}
	}
	lane, _, err := wal.Open(dir, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lane.Close()) }()
	var batch []byte
	for range batchRecords {
		batch = wire.AppendRecord(batch, make([]byte, recordBytes))
	}
	o := &owner{}
	for left := bytes; left > 0; {
		base, _ := lane.End(shard)
		_, err := lane.Append(&wal.Batch{Kind: wal.KindRecords, Shard: shard, Base: base, Count: batchRecords, Records: batch}, wal.None, 0)
		switch {
		case err == wal.ErrBusy:
			<-notify
		case err != nil:
			return 0, err
		default:
			left -= int64(len(batch))
		}
		lane.Commit()
		lane.Drain(o)
		if o.failed != nil {
			return 0, o.failed
		}
	}
	end, _ := lane.End(shard)
	return uint64(end), nil
}

// drop takes the files of a directory out of the page cache.
func drop(dir string) error {
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil { // dirty pages stay
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// start runs felixd on the directory and reads the oldest and the newest record.
func start(ctx context.Context, work, data string, r *result) (err error) {
	felixd, err := crash.Build(ctx, work)
	if err != nil {
		return err
	}
	ready := filepath.Join(work, "ready.json")
	cmd := exec.CommandContext(ctx, felixd, "--listen", "127.0.0.1:0", "--admin", "off", "--data", data, "--ready-file", ready)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FELIX_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+work, "XDG_CONFIG_HOME="+work) // its note for the felix command
	var said strings.Builder
	cmd.Stderr = &said
	banner, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
		_, _ = io.Copy(io.Discard, banner)
		if ended := cmd.Wait(); err != nil || ended != nil {
			err = errors.Join(err, fmt.Errorf("felixd ended with %v and said:\n%s", ended, said.String()))
		}
	}()
	if _, err := bufio.NewReader(banner).ReadString('\n'); err != nil {
		return fmt.Errorf("felixd is not ready: %w", err)
	}
	r.ready = time.Since(begun)
	content, err := os.ReadFile(ready)
	if err != nil {
		return err
	}
	var told felix.Ready
	if err := json.Unmarshal(content, &told); err != nil {
		return err
	}
	c, err := client.Dial(ctx, told.Listen, client.WithCAFile(told.CAFile))
	if err != nil {
		return err
	}
	defer c.Close()
	read := func(at client.Offset) (time.Duration, error) {
		begun := time.Now()
		page, err := c.ReadPage(ctx, stream, 0, at, client.ReadOptions{MaxRecords: 1})
		if err == nil && (len(page.Records) != 1 || page.Records[0].Offset != at || len(page.Records[0].Data) != recordBytes) {
			err = fmt.Errorf("offset %d reads %d records", at, len(page.Records))
		}
		return time.Since(begun), err
	}
	if r.first, err = read(0); err != nil {
		return err
	}
	r.last, err = read(client.Offset(r.records - 1))
	return err
}
