package netio

import (
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"felix/fanout"
	"felix/netio/wire"
)

// mutatedFrames is how many mutated frames TestMutatedFrames sends; FELIX_MUTATED_FRAMES changes it (a million in the
// nightly run).
const mutatedFrames = 20_000

// frameSeeds are the published vectors: every kind of frame, those that only a broker sends included.
func frameSeeds(t *testing.T) [][]byte {
	t.Helper()
	files, err := filepath.Glob("wire/testdata/vectors/*.hex")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	var seeds [][]byte
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	for _, m := range []wire.Message{
		subscribeTo("updates", 1, wire.StartPosition{Kind: wire.StartEarliest}),
		&wire.StreamShards{Scope: wire.Scope{TenantID: "t1", Namespace: "default", Stream: "updates"}, RequestID: 4},
		&wire.ProducerInit{RequestID: 9},
	} {
		seeds = append(seeds, wire.AppendMessage(nil, m))
	}
	return append(seeds, wire.AppendPublish(nil, batch(7, "updates", "key", "one", "two", "three")))
}

// mutate changes 0 to 8 bytes, mostly behind the magic, so that frames get past the first check.
func mutate(r *rand.Rand, seed []byte) []byte {
	b := append([]byte(nil), seed...)
	for range r.IntN(9) {
		at := r.IntN(len(b))
		if at < 6 && r.IntN(10) > 0 {
			continue
		}
		if at >= 8 && at < 10 && r.IntN(10) > 0 {
			continue // lengths that the stream would wait for forever teach little
		}
		b[at] = byte(r.Uint32())
	}
	if r.IntN(20) == 0 {
		b = b[:r.IntN(len(b)+1)]
	}
	return b
}

func TestMutatedFrames(t *testing.T) {
	total := mutatedFrames
	if s := os.Getenv("FELIX_MUTATED_FRAMES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("FELIX_MUTATED_FRAMES is %q; give a number of frames", s)
		}
		total = n
	}
	if testing.Short() {
		total /= 10
	}
	f := start(t, fixtureOptions{auto: true})
	f.createStream("updates", 4, fanout.DropNew)
	seeds := frameSeeds(t)
	r := rand.New(rand.NewPCG(1, 2))
	d := f.dialer()
	d.connect().conn.CloseWithError(0, "") // starts what a transport keeps
	before := runtime.NumGoroutine()

	const perStream, perConnection = 40, 2000
	for sent := 0; sent < total; {
		p := d.connect()
		go func() { // event streams of subscriptions that the frames happen to make
			for {
				s, err := p.conn.AcceptUniStream(t.Context())
				if err != nil {
					return
				}
				s.CancelRead(0)
			}
		}()
		for onConnection := 0; onConnection < perConnection && sent < total; {
			k := p.open()
			b := wire.AppendMessage(nil, auth())
			for range perStream {
				b = append(b, mutate(r, seeds[r.IntN(len(seeds))])...)
			}
			k.s.Write(b)
			k.s.Close()
			// The broker ends every stream: with answers, after a frame it cannot read, or at our end.
			if _, err := io.Copy(io.Discard, k.s); err != nil && !isReset(err) {
				t.Fatalf("after %d frames: %v", sent, err)
			}
			sent += perStream
			onConnection += perStream
		}
		p.alive()
		p.conn.CloseWithError(0, "")
	}
	waitFor(t, "the books to balance", func() bool {
		s := f.server.Stats()
		return s.Connections == 0 && s.Streams == 0 && s.Subscriptions == 0 && s.IngressBytes == 0 && s.SlotsInUse == 0 && s.SlotsWaiting == 0
	})
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before+10 })
	s := f.server.Stats()
	if s.MalformedFrames == 0 || s.UnknownFlags == 0 || s.PublishFrames == 0 {
		t.Errorf("the mutations reached too little: %+v", s)
	}
}

// isReset reports that the broker gave the stream up.
func isReset(err error) bool {
	var reset *quic.StreamError
	return errors.As(err, &reset)
}
