package netio

import (
	"sync/atomic"

	"felix/core"
	"felix/fanout"
)

// serverCounts are what goroutines off the loops count.
type serverCounts struct {
	accepted []atomic.Uint64 // by core
	events   []eventCounts   // by session core

	streams, subscriptions                         atomic.Int64
	authTimeouts, authFailures                     atomic.Uint64
	malformed, unknownFlags, oversized, slowFrames atomic.Uint64
	subscribes, subscribeRefused                   atomic.Uint64
	abandoned                                      atomic.Uint64 // streams given up by Close
	shedUnread                                     atomic.Uint64 // frames without ack that readers dropped, before they were in a run
	subscriberStalls, requestsRefused              atomic.Uint64
	connNumber                                     atomic.Uint64 // of the last connection
}

// eventCounts are the deliveries of one core's sessions, on a cache line of their own.
type eventCounts struct {
	frames, records, bytes atomic.Uint64
	_                      [40]byte
}

// delivered counts a frame that was written to a subscriber.
func (s *Server) delivered(session core.ID, f *fanout.Frame) {
	c := &s.counts.events[session]
	c.frames.Add(1)
	c.records.Add(uint64(f.Count))
	c.bytes.Add(uint64(len(f.Records()) - 4*int(f.Count)))
}

// Stats counts what a server has seen. Gauges: Connections, Unauthenticated, Streams, Subscriptions, IngressBytes,
// SlotsInUse, SlotsWaiting.
type Stats struct {
	Connections, Unauthenticated, Streams, Subscriptions int64
	IngressBytes, SlotsInUse, SlotsWaiting               int64

	ConnectionsAccepted                                        uint64
	ConnectionsPerCore                                         []uint64 // accepted, by the core whose socket took them
	RefusedLimit, RefusedPerIP, RefusedUnauthenticated         uint64   // connections refused in the handshake
	RetriesAsked                                               uint64   // first packets that were answered with a Retry
	AuthTimeouts, AuthFailures                                 uint64
	PublishFrames, PublishRecords, PublishBytes                uint64 // appended; bytes of payload
	PublishAcked, PublishRefused, PublishDropped               uint64 // frames answered ok, answered with an error, unacked and not appended
	PublishShed                                                uint64 // frames without ack dropped at the door, of Limits.ShedUnacked; in PublishDropped, too
	JSONPublishes                                              uint64
	MalformedFrames, UnknownFlags, OversizedFrames, SlowFrames uint64
	WaitersAdmitted, SlotsFreedWhileWaiting                    uint64
	Subscribes, SubscribeRefused                               uint64
	StreamsAbandoned                                           uint64 // by Close, with publishes that had not ended after Limits.AckWait
	SubscriberStalls                                           uint64 // subscriptions that LookAtSubscribers found stalled
	RequestsRefused                                            uint64 // for their rate
	LogLinesSuppressed                                         uint64 // about clients, beyond the bound of their cause
	EventFrames, EventRecords, EventBytes                      uint64 // written to event streams; bytes of payload
	PacketsIn, PacketsOut, BytesIn, BytesOut                   uint64
	SuperBuffers, ForeignSegments, ForeignSegmentsDropped      uint64
	SendRetries, KernelDrops                                   uint64
	ReadBufferBytes, WriteBufferBytes                          int // granted by the kernel, smallest of the sockets
	GRO, GSO, Steered                                          bool

	Memory  MemoryStats
	Tenants []TenantStats // those with something to tell, by name
}

// Stats is a snapshot of the server's counters. The counters rise only; gauges are named in Stats.
func (s *Server) Stats() Stats {
	c := &s.counts
	st := Stats{
		Connections:            s.gate.connections.Load(),
		Unauthenticated:        s.gate.unauthenticated.Load(),
		Streams:                c.streams.Load(),
		Subscriptions:          c.subscriptions.Load(),
		IngressBytes:           s.bytes.held.Load(),
		RefusedLimit:           s.gate.refusedLimit.Load(),
		RefusedPerIP:           s.gate.refusedPerIP.Load(),
		RefusedUnauthenticated: s.gate.refusedUnauthenticated.Load(),
		RetriesAsked:           s.gate.retries.Load(),
		AuthTimeouts:           c.authTimeouts.Load(),
		AuthFailures:           c.authFailures.Load(),
		MalformedFrames:        c.malformed.Load(),
		UnknownFlags:           c.unknownFlags.Load(),
		OversizedFrames:        c.oversized.Load(),
		SlowFrames:             c.slowFrames.Load(),
		Subscribes:             c.subscribes.Load(),
		SubscribeRefused:       c.subscribeRefused.Load(),
		StreamsAbandoned:       c.abandoned.Load(),
		SubscriberStalls:       c.subscriberStalls.Load(),
		RequestsRefused:        c.requestsRefused.Load(),
		LogLinesSuppressed:     s.peers.suppressed.Load(),
		Steered:                s.steered,
	}
	for i := range c.accepted {
		n := c.accepted[i].Load()
		st.ConnectionsPerCore = append(st.ConnectionsPerCore, n)
		st.ConnectionsAccepted += n
	}
	for i := range c.events {
		e := &c.events[i]
		st.EventFrames += e.frames.Load()
		st.EventRecords += e.records.Load()
		st.EventBytes += e.bytes.Load()
	}
	for _, in := range s.ingress {
		seen := &in.seen
		st.PublishFrames += seen.publishFrames.Load()
		st.PublishRecords += seen.publishRecords.Load()
		st.PublishBytes += seen.publishBytes.Load()
		st.PublishAcked += seen.acked.Load()
		st.PublishRefused += seen.refused.Load()
		st.PublishDropped += seen.dropped.Load()
		st.PublishShed += seen.shed.Load()
		st.JSONPublishes += seen.json.Load()
		st.SlotsInUse += seen.slotsInUse.Load()
		st.SlotsWaiting += seen.slotsWaiting.Load()
		st.WaitersAdmitted += seen.admitted.Load()
		st.SlotsFreedWhileWaiting += seen.freedWhileWaiting.Load()
	}
	shed := c.shedUnread.Load()
	st.PublishDropped += shed
	st.PublishShed += shed
	st.Tenants = s.accounts.stats()
	st.Memory = s.memory.stats()
	s.addSocketStats(&st)
	return st
}

// addSocketStats adds what the sockets have counted.
func (s *Server) addSocketStats(st *Stats) {
	s.mu.Lock()
	sockets := s.sockets
	s.mu.Unlock()
	for i, sock := range sockets {
		u := sock.conn.Stats()
		st.PacketsIn += u.PacketsReceived
		st.PacketsOut += u.PacketsSent
		st.BytesIn += u.BytesReceived
		st.BytesOut += u.BytesSent
		st.SuperBuffers += u.SuperBuffers
		st.ForeignSegments += u.HandedOver
		st.ForeignSegmentsDropped += u.HandoverDropped
		st.SendRetries += u.SendWaits + u.NoBuffers
		st.KernelDrops += u.KernelDrops
		if i == 0 {
			st.ReadBufferBytes, st.WriteBufferBytes, st.GRO, st.GSO = u.ReadBufferBytes, u.WriteBufferBytes, u.GRO, u.GSO
			continue
		}
		st.ReadBufferBytes = min(st.ReadBufferBytes, u.ReadBufferBytes)
		st.WriteBufferBytes = min(st.WriteBufferBytes, u.WriteBufferBytes)
		st.GRO, st.GSO = st.GRO && u.GRO, st.GSO && u.GSO
	}
}

// QueueStats is a core's queue for a slot, for the broker's watchdog.
type QueueStats struct {
	Core           core.ID
	InUse, Waiting int64  // slots taken, publishes that wait for one
	Freed          uint64 // slots freed since the start
}

// StalledSince reports whether publishes waited and no slot came back between prev and s, two looks at one queue that the caller took
// some time apart.
func (s QueueStats) StalledSince(prev QueueStats) bool {
	return s.Waiting > 0 && prev.Waiting > 0 && s.Freed == prev.Freed
}

// Queues returns the queues of all cores.
func (s *Server) Queues() []QueueStats {
	list := make([]QueueStats, len(s.ingress))
	for i, in := range s.ingress {
		list[i] = QueueStats{Core: core.ID(i), InUse: in.seen.slotsInUse.Load(), Waiting: in.seen.slotsWaiting.Load(), Freed: in.seen.freed.Load()}
	}
	return list
}
