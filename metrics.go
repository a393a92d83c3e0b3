package felix

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

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
	Lagged                       uint64 // subscriptions of durable streams that ended in place of a drop, and were told so
	LoopStalls                   uint64 // times the watchdog found a core with work that did not move
	QueueStalls, LaneStalls      uint64 // the same of a queue for slots, and of a lane

	Lanes []LaneStats // of the log
}

// Stats is a snapshot of the broker's counters.
func (b *Broker) Stats() Stats {
	s := Stats{Stats: b.server.Stats(), HeldBytes: b.slabs.Held(), RingBytes: b.slabs.InRings(), LoopStalls: b.watch.loopStalls.Load(),
		QueueStalls: b.watch.queueStalls.Load(), LaneStalls: b.watch.laneStalls.Load()}
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
		s.Lagged += c.Lagged.Load()
	}
	s.Lanes = b.laneStats()
	return s
}

func (b *Broker) laneStats() (list []LaneStats) {
	for _, lane := range b.lanes {
		list = append(list, LaneStats{ID: lane.id, Recovery: lane.recovery, CutBytes: lane.cut, Unsynced: lane.unsynced.Load(), Stats: lane.StatsOffCore()})
	}
	return list
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
	flag := func(name string, on bool) { gauge(name, int64(count(on))) }

	flag("felix_ready_state", state(b.state.Load()) == serving)
	gauge("felix_drain_duration_ms", b.drainMillis.Load())
	gauge("felix_memory_budget_bytes", b.memoryBudget)
	m := s.Memory
	gauge("felix_memory_held_bytes", m.Held())
	gauge(`felix_memory_bytes{part="publishes"}`, m.Publishes)
	gauge(`felix_memory_bytes{part="pages"}`, m.Pages)
	gauge(`felix_memory_bytes{part="rings"}`, s.RingBytes)
	gauge(`felix_memory_bytes{part="queued_frames"}`, m.Frames-s.RingBytes)
	gauge(`felix_memory_bytes{part="windows"}`, m.Windows)
	counter("felix_memory_window_growth_refused_total", m.GrowthRefused)
	counter("felix_memory_connections_closed_total", m.ConnectionsClosed)
	counter("felix_memory_connections_refused_total", m.ConnectionsRefused)
	gauge(fmt.Sprintf(`felix_build_info{version=%q}`, Version()), 1)

	gauge("felix_quic_connections", s.Connections)
	gauge("felix_quic_connections_unauthenticated", s.Unauthenticated)
	for core, n := range s.ConnectionsPerCore {
		counter(fmt.Sprintf(`felix_quic_connections_accepted_total{core="%d"}`, core), n)
	}
	counter(`felix_quic_connections_refused_total{reason="limit"}`, s.RefusedLimit)
	counter(`felix_quic_connections_refused_total{reason="per_ip"}`, s.RefusedPerIP)
	counter(`felix_quic_connections_refused_total{reason="unauthenticated"}`, s.RefusedUnauthenticated)
	counter("felix_quic_retries_total", s.RetriesAsked)
	counter("felix_quic_auth_timeout_total", s.AuthTimeouts)
	counter("felix_auth_refused_total", s.AuthFailures)
	gauge("felix_quic_streams", s.Streams)
	counter("felix_quic_streams_abandoned_total", s.StreamsAbandoned)

	gauge("felix_tenants", int64(catalog.Tenants))
	gauge("felix_namespaces", int64(catalog.Namespaces))
	gauge("felix_streams", int64(catalog.Streams))
	gauge("felix_shards", int64(catalog.Shards))

	counter(`felix_publish_requests_total{result="accepted"}`, s.PublishFrames)
	counter(`felix_publish_requests_total{result="ok"}`, s.PublishAcked)
	counter(`felix_publish_requests_total{result="error"}`, s.PublishRefused)
	counter(`felix_publish_requests_total{result="dropped"}`, s.PublishDropped)
	counter("felix_publish_shed_total", s.PublishShed)
	for _, t := range s.Tenants {
		tenant := func(name, action string, value uint64) {
			if value > 0 {
				counter(fmt.Sprintf(`%s{tenant=%q,action=%q}`, name, t.Tenant, action), value)
			}
		}
		tenant("felix_tenant_publish_queue_full_total", "refused", t.QueueRefused)
		tenant("felix_tenant_publish_queue_full_total", "dropped", t.QueueShed)
		tenant("felix_tenant_publish_throttled_total", "refused", t.QuotaRefused)
		tenant("felix_tenant_publish_throttled_total", "waited", t.QuotaWaited)
		tenant("felix_tenant_publish_throttled_total", "dropped", t.QuotaShed)
	}
	counter("felix_publish_records_total", s.PublishRecords)
	counter("felix_publish_bytes_total", s.PublishBytes)
	counter("felix_broker_json_publishes_total", s.JSONPublishes)
	gauge("felix_inflight_requests", s.SlotsInUse)
	gauge("felix_broker_ingress_queue_depth", s.SlotsWaiting)
	gauge("felix_broker_ingress_bytes", s.IngressBytes)
	counter("felix_broker_ingress_waited_total", s.WaitersAdmitted)
	metrics.WriteGaugeFloat64(w, "felix_broker_admissions_per_freed_slot", ratio(s.WaitersAdmitted, s.SlotsFreedWhileWaiting)) // must stay at 1
	counter(`felix_frames_refused_total{reason="malformed"}`, s.MalformedFrames)
	counter(`felix_frames_refused_total{reason="unknown_flags"}`, s.UnknownFlags)
	counter(`felix_frames_refused_total{reason="oversized"}`, s.OversizedFrames)
	counter(`felix_frames_refused_total{reason="slow"}`, s.SlowFrames)

	gauge("felix_subscriptions", s.Subscriptions)
	for state, n := range b.server.SubscriptionStates() {
		gauge(fmt.Sprintf("felix_subscriptions_by_state{state=%q}", state), n)
	}
	if lag, ok := b.maxLag(); ok {
		gauge("felix_sub_lag_records_max", int64(min(lag, math.MaxInt64)))
	}
	counter("felix_sub_watchdog_stalls_total", s.SubscriberStalls)
	counter(`felix_subscribe_requests_total{result="ok"}`, s.Subscribes)
	counter(`felix_subscribe_requests_total{result="error"}`, s.SubscribeRefused)
	counter("felix_requests_refused_total", s.RequestsRefused)
	counter("felix_log_lines_suppressed_total", s.LogLinesSuppressed)
	counter("felix_sub_queue_enqueued_total", s.FramesQueued)
	counter("felix_sub_queue_dropped_total", s.FramesDropped)
	counter("felix_sub_records_dropped_total", s.EventsDropped)
	counter("felix_sub_stalls_total", s.Stalls)
	counter("felix_sub_stalls_expired_total", s.StallsExpired)
	counter("felix_sub_lagged_total", s.Lagged)
	counter("felix_event_frames_sealed_total", s.FramesSealed)
	counter("felix_event_encodes_total", s.Encodes)
	counter("felix_event_frames_sent_total", s.EventFrames)
	counter("felix_event_records_sent_total", s.EventRecords)
	counter("felix_event_bytes_sent_total", s.EventBytes)
	gauge("felix_event_bytes_held", s.HeldBytes)
	gauge("felix_replay_ring_bytes", s.RingBytes)

	for _, lane := range s.Lanes {
		label := fmt.Sprintf(`{lane="%d"}`, lane.ID)
		counter("felix_storage_batches_total"+label, lane.Batches)
		counter("felix_storage_batch_bytes_total"+label, lane.BodyBytes)
		counter("felix_storage_groups_total"+label, lane.Groups)
		counter("felix_storage_groups_zeroed_total"+label, lane.ZeroedGroups)
		metrics.WriteGaugeFloat64(w, "felix_storage_groups_zeroed_ratio"+label, ratio(lane.ZeroedGroups, lane.Groups))
		// The mean over any time is rate(sum)/rate(count).
		counter("felix_storage_sync_batch_appends_sum"+label, lane.Batches)
		counter("felix_storage_sync_batch_appends_count"+label, lane.Syncs)
		counter("felix_storage_marks_total"+label, lane.Marks)
		counter("felix_storage_log_bytes_total"+label, lane.LogBytes)
		counter("felix_storage_zeroed_bytes_total"+label, lane.ZeroedBytes)
		gauge("felix_storage_unsynced_bytes"+label, lane.Unsynced)
		gauge("felix_storage_disk_bytes"+label, lane.DiskBytes)
		gauge("felix_storage_segments"+label, int64(lane.Segments))
		gauge("felix_storage_open_sealed_segments"+label, int64(lane.OpenSegments))
		counter("felix_storage_segment_roll_total"+label, lane.Rolls)
		counter("felix_storage_segments_recycled_total"+label, lane.Recycled)
		counter("felix_storage_segments_released_total"+label, lane.Released)
		counter("felix_storage_batches_moved_total"+label, lane.MovedBatches)
		counter("felix_storage_full_total"+label, lane.DiskFull)
		counter("felix_storage_sync_failures_total"+label, count(lane.Failed != nil))
		metrics.WriteGaugeFloat64(w, "felix_storage_recovery_duration_seconds"+label, lane.Recovery.Seconds())
		gauge("felix_storage_recovery_truncated_bytes"+label, lane.CutBytes)
		gauge(fmt.Sprintf(`felix_storage_backend_info{lane="%d",backend=%q}`, lane.ID, lane.Backend), 1)
	}

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
	counter("felix_broker_ingress_stalls_total", s.QueueStalls)
	counter("felix_storage_stalls_total", s.LaneStalls)
}

// lagTimeout bounds how long a scrape waits for the loops. When they have no time the greatest lag is left out.
const lagTimeout = time.Second

func (b *Broker) maxLag() (records uint64, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	records, err := b.server.MaxLag(ctx)
	return records, err == nil
}

// count is 1 for what is so.
func count(so bool) uint64 {
	if so {
		return 1
	}
	return 0
}

// ratio is a share, 1 of nothing.
func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// SubscriptionStates counts the open subscriptions by state: joining, live, catching_up, blocked, blocked_by_peer, ended.
func (b *Broker) SubscriptionStates() map[string]int64 { return b.server.SubscriptionStates() }
