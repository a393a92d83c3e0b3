package wire

// Features are the requests, answers and behaviours that a peer serves (broker) or can read (client). The low 32 bits are the first
// word of the handshake, the high 32 bits the second (`_hi`).
type Features uint64

// The features of WIRE.md section 5. FeatureSecondWord is the marker in the first word that says that a second word follows.
const (
	FeatureTopology            Features = 0x1
	FeatureRedirect            Features = 0x2
	FeatureCacheDelete         Features = 0x4
	FeatureConsumerGroup       Features = 0x8
	FeatureGroupDeadLetters    Features = 0x10
	FeatureStreamShards        Features = 0x20
	FeatureCacheWatch          Features = 0x40
	FeatureCacheWatchRetained  Features = 0x80
	FeatureCounters            Features = 0x100
	FeatureIdempotentProducer  Features = 0x200
	FeatureCacheShards         Features = 0x400
	FeatureErrorCodes          Features = 0x800
	FeatureShardMoved          Features = 0x1000
	FeatureUnsupported         Features = 0x2000
	FeatureSequenceReused      Features = 0x4000
	FeaturePublishPipeline     Features = 0x8000
	FeatureAtomicCommit        Features = 0x1_0000
	FeatureStreamPublishWindow Features = 0x2_0000
	FeatureShardOwners         Features = 0x4_0000
	FeatureAckOnCommit         Features = 0x8_0000
	FeatureGroupConsumer       Features = 0x10_0000
	FeatureSubscriptionLagged  Features = 0x20_0000
	FeatureGroupSkipped        Features = 0x40_0000
	FeatureGroupPublisher      Features = 0x80_0000
	FeatureGroupAdmin          Features = 0x100_0000
	FeatureCacheConditional    Features = 0x200_0000
	FeatureRecordTimestamps    Features = 0x400_0000
	FeatureGroupClaimControl   Features = 0x800_0000
	FeaturePublishConditional  Features = 0x1000_0000
	FeatureStreamRead          Features = 0x2000_0000
	FeatureSubscribeQueue      Features = 0x4000_0000
	FeatureSecondWord          Features = 0x8000_0000
	FeatureInspect             Features = 0x1 << 32
	FeatureStreamDeleted       Features = 0x2 << 32
	FeaturePublishWidth        Features = 0x4 << 32
	FeatureExplicitShard       Features = 0x8 << 32
)

// FeaturesOf joins the two words of a handshake. The second one is ignored when the first one lacks the marker.
func FeaturesOf(low, hi uint32) Features {
	f := Features(low)
	if f.Has(FeatureSecondWord) {
		f |= Features(hi) << 32
	}
	return f
}

// Has reports whether all bits of want are set.
func (f Features) Has(want Features) bool { return f&want == want }

// Low returns the first word.
func (f Features) Low() uint32 { return uint32(f) }

// Hi returns the second word, 0 without the marker.
func (f Features) Hi() uint32 {
	if !f.Has(FeatureSecondWord) {
		return 0
	}
	return uint32(f >> 32)
}

// For returns what a broker that serves f announces to a client that offered client: the second word goes only to a client that set the
// marker, and the marker only with a second word that is not 0. Whether f has the marker does not matter.
func (f Features) For(client Features) Features {
	if client.Has(FeatureSecondWord) && f>>32 != 0 {
		return f | FeatureSecondWord
	}
	return f & (1<<32 - 1) &^ FeatureSecondWord
}
