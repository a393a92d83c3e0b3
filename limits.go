package felix

import (
	"fmt"
	"strconv"
	"strings"

	"felix/replicate"
)

// A limit is a row of the table of limits: what a broker holds at most, and what happens there.
type limit struct {
	what    string
	unit    string
	setting string // whose default it is; empty for a limit that is fixed
	value   string // of a fixed one
	atBound string
}

// limits is the table, in the order in which a client meets them.
func limits() []limit {
	return []limit{
		{what: "connections", unit: "connections", setting: "max_client_connections", atBound: "refused in the handshake, CONNECTION_REFUSED"},
		{what: "of one source address (IPv6: /64)", unit: "connections", setting: "max_connections_per_ip", atBound: "refused in the handshake"},
		{what: "without an authenticated stream", unit: "connections", setting: "max_unauthenticated_connections", atBound: "refused in the handshake; from half of it on a peer must first answer a Retry"},
		{what: "of them of one source address, loopback excepted", unit: "connections", setting: "max_unauthenticated_per_ip", atBound: "refused in the handshake"},
		{what: "time to authenticate a stream", unit: "ms", setting: "auth_timeout_ms", atBound: "the connection is closed, code 1"},
		{what: "handshakes that begin at a listening core", unit: "handshakes/s", setting: "max_handshakes_per_second", atBound: "a peer must first answer a Retry"},
		{what: "unauthenticated streams of a connection that are read", unit: "streams", setting: "preauth_max_streams_per_conn", atBound: "further ones wait, unread"},
		{what: "frame before authentication", unit: "bytes", setting: "preauth_max_frame_bytes", atBound: "the stream ends, from the header alone"},
		{what: "two-way streams of a connection", unit: "streams", setting: "max_streams_per_conn", atBound: "further ones wait at the client (QUIC credit)"},
		{what: "one-way streams of a connection", unit: "streams", setting: "max_uni_streams_per_conn", atBound: "further ones wait at the client"},
		{what: "frame", unit: "bytes", setting: "max_frame_bytes", atBound: "`invalid_request` where somebody waits for an answer; the stream ends"},
		{what: "time for the rest of a frame", unit: "ms, and 1 s for each 64 KiB", setting: "frame_timeout_ms", atBound: "the stream is reset"},
		{what: "names", unit: "bytes", value: strconv.Itoa(replicate.MaxNameBytes), atBound: "`invalid_request`"},
		{what: "receive window of a stream, at first", unit: "bytes", setting: "initial_stream_window", atBound: "the client waits (QUIC flow control)"},
		{what: "receive window of a connection, at first", unit: "bytes", setting: "initial_conn_window", atBound: "it grows while the client is authenticated and the memory budget has room, at most to an eighth of the room for windows; otherwise it stays"},
		{what: "receive window of a stream, at most", unit: "bytes", setting: "max_stream_window", atBound: "the client waits"},
		{what: "receive window of a connection, at most", unit: "bytes", setting: "max_conn_window", atBound: "the client waits"},
		{what: "publish bytes of a connection", unit: "bytes", setting: "publish_conn_inflight_bytes", atBound: "its streams are not read; without `pub_ingress_wait` publishes without ack are dropped and counted"},
		{what: "publish bytes in all", unit: "bytes", setting: "publish_inflight_bytes", atBound: "as above; a quarter of it is for frames above 64 KiB, another for those above 1 MiB"},
		{what: "a tenant's bytes", unit: "bytes/s", setting: "tenant_publish_bytes_per_sec", atBound: "acked: `overloaded`, `tenant_quota`, with a time to wait; others wait unread, or are dropped as above"},
		{what: "a tenant's records", unit: "records/s", setting: "tenant_publish_msgs_per_sec", atBound: "as above"},
		{what: "publishes in work for a core", unit: "frames", setting: "pub_queue_depth", atBound: "further ones wait, tenants in turn by bytes; dropped as above"},
		{what: "wait of an acked publish for a place and its shard", unit: "ms", setting: "publish_queue_wait_ms", atBound: "`overloaded`, `publish_queue_full`; nothing is kept"},
		{what: "wait of an acked publish for its answer", unit: "ms", setting: "ack_wait_timeout_ms", atBound: "`unacknowledged`, outcome unknown"},
		{what: "unanswered acked publishes of a stream", unit: "frames", setting: "publish_window", atBound: "the stream is not read"},
		{what: "publishes without ack of a stream that wait", unit: "frames", setting: "unacked_window", atBound: "the stream is not read"},
		{what: "time to take answers", unit: "ms", setting: "answer_timeout_ms", atBound: "the stream is reset"},
		{what: "batches of a producer and shard that are remembered", unit: "batches", value: "64", atBound: "older ones: `sequence_expired`"},
		{what: "producers of a shard that are remembered", unit: "producers", value: "4096", atBound: "the one that was quiet longest is forgotten: `unknown_producer`"},
		{what: "requests of a connection that are no publishes", unit: "requests/s, two seconds' worth at once", setting: "max_requests_per_conn_per_sec", atBound: "`limit_exceeded`, with a time to wait"},
		{what: "subscriptions of a connection", unit: "subscriptions", setting: "max_subscriptions_per_conn", atBound: "`limit_exceeded`"},
		{what: "queue of a subscriber", unit: "batches", setting: "subscriber_queue_capacity", atBound: "the stream's rule: `catch_up` reads the log, `drop_new` and `drop_old` drop and count, `block` holds publishes to the shard back"},
		{what: "queue that a client may ask for", unit: "batches", setting: "subscriber_queue_capacity_max", atBound: "it gets this many"},
		{what: "records merged into one event while there is a backlog", unit: "records", setting: "event_batch_max_events", atBound: "what comes behind is the next event"},
		{what: "bytes merged likewise", unit: "bytes", setting: "event_batch_max_bytes", atBound: "as above"},
		{what: "one stall of a subscriber with `block`", unit: "ms", setting: "max_block_ms", atBound: "as `drop_new` from then on"},
		{what: "records of a read without subscription", unit: "records", setting: "max_records_per_read", atBound: "the rest is the next page"},
		{what: "bytes of such a page", unit: "bytes", value: "4 MiB", atBound: "the rest is the next page"},
		{what: "such pages in all", unit: "bytes", value: "64 MiB", atBound: "further reads wait"},
		{what: "replay ring of a shard", unit: "records", setting: "replay_ring_max_records", atBound: "the oldest go"},
		{what: "replay ring of a shard", unit: "bytes", setting: "replay_ring_max_bytes", atBound: "the oldest go"},
		{what: "memory for all of this", unit: "bytes", setting: "memory_budget", atBound: "half of it: the oldest records of rings go, over all shards. 7/8: windows grow no more. All of it: connections are refused in the handshake and the one with the largest window is closed, code 2 `overloaded`, one at a time"},
		{what: "streams made by first use", unit: "streams", value: "1024", atBound: "`limit_exceeded`"},
		{what: "log lines about one thing that clients do wrong", unit: "lines/min", setting: "log_lines_per_cause", atBound: "further ones are counted, and told as one"},
		{what: "tenants with a name in the metrics", unit: "tenants", value: "100", atBound: "the others are told together, as `_overflow`"},
		{what: "admin connections", unit: "connections", value: "64", atBound: "further ones wait"},
	}
}

// LimitsTable is the table of limits as README.md has it.
func LimitsTable() string {
	defaults := map[string]string{}
	for _, s := range Settings() {
		defaults[s.Key] = s.DefaultText()
	}
	var b strings.Builder
	b.WriteString("| limit | default | unit | at the bound | setting |\n|---|---|---|---|---|\n")
	for _, l := range limits() {
		value, setting := l.value, "fixed"
		if l.setting != "" {
			value, setting = defaults[l.setting], "`"+l.setting+"`"
			if value == "0" {
				value = "none"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", l.what, value, l.unit, l.atBound, setting)
	}
	return b.String()
}
