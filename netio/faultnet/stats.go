package faultnet

import (
	"net/netip"
	"sync/atomic"
)

// Counts are what happened to the datagrams of one direction. All of them rise only. See the package's first invariant for how they add up.
type Counts struct {
	Datagrams, Bytes uint64 // received by the proxy; bytes of UDP payload
	Initials         uint64 // of them, those that begin with an Initial packet of QUIC version 1; up, that is a client that dials

	Refused    uint64 // vanished because the proxy has no place for another client, or no socket for it
	Blocked    uint64 // vanished under Block or BlockFor
	TooLarge   uint64 // vanished because of Faults.MaxBytes
	Lost       uint64 // vanished because of Faults.Loss
	Overflowed uint64 // vanished because Config.MaxHeldBytes were held
	Unsent     uint64 // held when the proxy was closed, or not taken by the kernel

	Corrupted  uint64 // changed by Faults.Corrupt
	Duplicated uint64 // copies made by Faults.Duplicate
	Reordered  uint64 // set aside by Faults.Reorder
	Delayed    uint64 // made to wait by Faults.Delay

	Sent, SentBytes uint64 // sent on, copies included
}

// Stats is a snapshot of a proxy's counters. Held and Clients are gauges.
type Stats struct {
	Up, Down Counts
	Held     int    // datagrams delayed or set aside now, both directions
	Clients  int    // addresses with a socket towards the broker
	Sockets  uint64 // sockets towards the broker, ever: one for each client and one for each of its rebinds
}

// A Client is what one client address has sent and was sent by the broker, in bytes of UDP payload as they reached the proxy, whatever became
// of them there.
type Client struct {
	Addr     netip.AddrPort // of the client
	Upstream netip.AddrPort // of its present socket, as the broker sees it
	Up, Down struct{ Datagrams, Bytes uint64 }
}

// counters are Counts while they are counted.
type counters struct {
	datagrams, bytes, initials                                atomic.Uint64
	refused, blocked, tooLarge, lost, overflowed, unsent      atomic.Uint64
	corrupted, duplicated, reordered, delayed, sent, sentSize atomic.Uint64
}

func (c *counters) snapshot() Counts {
	return Counts{
		Datagrams: c.datagrams.Load(), Bytes: c.bytes.Load(), Initials: c.initials.Load(),
		Refused: c.refused.Load(), Blocked: c.blocked.Load(), TooLarge: c.tooLarge.Load(), Lost: c.lost.Load(),
		Overflowed: c.overflowed.Load(), Unsent: c.unsent.Load(),
		Corrupted: c.corrupted.Load(), Duplicated: c.duplicated.Load(), Reordered: c.reordered.Load(), Delayed: c.delayed.Load(),
		Sent: c.sent.Load(), SentBytes: c.sentSize.Load(),
	}
}
