package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"felix/netio/wire"
)

// An answer is what one frame of the broker says about one publish.
type answer struct {
	requestID uint64
	offset    Offset
	hasOffset bool
	refused   error // *Error, or *ProducerError without its shard
}

// readLoop reads answers until the broker's FIN.
func (s *pubStream) readLoop() {
	defer s.loopEnded()
	buf, fill := make([]byte, 4<<10), 0
	for {
		n, err := s.io.Read(buf[fill:])
		fill += n
		used, problem := s.take(buf[:fill])
		if problem != nil {
			s.fail(problem)
			return
		}
		if err != nil {
			s.readEnded(err)
			return
		}
		if used == 0 && fill == len(buf) || n == len(buf) && len(buf) < 64<<10 {
			if len(buf) >= wire.HeaderBytes+wire.MaxPreAuthFrameBytes*4 {
				s.fail(lost("publish", "", fmt.Errorf("an answer of more than %d bytes", len(buf))))
				return
			}
			bigger := make([]byte, 2*len(buf))
			copy(bigger, buf[:fill])
			buf = bigger
		}
		fill = copy(buf, buf[used:fill])
	}
}

// readEnded is the end of the broker's side. It is good when the stream was finished and nothing is owed.
func (s *pubStream) readEnded(err error) {
	s.mu.Lock()
	good := err == io.EOF && s.finSent && s.queue.count == 0
	s.mu.Unlock()
	if !good {
		if err == io.EOF {
			err = errors.New("the broker closed the publish stream")
		}
		s.fail(unavailable("publish", "", err))
	}
}

// take handles every whole frame of b and returns the bytes they took.
func (s *pubStream) take(b []byte) (used int, problem *Error) {
	rest := b
	s.parsed = s.parsed[:0]
	for {
		h, body, after, ok, err := wire.SplitFrame(rest, wire.MaxFrameBytes)
		if err != nil {
			return 0, lost("publish", "", err)
		}
		if !ok {
			break
		}
		rest = after
		if problem := s.parse(h.Flags, body); problem != nil {
			return 0, problem
		}
	}
	if len(s.parsed) > 0 {
		if problem := s.settle(); problem != nil {
			return 0, problem
		}
	}
	return len(b) - len(rest), nil
}

// parse adds what one frame says to parsed.
func (s *pubStream) parse(flags wire.Flags, body []byte) *Error {
	if flags.Kind() == wire.FrameAck {
		var a wire.Ack
		if err := a.Parse(flags, body); err != nil {
			return lost("publish", "", err)
		}
		p := answer{requestID: a.RequestID, offset: a.Offset, hasOffset: a.HasOffset}
		if a.Failed {
			p.refused = ackError(&a)
		}
		s.parsed = append(s.parsed, p)
		return nil
	}
	if flags != 0 {
		return lost("publish", "", fmt.Errorf("frame with flags %#04x on a publish stream", uint16(flags)))
	}
	if a, ok := parsePublishOK(body); ok {
		s.parsed = append(s.parsed, a)
		return nil
	}
	m, err := wire.ParseMessage(body)
	if err != nil {
		return lost("publish", "", err)
	}
	switch m := m.(type) {
	case *wire.AuthOK, *wire.OK:
		if s.heard {
			return lost("publish", "", errors.New("a second auth_ok on a publish stream"))
		}
		s.heard = true
	case *wire.PublishOK:
		s.parsed = append(s.parsed, answer{requestID: m.RequestID, offset: m.Offset, hasOffset: m.HasOffset})
	case *wire.PublishError:
		e := &wire.Error{Message: m.Message, Code: m.Code, CodeName: m.CodeName, Retry: m.Retry, HasCode: m.HasCode, Reason: m.Reason,
			RetryAfterMillis: m.RetryAfterMillis, HasDetail: m.HasDetail}
		s.parsed = append(s.parsed, answer{requestID: m.RequestID, refused: refusal("publish", "", e)})
	case *wire.PublishRefused:
		s.parsed = append(s.parsed, answer{requestID: m.RequestID, refused: refusedError(m)})
	case *wire.Error:
		if e := refusal("publish", "", m); !s.heard {
			if !m.HasCode {
				e.Retry = RetryFatal // the answer to auth: nothing was read after it
			}
			return e
		}
		return lost("publish", "", errors.New(m.Message))
	default:
		return lost("publish", "", fmt.Errorf("message %q on a publish stream", m.MessageType()))
	}
	return nil
}

// parsePublishOK reads a publish_ok as brokers write it. Any other form is left to wire.ParseMessage, which takes fifty times as long; every
// answer to an idempotent publish is one.
func parsePublishOK(body []byte) (a answer, ok bool) {
	rest, ok := bytes.CutPrefix(body, publishOKHead)
	if !ok {
		return a, false
	}
	if a.requestID, rest, ok = cutNumber(rest); !ok {
		return a, false
	}
	if rest, ok = bytes.CutPrefix(rest, publishOKOffset); ok {
		var n uint64
		if n, rest, ok = cutNumber(rest); !ok {
			return a, false
		}
		a.offset, a.hasOffset = Offset(n), true
	}
	return a, len(rest) == 1 && rest[0] == '}'
}

var (
	publishOKHead   = []byte(`{"type":"publish_ok","request_id":`)
	publishOKOffset = []byte(`,"offset":`)
)

// cutNumber takes the digits in front of b, if they are a plain number that surely fits.
func cutNumber(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && i < 19 && b[i]-'0' <= 9 {
		n = n*10 + uint64(b[i]-'0')
		i++
	}
	return n, b[i:], i > 0 && (i == 1 || b[0] != '0')
}

func ackError(a *wire.Ack) *Error {
	return refusal("publish", "", &wire.Error{Message: a.Message, Code: a.Code, CodeName: a.Code.String(), Retry: a.Retry, HasCode: a.HasCode,
		Reason: a.Reason, RetryAfterMillis: a.RetryAfterMillis, HasDetail: a.HasDetail})
}

// refusedError is a refusal of an idempotent batch; only not_leader leaves the producer in order.
func refusedError(m *wire.PublishRefused) error {
	if m.Reason.Kind == wire.RefusalNotLeader {
		return &Error{Op: "publish", Code: wire.CodeNotLeader, Retry: RetryRedirect, Message: m.Message}
	}
	return &ProducerError{Reason: m.Reason.Kind.String(), Sequence: m.Reason.Expected, Message: m.Message}
}

// settle takes the answered publishes out of the queue and gives them their outcome.
func (s *pubStream) settle() *Error {
	s.good, s.bad = s.good[:0], s.bad[:0]
	var problem *Error
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return s.err
	}
	for i := range s.parsed {
		a := &s.parsed[i]
		out, ok := s.queue.answer(a.requestID)
		if !ok {
			problem = lost("publish", "", fmt.Errorf("an answer to publish %d, which is not out", a.requestID))
			break
		}
		switch f := out.future; {
		case a.refused != nil:
			out.each(func(f *Future, frame []byte) { s.bad = append(s.bad, failed{f, a.refused, frame}) })
		case out.pack != nil:
			s.good = out.pack.stored(s.good, a.offset, a.hasOffset)
		case !f.ghost:
			f.ack.Offset, f.ack.HasOffset = a.offset, a.hasOffset
			s.good = append(s.good, f)
		}
		if out.pack != nil {
			s.queue.releasePack(out.pack)
		}
	}
	s.queue.pop()
	s.answers += uint64(len(s.parsed))
	s.grantRoom()
	s.unlockAndWake() // the window has moved
	for i, f := range s.good {
		s.good[i] = nil
		f.succeed()
	}
	s.retries.failed(s.bad)
	clear(s.bad)
	return problem
}
