package wire

// Routing maps the hash of a key to a shard. It belongs to the stream; clients and broker must agree on it.
type Routing uint8

const (
	RoutingModulo   Routing = iota // the default; on the wire it is left out
	RoutingJumpHash                // moves few keys when the shard count grows
)

// String returns the name on the wire: "modulo" or "jump_hash".
func (r Routing) String() string {
	if r == RoutingJumpHash {
		return "jump_hash"
	}
	return "modulo"
}

// ParseRouting reads a name on the wire.
func ParseRouting(name string) (Routing, bool) {
	switch name {
	case "modulo":
		return RoutingModulo, true
	case "jump_hash":
		return RoutingJumpHash, true
	}
	return 0, false
}

// KeyHash returns the hash that routes a key: FNV-1a of its bytes, then a finalizer (FNV-1a alone spreads short keys badly over a
// modulo). An empty key has a hash like any other.
func KeyHash(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range key {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// ShardOf returns the shard of a key in a stream of shards shards. Without a key, or with less than two shards, it is shard 0. The jump
// hash takes about ln(shards) steps.
func ShardOf(routing Routing, key []byte, hasKey bool, shards uint32) uint32 {
	if !hasKey || shards < 2 {
		return 0
	}
	h := KeyHash(key)
	if routing == RoutingJumpHash {
		return jumpHash(h, shards)
	}
	return uint32(h % uint64(shards))
}

func jumpHash(h uint64, shards uint32) uint32 {
	b, j := int64(-1), int64(0)
	for j < int64(shards) {
		b = j
		h = h*2862933555777941757 + 1
		// The rounding of the quotient and of the product is part of the mapping: do not reorder. b+1 <= 2^32 and the quotient is at most
		// 2^31, so the product fits an int64.
		j = int64(float64(b+1) * (float64(1<<31) / float64((h>>33)+1)))
	}
	return uint32(b)
}
