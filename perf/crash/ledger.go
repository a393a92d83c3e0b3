package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"felix/client"
)

// headerBytes is what a record begins with: the number of its sender and its own, from 0.
const headerBytes = 12

// A place is a shard of a stream.
type place struct {
	stream string
	shard  uint32
}

func (p place) String() string { return fmt.Sprintf("%s/%d", p.stream, p.shard) }

// evidence says where a record was met. Bits are added, never taken back.
type evidence uint8

const (
	acked evidence = 1 << iota
	seen           // by a subscriber that follows the stream
	read           // by the verifier after a restart
)

func (e evidence) String() string {
	text := ""
	for i, word := range [...]string{"acknowledged", "delivered", "read"} {
		if e&(1<<i) != 0 {
			text += ", " + word
		}
	}
	if text == "" {
		return "never met"
	}
	return text[2:]
}

// An entry is what is known of an offset.
type entry struct {
	sum    uint64
	sender uint32
	number uint32
	met    evidence // 0 when nothing is known
}

// manner is how a sender publishes.
type manner uint8

const (
	plain       manner = iota // stored at most once
	atLeastOnce               // stored once or several times when its outcome was in doubt
	idempotent                // stored once and in order
)

// A sender is one publisher, under a number of its own. Its records are numbered in the order of sending.
type sender struct {
	manner  manner
	stream  string
	sums    []uint64
	refused map[uint32]bool  // the broker said that it did not store these
	blind   map[uint32]place // acknowledged without an offset
}

// A ledger is what the broker must answer for, of one data directory. Its methods may be called from any goroutine.
type ledger struct {
	seed maphash.Seed

	mu      sync.Mutex
	senders []*sender
	known   map[place][]entry // by offset
	counts  struct{ acked, seen, read, blind int64 }
}

func newLedger() *ledger {
	return &ledger{seed: maphash.MakeSeed(), known: make(map[place][]entry)}
}

// newSender returns the number of a new sender.
func (l *ledger) newSender(stream string, m manner) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.senders = append(l.senders, &sender{manner: m, stream: stream, refused: make(map[uint32]bool), blind: make(map[uint32]place)})
	return uint32(len(l.senders) - 1)
}

// send numbers a record of a sender, which has headerBytes of room in front, and notes its checksum. It is called before
// the record is given away.
func (l *ledger) send(id uint32, record []byte) (number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[id]
	number = uint32(len(s.sums))
	binary.LittleEndian.PutUint32(record, id)
	binary.LittleEndian.PutUint64(record[4:], uint64(number))
	s.sums = append(s.sums, maphash.Bytes(l.seed, record))
	return number
}

// ack notes that the records [first, first+n) of a sender were acknowledged.
func (l *ledger) ack(id, first uint32, n int, ack client.Ack) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[id]
	p := place{s.stream, ack.Shard}
	l.counts.acked += int64(n)
	for i := range uint32(n) {
		if !ack.HasOffset {
			l.counts.blind++
			s.blind[first+i] = p
			continue
		}
		e := entry{sum: s.sums[first+i], sender: id, number: first + i, met: acked}
		if err := l.note(p, ack.Offset+client.Offset(i), e); err != nil {
			return err
		}
	}
	return nil
}

// refuse notes that the broker did not store the records [first, first+n) of a sender.
func (l *ledger) refuse(id, first uint32, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range uint32(n) {
		l.senders[id].refused[first+i] = true
	}
}

// maxAhead bounds how far an offset may lie beyond what is known of a shard: an absurd one is an error, not an allocation.
const maxAhead = 1 << 24

// note adds what was met at an offset, which must agree with what is known.
func (l *ledger) note(p place, offset client.Offset, e entry) error {
	known := l.known[p]
	if offset >= client.Offset(len(known)+maxAhead) {
		return fmt.Errorf("%v: offset %d, where %d are known", p, offset, len(known))
	}
	for client.Offset(len(known)) <= offset {
		known = append(known, entry{})
	}
	l.known[p] = known
	old := &known[offset]
	if old.met != 0 && (old.sum != e.sum || old.sender != e.sender || old.number != e.number) {
		return fmt.Errorf("%v: offset %d is used twice: record %d of sender %d was %v there, now record %d of sender %d is %v",
			p, offset, old.number, old.sender, old.met, e.number, e.sender, e.met)
	}
	e.met |= old.met
	*old = e
	return nil
}

// identify finds out which record this is: one that was sent, to this stream, as it was sent, and not refused.
func (l *ledger) identify(p place, offset client.Offset, data []byte) (entry, *sender, error) {
	if len(data) < headerBytes {
		return entry{}, nil, fmt.Errorf("%v: the record at %d has %d bytes and was never sent", p, offset, len(data))
	}
	id, number := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint64(data[4:])
	if uint64(id) >= uint64(len(l.senders)) || number >= uint64(len(l.senders[id].sums)) {
		return entry{}, nil, fmt.Errorf("%v: the record at %d says it is number %d of sender %d, which was never sent", p, offset, number, id)
	}
	s := l.senders[id]
	e := entry{sum: maphash.Bytes(l.seed, data), sender: id, number: uint32(number)}
	switch {
	case e.sum != s.sums[number]:
		return e, s, fmt.Errorf("%v: the record at %d is number %d of sender %d with other bytes", p, offset, number, id)
	case s.stream != p.stream:
		return e, s, fmt.Errorf("%v: the record at %d was sent to %s", p, offset, s.stream)
	case s.refused[e.number]:
		return e, s, fmt.Errorf("%v: the record at %d, number %d of sender %d, was refused and is stored", p, offset, number, id)
	}
	return e, s, nil
}

// A pass is one reading of a shard from offset 0 on. It belongs to one goroutine at a time.
type pass struct {
	ledger *ledger
	place  place
	how    evidence
	next   client.Offset
	last   map[uint32]uint32          // number of the latest record of each idempotent sender
	once   map[uint32]map[uint32]bool // numbers of the records of plain senders
	blind  int                        // records met whose ack had no offset
}

func (l *ledger) newPass(p place, how evidence) *pass {
	return &pass{ledger: l, place: p, how: how, last: make(map[uint32]uint32), once: make(map[uint32]map[uint32]bool)}
}

// record takes the next record of the shard.
func (p *pass) record(offset client.Offset, data []byte) error {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset != p.next {
		return fmt.Errorf("%v: offset %d comes where %d is due (%v)", p.place, offset, p.next, p.how)
	}
	p.next++
	e, s, err := l.identify(p.place, offset, data)
	if err != nil {
		return err
	}
	switch s.manner {
	case idempotent:
		if last, ok := p.last[e.sender]; ok && e.number <= last {
			return fmt.Errorf("%v: record %d of idempotent sender %d is at %d, behind its record %d", p.place, e.number, e.sender, offset, last)
		}
		p.last[e.sender] = e.number
	case plain:
		if p.once[e.sender] == nil {
			p.once[e.sender] = make(map[uint32]bool)
		}
		if p.once[e.sender][e.number] {
			return fmt.Errorf("%v: record %d of plain sender %d is stored again at %d", p.place, e.number, e.sender, offset)
		}
		p.once[e.sender][e.number] = true
	}
	if at, ok := s.blind[e.number]; ok {
		if at != p.place {
			return fmt.Errorf("%v: record %d of sender %d is at %d, and was acknowledged in %v", p.place, e.number, e.sender, offset, at)
		}
		if p.how == read {
			p.blind++
		}
	}
	switch p.how {
	case seen:
		l.counts.seen++
	case read:
		l.counts.read++
	}
	e.met = p.how
	return l.note(p.place, offset, e)
}

// finish checks that a pass that has read the shard to its end met everything that is known of it.
func (p *pass) finish() error {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.known[p.place]
	var problems []error
	for offset := int(p.next); offset < len(known); offset++ {
		if e := known[offset]; e.met != 0 {
			problems = append(problems, fmt.Errorf("%v ends at %d, and record %d of sender %d was %v at %d", p.place, p.next, e.number, e.sender, e.met, offset))
			break
		}
	}
	want := 0
	for _, s := range l.senders {
		met := make(map[place]int)
		for _, at := range s.blind {
			met[at]++
		}
		want += met[p.place]
	}
	// At least once means perhaps twice.
	if p.how == read && p.blind < want {
		problems = append(problems, fmt.Errorf("%v: %d records were acknowledged without their offsets, and %d of them are there", p.place, want, p.blind))
	}
	return errors.Join(problems...)
}
