package wire

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"
)

func TestShardRoutingVectors(t *testing.T) {
	var rows []struct {
		KeyHex   string            `json:"key_hex"`
		HashHex  string            `json:"hash_hex"`
		Modulo   map[string]uint32 `json:"modulo"`
		JumpHash map[string]uint32 `json:"jump_hash"`
	}
	if err := json.Unmarshal(mustRead(t, vectorDir+"/shard_routing.json"), &rows); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, row := range rows {
		key, err := hex.DecodeString(row.KeyHex)
		if err != nil {
			t.Fatal(err)
		}
		if got := strconv.FormatUint(KeyHash(key), 16); got != trimZeros(row.HashHex) {
			t.Errorf("KeyHash(%x) = %s, want %s", key, got, row.HashHex)
		}
		for routing, shards := range map[Routing]map[string]uint32{RoutingModulo: row.Modulo, RoutingJumpHash: row.JumpHash} {
			for n, want := range shards {
				count, err := strconv.ParseUint(n, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				if got := ShardOf(routing, key, true, uint32(count)); got != want {
					t.Errorf("ShardOf(%v, %x, %d shards) = %d, want %d", routing, key, count, got, want)
				}
				checked++
			}
		}
	}
	if len(rows) < 8 || checked < 150 {
		t.Errorf("%d keys and %d mappings checked", len(rows), checked)
	}
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

func TestShardOfEdges(t *testing.T) {
	key := []byte("order-42")
	for _, routing := range []Routing{RoutingModulo, RoutingJumpHash} {
		if got := ShardOf(routing, key, false, 8); got != 0 {
			t.Errorf("%v: without a key: %d", routing, got)
		}
		for _, shards := range []uint32{0, 1} {
			if got := ShardOf(routing, key, true, shards); got != 0 {
				t.Errorf("%v: %d shards: %d", routing, shards, got)
			}
		}
		if got := ShardOf(routing, nil, true, 1000); got == 0 {
			t.Errorf("%v: an empty key is treated as none", routing)
		}
		// The largest count must neither overflow nor leave the range.
		for i := range 1000 {
			if got := ShardOf(routing, []byte{byte(i), byte(i >> 8)}, true, 1<<32-1); got == 1<<32-1 {
				t.Errorf("%v: shard %d of 2^32-1", routing, got)
			}
		}
		if r, ok := ParseRouting(routing.String()); !ok || r != routing {
			t.Errorf("ParseRouting(%q) = %v, %v", routing.String(), r, ok)
		}
	}
	if _, ok := ParseRouting("ring"); ok {
		t.Error(`ParseRouting("ring") is accepted`)
	}
}
