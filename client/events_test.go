package client

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/quic-go/quic-go"

	"felix/netio/wire"
)

type readerIO struct{ io.Reader }

func (readerIO) CancelRead(quic.StreamErrorCode) {}

// readAll reads a whole event stream and returns what the frames hold.
func readAll(r io.Reader) (frames []eventFrame, err error) {
	er := newEventReader(readerIO{r})
	next, known := Offset(0), true
	var d delivery
	for {
		h, body, ok, err := er.frame()
		if err != nil {
			return d.frames, err
		}
		if ok {
			if err := parseEvents(&d, h, body, &next, &known); err != nil {
				return d.frames, err
			}
			continue
		}
		if er.chunk != nil {
			er.chunk.refs.Add(1) // the frames are kept
		}
		if err := er.read(); err != nil {
			return d.frames, err
		}
	}
}

// Whatever the sizes of reads and frames, the records are the ones that were sent, and no view is overwritten.
func TestEventReader(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var stream []byte
		var sent [][]byte
		offset := Offset(0)
		for range 300 {
			e := wire.Events{Flags: wire.FlagEventBatchShared | wire.FlagEventOffsets, Base: offset}
			for range rnd.IntN(5) {
				size := rnd.IntN(500)
				if rnd.IntN(40) == 0 {
					size = rnd.IntN(700 << 10)
				}
				record := bytes.Repeat([]byte{byte(offset)}, size)
				sent = append(sent, record)
				e.Records = wire.AppendRecord(e.Records, record)
				e.Count++
				offset++
			}
			stream = wire.AppendEvents(stream, &e)
		}
		var r io.Reader = bytes.NewReader(stream)
		switch seed % 3 {
		case 1:
			r = iotest.HalfReader(r)
		case 2:
			r = &randomReader{r, rnd}
		}
		frames, err := readAll(r)
		if err != io.EOF {
			t.Fatal(err)
		}
		var got [][]byte
		for _, f := range frames {
			if f.gapTo != 0 || int(f.base) != len(got) {
				t.Fatalf("frame at %d with gap %d to %d, want %d", f.base, f.gapFrom, f.gapTo, len(got))
			}
			for record := range wire.AllRecords(f.records) {
				got = append(got, record)
			}
		}
		if len(got) != len(sent) {
			t.Fatalf("%d of %d records", len(got), len(sent))
		}
		for i := range got {
			if !bytes.Equal(got[i], sent[i]) {
				t.Fatalf("record %d differs", i)
			}
		}
	}
}

type randomReader struct {
	r   io.Reader
	rnd *rand.Rand
}

func (r *randomReader) Read(b []byte) (int, error) {
	return r.r.Read(b[:1+r.rnd.IntN(len(b))])
}

func TestEventStreamCut(t *testing.T) {
	e := wire.Events{Flags: wire.FlagEventBatchShared | wire.FlagEventOffsets, Count: 1, Records: wire.AppendRecord(nil, []byte("hello"))}
	frame := wire.AppendEvents(nil, &e)
	for n := range len(frame) {
		_, err := readAll(bytes.NewReader(frame[:n]))
		if n == 0 && err != io.EOF || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
}

func TestParseEventsGaps(t *testing.T) {
	for name, tt := range map[string]struct {
		next, base       Offset
		known            bool
		skipped          uint64
		gapFrom, gapTo   Offset
		flags            wire.Flags
		expected         Offset
		expectedHasKnown bool
	}{
		"contiguous":       {next: 5, base: 5, known: true, expected: 6},
		"gap":              {next: 5, base: 9, known: true, gapFrom: 5, gapTo: 9, expected: 10},
		"skipped":          {next: 5, base: 9, known: true, skipped: 4, flags: wire.FlagEventSkipped, expected: 10},
		"gap and skipped":  {next: 5, base: 9, known: true, skipped: 2, flags: wire.FlagEventSkipped, gapFrom: 5, gapTo: 7, expected: 10},
		"first":            {base: 9, expected: 10},
		"more than exists": {next: 0, base: 1, known: true, skipped: 50, flags: wire.FlagEventSkipped, expected: 2},
	} {
		e := wire.Events{Flags: wire.FlagEventBatchShared | wire.FlagEventOffsets | tt.flags, Base: tt.base, Skipped: tt.skipped, Count: 1, Records: wire.AppendRecord(nil, nil)}
		h, body, _, _, err := wire.SplitFrame(wire.AppendEvents(nil, &e), wire.MaxFrameBytes)
		check(t, err)
		var d delivery
		next, known := tt.next, tt.known
		check(t, parseEvents(&d, h, body, &next, &known))
		if f := d.frames[0]; f.gapFrom != tt.gapFrom || f.gapTo != tt.gapTo || next != tt.expected || !known {
			t.Errorf("%s: gap %d to %d, next %d", name, f.gapFrom, f.gapTo, next)
		}
	}
}

// Any bytes end in an error, and memory grows with what arrives only.
func FuzzEventReader(f *testing.F) {
	e := wire.Events{Flags: wire.FlagEventBatchShared | wire.FlagEventOffsets, Base: 3, Count: 1, Records: wire.AppendRecord(nil, []byte("hello"))}
	f.Add(wire.AppendEvents(nil, &e))
	f.Add(wire.AppendMessage(nil, &wire.SubscriptionLagged{SubscriptionID: 1, ResumeFrom: 9}))
	f.Add(wire.AppendMessage(nil, &wire.Event{Payload: []byte("x"), Offset: 4, HasOffset: true}))
	f.Add(wire.AppendMessage(nil, &wire.EventBatch{Count: 1, Records: wire.AppendRecord(nil, []byte("x"))}))
	f.Add(wire.AppendHeader(nil, wire.Header{Flags: wire.FlagEventBatchShared, Length: 16 << 20}))
	f.Add(wire.AppendHeader(nil, wire.Header{Flags: 0x8000, Length: 3}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		frames, err := readAll(bytes.NewReader(stream))
		if err == nil {
			t.Fatal("no error at the end")
		}
		for _, f := range frames {
			n := uint32(0)
			for range wire.AllRecords(f.records) {
				n++
			}
			if !f.timed && n != f.count {
				t.Fatalf("%d records in a frame of %d", n, f.count)
			}
		}
	})
}
