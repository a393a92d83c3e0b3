package netio

import (
	"felix/core"
	"felix/netio/wire"
)

// This file drops publishes without ack instead of having them wait, where Limits.ShedUnacked asks for it.

var errShed = &refusal{code: wire.CodeOverloaded, message: "publish queue full", reason: wire.ReasonPublishQueueFull}

// shed drops a publish without ack that found no slot. Nobody is told but the counters.
func (in *ingress) shed(l *core.Loop, p *publish) {
	p.failed = errShed
	in.counts.shed++
	p.run.stream.account.counts.queueShed.Add(1)
	p.Shard.Stream().CountShed(p.Count)
	in.finish(l, p)
}

// nextHeader returns the header of the frame that the stream goes on with. It waits until all of it has come, in the carry.
func (st *stream) nextHeader() (wire.Header, error) {
	for len(st.carry) < wire.HeaderBytes {
		var b [wire.HeaderBytes]byte
		n, err := st.recv.Read(b[:wire.HeaderBytes-len(st.carry)])
		st.carry = append(st.carry, b[:n]...)
		if err != nil && len(st.carry) < wire.HeaderBytes {
			return wire.Header{}, st.ended(err, len(st.carry))
		}
	}
	h, err := wire.ParseHeader(st.carry)
	if err != nil {
		return h, st.unreadable(h, err)
	}
	return h, nil
}

// shedHeadBytes is how much of a frame that is shed is looked at: enough for three names of the longest kind and a short key.
const shedHeadBytes = 1 << 10

// shedNext drops the next frame of a stream that gets no chunk for it, if it is a publish without ack; it is read off the stream without
// being kept. Others have to wait: each of them has an answer.
func (st *stream) shedNext() (shed bool, err error) {
	h, err := st.nextHeader()
	if err != nil || h.Flags.Kind() != wire.FramePublish || h.Flags.Has(wire.FlagPublishAcked) || int64(h.Length) > int64(st.conn.server.limits.FrameBytes) {
		return false, err
	}
	var buf [shedHeadBytes]byte
	frame := wire.HeaderBytes + int(h.Length)
	carried := min(len(st.carry), frame)
	head := buf[:copy(buf[:], st.carry[:carried])]
	st.carry = append(st.carry[:0], st.carry[carried:]...)
	left := frame - carried
	for n := min(left, len(buf)-len(head)); n > 0; n = min(left, len(buf)-len(head)) {
		got, err := st.recv.Read(buf[len(head) : len(head)+n])
		head, left = buf[:len(head)+got], left-got
		if err != nil && left > 0 {
			return false, st.ended(err, left)
		}
	}
	server := st.conn.server
	if p, ok := wire.PublishScope(h.Flags, head[wire.HeaderBytes:]); ok && string(p.Tenant) == st.tenant {
		if found := server.catalog.Resolve(p.Tenant, p.Namespace, p.Stream); found != nil {
			found.CountShed(p.Count)
		}
	}
	server.counts.shedUnread.Add(1)
	st.account.counts.queueShed.Add(1)
	for left > 0 {
		got, err := st.recv.Read(buf[:min(left, len(buf))])
		if left -= got; err != nil && left > 0 {
			return false, st.ended(err, left)
		}
	}
	return true, nil // an end of the stream that came with the last byte is told by the next Read
}
