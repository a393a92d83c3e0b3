package load

import "time"

// A Progress is what has happened until now.
type Progress struct {
	Run, Of    int // from 1; the run that does not count is 0
	Phase      Phase
	Elapsed    time.Duration // since the phase began
	Total      time.Duration // of the phase; 0 when it has no set length
	AckedRate  float64       // records per second since the last call; at the broker where it can be asked
	Delivered  float64       // records per second received, all subscribers together
	AckP99     time.Duration // of what was answered since the last call; 0 when nothing was
	E2EP99     time.Duration // likewise
	Refused    int64         // until now
	Unknown    int64
	BrokerGone bool // it did not answer when it was asked for its counts
}

// A Phase is a part of a run.
type Phase string

const (
	Warming   Phase = "warm-up"
	Measuring Phase = "measure"
	Ending    Phase = "end" // what is under way is waited for
)

// A Report is the outcome. Its JSON is stable: keys are never left out, and null is what was not measured. Counts are sums over the runs
// that count, rates and latencies medians of them.
type Report struct {
	Scenario Scenario     `json:"scenario"`
	Config   ReportConfig `json:"config"`
	Machine  Machine      `json:"machine"`
	Figures
	Runs []RunReport `json:"runs"`
}

// A RunReport is one run.
type RunReport struct {
	// Discarded says that this is the run on a fresh process, which does not count.
	Discarded bool `json:"discarded"`
	// Interrupted says that it was cut short.
	Interrupted bool    `json:"interrupted"`
	Seconds     float64 `json:"seconds"` // measured time
	// Void says why the figures mean nothing; empty when they do.
	VoidReasons []string `json:"void_reasons"`
	// Notes are what a reader should know.
	Notes []string `json:"notes"`
	// LineNs is what a cache line took to another CPU and back, the longer of before and after the run; a session looks, felix bench does not.
	LineNs *float64 `json:"cache_line_ns"`
	Figures
}

// Figures are the numbers of a run or of all of them.
type Figures struct {
	Offered    int64 `json:"offered_msgs"`   // handed to Publish
	Acked      int64 `json:"acked_msgs"`     // acknowledged; with acks none counted by the broker
	Refused    int64 `json:"refused_msgs"`   // known not to be taken
	Unknown    int64 `json:"unknown_msgs"`   // may have been taken
	Expected   int64 `json:"expected_msgs"`  // to be received, all reading subscribers together
	Delivered  int64 `json:"delivered_msgs"` // received, each once per subscriber
	Duplicates int64 `json:"duplicate_msgs"` // received again
	Gaps       int64 `json:"gap_msgs"`       // left out, by offset

	Void bool `json:"void"`

	AckedPerSec     float64  `json:"acked_per_sec"`
	DeliveredPerSec *float64 `json:"delivered_per_sec"`
	PayloadMBPerSec float64  `json:"payload_mb_per_sec"` // 10^6 bytes: of acked records in pub, of delivered ones otherwise

	Ack            *Latency `json:"ack_us"`             // from when a batch was due to its answer
	AckUncorrected *Latency `json:"ack_us_uncorrected"` // from the call of Publish
	E2E            *Latency `json:"e2e_us"`             // from when a record was due to its arrival
	E2EUncorrected *Latency `json:"e2e_us_uncorrected"`

	BrokerCPUCores         *float64 `json:"broker_cpu_cores"`
	ClientCPUCores         *float64 `json:"client_cpu_cores"`
	BrokerCPUSecPerMillion *float64 `json:"broker_cpu_sec_per_million"` // acked records
	ClientCPUSecPerMillion *float64 `json:"client_cpu_sec_per_million"`
	ZeroedGroupShare       *float64 `json:"zeroed_group_share"`
	BrokerRSSMB            *float64 `json:"broker_rss_mb"` // 10^6 bytes, the most seen
	SyncsPerSec            *float64 `json:"syncs_per_sec"`
	RecordsPerSync         *float64 `json:"records_per_sync"`
	PacketBytes            *float64 `json:"packet_bytes"`  // mean UDP payload at the broker, both directions
	RcvbufErrors           *int64   `json:"rcvbuf_errors"` // datagrams that the kernel dropped, whole machine, whole run
}

// A Latency is a distribution in microseconds.
type Latency struct {
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	P9999 float64 `json:"p9999"`
	Max   float64 `json:"max"`
}

// ReportConfig is the configuration in force.
type ReportConfig struct {
	Broker      string     `json:"broker"`
	Generator   string     `json:"generator"`
	Receiver    string     `json:"receiver"`
	CountedAt   string     `json:"counted_at"` // where acked_per_sec was counted: broker or generator
	Rate        float64    `json:"rate"`       // 0: closed loop
	Publishers  int        `json:"publishers"`
	InFlight    int        `json:"in_flight"` // 0: unacked
	Size        int        `json:"size"`
	Batch       int        `json:"batch"`
	Keys        int        `json:"keys"` // 0: none
	Acks        Acks       `json:"acks"`
	Shards      int        `json:"shards"`     // 0: as the existing stream
	Durability  Durability `json:"durability"` // "": as the existing stream
	Stream      string     `json:"stream"`     // "": made for the run
	Subscribers int        `json:"subscribers"`
	Slow        int        `json:"slow"`
	DurationSec float64    `json:"duration_sec"`
	WarmupSec   float64    `json:"warmup_sec"`
	Runs        int        `json:"runs"`
	Seed        uint64     `json:"seed"`
	Notes       []string   `json:"notes"`
}

// Machine is where the generator ran.
type Machine struct {
	Time        string `json:"time"` // of the start, RFC 3339, UTC
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	GOMAXPROCS  int    `json:"gomaxprocs"`
	MemoryMB    int64  `json:"memory_mb"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Commit      string `json:"commit"` // "": not known
	RmemMax     int64  `json:"rmem_max"`
	WmemMax     int64  `json:"wmem_max"`
	SocketBytes int64  `json:"socket_bytes"` // receive buffer of the broker's sockets; 0: not known
	LoadAverage string `json:"load_average"`
}
