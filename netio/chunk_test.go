package netio

import (
	"strings"
	"testing"

	"felix/fanout"
	"felix/netio/wire"
)

// A peer that begins the largest frames and does not go on stops those who send such frames, and nobody else, also where all may hold
// only two of them.
func TestHalfSentFramesLeaveRoom(t *testing.T) {
	f := start(t, fixtureOptions{change: func(c *Config) { c.Limits.IngressBytes = 32 << 20 }})
	f.createStream("updates", 1, fanout.DropNew)
	const most = 16 << 20
	for range 2 {
		k := f.connect().authed()
		k.raw(wire.AppendHeader(nil, wire.Header{Flags: wire.FlagPublishBatch, Length: most}))
		k.raw(make([]byte, 5<<10))
	}
	waitFor(t, "a chunk for one", func() bool { return f.server.bytes.held.Load() >= most })
	waitFor(t, "the other to wait for one", func() bool {
		return f.server.huge.waiting.Load()+f.server.large.waiting.Load()+f.server.bytes.waiting.Load() == 1
	})
	k := f.connect().authed()
	for i, size := range []int{100, 100 << 10, 900 << 10} {
		k.publish(batch(uint64(i), "updates", "", strings.Repeat("x", size)))
		if a := k.ack(); a.Failed || a.RequestID != uint64(i) {
			t.Fatalf("%d bytes: %+v", size, a)
		}
	}
}

// What a canceled or refused reservation has taken comes back to every budget.
func TestBudgetsTakeAllOrNothing(t *testing.T) {
	for _, short := range []int{0, 1, 3} {
		all := [4]*budget{newBudget(8 << 20), newBudget(8 << 20), newBudget(8 << 20), newBudget(8 << 20)}
		all[short].held.Store(8 << 20)
		b := budgets{conn: all[0], huge: all[1], large: all[2], all: all[3]}
		if b.try(2 << 20) {
			t.Fatalf("budget %d has no room and gives it", short)
		}
		for i := range all {
			want := int64(0)
			if i == short {
				want = 8 << 20
			}
			if got := all[i].held.Load(); got != want {
				t.Errorf("budget %d holds %d after a refusal by %d, want %d", i, got, short, want)
			}
		}
	}
}
