package felix

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"felix/netio/udp"
)

func TestZeroConfigIsValid(t *testing.T) {
	checked, err := Config{}.check()
	if err != nil {
		t.Fatal(err)
	}
	if !checked.listen.Addr().IsLoopback() || checked.listen.Port() != 0 || checked.admin.IsValid() || !checked.autoCreate {
		t.Errorf("derived %+v", checked)
	}
}

// TestConfigRefused holds every configuration that is refused without touching the machine: key, value and remedy in
// one sentence each.
func TestConfigRefused(t *testing.T) {
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"listen without port", Config{Listen: "127.0.0.1"}, `listen is "127.0.0.1", which has no port; give IP:port`},
		{"listen on a name", Config{Listen: "box:5000"}, `listen is "box:5000", whose host "box" is no IP address; give`},
		{"listen without host", Config{Listen: ":5000"}, `whose host "" is no IP address`},
		{"listen on a bad port", Config{Listen: "127.0.0.1:99999"}, `whose port "99999" is no number from 0 to 65535`},
		{"listen everywhere", Config{Listen: "0.0.0.0:0"}, `set auth: any (--auth any, FELIX_AUTH=any) to allow that, or listen on 127.0.0.1`},
		{"listen everywhere, IPv6", Config{Listen: "[::]:0"}, `listen is "[::]:0", which other machines can reach`},
		{"listeners", Config{Listeners: 65}, "listeners is 65; give a number from 0 to 64"},
		{"ports and listeners", Config{Listeners: 2, ListenerPorts: []uint16{1}}, "listener_ports names 1 ports for 2 listeners"},
		{"advertise", Config{Advertise: "a b"}, `advertise is "a b"; give the host`},
		{"advertise with a bad port", Config{Advertise: "broker:0"}, `advertise is "broker:0"`},
		{"cores", Config{Cores: -1}, "Cores is -1; give a number from 0 to 64"},
		{"core shards", Config{CoreShards: 65}, "core_shards is 65"},
		{"both", Config{Cores: 1, CoreShards: 1}, "Cores is 1 and core_shards is 1; set one of them"},
		{"CPUs for nobody", Config{CoreCPUs: []int{0}}, "core_cpus is [0], but no core is pinned; set core_shards"},
		{"timer slack", Config{TimerSlack: time.Second}, "timer_slack_us is 1000000; give a number from 0 to 10000"},
		{"spin", Config{CoreSpin: 2 * time.Millisecond}, "core_spin_us is 2000; give a number from 0 to 1000"},
		{"admin", Config{Admin: "8080"}, `admin is "8080", which has no port; give IP:port, for example 127.0.0.1:8080, or off`},
		{"admin for all", Config{Admin: "0.0.0.0:8080"}, `admin is "0.0.0.0:8080", which other machines can reach, and the admin listener asks nobody who they are; listen on 127.0.0.1, or set admin_remote: true`},
		{"memory", Config{MemoryBudget: 1 << 20}, "memory_budget is 1 MiB; give at least 128 MiB"},
		{"auth", Config{Auth: "jwt"}, `auth is "jwt"; give any, or leave it out`},
		{"dev shards", Config{DevShards: 1025}, "dev_shards is 1025; give a number from 0 to 1024"},
		{"certificate without key", Config{TLSCert: "c"}, `tls_cert is "c", but tls_key is not set`},
		{"key without certificate", Config{TLSKey: "k"}, `tls_key is "k", but tls_cert is not set`},
		{"export of a configured certificate", Config{TLSCert: "c", TLSKey: "k", TLSCertExport: "e"}, `tls_cert_export is "e", but tls_cert is set as well ("c")`},
		{"packets", Config{MaxPacketBytes: 1199}, "max_packet_bytes is 1199; give a number from 1200 to " + strconv.Itoa(udp.MaxPacketBytes)},
		{"linger", Config{DrainLinger: time.Hour}, "drain_linger_ms is 3600000"},
		{"drain", Config{DrainTimeout: time.Hour}, "shutdown_drain_timeout_ms is 3600000"},
		{"policy", Config{SubQueuePolicy: CatchUp}, "sub_queue_policy is catch_up, which in-memory streams cannot have"},
		{"limits", Config{Limits: Limits{Slots: -5}}, "-5"},
		{"event frames", Config{Delivery: Delivery{FrameRecords: -1}}, "event_batch_max_events is -1"},
		{"event bytes", Config{Delivery: Delivery{FrameBytes: 1}}, "event_batch_max_bytes is 1"},
		{"event bytes over frame", Config{Delivery: Delivery{FrameBytes: 1 << 20}, Limits: Limits{FrameBytes: 64 << 10}}, "event_batch_max_bytes (1048576) exceeds max_frame_bytes (65536)"},
		{"ring records", Config{Delivery: Delivery{RingRecords: -1}}, "replay_ring_max_records is -1"},
		{"ring bytes", Config{Delivery: Delivery{RingBytes: 1}}, "replay_ring_max_bytes is 1"},
		{"block", Config{Delivery: Delivery{MaxBlock: time.Hour}}, "max_block_ms is 3600000"},
		{"budget of rings", Config{Delivery: Delivery{BudgetBytes: 1}}, "set MemoryBudget"},
	}
	for _, test := range tests {
		err := test.config.Validate()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.name, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: one problem, several sentences: %v", test.name, err)
		}
	}
}

func TestConfigAllowed(t *testing.T) {
	for name, config := range map[string]Config{
		"everywhere, said so":  {Listen: "0.0.0.0:0", Auth: AuthAny},
		"IPv6 loopback":        {Listen: "[::1]:0"},
		"localhost":            {Listen: "localhost:0", Admin: "localhost:0"},
		"another loopback":     {Listen: "127.0.0.9:0"},
		"admin, said so":       {Admin: "0.0.0.0:0", AdminRemote: true},
		"advertise a name":     {Advertise: "broker.example"},
		"advertise with port":  {Advertise: "broker.example:5000"},
		"advertise an address": {Advertise: "10.0.0.1"},
		"advertise IPv6":       {Advertise: "[2001:db8::1]:5000"},
		"pinned":               {CoreShards: 2, CoreCPUs: []int{0}},
	} {
		if err := config.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigReportsEveryProblem(t *testing.T) {
	err := Config{Listen: "x", Admin: "y", DevShards: -1, TLSKey: "k", Limits: Limits{Slots: -5}}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"listen", "admin", "dev_shards", "tls_key", "slots"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is missing in:\n%v", key, err)
		}
	}
}
