package replicate

import (
	"hash/crc32"

	"felix/netio/wire"
)

// rememberedBatches is how many batches of a producer a shard can answer again: WIRE section 13.
const rememberedBatches = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digest tells the payloads of a batch from those of another one under the same sequence. It finds a client's mistake, it does
// not defend against a forger; so it is the checksum a log has at hand anyway, with the length.
func digest(records []byte) uint64 {
	return uint64(crc32.Checksum(records, castagnoli))<<32 | uint64(uint32(len(records)))
}

// A producer is what a shard knows of one idempotent producer. It is owned by the shard's loop.
type producer struct {
	id       uint64
	expected uint64 // sequence of the next batch
	first    uint64 // nothing is known of sequences below; above 0 only where the log had lost or given up earlier batches
	// batches holds the newest, sequence n at n mod rememberedBatches. Sequences count from 0, so it grows by appending.
	batches []rememberedBatch

	shard *Shard
	links [2]struct{ older, newer *producer } // in the shard's list and in the host's
}

type rememberedBatch struct {
	digest uint64
	base   wire.Offset
}

// Which of the links a list uses.
const (
	inShard = iota
	inHost
)

// A producerList is ordered by the newest batch, oldest first.
type producerList struct {
	oldest, newest *producer
	n              int
}

func (list *producerList) push(p *producer, by int) {
	p.links[by].older, p.links[by].newer = list.newest, nil
	if list.newest == nil {
		list.oldest = p
	} else {
		list.newest.links[by].newer = p
	}
	list.newest = p
	list.n++
}

func (list *producerList) remove(p *producer, by int) {
	older, newer := p.links[by].older, p.links[by].newer
	if older == nil {
		list.oldest = newer
	} else {
		older.links[by].newer = newer
	}
	if newer == nil {
		list.newest = older
	} else {
		newer.links[by].older = older
	}
	list.n--
}

// producers is the part of a shard that makes appends idempotent.
type producers struct {
	byID map[uint64]*producer // nil before the first
	list producerList
}

// judge looks up an idempotent batch. It returns Appended when the batch is the next one, and otherwise fills in a's answer. Behind a
// batch that was refused for now it says what was said there.
func (s *Shard) judge(a *Append) Outcome {
	p := s.producers.byID[a.ProducerID]
	switch {
	case p == nil && a.Sequence == 0, p != nil && a.Sequence == p.expected:
		return Appended
	case p == nil:
		return s.outOfOrder(a, UnknownProducer, s.host.loop.Now())
	case a.Sequence > p.expected:
		a.Expected = p.expected
		return s.outOfOrder(a, SequenceGap, s.host.loop.Now())
	case p.expected-a.Sequence > rememberedBatches || a.Sequence < p.first:
		return SequenceExpired
	}
	b := p.batches[a.Sequence%rememberedBatches]
	a.Base = b.base
	if b.digest != digest(a.Records) {
		return SequenceReused
	}
	return Duplicate
}

// remember notes a batch that judge let pass.
func (s *Shard) remember(a *Append) {
	s.refused.Passed(a.ProducerID, a.Sequence)
	s.note(a.ProducerID, a.Sequence, rememberedBatch{digest: digest(a.Records), base: a.Base})
}

// note takes a batch up, and forgets another producer where a bound is reached. From the log batches may come again, and some may be
// missing: then what was before is forgotten.
func (s *Shard) note(id, sequence uint64, b rememberedBatch) {
	h, p := s.host, s.producers.byID[id]
	if p != nil && sequence < p.expected {
		return
	}
	if p == nil {
		if s.producers.list.n >= h.cfg.ShardProducers {
			s.producers.list.oldest.forget()
		}
		if h.producers.n >= h.cfg.Producers {
			h.producers.oldest.forget()
		}
		if s.producers.byID == nil {
			s.producers.byID = make(map[uint64]*producer)
		}
		p = &producer{id: id, shard: s}
		s.producers.byID[p.id] = p
	} else {
		s.producers.list.remove(p, inShard)
		h.producers.remove(p, inHost)
	}
	s.producers.list.push(p, inShard)
	h.producers.push(p, inHost)

	if sequence > p.expected {
		p.first = sequence
		p.batches = append(p.batches, make([]rememberedBatch, rememberedBatches-len(p.batches))...)
	}
	if len(p.batches) < rememberedBatches {
		p.batches = append(p.batches, b)
	} else {
		p.batches[sequence%rememberedBatches] = b
	}
	p.expected = sequence + 1
}

// oldestSequence returns the first sequence that is remembered.
func (p *producer) oldestSequence() uint64 {
	return max(p.first, p.expected-min(p.expected, rememberedBatches))
}

func (p *producer) forget() {
	s := p.shard
	delete(s.producers.byID, p.id)
	s.producers.list.remove(p, inShard)
	s.host.producers.remove(p, inHost)
}

// forgetProducers frees what a deleted shard knows.
func (s *Shard) forgetProducers() {
	for p := s.producers.list.oldest; p != nil; p = s.producers.list.oldest {
		p.forget()
	}
	s.producers.byID = nil
}
