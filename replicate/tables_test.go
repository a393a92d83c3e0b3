package replicate

import (
	"fmt"
	"testing"

	"felix/core"
	"felix/netio/wire"
	"felix/wal"
)

// An unclean end loses no producer's memory, tables and marks at any distance.
func TestProducersSurviveKills(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}, wal: wal.Options{MaxGroupBytes: 64 << 10}}
	base := wire.Offset(0)
	for life := range 4 {
		b := openBroker(t, options{}, d)
		s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
		for i := range 30 {
			// A batch beyond what a replay reads at a time.
			payload := make([]byte, 40<<10)
			payload[0] = byte(i)
			a := &Append{Records: wire.AppendRecord(nil, payload), Count: 1, Idempotent: true, ProducerID: 7, Sequence: uint64(30*life + i)}
			if i == 3 {
				for range 40 {
					a.Records = wire.AppendRecord(a.Records, payload)
				}
				a.Count = 41
			}
			check(t, "outcome", b.publish(s, a).Outcome, Appended)
			check(t, "base", a.Base, base)
			base = a.end()
			check(t, "outcome of a copy", b.publish(s, a).Outcome, Duplicate)
			if life == 2 && i == 10 {
				b.on(s, func(*core.Loop) {
					if err := s.writeTable(wal.OnCommit); err != nil {
						t.Error(err)
					}
				})
			}
			if i >= 28 || i == 10 { // and one that was not there before the last life
				check(t, "outcome", b.publish(s, &Append{Records: records(base, 1), Count: 1}).Outcome, Appended)
				base++
			}
		}
		d.dir = copyDir(t, d.dir)
		b.close()
		b = openBroker(t, options{}, durable{dir: copyDir(t, d.dir), journal: d.journal, wal: d.wal})
		s = b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
		payload := make([]byte, 40<<10)
		payload[0] = 3
		big := &Append{Count: 41, Idempotent: true, ProducerID: 7, Sequence: uint64(30*life + 3)}
		for range 41 {
			big.Records = wire.AppendRecord(big.Records, payload)
		}
		check(t, "outcome of the large batch again", b.publish(s, big).Outcome, Duplicate)
		check(t, "outcome of a reused sequence", b.publish(s, &Append{Records: records(0, 1), Count: 1, Idempotent: true, ProducerID: 7, Sequence: uint64(30*life + 4)}).Outcome, SequenceReused)
		b.close()
	}
}

// Whatever becomes of the table, what the log holds is judged right.
func TestReplayOfProducersWithGaps(t *testing.T) {
	d := durable{dir: t.TempDir(), journal: &memoryJournal{}}
	b := openBroker(t, options{}, d)
	s := b.stream(StreamConfig{Name: "s", Durable: true}).Shards[0]
	b.on(s, func(*core.Loop) {
		s.note(1, 10, rememberedBatch{digest: 1, base: 5}) // as after retention has taken the first
		s.note(1, 11, rememberedBatch{digest: 2, base: 6})
		s.note(1, 11, rememberedBatch{digest: 9, base: 9}) // twice in the log
		s.note(1, 90, rememberedBatch{digest: 3, base: 7}) // lost to damage in between
		s.note(2, 0, rememberedBatch{digest: 1})
		for seq, want := range map[uint64]Outcome{9: SequenceExpired, 11: SequenceExpired, 89: SequenceExpired, 90: SequenceReused, 91: Appended, 92: SequenceGap} {
			check(t, fmt.Sprint("outcome of ", seq), s.judge(&Append{ProducerID: 1, Sequence: seq}), want)
		}
		table := s.producers.appendTable(nil)
		var got []string
		if err := parseTable(table, func(id, seq uint64, b rememberedBatch) { got = append(got, fmt.Sprint(id, " ", seq, " ", b.digest)) }); err != nil {
			t.Error(err)
		}
		check(t, "table", fmt.Sprint(got), "[1 90 3 2 0 1]")
	})
}

func FuzzParseTable(f *testing.F) {
	ps := &producers{}
	f.Add(ps.appendTable(nil))
	s := &Shard{host: &Host{cfg: HostConfig{ShardProducers: 10, Producers: 10}}}
	for i := range uint64(3) {
		for seq := range 30 * i {
			s.note(i, seq, rememberedBatch{digest: seq, base: wire.Offset(seq)})
		}
	}
	f.Add(s.producers.appendTable(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Shard{host: &Host{cfg: HostConfig{ShardProducers: 1 << 20, Producers: 1 << 20}}}
		if parseTable(b, s.note) != nil {
			return
		}
		// What was taken up comes out the same again.
		once := s.producers.appendTable(nil)
		again := &Shard{host: &Host{cfg: s.host.cfg}}
		if err := parseTable(once, again.note); err != nil {
			t.Fatal(err)
		}
		if twice := again.producers.appendTable(nil); string(once) != string(twice) {
			t.Fatalf("%x became %x", once, twice)
		}
	})
}
