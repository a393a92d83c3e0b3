package client

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A queueModel drives a sendQueue the way a stream does and checks it against plain slices.
type queueModel struct {
	t       *testing.T
	q       sendQueue
	all     []byte // every byte that was queued, in order
	written int
	taken   []byte
	futures []*Future // acked and unanswered, in order; nil once answered
	frames  [][]byte
	first   uint64
}

func (m *queueModel) push(size int, acked bool) {
	frame := bytes.Repeat([]byte{byte(len(m.all))}, size)
	c := m.q.reserve(size)
	start := len(c.buf)
	if cap(c.buf)-start < size {
		m.t.Fatalf("reserve(%d) gave %d bytes", size, cap(c.buf)-start)
	}
	c.buf = append(c.buf, frame...)
	var f *Future
	if acked {
		f = new(Future)
		if id := m.q.nextID(); id != m.first+uint64(len(m.futures)) {
			m.t.Fatalf("request id %d, want %d", id, m.first+uint64(len(m.futures)))
		}
		m.futures = append(m.futures, f)
		m.frames = append(m.frames, frame)
	}
	m.q.pushed(c, start, f)
	m.all = append(m.all, frame...)
}

func (m *queueModel) take() bool {
	m.taken = m.q.take()
	if m.taken == nil {
		return false
	}
	if want := m.all[m.written : m.written+len(m.taken)]; !bytes.Equal(m.taken, want) {
		m.t.Fatal("took other bytes than were queued")
	}
	return true
}

func (m *queueModel) wrote() {
	m.q.wrote(len(m.taken))
	m.written += len(m.taken)
	m.taken = nil
}

// answer answers the i-th unanswered publish.
func (m *queueModel) answer(i int) {
	out, ok := m.q.answer(m.first + uint64(i))
	if !ok || out.future != m.futures[i] || !bytes.Equal(out.frame, m.frames[i]) {
		m.t.Fatalf("answer %d gave another publish", i)
	}
	if _, again := m.q.answer(m.first + uint64(i)); again {
		m.t.Fatal("one publish was answered twice")
	}
	m.futures[i] = nil
	m.q.pop()
	for len(m.futures) > 0 && m.futures[0] == nil && m.first < m.q.firstID {
		m.futures, m.frames, m.first = m.futures[1:], m.frames[1:], m.first+1
	}
	if m.first != m.q.firstID {
		m.t.Fatalf("oldest request id %d, want %d", m.q.firstID, m.first)
	}
}

func TestSendQueue(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		window := []int{0, 1, 7, 256}[seed%4]
		m := &queueModel{t: t, q: newSendQueue(window), first: 1}
		for range 1500 {
			switch r.IntN(6) {
			case 0, 1:
				size := 1 + r.IntN(300)
				if r.IntN(50) == 0 {
					size = 1 + r.IntN(400<<10)
				}
				m.push(size, r.IntN(4) > 0)
			case 2:
				if m.taken == nil {
					m.take()
				}
			case 3:
				if m.taken != nil {
					m.wrote()
				}
			default:
				if sent := m.q.unanswered(); sent > 0 {
					if window > 0 && sent > window {
						t.Fatalf("%d unanswered, the window is %d", sent, window)
					}
					i := 0
					if seed%2 == 0 {
						i = r.IntN(sent) // a broker without pipelining answers in any order
					}
					if m.futures[i] != nil {
						m.answer(i)
					}
				}
			}
		}
		// Everything goes out and comes back, and nothing is left.
		for m.taken != nil || !m.q.empty() {
			if m.taken != nil || m.take() {
				m.wrote()
			}
			for i := range m.q.unanswered() {
				if i < len(m.futures) && m.futures[i] != nil {
					m.answer(i)
					break
				}
			}
		}
		if m.written != len(m.all) || m.q.heldBytes != 0 || len(m.futures) != 0 {
			t.Fatalf("seed %d: wrote %d of %d bytes, %d held, %d unanswered", seed, m.written, len(m.all), m.q.heldBytes, len(m.futures))
		}
		m.q.trim()
		if len(m.q.spare) != 0 || m.q.tail != nil {
			t.Fatal("an idle queue keeps memory")
		}
		m.push(10, true) // and it goes on
		if !m.take() {
			t.Fatal("nothing to write")
		}
	}
}

// The chunks of answered publishes are used again.
func TestSendQueueReusesChunks(t *testing.T) {
	q := newSendQueue(256)
	m := &queueModel{t: t, q: q, first: 1}
	step := func() {
		for range 200 {
			m.push(300, true)
			m.all, m.written = m.all[m.written:], 0
		}
		for m.take() {
			m.wrote()
		}
		for range 200 {
			m.answer(0)
		}
	}
	for range 50 {
		step()
	}
	chunks := len(m.q.spare)
	for c := m.q.head; c != nil; c = c.next {
		chunks++
	}
	if chunks > 4 {
		t.Fatalf("%d chunks for 60 KB in flight", chunks)
	}
}

func TestSendQueueDrain(t *testing.T) {
	m := &queueModel{t: t, q: newSendQueue(3), first: 1}
	for i := range 10 {
		m.push(100, i != 5)
	}
	m.take()
	m.wrote()
	m.answer(1)
	var sent, unsent int
	at := 0
	m.q.drain(func(f *Future, frame []byte, was bool) {
		for m.futures[at] == nil {
			at++
		}
		if f != m.futures[at] || !bytes.Equal(frame, m.frames[at]) {
			t.Fatal("another publish than was queued")
		}
		at++
		if was {
			sent++
		} else {
			unsent++
		}
	})
	if sent != 2 || unsent != 6 || m.q.count != 0 || m.q.heldBytes != 0 {
		t.Fatalf("%d sent, %d not sent, %d left", sent, unsent, m.q.count)
	}
}
