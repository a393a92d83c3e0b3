package crash

import (
	"bytes"
	"strings"
	"testing"

	"felix/client"
)

// A story is what happened to one shard: what was sent and acknowledged, and then what is read.
type story struct {
	l    *ledger
	ids  [3]uint32 // by manner
	sent map[uint32][][]byte
}

var here = place{"s", 0}

// tell sends four records in each manner and acknowledges the plain ones at 0 to 3.
func tell(t *testing.T) *story {
	t.Helper()
	s := &story{l: newLedger(), sent: make(map[uint32][][]byte)}
	for m := plain; m <= idempotent; m++ {
		id := s.l.newSender(here.stream, m)
		s.ids[m] = id
		for i := range 4 {
			record := append(make([]byte, headerBytes), byte(m), byte(i))
			if n := s.l.send(id, record); n != uint32(i) {
				t.Fatalf("record %d has number %d", i, n)
			}
			s.sent[id] = append(s.sent[id], record)
		}
	}
	if err := s.l.ack(s.ids[plain], 0, 4, client.Ack{Offset: 0, HasOffset: true}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLedger(t *testing.T) {
	type step struct {
		manner manner
		number int
	}
	all := []step{{plain, 0}, {plain, 1}, {plain, 2}, {plain, 3}}
	with := func(steps ...step) []step { return append(append([]step(nil), all...), steps...) }
	for _, test := range []struct {
		name  string
		steps []step
		more  func(t *testing.T, s *story, p *pass) error // before the end
		want  string                                      // "" for nothing wrong
	}{
		{name: "all there", steps: all},
		{name: "and more", steps: with(step{idempotent, 0}, step{idempotent, 1}, step{atLeastOnce, 3}, step{atLeastOnce, 3})},
		{name: "the end lost", steps: all[:3], want: "s/0 ends at 3, and record 3 of sender 0 was acknowledged at 3"},
		{name: "everything lost", want: "ends at 0"},
		{name: "another in its place", steps: []step{{plain, 0}, {idempotent, 0}}, want: "offset 1 is used twice"},
		{name: "plain twice", steps: with(step{plain, 2}), want: "stored again"},
		{name: "idempotent twice", steps: with(step{idempotent, 1}, step{idempotent, 1}), want: "behind its record 1"},
		{name: "idempotent out of order", steps: with(step{idempotent, 1}, step{idempotent, 0}), want: "behind its record 1"},
		{name: "a gap", steps: all[:1], want: "offset 2 comes where 1 is due", more: func(t *testing.T, s *story, p *pass) error {
			return p.record(2, s.sent[s.ids[plain]][2])
		}},
		{name: "an offset again", steps: all[:2], want: "offset 1 comes where 2 is due", more: func(t *testing.T, s *story, p *pass) error {
			return p.record(1, s.sent[s.ids[plain]][1])
		}},
		{name: "a bit flipped", steps: all[:1], want: "with other bytes", more: func(t *testing.T, s *story, p *pass) error {
			data := bytes.Clone(s.sent[s.ids[plain]][1])
			data[headerBytes] ^= 4
			return p.record(1, data)
		}},
		{name: "never sent", steps: all, want: "never sent", more: func(t *testing.T, s *story, p *pass) error {
			data := bytes.Clone(s.sent[s.ids[plain]][1])
			data[4] = 77
			return p.record(4, data)
		}},
		{name: "too short", steps: all, want: "never sent", more: func(t *testing.T, s *story, p *pass) error { return p.record(4, nil) }},
		{name: "refused and stored", steps: all, want: "was refused and is stored", more: func(t *testing.T, s *story, p *pass) error {
			s.l.refuse(s.ids[idempotent], 2, 1)
			return p.record(4, s.sent[s.ids[idempotent]][2])
		}},
		{name: "of another stream", steps: all, want: "was sent to other", more: func(t *testing.T, s *story, p *pass) error {
			data := make([]byte, headerBytes)
			s.l.send(s.l.newSender("other", plain), data)
			return p.record(4, data)
		}},
		{name: "acknowledged where another is", steps: all, want: "offset 2 is used twice", more: func(t *testing.T, s *story, p *pass) error {
			return s.l.ack(s.ids[idempotent], 0, 1, client.Ack{Offset: 2, HasOffset: true})
		}},
		{name: "absurd offset", steps: all, want: "where 4 are known", more: func(t *testing.T, s *story, p *pass) error {
			return s.l.ack(s.ids[idempotent], 0, 1, client.Ack{Offset: 1 << 60, HasOffset: true})
		}},
		{name: "acknowledged without offset and lost", steps: all, want: "1 records were acknowledged without their offsets, and 0", more: func(t *testing.T, s *story, p *pass) error {
			return s.l.ack(s.ids[idempotent], 0, 1, client.Ack{})
		}},
		{name: "delivered and lost", steps: all, want: "was delivered at 4", more: func(t *testing.T, s *story, p *pass) error {
			live := s.l.newPass(here, seen)
			for i, record := range append(s.sent[s.ids[plain]], s.sent[s.ids[idempotent]][0]) {
				if err := live.record(client.Offset(i), record); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := tell(t)
			p := s.l.newPass(here, read)
			var err error
			for i, step := range test.steps {
				if err = p.record(client.Offset(i), s.sent[s.ids[step.manner]][step.number]); err != nil {
					break
				}
			}
			if err == nil && test.more != nil {
				err = test.more(t, s, p)
			}
			if err == nil {
				err = p.finish()
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
