package load

import (
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	f := &Fake{}
	for _, c := range []Config{
		{Scenario: Pub, Target: f}, {Scenario: E2E, Target: f}, {Scenario: FanOut, Target: f},
		{Scenario: Pub, Target: f, Acks: AcksEach}, {Scenario: FanOut, Target: f, Acks: AcksEach}, {Scenario: Pub, Target: f, Acks: AcksNone},
		{Scenario: Pub, Target: f, Stream: "orders", Size: NoPayload, Keys: NoKeys, Warmup: NoWarmup},
		{Scenario: FanOut, Target: f, Subscribers: 50, Slow: 10, Durability: OnCommit},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	big := &Fake{buffers: 1 << 30}
	for want, c := range map[string]Config{
		`scenario "" is none of pub, e2e, fanout`:                                     {Target: f},
		"there is no target to drive":                                                 {Scenario: Pub},
		"rate is -1; give records per second":                                         {Scenario: Pub, Target: f, Rate: -1},
		"publishers is 5000; give a number from 1 to 4096":                            {Scenario: Pub, Target: f, Publishers: 5000},
		"in-flight is -1; give a number from 1 to 4096":                               {Scenario: Pub, Target: f, InFlight: -1},
		"acks each waits for every answer, and in-flight is 8; leave one of them out": {Scenario: Pub, Target: f, Acks: AcksEach, InFlight: 8},
		"acks each answers every record by itself, and batch is 2":                    {Scenario: Pub, Target: f, Acks: AcksEach, Batch: 2},
		"acks none has no answers to wait for, and in-flight is 8":                    {Scenario: Pub, Target: f, Acks: AcksNone, InFlight: 8},
		`acks "all" is none of none, each, batch`:                                     {Scenario: Pub, Target: f, Acks: "all"},
		"size is -2; give a number from 0 to 15728640":                                {Scenario: Pub, Target: f, Size: -2},
		"batch is 65537; give a number from 1 to 65536":                               {Scenario: Pub, Target: f, Batch: 65537},
		"batches of 64 records of 1000000 bytes do not fit into a frame":              {Scenario: Pub, Target: f, Batch: 64, Size: 1_000_000},
		`stream "orders" is used as it is, and shards or durability are given`:        {Scenario: Pub, Target: f, Stream: "orders", Shards: 4},
		"shards is 2000; give a number from 1 to 1024":                                {Scenario: Pub, Target: f, Shards: 2000},
		`durability "disk" is none of memory, on_commit, periodic, none`:              {Scenario: Pub, Target: f, Durability: "disk"},
		"scenario pub has no subscribers, and 1 are given":                            {Scenario: Pub, Target: f, Subscribers: 1},
		"slow is 2 of 2 subscribers; leave at least one that reads":                   {Scenario: E2E, Target: f, Subscribers: 2, Slow: 2},
		"duration is -1s; give 10 ms to 24h0m0s":                                      {Scenario: Pub, Target: f, Duration: -time.Second},
		"warmup is -2s; give 0 to 24h0m0s":                                            {Scenario: Pub, Target: f, Warmup: -2 * time.Second},
		"runs is 101; give a number from 1 to 100":                                    {Scenario: Pub, Target: f, Runs: 101},
		"acks none at this rate sends 3 MB, and buffers on the way hold 1074 MB":      {Scenario: Pub, Target: big, Acks: AcksNone, Rate: 1000},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	// Every problem is named.
	if err := (Config{Scenario: Pub, Target: f, Batch: -1, Runs: -1}).Validate(); strings.Count(err.Error(), "\n") != 1 {
		t.Error(err)
	}
}
