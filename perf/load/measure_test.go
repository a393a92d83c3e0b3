package load

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestMedianRate(t *testing.T) {
	second := int64(time.Second)
	at := func(counts ...float64) (samples []sample) {
		for i, n := range counts {
			samples = append(samples, sample{at: int64(i) * second, broker: Counters{AppendedRecords: n}})
		}
		return samples
	}
	value := func(s sample) (float64, bool) {
		n, ok := s.broker[AppendedRecords]
		return n, ok
	}
	for name, tt := range map[string]struct {
		samples []sample
		want    float64
		ok      bool
	}{
		"none":               {nil, 0, false},
		"one":                {at(5), 0, false},
		"two":                {at(5, 15), 10, true},
		"first and last out": {at(0, 1000, 1010, 1020, 1030, 1040, 1050, 1060, 1070, 1080, 9000), 10, true},
		"one slow second":    {at(0, 10, 20, 30, 31, 41, 51, 61, 71, 81, 91), 10, true},
		"even":               {at(0, 10, 30), 15, true},
		"fell":               {at(0, 10, 5, 15), 0, false},
		"not asked":          {append(at(0, 10), sample{at: 2 * second}), 0, false},
	} {
		if got, ok := medianRate(tt.samples, value); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestReportSum(t *testing.T) {
	run := func(rate, p99 float64, syncs *float64, drops *int64) RunReport {
		return RunReport{Figures: Figures{Offered: 10, AckedPerSec: rate, Ack: &Latency{P99: p99}, SyncsPerSec: syncs, RcvbufErrors: drops}}
	}
	r := Report{Runs: []RunReport{run(9, 9, nil, nil), run(1, 30, ptr(7.0), ptr(int64(1))), run(3, 10, nil, ptr(int64(2))), run(2, 20, nil, nil)}}
	r.Runs[0].Discarded = true
	r.sum()
	if r.Offered != 30 || r.AckedPerSec != 2 || r.Ack.P99 != 20 || *r.SyncsPerSec != 7 || *r.RcvbufErrors != 3 || r.E2E != nil || r.BrokerCPUCores != nil || r.Void {
		t.Errorf("%+v", r.Figures)
	}
	r = Report{Runs: []RunReport{run(1, 1, nil, nil)}}
	r.Runs[0].Void = true
	r.sum()
	if !r.Void {
		t.Error("one void run leaves the report valid")
	}
}

func TestRcvbufErrors(t *testing.T) {
	const snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 159 6 39 126 42 101\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 7\n"
	for text, want := range map[string]int64{snmp: 42, "": -1, "Udp: RcvbufErrors\n": -1, "Udp: RcvbufErrors\nUdp: x\n": -1, "Udp: A RcvbufErrors\nUdp: 1\n": -1} {
		n, ok := rcvbufErrors(text)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", text, n, want)
		}
	}
	if d := kernelDrops(); d.ok {
		if n, ok := d.since(); !ok || n < 0 {
			t.Errorf("since: %d %v", n, ok)
		}
	}
}

func TestStamps(t *testing.T) {
	s := newStamper(rand.New(rand.NewPCG(1, 2)))
	payload := make([]byte, StampBytes)
	s.put(payload, 5, 7)
	if due, sent, ok := s.get(payload, 7); due != 5 || sent != 7 || !ok {
		t.Errorf("%d %d %v", due, sent, ok)
	}
	other := newStamper(rand.New(rand.NewPCG(1, 3)))
	for name, tt := range map[string]struct {
		s       stamper
		payload []byte
		now     int64
	}{
		"short": {s, payload[:15], 9}, "empty": {s, nil, 9}, "from the future": {s, payload, 6}, "of another run": {other, payload, 1 << 62}, "zeros": {s, make([]byte, 64), 1 << 50},
	} {
		if due, sent, ok := tt.s.get(tt.payload, tt.now); ok {
			t.Errorf("%s: taken for ours: %d %d", name, due, sent)
		}
	}
}

func TestRecorder(t *testing.T) {
	r := newRecorder()
	if r.latency(ackRaw) != nil || r.p99(ackRaw, false) != 0 {
		t.Error("something was there before")
	}
	for i := range 1000 {
		r.add(i, ackRaw, int64(i+1)*2000, int64(i+1)*1000, 1, true)
	}
	r.addCorrected(3, ackRaw, 4_000_000, 9)
	r.add(0, e2eRaw, 0, -5, 3, false)
	r.collect()
	near := func(name string, got, want float64) {
		t.Helper()
		if got < want*0.998 || got > want*1.002 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	raw, corrected := r.latency(ackRaw), r.latency(ackCorrected)
	near("min", raw.Min, 1)
	near("p50", raw.P50, 500)
	near("p90", raw.P90, 900)
	near("p99", raw.P99, 990)
	near("p99.9", raw.P999, 999)
	near("max", raw.Max, 1000)
	near("corrected max", corrected.Max, 4000)
	near("corrected p50", corrected.P50, 1010)
	near("p99 of the interval", float64(r.p99(ackRaw, false).Nanoseconds()), 990_000)
	if l := r.latency(e2eRaw); l == nil || l.Max > 0.002 || r.latency(e2eCorrected) != nil {
		t.Errorf("%+v", l)
	}
	r.collect()
	if r.p99(ackRaw, true) != 0 || r.latency(ackRaw).P50 != raw.P50 {
		t.Error("a collect of nothing changed the total or left the interval")
	}
	r.add(0, ackRaw, 0, maxLatency*2, 1, false)
	r.collect()
	near("beyond the bound", r.latency(ackRaw).Max, float64(maxLatency)/1e3)
}

// TestUsage gives two samples two seconds apart with a million records between them.
func TestUsage(t *testing.T) {
	second := int64(time.Second)
	samples := []sample{
		{at: second, counted: second, acked: 500, clientCPU: time.Second, broker: Counters{CPUSeconds: 10, AppendedRecords: 500, Syncs: 7, Groups: 10, ZeroedGroups: 10, Packets: 5, PacketBytes: 100}},
		{at: 3 * second, counted: 3 * second, acked: 1_000_500, clientCPU: 1500 * time.Millisecond, broker: Counters{CPUSeconds: 13, AppendedRecords: 1_000_500, Syncs: 1007, Groups: 1010, ZeroedGroups: 760, Packets: 1005, PacketBytes: 1_200_100}},
	}
	r := &run{c: Config{Scenario: Pub, Target: &Fake{}, Size: 100}.WithDefaults()}
	var g Figures
	var result RunReport
	r.rates(&g, &result, samples)
	r.usage(&g, &result, samples)
	for name, v := range map[string]struct {
		got  *float64
		want float64
	}{
		"broker cores": {g.BrokerCPUCores, 1.5}, "client cores": {g.ClientCPUCores, 0.25}, "broker s/M": {g.BrokerCPUSecPerMillion, 3}, "client s/M": {g.ClientCPUSecPerMillion, 0.5},
		"syncs/s": {g.SyncsPerSec, 500}, "records/sync": {g.RecordsPerSync, 1000}, "zeroed": {g.ZeroedGroupShare, 0.75}, "packet": {g.PacketBytes, 1200},
		"acked/s": {&g.AckedPerSec, 500_000}, "MB/s": {&g.PayloadMBPerSec, 50}, "seconds": {&result.Seconds, 2},
	} {
		if v.got == nil || *v.got < v.want*0.9999 || *v.got > v.want*1.0001 {
			t.Errorf("%s is %v, want %v", name, v.got, v.want)
		}
	}
	if g.DeliveredPerSec != nil || len(result.Notes) > 0 || r.countedAt != "broker" {
		t.Errorf("%v %q %s", g.DeliveredPerSec, result.Notes, r.countedAt)
	}
	// A broker that tells nothing: its figures are left out, and it says so.
	samples[0].broker, samples[1].broker = nil, nil
	g, result = Figures{}, RunReport{}
	r.rates(&g, &result, samples)
	r.usage(&g, &result, samples)
	if g.BrokerCPUCores != nil || g.ClientCPUCores == nil || g.SyncsPerSec != nil || g.PacketBytes != nil || g.AckedPerSec != 500_000 || r.countedAt != "generator" || len(result.Notes) != 1 {
		t.Errorf("%+v %q", g, result.Notes)
	}
}

// TestJoin wants the medians of all but the first, and its sums.
func TestJoin(t *testing.T) {
	one := func(rate, p50 float64) *Report {
		r := &Report{Scenario: Pub, Config: ReportConfig{Broker: "b", Runs: 1}, Runs: []RunReport{{}}}
		f := &r.Runs[0].Figures
		f.Acked, f.AckedPerSec, f.Ack = 10, rate, &Latency{P50: p50}
		return r
	}
	joined := Join(one(900, 9), one(100, 3), one(300, 1), one(200, 2))
	if joined.AckedPerSec != 200 || joined.Ack.P50 != 2 || joined.Acked != 30 || joined.Config.Runs != 3 || len(joined.Runs) != 4 || !joined.Runs[0].Discarded || joined.Runs[1].Discarded {
		t.Errorf("%+v", joined)
	}
	if joined := Join(one(900, 9)); joined.AckedPerSec != 900 || joined.Acked != 10 || joined.Runs[0].Discarded || joined.Config.Runs != 1 {
		t.Errorf("one: %+v", joined)
	}
}

// TestSpaced wants no rate of two samples that came together because the sampler was late.
func TestSpaced(t *testing.T) {
	at := func(millis ...int64) (samples []sample) {
		for _, ms := range millis {
			samples = append(samples, sample{at: ms * 1e6, counted: ms * 1e6, delivered: ms}) // 1,000 per second
		}
		return samples
	}
	for _, tt := range []struct{ samples, want []sample }{
		{at(0, 100, 200, 300), at(0, 100, 200, 300)},
		{at(0, 100, 101, 102, 300, 400), at(0, 100, 300, 400)},
		{at(0, 1, 300, 399, 400), at(0, 300, 400)},
		{at(0, 1), at(0, 1)},
		{at(5), at(5)},
	} {
		got := spaced(tt.samples)
		if len(got) != len(tt.want) {
			t.Errorf("%d samples are left, want %d", len(got), len(tt.want))
			continue
		}
		for i := range got {
			if got[i].at != tt.want[i].at {
				t.Errorf("sample %d is at %d, want %d", i, got[i].at, tt.want[i].at)
			}
		}
	}
	// A sample whose broker took long to answer: its own counts are from before.
	samples := at(0, 100, 200, 300, 400, 500)
	for i := range samples {
		samples[i].at += int64(i%2) * 90e6
	}
	rate, ok := medianRate(byGenerator(samples), func(s sample) (float64, bool) { return float64(s.delivered), true })
	if !ok || rate != 1000 || samples[1].at != 190e6 {
		t.Errorf("%v per second, want 1000", rate)
	}
}
