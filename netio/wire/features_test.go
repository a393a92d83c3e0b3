package wire

import "testing"

func TestFeatureWords(t *testing.T) {
	f := FeaturesOf(0x80000001, 0xE)
	if f != FeatureTopology|FeatureSecondWord|FeatureStreamDeleted|FeaturePublishWidth|FeatureExplicitShard {
		t.Errorf("FeaturesOf with the marker: %#x", uint64(f))
	}
	if f.Low() != 0x80000001 || f.Hi() != 0xE {
		t.Errorf("words %#x %#x", f.Low(), f.Hi())
	}
	if f := FeaturesOf(1, 0xE); f != FeatureTopology {
		t.Errorf("a second word without the marker is not ignored: %#x", uint64(f))
	}
	if hi := (FeatureTopology | FeatureInspect).Hi(); hi != 0 {
		t.Errorf("Hi without the marker is %#x", hi)
	}
}

// What a single broker announces, from WIRE.md section 19.
func TestFeaturesFor(t *testing.T) {
	serves := FeatureTopology | FeatureStreamShards | FeatureIdempotentProducer | FeatureErrorCodes | FeatureUnsupported |
		FeatureSequenceReused | FeaturePublishPipeline | FeatureStreamPublishWindow | FeatureShardOwners | FeatureSubscribeQueue |
		FeatureStreamDeleted | FeaturePublishWidth | FeatureExplicitShard
	with := serves.For(FeaturesOf(0xFB77FFFF, 15))
	if with.Low() != 0xC006EA21 || with.Hi() != 0xE {
		t.Errorf("to a client with the marker: %#x %#x", with.Low(), with.Hi())
	}
	without := serves.For(FeaturesOf(0x7B77FFFF, 15))
	if without != 0x4006EA21 {
		t.Errorf("to a client without the marker: %#x", uint64(without))
	}
	if got := (serves | FeatureSecondWord).For(0); got != 0x4006EA21 {
		t.Errorf("the marker goes to a client without it: %#x", uint64(got))
	}
	if got := (FeatureTopology | FeatureSecondWord).For(FeatureSecondWord); got != FeatureTopology {
		t.Errorf("the marker goes out without a second word: %#x", uint64(got))
	}
}
