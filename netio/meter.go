package netio

import (
	"errors"

	"felix/netio/wire"
)

// This file is the tenant's quota at the door. Acked publishes beyond it are refused where they are parsed. Those without ack wait:
// the reader of their stream stops in front of them. It may hold no chunk meanwhile, which is memory that other tenants wait for. So
// it stops before it reads the frame, of which it knows the header; and while the quota is short it reads no further than the
// frame at hand or 4 KiB, so that what it carries over when it stops in the middle of a read is at most that.

// errPark makes the reader carry what is left from this frame on, and come back when the quota lets it through.
var errPark = errors.New("netio: a publish without ack waits for its tenant's quota")

// A meter is where a stream's reader stands with the quota of its tenant. The reader owns it.
type meter struct {
	on     bool // a quota is in force, and there is not much left of it
	parked bool // the carry begins with a whole publish without ack, which waits
	paid   bool // the next frame, which is a publish without ack, has been taken out of the quota, as one record
	left   int  // bytes of the chunk from the frame on that is being parsed
}

// meterNext takes the next frame of the stream out of the quota if it is a publish without ack, for which it waits. It returns the size of
// that frame, header included; 0 when the quota has no say.
func (st *stream) meterNext() (frame int, err error) {
	q, m := st.account.quota.Load(), &st.meter
	m.on = q != nil && !q.roomy()
	if !m.on && !m.parked {
		return 0, nil
	}
	h, err := st.nextHeader()
	if err != nil {
		return 0, err
	}
	if int64(h.Length) > int64(st.conn.server.limits.FrameBytes) {
		return 0, nil // refused when it is parsed
	}
	waits := m.parked || h.Flags.Kind() == wire.FramePublish && !h.Flags.Has(wire.FlagPublishAcked)
	m.parked = false
	if waits && !m.paid && q != nil && !st.conn.server.limits.ShedUnacked {
		m.paid = true
		err = st.waitForQuota(q, int64(h.Length))
	}
	return wire.HeaderBytes + int(h.Length), err
}

// waitForQuota takes a publish without ack out of the quota, as one record. A stream that drains goes on at once: what it has read is
// published.
func (st *stream) waitForQuota(q *quota, bytes int64) error {
	waited, err := q.wait(st.conn.quic.Context(), st.stop, bytes)
	if waited {
		st.account.counts.quotaWaited.Add(1)
	}
	return err
}

// meterAcked returns why an acked publish is refused; nil when it is let through.
func (st *stream) meterAcked(bytes int, msgs uint32) *refusal {
	q := st.account.quota.Load()
	if q == nil {
		return nil
	}
	empty := q.try(int64(bytes), int64(msgs))
	if empty <= 0 {
		return nil
	}
	st.account.counts.quotaRefused.Add(1)
	return overQuota(q, empty)
}

// meterUnacked lets a publish without ack through, or drops it where that is asked for, or returns errPark. asJSON is for one whose kind its
// header does not tell: where it cannot be carried over it waits in its chunk.
func (st *stream) meterUnacked(bytes int, msgs uint32, asJSON bool) (dropped bool, err error) {
	q, m := st.account.quota.Load(), &st.meter
	paid := m.paid
	m.paid = false
	switch {
	case q == nil:
		return false, nil
	case paid:
	case q.waiting.Load() == 0 && q.try(int64(bytes), int64(msgs)) <= 0:
		return false, nil
	case st.conn.server.limits.ShedUnacked:
		return true, nil
	case m.left <= carriedBytes:
		m.parked = true
		return false, errPark
	case asJSON:
		st.post()
		if err := st.waitForQuota(q, int64(bytes)); err != nil {
			return false, err
		}
	default:
		// Of a read that was begun when there was much left: an overdraft of at most such a read.
		q.overdraw(int64(bytes), int64(msgs))
		return false, nil
	}
	if msgs > 1 {
		q.overdraw(0, int64(msgs)-1) // of which one is taken
	}
	return false, nil
}

// shedOverQuota counts a publish without ack that its tenant's quota has no room for.
func (st *stream) shedOverQuota(tenant, namespace, name []byte, records uint32) {
	st.conn.server.counts.shedUnread.Add(1)
	st.account.counts.quotaShed.Add(1)
	if s, refused := st.resolve(tenant, namespace, name); refused == nil {
		s.CountShed(records)
	}
}
