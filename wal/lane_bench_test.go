package wal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"felix/netio/wire"
)

// BenchmarkGroup writes and syncs groups of one size, one at a time, and reports the latency seen by the owner. With
// reader=true a reader follows the log.
func BenchmarkGroup(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, kind := range []BackendKind{BackendSync, BackendURing} {
			for _, reader := range []bool{false, true} {
				name := map[BackendKind]string{BackendSync: "sync", BackendURing: "io_uring"}[kind]
				b.Run(fmt.Sprintf("%dKiB/%s/reader=%v", size>>10, name, reader), func(b *testing.B) { benchGroup(b, kind, size, reader) })
			}
		}
	}
}

func benchGroup(b *testing.B, kind BackendKind, size int, follow bool) {
	opts := Options{Lane: 1, Now: time.Now, Backend: kind, MaxGroupBytes: 2 << 20}
	r := openRig(b, b.TempDir(), opts)
	// Let the zeros get ahead, as they would on a broker that has been up for a while.
	for r.lane.StatsOffCore().ZeroedBytes < 32<<20 {
		select {
		case <-r.notify:
		case <-time.After(10 * time.Millisecond):
		}
	}
	batch := testBatch(1, 0, 1, size-groupFixed-dirEntrySize-batchFixed-echoSize-4)
	stop, ended := make(chan struct{}), make(chan struct{})
	if follow {
		go func() {
			defer close(ended)
			reader := r.lane.NewReaderOffCore(1, 0)
			defer reader.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := reader.Read(Limits{})
				if err != nil || len(got) == 0 {
					if start, _, ok := r.lane.RangeOffCore(1); ok {
						reader.Seek(max(start, reader.Offset()))
					}
					<-time.After(100 * time.Microsecond)
				}
			}
		}()
	} else {
		close(ended)
	}
	took := make([]time.Duration, 0, b.N)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		start := time.Now()
		batch.Base = r.lane.ends1()
		for {
			_, err := r.lane.Append(batch, OnCommit, 1)
			if err == nil {
				break
			}
			if err != ErrBusy {
				b.Fatal(err)
			}
			r.lane.Drain(r)
			<-r.notify
		}
		r.lane.Commit()
		for r.lane.Drain(r) == 0 {
			<-r.notify
		}
		took = append(took, time.Since(start))
		if i%64 == 63 {
			_ = r.lane.SetStart(1, batch.Base, OnCommit, 2)
		}
	}
	b.StopTimer()
	close(stop)
	<-ended
	s := r.lane.StatsOffCore()
	r.close()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(100*float64(s.ZeroedGroups)/float64(s.Groups), "%zeroed")
}

// ends1 is the end of shard 1.
func (l *Lane) ends1() wire.Offset {
	end, _ := l.End(1)
	return end
}

// BenchmarkAppend is what one batch costs the core's loop: the copy and the books, without the disk.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			g := &openGroup{}
			batch := testBatch(1, 0, 1, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				if len(g.dir) >= maxGroupEntries || len(g.body) > 1<<20 {
					g.reset(1 << 20)
				}
				g.add(batch, OnCommit, 1, 1)
			}
		})
	}
}

// BenchmarkScan is recovery's scan of a full segment in the page cache.
func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	opts := Options{Lane: 1, Now: time.Now, ZeroAhead: -1, SegmentBytes: 256 << 20, MarkAfter: time.Hour}
	r := openRig(b, dir, opts)
	for range 200 {
		r.publish(1, 64, 8<<10, None)
	}
	r.close()
	b.ReportAllocs()
	b.ResetTimer()
	var read int64
	for i := 0; i < b.N; i++ {
		rc := recovery{fs: OSFS{}, dir: dir, lane: 1, readOnly: true}
		if err := rc.load(); err != nil {
			b.Fatal(err)
		}
		read += rc.rec.ScannedBytes
		for _, s := range rc.segments {
			s.file.Close()
		}
	}
	b.SetBytes(read / int64(b.N))
}

// BenchmarkRead reads a shard forward from the page cache.
func BenchmarkRead(b *testing.B) {
	r := openRig(b, b.TempDir(), Options{Lane: 1, Now: time.Now, ZeroAhead: -1})
	for range 2000 {
		r.publish(1, 64, 256, None)
	}
	end := r.lane.ends1()
	reader := r.lane.NewReaderOffCore(1, 0)
	b.ReportAllocs()
	b.SetBytes(64 * 260)
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		if reader.Offset() == end {
			reader.Seek(0)
		}
		if _, err := reader.Read(Limits{Records: 64 * 64}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	reader.Close()
	r.close()
}
