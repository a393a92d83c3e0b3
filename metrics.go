package felix

import (
	"fmt"
	"io"

	"github.com/VictoriaMetrics/metrics"

	"felix/netio"
)

// Stats is a snapshot of what a broker counts. The fields are read one by one, not at one moment.
type Stats struct {
	netio.Stats // connections, streams, publishes, events and packets

	FramesSealed, Encodes        uint64 // event frames made of appended batches; frames encoded in all
	FramesQueued, EventsQueued   uint64 // given to subscribers' queues, once for each subscription
	FramesDropped, EventsDropped uint64 // left out for slow subscribers
	Stalls, StallsExpired        uint64 // times a subscriber held publishes back; times it did so as long as it may
	HeldBytes, RingBytes         int64  // event frames in memory; those of them in replay rings
	LoopStalls                   uint64 // times the watchdog found a core with work that did not move
}

// Stats is a snapshot of the broker's counters.
func (b *Broker) Stats() Stats {
	s := Stats{Stats: b.server.Stats(), HeldBytes: b.slabs.Held(), RingBytes: b.slabs.InRings(), LoopStalls: b.watch.stalls.Load()}
	for _, host := range b.hosts {
		c := host.Counters()
		s.FramesSealed += c.FramesSealed.Load()
		s.Encodes += c.Encodes.Load()
		s.FramesQueued += c.FramesDelivered.Load()
		s.EventsQueued += c.EventsDelivered.Load()
		s.FramesDropped += c.FramesDropped.Load()
		s.EventsDropped += c.EventsDropped.Load()
		s.Stalls += c.Stalls.Load()
		s.StallsExpired += c.StallsExpired.Load()
	}
	return s
}

// WriteMetrics writes the broker's metrics and those of the process as Prometheus text.
func (b *Broker) WriteMetrics(w io.Writer) {
	b.metrics.WritePrometheus(w)
	metrics.WriteProcessMetrics(w)
	metrics.WriteFDMetrics(w)
}

// writeMetrics writes the broker's own metrics. Names that other brokers of this protocol have too mean the same there.
func (b *Broker) writeMetrics(w io.Writer) {
	s := b.Stats()
	catalog := b.catalog.Counts()
	counter := func(name string, value uint64) { metrics.WriteCounterUint64(w, name, value) }
	gauge := func(name string, value int64) { metrics.WriteGaugeUint64(w, name, uint64(max(value, 0))) }
	flag := func(name string, on bool) {
		value := int64(0)
		if on {
			value = 1
		}
		gauge(name, value)
	}

	flag("felix_ready_state", state(b.state.Load()) == serving)
	gauge("felix_drain_duration_ms", b.drainMillis.Load())
	gauge("felix_memory_budget_bytes", b.memoryBudget)
	gauge(fmt.Sprintf(`felix_build_info{version=%q}`, Version()), 1)

	gauge("felix_quic_connections", s.Connections)
	gauge("felix_quic_connections_unauthenticated", s.Unauthenticated)
	for core, n := range s.ConnectionsPerCore {
		counter(fmt.Sprintf(`felix_quic_connections_accepted_total{core="%d"}`, core), n)
	}
	counter(`felix_quic_connections_refused_total{reason="limit"}`, s.RefusedLimit)
	counter(`felix_quic_connections_refused_total{reason="per_ip"}`, s.RefusedPerIP)
	counter(`felix_quic_connections_refused_total{reason="unauthenticated"}`, s.RefusedUnauthenticated)
	counter("felix_quic_auth_timeout_total", s.AuthTimeouts)
	counter("felix_auth_refused_total", s.AuthFailures)
	gauge("felix_quic_streams", s.Streams)

	gauge("felix_tenants", int64(catalog.Tenants))
	gauge("felix_namespaces", int64(catalog.Namespaces))
	gauge("felix_streams", int64(catalog.Streams))
	gauge("felix_shards", int64(catalog.Shards))

	counter(`felix_publish_requests_total{result="accepted"}`, s.PublishFrames)
	counter(`felix_publish_requests_total{result="ok"}`, s.PublishAcked)
	counter(`felix_publish_requests_total{result="error"}`, s.PublishRefused)
	counter(`felix_publish_requests_total{result="dropped"}`, s.PublishDropped)
	counter("felix_publish_records_total", s.PublishRecords)
	counter("felix_publish_bytes_total", s.PublishBytes)
	counter("felix_broker_json_publishes_total", s.JSONPublishes)
	gauge("felix_inflight_requests", s.SlotsInUse)
	gauge("felix_broker_ingress_queue_depth", s.SlotsWaiting)
	gauge("felix_broker_ingress_bytes", s.IngressBytes)
	counter("felix_broker_ingress_waited_total", s.WaitersAdmitted)
	counter(`felix_frames_refused_total{reason="malformed"}`, s.MalformedFrames)
	counter(`felix_frames_refused_total{reason="unknown_flags"}`, s.UnknownFlags)
	counter(`felix_frames_refused_total{reason="oversized"}`, s.OversizedFrames)

	gauge("felix_subscriptions", s.Subscriptions)
	counter(`felix_subscribe_requests_total{result="ok"}`, s.Subscribes)
	counter(`felix_subscribe_requests_total{result="error"}`, s.SubscribeRefused)
	counter("felix_sub_queue_enqueued_total", s.FramesQueued)
	counter("felix_sub_queue_dropped_total", s.FramesDropped)
	counter("felix_sub_records_dropped_total", s.EventsDropped)
	counter("felix_sub_stalls_total", s.Stalls)
	counter("felix_sub_stalls_expired_total", s.StallsExpired)
	counter("felix_event_frames_sealed_total", s.FramesSealed)
	counter("felix_event_encodes_total", s.Encodes)
	counter("felix_event_frames_sent_total", s.EventFrames)
	counter("felix_event_records_sent_total", s.EventRecords)
	counter("felix_event_bytes_sent_total", s.EventBytes)
	gauge("felix_event_bytes_held", s.HeldBytes)
	gauge("felix_replay_ring_bytes", s.RingBytes)

	counter("felix_udp_packets_received_total", s.PacketsIn)
	counter("felix_udp_packets_sent_total", s.PacketsOut)
	counter("felix_udp_bytes_received_total", s.BytesIn)
	counter("felix_udp_bytes_sent_total", s.BytesOut)
	counter("felix_udp_super_buffers_total", s.SuperBuffers)
	counter("felix_udp_foreign_segments_total", s.ForeignSegments)
	counter("felix_udp_foreign_segments_dropped_total", s.ForeignSegmentsDropped)
	counter("felix_udp_send_retries_total", s.SendRetries)
	counter("felix_udp_kernel_drops_total", s.KernelDrops)
	gauge("felix_udp_read_buffer_bytes", int64(s.ReadBufferBytes))
	gauge("felix_udp_write_buffer_bytes", int64(s.WriteBufferBytes))
	flag("felix_udp_gro", s.GRO)
	flag("felix_udp_gso", s.GSO)
	flag("felix_udp_steered", s.Steered)

	for _, loop := range b.group.Loops() {
		l := loop.StatsOffCore()
		label := fmt.Sprintf(`{core="%d"}`, l.ID)
		counter("felix_core_passes_total"+label, l.Passes)
		counter("felix_core_tasks_total"+label, l.Tasks)
		counter("felix_core_wakes_total"+label, l.Wakes)
		gauge("felix_core_inbox"+label, int64(l.Inbox))
		gauge("felix_core_rings"+label, int64(l.Rings))
	}
	counter("felix_core_stalls_total", s.LoopStalls)
}
